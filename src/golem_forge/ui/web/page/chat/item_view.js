/* One item of the conversation as an element: who speaks and how deep it stands, around what it is.

   `itemView(item, ctx)` gives `{node, update, focus?}`; the replay shows the same views. A view that cannot be drawn
   says so and leaves the others standing. */

import { approvalCard } from "../cards/approval_card.js";
import { turnChanges } from "../cards/changes.js";
import { diffView } from "../cards/diff.js";
import { formCard } from "../cards/form_card.js";
import { saidLine, toolCard } from "../cards/tool_card.js";
import { commandView, speechView } from "./speech.js";
import { el, h, replace, say, text } from "../dom.js";
import { usage, wholeNumber } from "../format.js";

/* At the level `debug`: the events behind an item, fetched whole when somebody opens them. */
const rawEvents = (item, ctx) => {
  let now = item;
  const shown = h("pre.raw", { tabindex: "0" });
  const title = el("summary", "events");
  const load = async () => {
    const events = [];
    for (const seq of now.seqs) {
      const answer = await ctx.api.get(ctx.api.path`/api/sessions/${ctx.session.id}/events/${seq}`)
        .catch((failure) => failure.problem);
      events.push(typeof answer === "string" ? answer : JSON.stringify(answer.event ?? answer, null, 2));
    }
    replace(shown, text(events.join("\n")));
  };
  const node = h("details.raw-events", { on: { toggle: () => node.hasAttribute("open") && load() } }, title, shown);
  return {
    node,
    update: (changed) => {
      now = changed;
    },
  };
};

/* Lines beside the conversation: statuses, notices, the end of a session. Compact, and in words rather than in
   colour. */
const LONG = 400;
const WORDS = { error: "Error", warning: "Warning" };

const statusView = (item) => {
  const word = item.code === "command" ? "" : (WORDS[item.type] ?? "");
  const long = item.text.includes("\n") || item.text.length > LONG;
  return {
    node: h("div.line.status", { dataset: { type: item.type, code: item.code } },
      word ? el("strong", word) : null,
      h(long ? "pre" : "p", long ? { tabindex: "0" } : null, item.text),
    ),
    update: () => {},
  };
};

const endedView = (item) => {
  const words = {
    completed: "Session completed",
    interrupted: "Session interrupted",
    error: "Session ended with an error",
  };
  const told = words[item.reason] ?? "Session ended";
  return {
    node: h("div.line.ended", { dataset: { reason: item.reason } },
      el("p", told, item.text ? `: ${item.text}` : ""),
      item.used ? el("p.dim", usage(item.used)) : null,
    ),
    update: () => {},
  };
};

const noticeView = (item) => {
  const node = h("div.line.notice", { dataset: { type: item.type } });
  const update = (now) => {
    const make = Object.hasOwn(NOTICES, now.type) ? NOTICES[now.type] : () => [];
    replace(node, ...make(now.data ?? {}, now));
  };
  update(item);
  return { node, update };
};

const row = (...children) => el("p", ...children);
const list = (value) => (Array.isArray(value) ? value.slice(0, 50) : []);
const named = (one) => one && typeof one === "object" ? (one.name ?? one.message ?? JSON.stringify(one)) : String(one);
const MARKS = { pending: "○", running: "●", complete: "✓", error: "✗" };

/** @type {Record<string, (data: any, item: any) => any[]>} */
const NOTICES = {
  sessionStarted: (data) => {
    const zones = list(data.zones).map((zone) => `/${zone?.name} ${zone?.mode}`).join(", ");
    const parts = [
      `${data.worker} on ${data.model || "no model"}`,
      `approval ${data.approvalMode}`,
      zones ? `zones ${zones}` : "no zones",
    ];
    return [row([...parts, ...(data.resumed ? ["resumed"] : [])].join(" · "))];
  },
  planUpdated: (data) => {
    const steps = list(data.plan);
    const done = steps.filter((one) => one?.status === "completed").length;
    const now = steps.find((one) => one?.status === "in_progress");
    return [row(el("strong", `Plan ${done}/${steps.length}`), now ? ` ${now.step}` : "")];
  },
  workerUpdate: (data) => {
    const mark = MARKS[data.status] ?? "·";
    const node = row(
      h("span.mark", { dataset: { status: data.status }, "aria-hidden": "true" }, mark),
      el("span.unseen", `${data.status}: `),
      el("strong", data.name),
      data.task ? ` ${data.task}` : "",
    );
    if (data.model) node.append(el("span.dim", ` (${data.model})`));
    return [node];
  },
  contextCompacted: ({ before, after }) => [
    row(`Context compacted: ${wholeNumber(before)} → ${wholeNumber(after)} tokens`),
  ],
  contextUsage: (data) => [
    row(
      data.exceeded ? el("strong", "Warning ") : null,
      `context: ${wholeNumber(data.tokensUsed)} of ${wholeNumber(data.tokenLimit)} tokens`,
    ),
  ],
  usageUpdated: (data) => [row(`usage: ${usage(data)}`)],
  catalogChanged: (data) => [
    ...["added", "changed", "removed"].filter((word) => list(data[word]).length)
      .map((word) => row(`Tools ${word}: ${list(data[word]).map(named).join(", ")}`)),
    ...list(data.diagnostics).map((one) => row(el("strong", "Warning "), named(one))),
  ],
  mcpStatus: (data) => [
    row(
      data.error ? el("strong", "Warning ") : null,
      `server ${data.server}: ${data.state}`,
      data.error ? `: ${data.error}` : "",
    ),
  ],
  toolSuggested: (data) => [
    row(`Seen ${data.occurrences} times: ${list(data.sequence).map(named).join(" → ")}; it could be one tool`),
  ],
  wallsReport: (data) => {
    const none = data.level === "none" || data.level === "off";
    const parts = [
      `walls: ${data.level}`,
      list(data.missing).length ? `without ${list(data.missing).join(", ")}` : "",
      data.cause ?? "",
      data.fix ?? "",
    ];
    return [row(none ? el("strong", "Warning ") : null, parts.filter(Boolean).join("; "))];
  },
  credentialUsed: (data) => [row(`used ${data.variable}: ${data.method} ${data.host}${data.path}`)],
  hookRan: (data) => [row(saidLine("hookRan", data))],
  reviewed: (data) => [row(saidLine("reviewed", data))],
  rewound: (data) => {
    const what = [data.conversation ? "conversation" : "", data.files ? "files" : ""].filter(Boolean).join(" and ");
    return [row(el("strong", `Rewound to message ${data.turn}`), `${what}: ${data.message}`)];
  },
  diffSummary: (data) => [
    h("ul", { role: "list" },
      ...list(data.summaries).map((one) => el("li", el("code", one?.path), ` ${one?.operation}`, counts(one))),
    ),
  ],
  diffContent: (data, item) => [
    row(el("code", data.path)),
    typeof item.view?.diff === "string" ? diffView(item.view.diff) : null,
  ],
};

const counts = (one) => (one?.additions >= 0 && one?.deletions >= 0 ? ` +${one.additions} −${one.deletions}` : "");

/** @typedef {{node: Node, update: (item: any) => void, focus?: () => void}} Inner */

/** @type {Record<string, (item: any, ctx: any) => Inner>} */
const VIEWS = {
  message: speechView,
  stream: speechView,
  command: commandView,
  call: toolCard,
  changes: turnChanges,
  question: (item, ctx) => (item.asks === "form" ? formCard : approvalCard)(item, ctx),
  status: statusView,
  notice: noticeView,
  ended: endedView,
};

/** @returns {{node: HTMLElement, update: (item: any) => void, focus?: () => void}} */
export const itemView = (item, ctx) => {
  const inner = drawn(item, ctx);
  const tag = h("p.tag", { hidden: true });
  const raw = ctx.level() === "debug" ? rawEvents(item, ctx) : null;
  const node = h("li", { class: `item item-${item.kind}`, dataset: { key: item.key } }, tag, inner.node, raw?.node);
  const dress = (now) => {
    const name = ctx.store.workerName(now.worker);
    tag.hidden = !name || now.kind === "notice";
    if (name) say(tag, name);
    node.dataset.voice = tag.hidden ? `${now.kind}:` : name;
    node.dataset.kind = now.kind;
    if (now.role) node.dataset.role = now.role;
    node.dataset.depth = String(Math.min(ctx.store.workerDepth(now.worker) + (now.depth ?? 0), 6));
    node.classList.toggle("waits", now.kind === "question" && !now.resolved);
  };
  dress(item);
  return {
    node,
    update: (now) => {
      guarded(inner, now);
      dress(now);
      raw?.update(now);
    },
    focus: inner.focus ? () => inner.focus?.() : undefined,
  };
};

/** @returns {Inner} */
const drawn = (item, ctx) => {
  try {
    return VIEWS[item.kind](item, ctx);
  } catch (failure) {
    console.error(failure);
    return { node: broken(), update: () => {} };
  }
};

const guarded = (inner, item) => {
  try {
    inner.update(item);
  } catch (failure) {
    console.error(failure);
    if (inner.node instanceof HTMLElement) replace(inner.node, broken());
  }
};

const broken = () => el("p.broken", "This could not be drawn. The event itself is in the journal.");
