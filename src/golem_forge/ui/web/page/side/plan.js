/* The plan: its steps and how far they are. Of several workers' plans the one that changed last. */

import { h } from "../dom.js";

/** @type {Record<string, [string, string]>} */
const MARKS = { completed: ["✓", "done"], in_progress: ["▸", "now"], pending: ["○", "to do"] };
const MOST = 200;

/** @param {import("../open_session.js").OpenSession} open */
export const plan = (open) => {
  const now = open.store.standing.plan;
  const steps = now?.plan ?? [];
  if (!steps.length) return null;
  const done = steps.filter((/** @type {any} */ one) => one?.status === "completed").length;
  return {
    title: "Plan",
    facts: JSON.stringify(now),
    nodes: () => [
      h(
        "p",
        { class: "progress-line" },
        h("progress", { value: done, max: steps.length, "aria-label": `${done} of ${steps.length} steps done` }),
        h("span", null, `${done}/${steps.length}`),
      ),
      now.explanation ? h("p", { class: "dim small" }, now.explanation) : null,
      h("ol", { class: "steps", role: "list" }, ...steps.slice(0, MOST).map(step)),
      steps.length > MOST ? h("p", { class: "dim small" }, `and ${steps.length - MOST} more`) : null,
    ],
  };
};

/** @param {any} one */
const step = (one) => {
  const status = Object.hasOwn(MARKS, one?.status) ? one.status : "pending";
  const [mark, words] = MARKS[status];
  return h(
    "li",
    { dataset: { status }, "aria-current": status === "in_progress" ? "step" : null },
    h("span", { class: "mark", "aria-hidden": "true" }, mark),
    h("span", null, one?.step ?? "", h("span", { class: "unseen" }, ` (${words})`)),
  );
};
