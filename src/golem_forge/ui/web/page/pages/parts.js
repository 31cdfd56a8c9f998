/* What the pages beside the conversation are built of: the sheet, its sections, tables that become cards on a phone, and
   the words for nothing, for waiting and for a refusal. Everything foreign goes in as text. */

import { h, replace } from "../dom.js";

let counted = 0;

/** A page's frame. @param {string} title @param {any} beside what stands in the line of the title @param {...any} children */
export const sheet = (title, beside, ...children) =>
  h(
    "div",
    { class: "sheet" },
    h("header", { class: "sheet-head" }, h("h2", { class: "sheet-title", tabindex: "-1" }, title), beside),
    children,
  );

/** A section under a heading that links can point to. @param {string} title @param {...any} children */
export const section = (title, ...children) => {
  const heading = h("h3", { class: "part-title", id: `part-${++counted}`, tabindex: "-1" }, title);
  return h("section", { class: "part", "aria-labelledby": heading.id }, heading, children);
};

/** @param {string} words */
export const nothing = (words) => h("p", { class: "nothing" }, words);

export const loading = () => h("p", { class: "nothing", "aria-busy": "true" }, "Loading…");

/** @param {any} failure @param {string} [otherwise] */
export const problem = (failure, otherwise = "This could not be loaded.") =>
  h("p", { class: "problem", role: "alert" }, problemWords(failure, otherwise));

/** @param {any} failure @param {string} [otherwise] */
export const problemWords = (failure, otherwise = "It could not be done.") => {
  if (typeof failure?.problem !== "string") console.error(failure);
  const fields = Object.entries(failure?.fields ?? {}).map(([name, words]) => `${name}: ${words}`);
  return [failure?.problem || otherwise, ...fields].join("\n");
};

/** `{Name: value}` as a list; what is empty is left out. @param {Record<string, any>} facts */
export const factList = (facts) => {
  const rows = Object.entries(facts).filter(
    ([, value]) => value !== null && value !== undefined && value !== "" && value !== false,
  );
  return h(
    "dl",
    { class: "facts page-facts" },
    rows.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))),
  );
};

/**
 * A table; on a narrow screen each row is a card whose lines carry the names of the columns. The roles stand in the markup,
 * because a browser forgets them of a table that is laid out otherwise.
 * @param {string} label @param {string[]} columns @param {{cells: any[], dataset?: Record<string, string>}[]} rows the first cell heads its row
 */
export const dataTable = (label, columns, rows) =>
  h(
    "table",
    { class: "data", role: "table", "aria-label": label },
    h(
      "thead",
      { role: "rowgroup" },
      h(
        "tr",
        { role: "row" },
        columns.map((name) =>
          h("th", { role: "columnheader", scope: "col" }, name || h("span", { class: "unseen" }, "What to do")),
        ),
      ),
    ),
    h(
      "tbody",
      { role: "rowgroup" },
      rows.map(({ cells, dataset }) =>
        h(
          "tr",
          { role: "row", dataset },
          cells.map((cell, at) => cellOf(cell, columns[at], at === 0)),
        ),
      ),
    ),
  );

/** @param {any} cell @param {string} name @param {boolean} heads */
const cellOf = (cell, name, heads) => {
  const empty = cell === null || cell === undefined || cell === "";
  const props = { dataset: { name, empty: String(empty) } };
  return heads
    ? h("th", { ...props, role: "rowheader", scope: "row" }, cell)
    : h("td", { ...props, role: "cell" }, cell);
};

/** @param {string} words @param {string} [how] `ok`, `warn`, `fail`, `info` */
export const pill = (words, how = "") => h("span", { class: "pill", dataset: { how } }, words);

/**
 * Draws again only what changed, so that nobody's focus or selection is lost to a redraw with the same facts.
 * @param {Element} place @param {any} facts @param {() => any} make
 */
export const redraw = (place, facts, make) => {
  const known = JSON.stringify(facts);
  if (drawnFacts.get(place) === known) return;
  drawnFacts.set(place, known);
  replace(place, make());
};
/** @type {WeakMap<Element, string>} */
const drawnFacts = new WeakMap();

/** Whether every word of the query stands in one of the texts. @param {string} query @param {...any} texts */
export const fits = (query, ...texts) => {
  const said = texts.join(" ").toLocaleLowerCase();
  return query
    .toLocaleLowerCase()
    .split(/\s+/)
    .every((word) => said.includes(word));
};

/** @param {string} label @param {(query: string) => void} changed */
export const searchBox = (label, changed) => {
  const input = /** @type {HTMLInputElement} */ (
    h("input", {
      type: "search",
      class: "search",
      "aria-label": label,
      placeholder: label,
      spellcheck: "false",
      autocomplete: "off",
    })
  );
  input.addEventListener("input", () => changed(input.value.trim()));
  return input;
};
