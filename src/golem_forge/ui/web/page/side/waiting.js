/* What waits for an answer, oldest first. A row leads to its card; nothing is answered from here. */

import { h } from "../dom.js";

const MOST = 50;

/** @param {import("../open_session.js").OpenSession} open */
export const waiting = (open) => {
  const questions = open.store.openQuestions();
  if (!questions.length) return null;
  const rows = questions.slice(0, MOST).map((one) => {
    const { tool, risk, source, title } = one.shown.event.data;
    return one.kind === "approval"
      ? {
          id: one.requestId,
          name: String(tool),
          risk: String(risk),
        }
      : { id: one.requestId, name: `${source}: ${title}`, risk: "" };
  });
  return {
    title: open.session.answerable ? `Waiting for you (${questions.length})` : `Asked elsewhere (${questions.length})`,
    facts: JSON.stringify([rows, questions.length, open.session.answerable]),
    nodes: () => [
      h(
        "ol",
        { class: "queue", role: "list" },
        ...rows.map((row) =>
          h(
            "li",
            null,
            h(
              "button",
              {
                type: "button",
                class: "row",
                dataset: { focus: row.id },
                on: { click: () => open.desk.frame.toQuestion(row.id) },
              },
              h("span", { class: "mono" }, row.name),
              row.risk ? h("span", { class: "risk", dataset: { risk: row.risk } }, row.risk) : null,
            ),
          ),
        ),
      ),
    ],
  };
};
