/* The tools a person may run, by category (`Other` last), each a form that unfolds. The person's own come first, and stand
   open where they are few; those of Forge and of servers, which are what workers use, are folded away below them.

   Threat: a category is the author's word. It groups tools of one kind of source, so none gets among Forge's own by it. */

import { el, h, replace } from "../dom.js";
import { oneLine, shortProse, words } from "../format.js";
import { toolForm } from "../forms/tool_form.js";
import { nothing, pill, searchable } from "./parts.js";
import { address } from "../router.js";
import { disclosure } from "../widgets.js";

const OTHER = "Other";
const FEW = 4;
const SOURCES = { native: "built in", custom: "own", mcp: "server" };

export const sourceWords = (source) => SOURCES[source] ?? oneLine(source);

/** Categories by name, `Other` last; the tools in each as they came. @returns {[string, any[]][]} */
const byCategory = (tools) => {
  const groups = new Map();
  for (const tool of tools) {
    const category = tool.category || OTHER;
    groups.set(category, [...(groups.get(category) ?? []), tool]);
  }
  return [...groups].sort(([one], [two]) => Number(one === OTHER) - Number(two === OTHER) || one.localeCompare(two));
};

export const manualTools = (ctx) => {
  const own = el("div.tool-groups");
  const others = el("div.tool-groups");
  const title = el("summary");
  const fold = h("details.fold", { hidden: true }, title, others);
  const cards = new Map();

  const cardOf = (tool, open) => {
    const facts = JSON.stringify(tool);
    const known = cards.get(tool.name);
    if (known?.facts === facts) return known.card;
    const card = toolCard(tool, ctx, open);
    cards.set(tool.name, { facts, card });
    return card;
  };
  const groups = (tools, open) =>
    byCategory(tools).map(([category, some]) =>
      h("section.tool-group", { "aria-label": oneLine(category) },
        el("h4.group-title", oneLine(category), el("span.count", some.length)),
        h("ul", { role: "list" }, some.map((tool) => el("li", cardOf(tool, open).node))),
      ),
    );
  const arrange = () => {
    const { all, query } = part;
    const shown = part.found();
    const theirs = shown.filter((tool) => tool.source !== "custom");
    const mine = shown.filter((tool) => tool.source === "custom");
    for (const name of cards.keys()) if (!all.some((tool) => tool.name === name)) cards.delete(name);
    replace(own, groups(mine, all.filter((tool) => tool.source === "custom").length <= FEW));
    replace(others, groups(theirs, false));
    replace(title, "Built-in tools and MCP tools", el("span.count", ` ${theirs.length}`));
    fold.hidden = !theirs.length;
    if (query || !mine.length) fold.open = true;
    own.hidden = !mine.length && theirs.length > 0;
    if (!shown.length)
      replace(own,
        nothing(
          query
            ? "No tool fits."
            : ctx.session.answerable
              ? "There is no tool that a person can run here."
              : "You can run tools only in a session that runs here.",
        ),
      );
    if (query && shown.length === 1) cards.get(shown[0].name)?.card.open();
  };
  const part = searchable(el("div.tool-groups", own, fold),
    (tool) => [tool.name, tool.label, tool.description, tool.category ?? OTHER, sourceWords(tool.source)],
    arrange,
  );
  return part;
};

const toolCard = (tool, ctx, open) => {
  const name = oneLine(tool.name);
  const label = oneLine(tool.label || tool.name);
  const words = el("span.run-words",
    el("strong", label),
    label === name ? null : el("code", name),
    el("span.run-about", shortProse(tool.description ?? "", 300)),
  );
  const form = disclosure(words,
    () =>
      el("div.run-form",
        toolForm(tool, ctx),
        el("p", h("a", { href: address("tools", ctx.session.id, tool.name) }, "About this tool")),
      ),
    { open, class: "run-head" },
  );
  const node = h("article.run", { "aria-label": label, dataset: { source: tool.source } },
    el("h5.run-title", form.button, pill(sourceWords(tool.source))),
    form.region,
  );
  return { node, open: () => form.set(true) };
};

/* Tools that nobody can call because something is wrong with them, each with its source and the reason. */
export const quarantineList = () => {
  const node = h("ul.rows", { role: "list" });
  const arrange = () =>
    replace(node,
      part.found().map((one) =>
        h("li.row-card", { dataset: { how: "fail" } },
          el("p.row-head",
            el("code.row-name", oneLine(one.name)),
            pill("quarantined", "fail"),
            pill(sourceWords(one.source)),
          ),
          el("p.row-why", words(one.reason)),
        ),
      ),
    );
  const part = searchable(node, (one) => [one.name, one.source, one.reason], arrange);
  return part;
};
