/* Literal text: what will be used, character by character, with a bar before each line.

   Over 40 lines the first and the last 20 stand there, with the number between and a button for all: an end that is
   not shown is where a trick would hide. A wrapped line hangs deeper than a line begins, so no text can look like a
   line of its own. `whole` fetches the text where the server has shortened it. */

import { h, replace } from "../dom.js";
import { counted } from "./plain.js";

const MOST_LINES = 40;
const LONGEST_LINE = 20_000;
/** More lines than this are one block of text: an element a line would make the page slow. */
const MOST_ELEMENTS = 2000;

/** Text as the lines it has; a line end at its end begins no further line. @param {string} text */
export const linesOf = (text) => {
  const rows = text.split("\n");
  if (rows.length > 1 && rows.at(-1) === "") rows.pop();
  return text ? rows : [];
};

/** @param {string} row */
const lineNode = (row) => h("span", { class: "literal-line" }, `${row}\n`);

/** @param {string[]} rows */
const linesNode = (rows) =>
  rows.length > MOST_ELEMENTS ? h("span", { class: "literal-line" }, rows.join("\n")) : rows.map(lineNode);

/** @param {string} words @param {Ask} ask */
const between = (words, { click, isWhole }) =>
  h(
    "span",
    { class: "literal-between" },
    `… ${isWhole ? "" : "at least "}${words} between … `,
    h("button", { type: "button", class: "link", on: { click } }, "Show all"),
  );

/** @typedef {{click: () => void, isWhole: boolean}} Ask for all; whether what is here is all there is */

/** A long line as its beginning and its end. @param {string} row @param {Ask} ask */
const longLine = (row, ask) => {
  const half = LONGEST_LINE / 2;
  return [
    lineNode(row.slice(0, half)),
    between(counted(row.length - LONGEST_LINE, "character"), ask),
    lineNode(row.slice(-half)),
  ];
};

/** @param {string[]} rows @param {Ask} ask */
const excerpt = (rows, ask) => {
  const half = MOST_LINES / 2;
  const some = (/** @type {string[]} */ part) =>
    part.map((row) => (row.length > LONGEST_LINE ? longLine(row, ask) : lineNode(row)));
  if (rows.length <= MOST_LINES) return some(rows);
  return [some(rows.slice(0, half)), between(counted(rows.length - MOST_LINES, "line"), ask), some(rows.slice(-half))];
};

/**
 * @param {string} text
 * @param {{label?: string, whole?: (() => Promise<string>) | null, class?: string}} [about]
 *   `label`: its name for a screen reader
 * @returns {HTMLElement}
 */
export const literal = (text, { label, whole = null, class: look = "" } = {}) => {
  const node = h("pre", { class: `literal ${look}`.trim(), "aria-label": label, role: label ? "group" : null });
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const showAll = async () => {
    try {
      replace(node, linesNode(linesOf(whole ? await whole() : text)));
      shortened?.remove();
      node.tabIndex = -1;
      node.focus({ preventScroll: true });
    } catch (error) {
      problem.hidden = false;
      replace(problem, /** @type {any} */ (error)?.problem ?? "The whole text could not be loaded.");
    }
  };
  const shortened = whole
    ? h(
        "p",
        { class: "literal-cut" },
        "Shortened in the middle. ",
        h("button", { type: "button", class: "link", on: { click: () => showAll() } }, "Show all"),
      )
    : null;
  replace(node, excerpt(linesOf(text), { click: showAll, isWhole: !whole }));
  return shortened ? h("div", { class: "literal-whole" }, node, shortened, problem) : node;
};
