/* An approval card: what is asked, everything it would do, and the answers. `approvalCard(item, ctx)`.

   The first answer closes it, whoever gave it, and it says who. A card that comes again under its id (an edit was
   refused, more calls wait) keeps what was typed; one that is on its way stays so unless its edit was refused.
   Read-only sessions and replays show no button. */

import { h, replace } from "../dom.js";
import { approvalAnswer } from "./approval_answer.js";
import { approvalFacts, wholeQuestion } from "./approval_facts.js";
import { cardTitle, fieldErrors } from "./card_words.js";
import { disclosed } from "./disclosure.js";
import { oneLine } from "./plain.js";
import { isSameQuestion, questionShell, readOnly } from "./question_shell.js";
import { approvalEnding } from "./resolution.js";

const RISKS = new Set(["low", "medium", "high", "critical"]);

/** @param {any} item @param {any} ctx @returns {{node: HTMLElement, update: (item: any) => void, focus: () => void}} */
export const approvalCard = (item, ctx) => {
  const shell = questionShell("approval-card", item.requestId, ctx, "approvalResponse");
  /** @type {ReturnType<typeof approvalAnswer> | null} */
  let answers = null;
  /** @type {any} what is drawn: the question, or its resolution */
  let drawn = null;

  const title = () => {
    const { data } = item.shown.event;
    shell.node.dataset.risk = RISKS.has(data.risk) ? data.risk : "high";
    replace(shell.heading, cardTitle(data), h("span", { class: "card-risk" }, ` · risk ${oneLine(data.risk)}`));
  };
  const open = () => {
    const again = drawn !== null && drawn !== item.shown;
    if (again && isSameQuestion(drawn, item.shown)) drawn = item.shown;
    const changed = drawn !== item.shown;
    if (changed) {
      title();
      replace(shell.facts, approvalFacts(item.shown, ctx));
      drawn = item.shown;
    }
    if (!ctx.session?.answerable) {
      answers = null;
      return replace(shell.place, readOnly());
    }
    if (!answers) {
      answers = approvalAnswer(item.shown.event.data, shell, () => wholeQuestion(item.shown, ctx));
      shell.begin(answers.node);
    } else if (again && changed) {
      const refused = Object.keys(fieldErrors(item.shown.event.data)).length > 0;
      if (shell.isSending() && !refused) return;
      if (refused) shell.say("Nothing ran: the card came again, look at what it says now.");
      shell.again();
      answers.showErrors(item.shown.event.data);
    }
  };
  const close = () => {
    const { data } = item.shown.event;
    drawn = item.resolved;
    title();
    answers?.forget();
    answers = null;
    shell.close(approvalEnding(data, item.resolved, shell.sent));
    const asked = { ...item.shown, event: { ...item.shown.event, data: { ...data, expiresAt: null } } };
    replace(
      shell.facts,
      disclosed("What was asked", () => h("div", { class: "card-facts" }, approvalFacts(asked, ctx)), {
        class: "small",
      }),
    );
  };
  shell.afterwards = close;
  const update = (/** @type {any} */ now) => {
    item = now;
    if (!item.resolved) open();
    else if (drawn !== item.resolved) close();
  };
  update(item);
  return { node: shell.node, update, focus: shell.focus };
};
