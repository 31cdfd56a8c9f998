/* How tools are used: the calls of this session as far as it is loaded here, and the person's own tools over all sessions. */

import { path } from "../api.js";
import { el, h, replace, svg } from "../dom.js";
import { counted, oneLine, percent, shortened, span } from "../format.js";
import { dataTable, factList, nothing } from "./parts.js";
import { disclosed } from "../widgets.js";

/* Bars of calls: one row a tool, the share that went well before the share that did not. Drawn as SVG made here, named for
   a screen reader, with the same numbers as a table below it. */
/** @typedef {{name: string, calls: number, good: number, more?: string[]}} Bar `good`: how many of the calls went well */

const ROW = 38;
const BAR = 10;
const MOST = 20;
const LONGEST = 40;
const barWords = (bar) => `${counted(bar.calls, "call")}, ${percent(bar.good, bar.calls)} went well`;

/** @param {string} title @param {Bar[]} bars @param {string[]} [columns] names of what `more` holds */
export const callsChart = (title, bars, columns = []) => {
  const shown = [...bars].sort((one, two) => two.calls - one.calls || one.name.localeCompare(two.name)).slice(0, MOST);
  const most = Math.max(1, ...shown.map((bar) => bar.calls));
  const words = `${title}: ${shown.slice(0, 5).map((bar) => `${oneLine(bar.name)} ${barWords(bar)}`)
    .join("; ")}${shown.length > 5 ? " and others; all in the table below" : ""}`;
  const picture = svg("svg",
    { class: "chart", role: "img", "aria-label": words, width: "100%", height: shown.length * ROW },
    shown.map((bar, at) => barRow(bar, at * ROW, most)),
  );
  const table = () =>
    dataTable(title,
      ["Tool", "Calls", "Went well", "Did not", ...columns],
      shown.map((bar) => ({
        cells: [
          el("code", oneLine(bar.name)),
          bar.calls,
          `${bar.good} (${percent(bar.good, bar.calls)})`,
          bar.calls - bar.good,
          ...(bar.more ?? []),
        ],
      })),
    );
  return el("figure.chart-figure",
    el("figcaption.chart-title", el("span", title), legend()),
    picture,
    disclosed("The numbers as a table", table, { class: "small" }),
  );
};

const barRow = (bar, top, most) => {
  const whole = (100 * bar.calls) / most;
  const good = bar.calls > 0 ? (whole * bar.good) / bar.calls : 0;
  const y = top + 20;
  return svg("g",
    null,
    svg("text", { class: "chart-name", x: 0, y: top + 14 }, shortened(oneLine(bar.name), LONGEST)),
    svg("text", { class: "chart-number", x: "100%", y: top + 14, "text-anchor": "end" },
      `${bar.calls.toLocaleString("en")} · ${percent(bar.good, bar.calls)}`,
    ),
    svg("rect", { class: "chart-ground", x: 0, y, width: "100%", height: BAR, rx: 3 }),
    svg("rect", { class: "chart-bad", x: 0, y, width: `${whole}%`, height: BAR, rx: 3 }),
    svg("rect", { class: "chart-good", x: 0, y, width: `${good}%`, height: BAR, rx: 3 }),
  );
};

const legend = () =>
  h("span.chart-legend", { "aria-hidden": "true" }, el("span.key-good", "went well"), el("span.key-bad", "did not"));

/** Those of the conversation. @returns {Bar[]} */
const callsOf = (store) => {
  const found = new Map();
  for (const item of store.items.values()) {
    if (item.kind !== "call" || !item.result) continue;
    const bar = found.get(item.name) ?? { name: item.name, calls: 0, good: 0 };
    bar.calls += 1;
    bar.good += item.result.event.data.status === "success" ? 1 : 0;
    found.set(item.name, bar);
  }
  return [...found.values()];
};

/** @param {any} tool one of the answer's @returns {Bar} */
export const usageBar = (tool) => {
  const good = tool.statuses?.success ?? Math.round((tool.successRate ?? 0) * tool.ran);
  return {
    name: tool.name,
    calls: tool.calls,
    good,
    more: [span(tool.medianMs), tool.lastUsed ? new Date(tool.lastUsed).toLocaleDateString() : "never"],
  };
};

/** `draw` counts the calls of the conversation anew. */
export const statisticsPart = (ctx) => {
  const calls = el("div.charts");
  const own = disclosed("User tools in all sessions", () => ownStatistics(ctx));
  const draw = () => {
    const bars = callsOf(ctx.store);
    replace(calls,
      bars.length
        ? callsChart("Calls in this session, as far as it is loaded", bars)
        : nothing("No tool was called in this session yet."),
    );
  };
  draw();
  return { node: el("div.charts", calls, own), draw };
};

const ownStatistics = async (ctx) => {
  const { totals, tools } = await ctx.api.get(path`/api/sessions/${ctx.session.id}/statistics`);
  const used = tools.filter((tool) => tool.calls > 0).map(usageBar);
  return el("div.charts",
    used.length
      ? callsChart("Calls in all sessions", used, ["Median", "Last used"])
      : nothing("No user tool was called yet."),
    factList({
      Tools: totals.tools,
      States: sums(totals.byState),
      Authors: sums(totals.byAuthor),
      "Made, built, tested, activated": [
        totals.creations.made,
        totals.creations.built,
        totals.creations.tested,
        totals.creations.activated,
      ].join(" → "),
      "Used in two sessions or more": rate(totals.reuse),
      "Time saved, estimated": span(totals.timeSavedMs),
    }),
  );
};

const sums = (parts) => Object.entries(parts ?? {}).map(([name, count]) => `${name} ${count}`).join(" · ");
const rate = (value) => (typeof value === "number" ? `${Math.round(100 * value)} %` : "");
