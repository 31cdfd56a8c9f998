/* What approval cards and form cards have in common: their frame, and the way of an answer.

   Open → sending → closed, or open again with the problem. A press counts only while the card is open and nothing
   has just moved (guard.js). Who had the focus in the card keeps it there when the card closes. */

import { h, replace } from "../dom.js";
import { noteAnswer, wasAnsweredHere } from "./answered_here.js";
import { guarded, moved } from "./guard.js";

const NOT_SENT = "The answer could not be sent. Try again.";
let numbered = 0;

/**
 * @param {string} look @param {string} requestId @param {any} ctx
 * @param {"approvalResponse" | "formResponse"} type of its answers
 */
export const questionShell = (look, requestId, ctx, type) => {
  const heading = h("h3", { class: "card-title", id: `question-${++numbered}`, tabindex: "-1" });
  const facts = h("div", { class: "card-facts" });
  const place = h("div", { class: "card-place" });
  const said = h("div", { class: "card-said" });
  const node = h(
    "article",
    { class: look, "aria-labelledby": heading.id, dataset: { requestId, state: "open" } },
    heading,
    facts,
    place,
    said,
  );
  let state = "open";
  let unguard = () => {};
  const shell = {
    node,
    heading,
    facts,
    place,
    /** Whether this page sent the answer that counted, as far as is known. */
    sent: wasAnsweredHere(requestId),
    isSending: () => state === "sending",
    say: (/** @type {string} */ text) => replace(said, text ? h("p", { class: "dim", role: "status" }, text) : null),

    /** Answers may be pressed from now on. @param {Node} answers */
    begin: (answers) => {
      state = node.dataset.state = "open"; // it may have been closed, and is asked after all
      replace(said);
      replace(place, answers);
      unguard();
      unguard = guarded(node, place, showState);
      moved();
    },
    /** The card came again. */
    again: () => {
      if (state === "sending") Object.assign(shell, { sent: false });
      state = "open";
      moved();
    },
    send: async (/** @type {any} */ data) => {
      if (state !== "open") return;
      state = "sending";
      shell.sent = true;
      noteAnswer(requestId, true);
      showState(true);
      shell.say("sending…");
      const answer = await ctx
        .act(type, { requestId, ...data })
        .catch((/** @type {any} */ error) => ({ ok: false, problem: error?.problem }));
      if (answer?.ok) return;
      shell.sent = false;
      noteAnswer(requestId, false);
      shell.refuse(answer?.problem || NOT_SENT);
    },
    refuse: (/** @type {string} */ problem) => {
      said.querySelector("[role=status]")?.remove();
      if (state !== "closed") {
        state = "open";
        showState(true);
      } else shell.afterwards?.();
      said.append(h("p", { class: "problem", role: "alert" }, problem));
    },
    /** Draws the ending again, after an answer that came too late. @type {(() => void) | null} */
    afterwards: null,
    close: (/** @type {{text: string, approved: boolean}} */ { text, approved }) => {
      const hadFocus = node.contains(document.activeElement);
      if (state !== "closed") moved();
      state = "closed";
      node.dataset.state = approved ? "approved" : "denied";
      unguard();
      replace(place);
      const ending = h(
        "p",
        { class: approved ? "ending ending-ok" : "ending ending-fail", tabindex: "-1" },
        h("span", { "aria-hidden": "true" }, approved ? "✓ " : "✗ "),
        text,
      );
      replace(said, ending);
      if (hadFocus) ending.focus({ preventScroll: true });
    },
    focus: () => {
      heading.focus({ preventScroll: true });
      node.scrollIntoView({ block: "nearest" });
    },
  };
  /** @param {boolean} ready */
  const showState = (ready) => {
    const idle = ready && state === "open";
    for (const one of place.querySelectorAll("button")) {
      if (idle) one.removeAttribute("aria-disabled");
      else one.setAttribute("aria-disabled", "true");
    }
    node.dataset.ready = String(idle);
  };
  return shell;
};

/**
 * Whether a question that came again is the one that is drawn: the page only connected anew.
 * @param {any} drawn @param {any} shown
 */
export const isSameQuestion = (drawn, shown) =>
  drawn?.event !== undefined &&
  JSON.stringify([drawn.event.data, drawn.view]) === JSON.stringify([shown.event.data, shown.view]);

/** Said instead of the answers. */
export const readOnly = () => h("p", { class: "dim" }, "It can be answered only where the session runs.");
