/* The worker tree: who works for whom, on what, with which model, at what cost. One branch can be stopped on its
   own. */

import { h } from "../dom.js";
import { icon } from "../icons.js";
import { cost } from "./words.js";

/** @type {Record<string, [string, string]>} */
const MARKS = {
  pending: ["○", "waits"],
  running: ["●", "works"],
  complete: ["✓", "done"],
  error: ["✗", "failed"],
  ended: ["·", "ended"],
};
const MOST = 100;
const DEEPEST = 20;

/** @param {import("../open_session.js").OpenSession} open */
export const workers = (open) => {
  const { standing } = open.store;
  if (!standing.workers.size) return null;
  const rows = ordered([...standing.workers.values()]).map(({ one, depth }) => ({
    id: String(one.workerId),
    name: String(one.name ?? ""),
    task: depth ? String(one.task ?? "") : "",
    model: String(one.model ?? ""),
    status: Object.hasOwn(MARKS, one.status) ? one.status : "ended",
    cost: standing.usageByWorker.get(one.workerId)?.cost,
    depth,
  }));
  const answerable = open.session.answerable;
  return {
    title: "Workers",
    facts: JSON.stringify([rows, answerable]),
    nodes: () => [
      h("ul", { class: "worker-tree", role: "list" }, ...rows.slice(0, MOST).map((row) => node(row, open, answerable))),
      rows.length > MOST ? h("p", { class: "dim" }, `and ${rows.length - MOST} more`) : null,
    ],
  };
};

/** @param {any} row @param {import("../open_session.js").OpenSession} open @param {boolean} answerable */
const node = (row, open, answerable) => {
  const [mark, words] = MARKS[row.status];
  const stop = () => open.ctx.act("interrupt", { workerId: row.id, reason: "user" });
  const facts = [row.model, typeof row.cost === "number" ? cost(row.cost) : ""].filter(Boolean).join(" · ");
  return h(
    "li",
    { dataset: { depth: Math.min(row.depth, 6), status: row.status } },
    h("span", { class: "mark", "aria-hidden": "true" }, mark),
    h(
      "div",
      null,
      h(
        "p",
        { class: "who" },
        h("span", { class: "unseen" }, `Depth ${row.depth}: `),
        row.name,
        h("span", { class: "unseen" }, ` (${words})`),
      ),
      row.task ? h("p", { class: "dim clamp", title: row.task }, row.task) : null,
      facts ? h("p", { class: "dim small" }, facts) : null,
    ),
    answerable && row.depth > 0 && row.status === "running"
      ? h(
          "button",
          {
            class: "quiet",
            type: "button",
            dataset: { focus: row.id },
            "aria-label": `Stop ${row.name}`,
            title: "Stop this branch",
            on: { click: stop },
          },
          icon("stop"),
        )
      : null,
  );
};

/** Children under their parents, in the order they began. @param {any[]} all @returns {{one: any, depth: number}[]} */
const ordered = (all) => {
  const known = new Set(all.map((one) => one.workerId));
  /** @type {Map<string, any[]>} */
  const below = new Map();
  for (const one of all) {
    const parent = known.has(one.parentId) ? one.parentId : "";
    below.set(parent, [...(below.get(parent) ?? []), one]);
  }
  /** @type {{one: any, depth: number}[]} */
  const rows = [];
  const seen = new Set();
  /** @param {any} one @param {number} depth */
  const add = (one, depth) => {
    if (seen.has(one.workerId) || depth > DEEPEST) return;
    seen.add(one.workerId);
    rows.push({ one, depth });
    for (const child of below.get(one.workerId) ?? []) add(child, depth + 1);
  };
  for (const root of below.get("") ?? []) add(root, 0);
  return rows;
};
