/* The tools a person may run, by category (`Other` last), each a form that unfolds. The person's own come first, and stand
   open where they are few; those of Forge and of servers, which are what workers use, are folded away below them.

   Threat: a category is the author's word. It groups tools of one kind of source, so none gets among Forge's own by it. */

import { h, replace } from "../dom.js";
import { toolForm } from "../forms/tool_form.js";
import { oneLine } from "../cards/plain.js";
import { disclosure } from "../cards/disclosure.js";
import { address } from "../router.js";
import { fits, nothing, pill } from "./parts.js";

const OTHER = "Other";
const FEW = 4;
const SOURCES = { native: "built in", custom: "own", mcp: "server" };

/** @param {string} source */
export const sourceWords = (source) => SOURCES[/** @type {keyof typeof SOURCES} */ (source)] ?? oneLine(source);

/** Categories by name, `Other` last; the tools in each as they came. @param {any[]} tools @returns {[string, any[]][]} */
export const byCategory = (tools) => {
  /** @type {Map<string, any[]>} */
  const groups = new Map();
  for (const tool of tools) {
    const category = tool.category || OTHER;
    groups.set(category, [...(groups.get(category) ?? []), tool]);
  }
  return [...groups].sort(([one], [two]) => Number(one === OTHER) - Number(two === OTHER) || one.localeCompare(two));
};

/** @param {any} ctx */
export const manualTools = (ctx) => {
  const own = h("div", { class: "tool-groups" });
  const others = h("div", { class: "tool-groups" });
  const title = h("summary", null);
  const fold = /** @type {HTMLDetailsElement} */ (h("details", { class: "fold", hidden: true }, title, others));
  const node = h("div", { class: "tool-groups" }, own, fold);
  /** @type {Map<string, {facts: string, card: ReturnType<typeof toolCard>}>} */
  const cards = new Map();
  /** @type {any[]} */
  let all = [];
  let query = "";

  const cardOf = (/** @type {any} */ tool, /** @type {boolean} */ open) => {
    const facts = JSON.stringify(tool);
    const known = cards.get(tool.name);
    if (known?.facts === facts) return known.card;
    const card = toolCard(tool, ctx, open);
    cards.set(tool.name, { facts, card });
    return card;
  };
  const found = () =>
    all.filter((tool) =>
      fits(query, tool.name, tool.label, tool.description, tool.category ?? OTHER, sourceWords(tool.source)),
    );
  const groups = (/** @type {any[]} */ tools, /** @type {boolean} */ open) =>
    byCategory(tools).map(([category, some]) =>
      h(
        "section",
        { class: "tool-group", "aria-label": oneLine(category) },
        h("h4", { class: "group-title" }, oneLine(category), h("span", { class: "count" }, some.length)),
        h(
          "ul",
          { role: "list" },
          some.map((tool) => h("li", null, cardOf(tool, open).node)),
        ),
      ),
    );
  const arrange = () => {
    const shown = found();
    const theirs = shown.filter((tool) => tool.source !== "custom");
    const mine = shown.filter((tool) => tool.source === "custom");
    for (const name of cards.keys()) if (!all.some((tool) => tool.name === name)) cards.delete(name);
    replace(own, groups(mine, all.filter((tool) => tool.source === "custom").length <= FEW));
    replace(others, groups(theirs, false));
    replace(title, "Tools of Forge and of servers", h("span", { class: "count" }, ` ${theirs.length}`));
    fold.hidden = !theirs.length;
    if (query || !mine.length) fold.open = true;
    own.hidden = !mine.length && theirs.length > 0;
    if (!shown.length)
      replace(
        own,
        nothing(
          query
            ? "No tool fits."
            : ctx.session.answerable
              ? "There is no tool that a person can run here."
              : "Tools can be run only in a session that runs here.",
        ),
      );
    if (query && shown.length === 1) cards.get(shown[0].name)?.card.open();
  };
  return {
    node,
    draw: (/** @type {any[]} */ tools) => {
      all = tools;
      arrange();
    },
    filter: (/** @type {string} */ words) => {
      query = words;
      arrange();
    },
    shown: () => found().length,
  };
};

/** @param {any} tool @param {any} ctx @param {boolean} open */
const toolCard = (tool, ctx, open) => {
  const name = oneLine(tool.name);
  const label = oneLine(tool.label || tool.name);
  const words = h(
    "span",
    { class: "run-words" },
    h("strong", null, label),
    label === name ? null : h("code", null, name),
    h("span", { class: "run-about" }, oneLine(tool.description ?? "").slice(0, 300)),
  );
  const form = disclosure(
    words,
    () =>
      h(
        "div",
        { class: "run-form" },
        toolForm(tool, ctx),
        h("p", null, h("a", { href: address("tools", ctx.session.id, tool.name) }, "About this tool")),
      ),
    { open, class: "run-head" },
  );
  const node = h(
    "article",
    { class: "run", "aria-label": label, dataset: { source: tool.source } },
    h("h5", { class: "run-title" }, form.button, pill(sourceWords(tool.source))),
    form.region,
  );
  return { node, open: () => form.set(true) };
};
