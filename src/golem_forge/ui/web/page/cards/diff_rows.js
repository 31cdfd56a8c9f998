/* The rows of a diff as a table: inline, one line below the other, or side by side. A change is told by its mark,
   not by its colour alone; within a changed line the words that differ stand out. */

import { h } from "../dom.js";
import { changedPart } from "./diff_parse.js";

/** @typedef {import("./diff_parse.js").Row} Row */
/** @typedef {{gone: Row[], come: Row[], parts: (number[] | null)[]}} Change */

const MARKS = { add: "+", del: "−", same: "\u00a0" };

/**
 * Removed lines and the added ones that follow them stand for each other; other rows alone.
 * @param {Row[]} rows @returns {(Row | Change)[]}
 */
const grouped = (rows) => {
  /** @type {(Row | Change)[]} */
  const found = [];
  for (let at = 0; at < rows.length;) {
    if (rows[at].kind !== "del" && rows[at].kind !== "add") {
      found.push(rows[at]);
      at += 1;
      continue;
    }
    const gone = run(rows, at, "del");
    const come = run(rows, at + gone.length, "add");
    const parts = gone.slice(0, come.length).map((row, pair) => changedPart(row.text, come[pair].text));
    found.push({ gone, come, parts });
    at += gone.length + come.length;
  }
  return found;
};

/** @param {Row[]} rows @param {number} from @param {string} kind */
const run = (rows, from, kind) => {
  let to = from;
  while (to < rows.length && rows[to].kind === kind) to += 1;
  return rows.slice(from, to);
};

/** @param {Row} row @param {number[] | null | undefined} part @param {number} end which of the two ends is its own */
const code = (row, part, end) => {
  if (!part || part[0] >= part[end]) return h("code", null, row.text);
  return h(
    "code",
    null,
    row.text.slice(0, part[0]),
    h("span", { class: "diff-word" }, row.text.slice(part[0], part[end])),
    row.text.slice(part[end]),
  );
};

/** @param {number | null} number */
const numberCell = (number) => h("td", { class: "diff-number" }, number === null ? "" : String(number));
/** @param {Row} row */
const markCell = (row) => h("td", { class: "diff-mark" }, MARKS[/** @type {keyof typeof MARKS} */ (row.kind)] ?? "");

/** A row that is no line of a file. @param {Row} row @param {number} columns */
const wide = (row, columns) =>
  h(
    "tr",
    { class: `diff-${row.kind}` },
    h("td", { colspan: String(columns), class: "diff-text" }, h("code", null, row.text)),
  );

/** @param {Row[]} rows */
const inlineRows = (rows) =>
  grouped(rows).flatMap((each) => {
    if ("gone" in each)
      return [
        ...each.gone.map((row, at) => inlineRow(row, each.parts[at], 1)),
        ...each.come.map((row, at) => inlineRow(row, each.parts[at], 2)),
      ];
    return [each.kind === "same" ? inlineRow(each, null, 0) : wide(each, 4)];
  });

/** @param {Row} row @param {number[] | null | undefined} part @param {number} end */
const inlineRow = (row, part, end) =>
  h(
    "tr",
    { class: `diff-${row.kind}` },
    numberCell(row.old),
    numberCell(row.now),
    markCell(row),
    h("td", { class: "diff-text" }, code(row, part, end)),
  );

/**
 * @param {Row | undefined} row @param {"old" | "now"} side @param {number[] | null | undefined} part
 * @param {number} end
 */
const half = (row, side, part, end) => {
  if (!row) return [numberCell(null), h("td", { class: "diff-mark" }), h("td", { class: "diff-text diff-none" })];
  const kind = row.kind === "same" ? "" : `diff-${row.kind}`;
  return [
    numberCell(row[side]),
    h("td", { class: `diff-mark ${kind}` }, MARKS[/** @type {keyof typeof MARKS} */ (row.kind)]),
    h("td", { class: `diff-text ${kind}` }, code(row, part, end)),
  ];
};

/** @param {Row[]} rows */
const sideRows = (rows) =>
  grouped(rows).flatMap((each) => {
    if (!("gone" in each))
      return [
        each.kind === "same" ? h("tr", null, half(each, "old", null, 0), half(each, "now", null, 0)) : wide(each, 6),
      ];
    const longest = Math.max(each.gone.length, each.come.length);
    return Array.from({ length: longest }, (_, at) =>
      h("tr", null, half(each.gone[at], "old", each.parts[at], 1), half(each.come[at], "now", each.parts[at], 2)),
    );
  });

/** @param {string[]} names */
const headings = (names) =>
  h(
    "thead",
    { class: "unseen" },
    h(
      "tr",
      null,
      names.map((name) => h("th", { scope: "col" }, name)),
    ),
  );

/** @param {Row[]} rows @param {"inline" | "side"} mode @param {string} title */
export const diffTable = (rows, mode, title) => {
  const label = { "aria-label": title ? `Changes of ${title}` : "Changes" };
  if (mode === "side")
    return h(
      "table",
      { class: "diff-table diff-side", ...label },
      h(
        "colgroup",
        null,
        ["number", "mark", "text", "number", "mark", "text"].map((of) => h("col", { class: `diff-col-${of}` })),
      ),
      headings(["Old line", "Removed", "Old text", "New line", "Added", "New text"]),
      h("tbody", null, sideRows(rows)),
    );
  return h(
    "table",
    { class: "diff-table", ...label },
    headings(["Old line", "New line", "Change", "Text"]),
    h("tbody", null, inlineRows(rows)),
  );
};
