/* Bars of calls: one row a tool, the share that went well before the share that did not. Drawn as SVG made here, named for
   a screen reader, with the same numbers as a table below it. */

import { h, svg } from "../dom.js";
import { disclosed } from "../cards/disclosure.js";
import { oneLine, shortened } from "../cards/plain.js";
import { dataTable } from "./parts.js";

/** @typedef {{name: string, calls: number, good: number, more?: string[]}} Bar `good`: how many of the calls went well */

const ROW = 38;
const BAR = 10;
const MOST = 20;
const LONGEST = 40;

/** @param {number} part @param {number} whole */
const share = (part, whole) => `${whole > 0 ? Math.round((100 * part) / whole) : 0} %`;

/** @param {Bar} bar */
const barWords = (bar) =>
  `${bar.calls.toLocaleString("en")} ${bar.calls === 1 ? "call" : "calls"}, ${share(bar.good, bar.calls)} went well`;

/** @param {string} title @param {Bar[]} bars @param {string[]} [columns] names of what `more` holds */
export const callsChart = (title, bars, columns = []) => {
  const shown = [...bars].sort((one, two) => two.calls - one.calls || one.name.localeCompare(two.name)).slice(0, MOST);
  const most = Math.max(1, ...shown.map((bar) => bar.calls));
  const words = `${title}: ${shown
    .slice(0, 5)
    .map((bar) => `${oneLine(bar.name)} ${barWords(bar)}`)
    .join("; ")}${shown.length > 5 ? " and others; all in the table below" : ""}`;
  const picture = svg(
    "svg",
    { class: "chart", role: "img", "aria-label": words, width: "100%", height: shown.length * ROW },
    shown.map((bar, at) => barRow(bar, at * ROW, most)),
  );
  const table = () =>
    dataTable(
      title,
      ["Tool", "Calls", "Went well", "Did not", ...columns],
      shown.map((bar) => ({
        cells: [
          h("code", null, oneLine(bar.name)),
          bar.calls,
          `${bar.good} (${share(bar.good, bar.calls)})`,
          bar.calls - bar.good,
          ...(bar.more ?? []),
        ],
      })),
    );
  return h(
    "figure",
    { class: "chart-figure" },
    h("figcaption", { class: "chart-title" }, h("span", null, title), legend()),
    picture,
    disclosed("The numbers as a table", table, { class: "small" }),
  );
};

/** @param {Bar} bar @param {number} top @param {number} most */
const barRow = (bar, top, most) => {
  const whole = (100 * bar.calls) / most;
  const good = bar.calls > 0 ? (whole * bar.good) / bar.calls : 0;
  const y = top + 20;
  return svg(
    "g",
    null,
    svg("text", { class: "chart-name", x: 0, y: top + 14 }, shortened(oneLine(bar.name), LONGEST)),
    svg(
      "text",
      { class: "chart-number", x: "100%", y: top + 14, "text-anchor": "end" },
      `${bar.calls.toLocaleString("en")} · ${share(bar.good, bar.calls)}`,
    ),
    svg("rect", { class: "chart-ground", x: 0, y, width: "100%", height: BAR, rx: 3 }),
    svg("rect", { class: "chart-bad", x: 0, y, width: `${whole}%`, height: BAR, rx: 3 }),
    svg("rect", { class: "chart-good", x: 0, y, width: `${good}%`, height: BAR, rx: 3 }),
  );
};

const legend = () =>
  h(
    "span",
    { class: "chart-legend", "aria-hidden": "true" },
    h("span", { class: "key-good" }, "went well"),
    h("span", { class: "key-bad" }, "did not"),
  );
