/* Lines beside the conversation: statuses, notices, the end of a session. Compact, and in words rather than in
   colour. */

import { diffView } from "../cards/diff.js";
import { h, replace } from "../dom.js";
import { counted, usage } from "../side/words.js";

const LONG = 400;
/** @type {Record<string, string>} */
const WORDS = { error: "Error", warning: "Warning" };

/** @param {any} item */
export const statusView = (item) => {
  const word = item.code === "command" ? "" : (WORDS[item.type] ?? "");
  const long = item.text.includes("\n") || item.text.length > LONG;
  return {
    node: h(
      "div",
      { class: "line status", dataset: { type: item.type, code: item.code } },
      word ? h("strong", null, word) : null,
      h(long ? "pre" : "p", long ? { tabindex: "0" } : null, item.text),
    ),
    update: () => {},
  };
};

/** @param {any} item */
export const endedView = (item) => {
  const words = {
    completed: "Session completed",
    interrupted: "Session interrupted",
    error: "Session ended with an error",
  };
  const told = words[/** @type {keyof typeof words} */ (item.reason)] ?? "Session ended";
  return {
    node: h(
      "div",
      { class: "line ended", dataset: { reason: item.reason } },
      h("p", null, told, item.text ? `: ${item.text}` : ""),
      item.used ? h("p", { class: "dim" }, usage(item.used)) : null,
    ),
    update: () => {},
  };
};

/** @param {any} item @param {any} ctx */
export const noticeView = (item, ctx) => {
  const node = h("div", { class: "line notice", dataset: { type: item.type } });
  /** @param {any} now */
  const update = (now) => {
    const make = Object.hasOwn(NOTICES, now.type) ? NOTICES[now.type] : () => [];
    replace(node, ...make(now.data ?? {}, now, ctx));
  };
  update(item);
  return { node, update };
};

/** @param {...any} children */
const row = (...children) => h("p", null, ...children);
/** @param {unknown} value @returns {any[]} */
const list = (value) => (Array.isArray(value) ? value.slice(0, 50) : []);
/** @param {any} one */
const named = (one) =>
  one && typeof one === "object" ? (one.name ?? one.message ?? JSON.stringify(one)) : String(one);
const MARKS = { pending: "○", running: "●", complete: "✓", error: "✗" };

/** @type {Record<string, (data: any, item: any, ctx: any) => any[]>} */
const NOTICES = {
  sessionStarted: (data) => {
    const zones = list(data.zones)
      .map((zone) => `/${zone?.name} ${zone?.mode}`)
      .join(", ");
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
    return [row(h("strong", null, `Plan ${done}/${steps.length}`), now ? ` ${now.step}` : "")];
  },
  workerUpdate: (data) => {
    const mark = MARKS[/** @type {keyof typeof MARKS} */ (data.status)] ?? "·";
    const node = row(
      h("span", { class: "mark", dataset: { status: data.status }, "aria-hidden": "true" }, mark),
      h("span", { class: "unseen" }, `${data.status}: `),
      h("strong", null, data.name),
      data.task ? ` ${data.task}` : "",
    );
    if (data.model) node.append(h("span", { class: "dim" }, ` (${data.model})`));
    return [node];
  },
  contextCompacted: (data) => [row(`Context compacted: ${counted(data.before)} → ${counted(data.after)} tokens`)],
  contextUsage: (data) => [
    row(
      data.exceeded ? h("strong", null, "Warning ") : null,
      `context: ${counted(data.tokensUsed)} of ${counted(data.tokenLimit)} tokens`,
    ),
  ],
  usageUpdated: (data) => [row(`usage: ${usage(data)}`)],
  catalogChanged: (data) => [
    ...["added", "changed", "removed"]
      .filter((word) => list(data[word]).length)
      .map((word) => row(`Tools ${word}: ${list(data[word]).map(named).join(", ")}`)),
    ...list(data.diagnostics).map((one) => row(h("strong", null, "Warning "), named(one))),
  ],
  mcpStatus: (data) => [
    row(
      data.error ? h("strong", null, "Warning ") : null,
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
    return [row(none ? h("strong", null, "Warning ") : null, parts.filter(Boolean).join("; "))];
  },
  diffSummary: (data) => [
    h(
      "ul",
      { role: "list" },
      ...list(data.summaries).map((one) =>
        h("li", null, h("code", null, one?.path), ` ${one?.operation}`, counts(one)),
      ),
    ),
  ],
  diffContent: (data, item, ctx) => [
    row(h("code", null, data.path)),
    typeof item.view?.diff === "string" ? diffView(item.view.diff, ctx) : null,
  ],
};

/** @param {any} one */
const counts = (one) => (one?.additions >= 0 && one?.deletions >= 0 ? ` +${one.additions} −${one.deletions}` : "");
