/* What a session has used of what it may use, and what it stands in: zones, walls, its program. */

import { h } from "../dom.js";
import { oneLine, texts, words } from "../cards/plain.js";
import { cost, counted, percent } from "../side/words.js";
import { factList, pill } from "./parts.js";

const FULL = 0.9;
const NEARLY = 0.75;

/** @param {any} now what `settings` answered */
export const usage = (now) => {
  const { usage: used, context, budget } = now;
  const limited = (budget ?? []).filter((/** @type {any} */ one) => typeof one.allowed === "number");
  const free = (budget ?? []).filter((/** @type {any} */ one) => typeof one.allowed !== "number");
  // A budget counts an unknown price as nothing; a person must not read that as free.
  const soFar = (/** @type {any} */ one) => (one.unit === "USD" ? cost(used.cost) : amount(one.used, one.unit));
  return h(
    "div",
    { class: "use" },
    factList({
      Cost: cost(used.cost),
      Requests: counted(used.requests),
      "Tokens in": counted(used.input) + (used.cached ? ` (${counted(used.cached)} cached)` : ""),
      "Tokens out": counted(used.output),
      Waiting: now.pending ? `${now.pending} for an answer` : "",
    }),
    h(
      "div",
      { class: "meters" },
      context.limit ? meter("Context", context.used, context.limit, "tokens") : null,
      limited.map((/** @type {any} */ one) => meter(one.limit, one.used, one.allowed, one.unit)),
    ),
    free.length
      ? h(
          "p",
          { class: "dim small" },
          `Without a limit: ${free.map((/** @type {any} */ one) => `${oneLine(one.limit)} (${soFar(one)} so far)`).join(", ")}`,
        )
      : null,
  );
};

/** @param {number} value @param {string} unit */
const amount = (value, unit) => (unit === "USD" ? cost(value) : `${counted(value)} ${oneLine(unit)}`);

/** @param {string} name @param {number} used @param {number} allowed @param {string} unit */
const meter = (name, used, allowed, unit) => {
  const said = `${amount(used, unit)} of ${amount(allowed, unit)}`;
  const share = allowed > 0 ? used / allowed : 1;
  return h(
    "div",
    { class: "meter", dataset: { level: share >= FULL ? "full" : share >= NEARLY ? "nearly" : "fine" } },
    h("p", null, h("span", { class: "mono small" }, oneLine(name)), h("span", null, percent(used, allowed))),
    h("progress", {
      value: Math.min(used, allowed),
      max: Math.max(allowed, 1e-9),
      "aria-label": `${oneLine(name)}: ${said}`,
    }),
    h("p", { class: "dim small" }, said),
  );
};

/** @param {any} now */
export const surroundings = (now) => {
  const { walls } = now;
  const none = walls && ["none", "off"].includes(walls.level);
  return [
    factList({
      Program: [
        h("code", null, oneLine(now.program)),
        " ",
        now.trusted ? pill("trusted", "ok") : pill("not trusted", "warn"),
      ],
      "Does not count": texts(now.unused).join(", "),
      Worker: oneLine(now.worker),
      Model: oneLine(now.model) || "none",
      Workers: (now.workers ?? []).length > 1 ? now.workers.map(oneLine).join(", ") : "",
      Zones: now.zones?.length
        ? now.zones.map((/** @type {any} */ zone) =>
            h("span", { class: "zone-chip" }, h("code", null, `/${oneLine(zone.name)}`), ` ${oneLine(zone.mode)} `),
          )
        : "none",
      Walls: walls ? pill(oneLine(walls.level), none ? "fail" : "ok") : "nothing had to be started yet",
      Without: walls ? texts(walls.missing).join(", ") : "",
      Because: walls?.cause ? words(walls.cause) : "",
      "To mend": walls?.fix ? words(walls.fix) : "",
    }),
  ];
};
