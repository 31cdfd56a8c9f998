/* One call of a tool, from its start to its result: a line that says what and how it went, and below it, when open,
   the arguments, the output as it comes, the result by its form, and why it was allowed.

   A call that went well is one line; one of the person, one whose tool says how to show it, and one that failed begin
   open. What the person opened or closed stays so. A name is what the catalog knows, a label what the
   tool's author chose: they are told apart. */

import { path } from "../api.js";
import { changesNode } from "./changes.js";
import { leftoversNode, linesIn, resultNode, resultWords } from "./results.js";
import { el, h, replace, say, text } from "../dom.js";
import { objects, oneLine, shortened, texts } from "../format.js";
import { isObject, own, pretty } from "../forms/arguments.js";
import { toolForm } from "../forms/tool_form.js";
import { disclosed, literal, scrollBox } from "../widgets.js";

/* Why a call ran or did not: its Decision in a few lines, folded away. */
/** `rule r-12: reads only (forge.yaml:7)` */
const sourceWords = (by) => {
  const label = `${oneLine(by.source ?? "")} ${oneLine(by.id ?? "")}`.trim();
  const place = by.file ? ` (${oneLine(by.file)}${by.line ? `:${oneLine(by.line)}` : ""})` : "";
  return `${label}${by.reason ? `: ${oneLine(by.reason)}` : ""}${place}`;
};

const rows = (said) => {
  const all = [
    ["verdict", said.verdict],
    ["decided by", said.decidedBy ? sourceWords(said.decidedBy) : ""],
    ["answered by", said.answeredBy && said.answeredBy !== "nobody" ? said.answeredBy : ""],
    ["risk", [said.risk, ...texts(said.riskReasons)].filter(Boolean).join(" · ")],
    ["remembered", said.remembered],
    [
      "",
      [said.cached ? "an earlier answer was used" : "", said.edited ? "with changed arguments" : ""].filter(Boolean)
        .join(" · "),
    ],
    ["message", said.message],
    ["fingerprint", said.fingerprint],
  ];
  return all.filter(([, value]) => value).map(([name, value]) => [name, oneLine(value)]);
};

export const decisionList = (said) => {
  const voices = objects(said.sources).length > 1 ? objects(said.sources) : [];
  return el("dl.facts",
    rows(said).map(([name, value]) =>
      el("div", el("dt", name || "also"), h("dd", { class: name === "fingerprint" ? "mono" : null }, value)),
    ),
    voices.length > 0 &&
      el("div",
        el("dt", "voices"),
        el("dd", el("ul", voices.map((one) => el("li", `${oneLine(one.verdict)}: ${sourceWords(one)}`)))),
      ),
  );
};

const TITLES = { preApproved: "Why it ran without asking", blocked: "Why it was blocked" };

/** @param {any} said a Decision @param {{open: boolean}} about */
const decisionNode = (said, { open }) => {
  const ran = TITLES[said.verdict] ?? "Why Forge asked, and the answer";
  return disclosed(ran, () => decisionList(said), { open, class: "small" });
};

/* The output of a running call as it comes: the end of each stream, drawn once a frame, kept at its bottom while
   the person has not scrolled away from it. The store keeps the last 64 KiB; what was shown before and is the same
   stays untouched. */
const MOST_PIECES = 200;
const NEAR = 16;

/** CR LF is only another way to end a line. */
const lines = (raw) => raw.replace(/\r\n/g, "\n");

/** One stream: appends what is new, or begins anew. */
const streamNode = (name) => {
  const body = h("pre", { class: name === "stderr" ? "result-text stderr" : "result-text" });
  const node = h("div.stream", { hidden: true }, name === "stderr" ? el("p.stream-name", "stderr") : null, body);
  let shown = "";
  const set = (whole) => {
    if (whole === shown) return;
    node.hidden = !whole;
    if (shown && whole.startsWith(shown) && body.childNodes.length < MOST_PIECES)
      body.append(text(whole.slice(shown.length)));
    else body.replaceChildren(text(whole));
    shown = whole;
  };
  return { node, set };
};

const liveOutput = () => {
  const streams = { stdout: streamNode("stdout"), stderr: streamNode("stderr") };
  const node = scrollBox("Output so far", null, streams.stdout.node, streams.stderr.node);
  node.classList.add("live-output");
  node.hidden = true;
  let wanted = null;
  const draw = () => {
    if (!wanted) return;
    const { stdout, stderr } = wanted;
    wanted = null;
    node.hidden = !stdout && !stderr;
    const atEnd = node.scrollHeight - node.scrollTop - node.clientHeight < NEAR;
    streams.stdout.set(lines(stdout));
    streams.stderr.set(lines(stderr));
    if (atEnd) node.scrollTop = node.scrollHeight;
  };
  return {
    node,
    /** @param {{stdout: string, stderr: string}} output */
    update: (output) => {
      if (!output || (!output.stdout && !output.stderr && node.hidden)) return;
      if (!wanted) requestAnimationFrame(draw);
      wanted = { stdout: output.stdout ?? "", stderr: output.stderr ?? "" };
    },
  };
};

/* What hooks and a reviewer said of a call, a line each. */
const SAID = {
  hookRan: (data) => `hook ${data.hook}: ${data.line}`,
  reviewed: (data) => `reviewer ${data.reviewer}: ${data.answer}${data.reason ? ` (${data.reason})` : ""}`,
};

/** @param {string} type @param {any} data of the event */
export const saidLine = (type, data) => [
  data.status === "failed" ? el("strong", "Warning ") : null,
  oneLine(SAID[type](data)),
];

const saidNode = (said) =>
  h("ul", { "aria-label": "Said about this call", role: "list" },
    said.map(({ type, data }) => el("li", saidLine(type, data))),
  );

const SHORT = 12;
const LONGEST_SUMMARY = 300;
const STATES = {
  running: { mark: "●", said: "running" },
  ok: { mark: "✓", said: "succeeded" },
  fail: { mark: "✗", said: "failed" },
  denied: { mark: "✗", said: "not run" },
  lost: { mark: "○", said: "ended without a result" },
};
let counted = 0;

const stateOf = (item) => {
  if (!item.result) return item.lost ? "lost" : "running";
  const { status } = item.result.event.data;
  return status === "success" ? "ok" : status === "approval_denied" || status === "skipped" ? "denied" : "fail";
};

/** Whether there is something to look at that a person would want to see at once. */
const wantsOpen = (item) => {
  const state = stateOf(item);
  if (state === "running") return Boolean(item.output?.stdout || item.output?.stderr || item.progress);
  if (state !== "ok") return state === "fail";
  // One line a call; what the person asked for themselves, and what its tool wants to be seen, stays.
  const view = item.result.view ?? {};
  const lines = linesIn(view);
  if (view.collapsed || view.form === "hidden") return false;
  if (view.form === "image") return true;
  return (item.caller === "human" || view.hinted === true) && lines > 0 && lines <= SHORT;
};

/** @returns {{node: HTMLElement, update: (item: any) => void}} */
export const toolCard = (item, ctx) => {
  const id = `call-${++counted}`;
  const mark = el("span.tool-mark");
  const name = el("span.tool-name", oneLine(item.name));
  const about = el("span.tool-about");
  const took = el("span.tool-took");
  const body = h("div.tool-body", { id, hidden: true });
  const left = h("div.tool-left", { hidden: true });
  const told = h("div.tool-told", { hidden: true });
  const button = h("button.tool-head", { "aria-expanded": "false", "aria-controls": id },
    mark,
    name,
    tags(item),
    about,
    took,
  );
  const node = h("article.tool-card", { "aria-label": `Tool call ${oneLine(item.name)}` },
    el("h3.tool-title", button),
    told,
    left,
    body,
  );
  const output = liveOutput();
  const progress = progressNode();
  const result = el("div.tool-result");
  const changed = el("div.tool-changes");
  let touched = false;
  let built = false;
  let drawn = null;
  let drawnChanges = null;

  const open = (wanted) => {
    button.setAttribute("aria-expanded", String(wanted));
    body.hidden = !wanted;
    if (wanted && !built) build();
  };
  const build = () => {
    built = true;
    replace(body, argumentsNode(item, ctx), progress.node, output.node, result, changed);
    fill();
  };
  const fill = () => {
    if (!built) return;
    if (item.changed && drawnChanges !== item.changed) {
      drawnChanges = item.changed;
      replace(changed, changesNode([item.changed], { call: item.changed.call }, "this call", ctx));
    }
    progress.update(item.result || item.lost ? null : item.progress);
    if (!item.result) return output.update(item.output);
    if (drawn === item.result) return;
    drawn = item.result;
    const { data } = drawn.event;
    const shown = resultNode(drawn, ctx);
    const spoke = item.output?.stdout || item.output?.stderr;
    if (spoke && linesIn(drawn.view) === 0) output.update(item.output);
    else output.node.remove();
    replace(result,
      data.status === "success" ? null : el("p.problem", resultWords(drawn)),
      shown,
      el("div.tool-foot",
        data.decision ? decisionNode(data.decision, { open: ctx.level?.() === "debug" }) : null,
        keep(item, ctx),
        again(item, ctx),
      ),
    );
  };
  const update = (now) => {
    item = now;
    const state = stateOf(item);
    node.dataset.state = state;
    replace(mark,
      h("span", { "aria-hidden": "true" }, STATES[state].mark),
      el("span.unseen", `${STATES[state].said}: `),
    );
    const words = aboutWords(item, state === "denied" && ctx.store?.questionOf?.(item));
    say(about, words);
    about.title = words;
    say(took, item.result?.view?.took ?? "");
    told.hidden = !item.said?.length;
    replace(told, item.said?.length ? saidNode(item.said) : null);
    const found = item.result ? leftoversNode(item.result) : null;
    left.hidden = !found;
    replace(left, found);
    const wanted = wantsOpen(item);
    if (!touched && button.getAttribute("aria-expanded") !== String(wanted)) open(wanted);
    fill();
  };
  button.addEventListener("click", () => {
    touched = true;
    open(body.hidden);
  });
  update(item);
  return { node, update };
};

/** What it is about, and how it went. @param {any} denied the question, where a person did */
const aboutWords = (item, denied) => {
  const went = item.result && !denied ? shortened(resultWords(item.result), LONGEST_SUMMARY) : "";
  const subject = oneLine(item.result?.view?.subject ?? item.subject ?? "");
  return [subject, went.startsWith("(") && subject ? "" : went].filter(Boolean).join(" · ");
};

const tags = (item) => {
  const label = oneLine(item.label ?? "");
  return [
    label && label !== item.name && !item.subject ? el("span.tool-label", `“${label}”`) : null,
    item.caller && item.caller !== "llm"
      ? el("span.pill", item.caller === "human" ? "by you" : `by ${oneLine(item.caller)}`)
      : null,
  ];
};

/** What was said, first; what only stands as the tool's own defaults is there on request. */
const argumentsNode = (item, ctx) => {
  if (item.args === null || item.args === undefined || (isObject(item.args) && !Object.keys(item.args).length))
    return null;
  const whole = item.argsCut ? async () => pretty((await wholeArguments(item, ctx)) ?? item.args) : null;
  const all = () =>
    literal(typeof item.args === "string" ? item.args : pretty(item.args), { label: "Arguments", whole });
  if (item.result?.view?.form === "diff") {
    // the change itself stands below, as it was made
    return el("div.tool-arguments", disclosed("All arguments", all, { class: "small" }));
  }
  const said = item.argsCut ? null : withoutDefaults(item, ctx);
  if (!said) return el("div.tool-arguments", all());
  const [[name, value], ...more] = said;
  return el("div.tool-arguments",
    !more.length && typeof value === "string"
      ? literal(value, { label: `Argument ${oneLine(name)}` })
      : literal(pretty(Object.fromEntries(said)), { label: "Arguments" }),
    disclosed("All arguments", all, { class: "small" }),
  );
};

/**
 * The arguments that differ from the defaults of the tool's form; null where that leaves nothing out, or nothing at all.
 * @returns {[string, any][] | null}
 */
const withoutDefaults = (item, ctx) => {
  const tool = (ctx.store?.standing?.tools ?? []).find((one) => one.name === item.name);
  if (!tool || !isObject(item.args)) return null;
  const usual = new Map(tool.fields.map((field) => [field.name, JSON.stringify(field.default ?? null)]));
  const names = Object.keys(item.args);
  const said = names.filter((name) => {
    const value = own(item.args, name);
    const empty = value === "" || (Array.isArray(value) && !value.length);
    return !(usual.has(name) && ((empty && usual.get(name) === "null") || usual.get(name) === JSON.stringify(value)));
  });
  if (!said.length || said.length === names.length) return null;
  return said.map((name) => [name, own(item.args, name)]);
};

const wholeArguments = async (item, ctx) =>
  (await ctx.api.get(path`/api/sessions/${ctx.session.id}/events/${item.seqs?.[0] ?? 0}`))?.event?.data?.args;

/** A bar that fills, or words alone where nobody knows how much is to come. */
const progressNode = () => {
  const bar = h("progress", { "aria-label": "Progress" });
  const said = el("span.dim");
  const node = h("div.tool-progress", { hidden: true }, bar, said);
  return {
    node,
    /** @param {{progress: number, total: number | null, message: string | null} | null | undefined} now */
    update: (now) => {
      node.hidden = !now;
      if (!now) return;
      if (typeof now.total === "number" && now.total > 0) {
        bar.max = now.total;
        bar.value = Math.min(Math.max(now.progress, 0), now.total);
      } else bar.removeAttribute("value");
      say(said,
        [
          typeof now.total === "number" ? `${now.progress}/${now.total}` : String(now.progress),
          oneLine(now.message ?? ""),
        ]
          .filter(Boolean)
          .join(" "),
      );
    },
  };
};

/** A program that worked may become a tool: the form of the tool that makes tools, with this run filled in. */
const keep = (item, ctx) => {
  const tools = ctx.store?.standing?.tools ?? [];
  const maker = item.name === "run_code" && !item.parent ? tools.find((one) => one.name === "create_custom_tool") : null;
  if (!maker || stateOf(item) !== "ok" || !ctx.session?.answerable || ctx.me?.team) return null;
  return disclosed("Keep as a tool", () => toolForm(maker, ctx, { from_run: item.id }), { class: "small" });
};

/** Only where a person may call the tool. */
const again = (item, ctx) => {
  const tool = (ctx.store?.standing?.tools ?? []).find((one) => one.name === item.name);
  if (!tool || !ctx.session?.answerable || ctx.me?.team) return null;
  const args = async () => withoutPlaceholders(item.argsCut ? await wholeArguments(item, ctx) : item.args);
  return disclosed("Run again with changes", async () => toolForm(tool, ctx, await args()), { class: "small" });
};

const PLACEHOLDER = /^\[(?:redacted \d+ chars|secret\b|unreadable \d+ chars)/;

/** Threat: `[redacted 8 chars …]` stands for a value; sent again it would be the value. */
const withoutPlaceholders = (args) =>
  isObject(args)
    ? Object.fromEntries(
        Object.keys(args).filter((name) => !holdsPlaceholder(own(args, name))).map((name) => [name, own(args, name)]),
      )
    : {};

const holdsPlaceholder = (value) => {
  if (typeof value === "string") return PLACEHOLDER.test(value);
  return value !== null && typeof value === "object" && Object.values(value).some(holdsPlaceholder);
};
