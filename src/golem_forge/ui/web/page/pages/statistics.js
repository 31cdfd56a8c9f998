/* How tools are used: the calls of this session as far as it is loaded here, and the person's own tools over all sessions. */

import { h, replace } from "../dom.js";
import { path } from "../api.js";
import { disclosed } from "../cards/disclosure.js";
import { callsChart } from "./chart.js";
import { span } from "./moments.js";
import { factList, nothing } from "./parts.js";

/** Those of the conversation. @param {any} store @returns {import("./chart.js").Bar[]} */
export const callsOf = (store) => {
  /** @type {Map<string, import("./chart.js").Bar>} */
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

/** @param {any} tool one of the answer's @returns {import("./chart.js").Bar} */
export const usageBar = (tool) => {
  const good = tool.statuses?.success ?? Math.round((tool.successRate ?? 0) * tool.ran);
  return {
    name: tool.name,
    calls: tool.calls,
    good,
    more: [span(tool.medianMs), tool.lastUsed ? new Date(tool.lastUsed).toLocaleDateString() : "never"],
  };
};

/** @param {any} ctx */
export const statisticsPart = (ctx) => {
  const place = h("div", { class: "charts" });
  const own = disclosed("Your own tools in all sessions", () => ownStatistics(ctx));
  const bars = callsOf(ctx.store);
  replace(
    place,
    bars.length
      ? callsChart("Calls in this session, as far as it is loaded", bars)
      : nothing("No tool was called in this session yet."),
    own,
  );
  return place;
};

/** @param {any} ctx */
const ownStatistics = async (ctx) => {
  const { totals, tools } = await ctx.api.get(path`/api/sessions/${ctx.session.id}/statistics`);
  const used = tools.filter((/** @type {any} */ tool) => tool.calls > 0).map(usageBar);
  return h(
    "div",
    { class: "charts" },
    used.length
      ? callsChart("Calls in all sessions", used, ["Median", "Last used"])
      : nothing("None of your own tools was called yet."),
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

/** @param {Record<string, number>} parts */
const sums = (parts) =>
  Object.entries(parts ?? {})
    .map(([name, count]) => `${name} ${count}`)
    .join(" · ");

/** @param {number | null} value */
const rate = (value) => (typeof value === "number" ? `${Math.round(100 * value)} %` : "");
