/* What the session stands in: its walls, its zones, its servers and how they are. */

import { h } from "../dom.js";

const MOST = 50;
const WELL = new Set(["ready", "known"]);
const BADLY = new Set(["failed", "backoff"]);

/** @param {import("../open_session.js").OpenSession} open */
export const surroundings = (open) => {
  const { walls, session, servers } = open.store.standing;
  const zones = Array.isArray(session?.zones) ? session.zones : [];
  if (!walls && !zones.length && !servers.size) return null;
  const list = [...servers.values()];
  return {
    title: "Surroundings",
    facts: JSON.stringify([walls, zones, list]),
    nodes: () => [
      walls ? wallsRow(walls) : null,
      zones.length
        ? h(
            "ul",
            { class: "zones", role: "list", "aria-label": "Zones" },
            ...zones
              .slice(0, MOST)
              .map((/** @type {any} */ zone) =>
                h("li", null, h("code", null, `/${zone?.name ?? ""}`), ` ${zone?.mode ?? ""}`),
              ),
          )
        : null,
      list.length
        ? h("ul", { class: "servers", role: "list", "aria-label": "Servers" }, ...list.slice(0, MOST).map(server))
        : null,
    ],
  };
};

/** @param {any} walls */
const wallsRow = (walls) => {
  const none = walls.level === "none" || walls.level === "off";
  const missing = Array.isArray(walls.missing) && walls.missing.length ? `without ${walls.missing.join(", ")}` : "";
  const why = [missing, walls.cause, walls.fix].filter(Boolean).join("; ");
  return h(
    "div",
    { class: "walls", dataset: { level: none ? "none" : "some" } },
    h("p", null, h("span", null, "Walls"), h("strong", null, walls.level)),
    why ? h("p", { class: "dim small" }, why) : null,
  );
};

/** @param {any} one */
const server = (one) => {
  const state = String(one.state ?? "");
  const how = WELL.has(state) ? "well" : BADLY.has(state) || one.error ? "badly" : "between";
  return h(
    "li",
    { dataset: { how } },
    h(
      "p",
      null,
      h("span", { class: "dot", "aria-hidden": "true" }),
      h("span", { class: "mono" }, one.server),
      h("span", { class: "dim" }, state),
    ),
    one.error ? h("p", { class: "dim small" }, one.error) : null,
  );
};
