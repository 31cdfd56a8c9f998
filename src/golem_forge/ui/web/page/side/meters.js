/* Meters: how full the context is, how many tokens went in and out, what it cost so far, how much of the budget is
   left. */

import { h } from "../dom.js";
import { cost, counted, percent } from "./words.js";

const FULL = 0.9;
const NEARLY = 0.75;

/** @param {import("../open_session.js").OpenSession} open */
export const meters = (open) => {
  const { context, usage } = open.store.standing;
  const budget = open.budget.rows;
  if (!context && !usage && !budget.length) return null;
  const used = usage?.session;
  return {
    title: "Use",
    facts: JSON.stringify([context, used, budget]),
    nodes: () => [
      context?.tokenLimit ? contextMeter(context) : null,
      used
        ? h(
            "dl",
            { class: "sums" },
            fact("Cost", cost(used.cost)),
            fact("Tokens in", counted(used.input) + (used.cached ? ` (${counted(used.cached)} cached)` : "")),
            fact("Tokens out", counted(used.output)),
          )
        : null,
      ...budget.map(budgetMeter),
    ],
  };
};

/** @param {any} context */
const contextMeter = (context) => {
  const { tokensUsed, tokenLimit } = context;
  const words = `${counted(tokensUsed)} of ${counted(tokenLimit)} tokens`;
  const share = tokensUsed / tokenLimit;
  return h(
    "div",
    { class: "meter", dataset: { level: share >= FULL ? "full" : share >= NEARLY ? "nearly" : "fine" } },
    h("p", null, h("span", null, "Context"), h("span", null, percent(tokensUsed, tokenLimit))),
    h("progress", { value: Math.min(tokensUsed, tokenLimit), max: tokenLimit, "aria-label": `Context: ${words}` }),
    h("p", { class: "dim small" }, words),
  );
};

/** @type {Record<string, [string, (amount: number) => string]>} */
const BUDGETS = {
  USD: ["Cost", cost],
  tokens: ["Tokens", counted],
  requests: ["Requests", counted],
  calls: ["Tool calls", counted],
  seconds: ["Seconds", counted],
};

/** How much of what the session may use is used. @param {{unit: string, allowed: number, used: number}} one */
const budgetMeter = ({ unit, allowed, used }) => {
  const [name, spelled] = BUDGETS[unit] ?? [unit, counted];
  const words = `${spelled(used)} of ${spelled(allowed)}`;
  return h(
    "div",
    {
      class: "meter",
      dataset: { level: used / allowed >= FULL ? "full" : used / allowed >= NEARLY ? "nearly" : "fine" },
    },
    h("p", null, h("span", null, `${name} budget`), h("span", null, percent(used, allowed))),
    h("progress", { value: Math.min(used, allowed), max: allowed, "aria-label": `${name} budget: ${words}` }),
    h("p", { class: "dim small" }, words),
  );
};

/** @param {string} name @param {string} value */
const fact = (name, value) => h("div", null, h("dt", null, name), h("dd", null, value));
