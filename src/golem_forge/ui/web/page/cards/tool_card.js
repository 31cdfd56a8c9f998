/* One call of a tool, from its start to its result: a line that says what and how it went, and below it, when open,
   the arguments, the output as it comes, the result by its form, and why it was allowed.

   Long results of calls that went well begin closed, failed ones open; what the person opened or closed stays so. A
   name is what the catalog knows, a label what the tool's author chose: they are told apart. */

import { path } from "../api.js";
import { h, replace, say } from "../dom.js";
import { pretty } from "../forms/exact_json.js";
import { toolForm } from "../forms/tool_form.js";
import { decisionNode } from "./decision.js";
import { literal } from "./literal.js";
import { liveOutput } from "./live_output.js";
import { isObject, own } from "../forms/arguments.js";
import { disclosed } from "./disclosure.js";
import { oneLine, shortArguments, shortened } from "./plain.js";
import { leftoversNode, linesIn, resultNode, resultWords } from "./results.js";

const SHORT = 12;
const LONGEST_SUMMARY = 300;
const STATES = {
  running: { mark: "●", said: "running" },
  ok: { mark: "✓", said: "succeeded" },
  fail: { mark: "✗", said: "failed" },
  lost: { mark: "○", said: "ended without a result" },
};
let counted = 0;

/** @param {any} item @returns {keyof typeof STATES} */
const stateOf = (item) => {
  if (!item.result) return item.lost ? "lost" : "running";
  return item.result.event.data.status === "success" ? "ok" : "fail";
};

/** Whether there is something to look at that a person would want to see at once. @param {any} item */
const wantsOpen = (item) => {
  const state = stateOf(item);
  if (state === "running") return Boolean(item.output?.stdout || item.output?.stderr || item.progress);
  if (state !== "ok") return state === "fail";
  const view = item.result.view ?? {};
  const lines = linesIn(view);
  return !view.collapsed && view.form !== "hidden" && (view.form === "image" || (lines > 0 && lines <= SHORT));
};

/** @param {any} item @param {any} ctx @returns {{node: HTMLElement, update: (item: any) => void}} */
export const toolCard = (item, ctx) => {
  const id = `call-${++counted}`;
  const mark = h("span", { class: "tool-mark" });
  const name = h("span", { class: "tool-name" }, oneLine(item.name));
  const about = h("span", { class: "tool-about" });
  const took = h("span", { class: "tool-took" });
  const body = h("div", { class: "tool-body", id, hidden: true });
  const left = h("div", { class: "tool-left", hidden: true });
  const button = h(
    "button",
    { type: "button", class: "tool-head", "aria-expanded": "false", "aria-controls": id },
    mark,
    name,
    tags(item),
    about,
    took,
  );
  const node = h(
    "article",
    { class: "tool-card", "aria-label": `Tool call ${oneLine(item.name)}` },
    h("h3", { class: "tool-title" }, button),
    left,
    body,
  );
  const output = liveOutput();
  const progress = progressNode();
  const result = h("div", { class: "tool-result" });
  let touched = false;
  let built = false;
  /** @type {any} */
  let drawn = null;

  const open = (/** @type {boolean} */ wanted) => {
    button.setAttribute("aria-expanded", String(wanted));
    body.hidden = !wanted;
    if (wanted && !built) build();
  };
  const build = () => {
    built = true;
    replace(body, argumentsNode(item, ctx), progress.node, output.node, result);
    fill();
  };
  const fill = () => {
    if (!built) return;
    progress.update(item.result || item.lost ? null : item.progress);
    if (!item.result) return output.update(item.output);
    if (drawn === item.result) return;
    drawn = item.result;
    const { data } = drawn.event;
    const shown = resultNode(drawn, ctx);
    const spoke = item.output?.stdout || item.output?.stderr;
    if (spoke && linesIn(drawn.view) === 0) output.update(item.output);
    else output.node.remove();
    replace(
      result,
      data.status === "success" ? null : h("p", { class: "problem" }, resultWords(drawn)),
      shown,
      h(
        "div",
        { class: "tool-foot" },
        data.decision ? decisionNode(data.decision, { open: ctx.level?.() === "debug" }) : null,
        again(item, ctx),
      ),
    );
  };
  const update = (/** @type {any} */ now) => {
    item = now;
    const state = stateOf(item);
    node.dataset.state = state;
    replace(
      mark,
      h("span", { "aria-hidden": "true" }, STATES[state].mark),
      h("span", { class: "unseen" }, `${STATES[state].said}: `),
    );
    say(
      about,
      item.result
        ? shortened(resultWords(item.result), LONGEST_SUMMARY) || shortArguments(item.args)
        : shortArguments(item.args),
    );
    say(took, item.result?.view?.took ?? "");
    const found = item.result ? leftoversNode(item.result) : null;
    left.hidden = !found;
    replace(left, found);
    if (!touched && button.getAttribute("aria-expanded") !== String(wantsOpen(item))) open(wantsOpen(item));
    fill();
  };
  button.addEventListener("click", () => {
    touched = true;
    open(body.hidden);
  });
  update(item);
  return { node, update };
};

/** @param {any} item */
const tags = (item) => {
  const label = oneLine(item.label ?? "");
  return [
    label && label !== item.name ? h("span", { class: "tool-label" }, `“${label}”`) : null,
    item.caller && item.caller !== "llm"
      ? h("span", { class: "pill" }, item.caller === "human" ? "by you" : `by ${oneLine(item.caller)}`)
      : null,
  ];
};

/** What was said, first; what only stands as the tool's own defaults is there on request. @param {any} item @param {any} ctx */
const argumentsNode = (item, ctx) => {
  if (item.args === null || item.args === undefined || (isObject(item.args) && !Object.keys(item.args).length))
    return null;
  const whole = item.argsCut ? async () => pretty((await wholeArguments(item, ctx)) ?? item.args) : null;
  const all = () =>
    literal(typeof item.args === "string" ? item.args : pretty(item.args), { label: "Arguments", whole });
  if (item.result?.view?.form === "diff") {
    // the change itself stands below, as it was made
    return h("div", { class: "tool-arguments" }, disclosed("All arguments", all, { class: "small" }));
  }
  const said = item.argsCut ? null : withoutDefaults(item, ctx);
  if (!said) return h("div", { class: "tool-arguments" }, all());
  const [[name, value], ...more] = said;
  return h(
    "div",
    { class: "tool-arguments" },
    !more.length && typeof value === "string"
      ? literal(value, { label: `Argument ${oneLine(name)}` })
      : literal(pretty(Object.fromEntries(said)), { label: "Arguments" }),
    disclosed("All arguments", all, { class: "small" }),
  );
};

/**
 * The arguments that differ from the defaults of the tool's form; null where that leaves nothing out, or nothing at all.
 * @param {any} item @param {any} ctx @returns {[string, any][] | null}
 */
const withoutDefaults = (item, ctx) => {
  const tool = (ctx.store?.standing?.tools ?? []).find((/** @type {any} */ one) => one.name === item.name);
  if (!tool || !isObject(item.args)) return null;
  const usual = new Map(
    tool.fields.map((/** @type {any} */ field) => [field.name, JSON.stringify(field.default ?? null)]),
  );
  const names = Object.keys(item.args);
  const said = names.filter((name) => {
    const value = own(item.args, name);
    const empty = value === "" || (Array.isArray(value) && !value.length);
    return !(usual.has(name) && ((empty && usual.get(name) === "null") || usual.get(name) === JSON.stringify(value)));
  });
  if (!said.length || said.length === names.length) return null;
  return said.map((name) => [name, own(item.args, name)]);
};

/** @param {any} item @param {any} ctx */
const wholeArguments = async (item, ctx) =>
  (await ctx.api.get(path`/api/sessions/${ctx.session.id}/events/${item.seqs?.[0] ?? 0}`))?.event?.data?.args;

/** A bar that fills, or words alone where nobody knows how much is to come. */
const progressNode = () => {
  const bar = /** @type {HTMLProgressElement} */ (h("progress", { "aria-label": "Progress" }));
  const said = h("span", { class: "dim" });
  const node = h("div", { class: "tool-progress", hidden: true }, bar, said);
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
      say(
        said,
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

/** Only where a person may call the tool. @param {any} item @param {any} ctx */
const again = (item, ctx) => {
  const tool = (ctx.store?.standing?.tools ?? []).find((/** @type {any} */ one) => one.name === item.name);
  if (!tool || !ctx.session?.answerable) return null;
  const args = async () => withoutPlaceholders(item.argsCut ? await wholeArguments(item, ctx) : item.args);
  return disclosed("Run again with changes", async () => toolForm(tool, ctx, await args()), { class: "small" });
};

const PLACEHOLDER = /^\[(?:redacted \d+ chars|secret\b|unreadable \d+ chars)/;

/** Threat: `[redacted 8 chars …]` stands for a value; sent again it would be the value. @param {any} args */
const withoutPlaceholders = (args) =>
  isObject(args)
    ? Object.fromEntries(
        Object.keys(args)
          .filter((name) => !holdsPlaceholder(own(args, name)))
          .map((name) => [name, own(args, name)]),
      )
    : {};

/** @param {any} value @returns {boolean} */
const holdsPlaceholder = (value) => {
  if (typeof value === "string") return PLACEHOLDER.test(value);
  return value !== null && typeof value === "object" && Object.values(value).some(holdsPlaceholder);
};
