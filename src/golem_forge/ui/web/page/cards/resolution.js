/* How a question ended: who answered where, with which changes, what was remembered and where. */

import { keptWhere } from "./card_words.js";
import { objects, words } from "./plain.js";

const HERE = "browser";

/** Those who answer without being a place. */
const OTHERS = {
  memory: "by an answer that was remembered",
  mode: "by the approval mode",
  timeout: "",
  interrupt: "the turn was interrupted",
  nobody: "",
};

/** @param {any} by @param {boolean} mine whether this page sent the answer */
const place = (by, mine) => {
  if (Object.hasOwn(OTHERS, by)) return OTHERS[/** @type {keyof typeof OTHERS} */ (by)];
  if (by === HERE) return mine ? "answered here" : "answered in another browser window";
  return by ? `answered in ${words(by)}` : "";
};

/**
 * @param {Record<string, any>} request @param {Record<string, any>} resolved @param {boolean} mine
 * @returns {{text: string, approved: boolean}}
 */
export const approvalEnding = (request, resolved, mine) => {
  if (resolved.gone) return { text: "Closed without an answer: nobody waits for it any more", approved: false };
  const approved = resolved.approved === true;
  const reason = resolved.reason ? `: ${words(resolved.reason)}` : "";
  const chosen = approved ? objects(request.choices).find((choice) => choice.id === resolved.choice) : undefined;
  const parts = [
    approved ? "Approved" : "Denied",
    place(resolved.by, mine),
    resolved.edited ? "with changed arguments" : "",
    chosen ? `remembered (${keptWhere(chosen)}): ${words(chosen.label ?? "")}` : "",
  ];
  return { text: parts.filter(Boolean).join(" · ") + reason, approved };
};

const ENDINGS = { accept: "Sent", decline: "Declined", cancel: "Cancelled" };

/** @param {Record<string, any>} resolved @param {boolean} mine @returns {{text: string, approved: boolean}} */
export const formEnding = (resolved, mine) => {
  if (resolved.gone) return { text: "Closed without an answer: nobody waits for it any more", approved: false };
  const said = ENDINGS[/** @type {keyof typeof ENDINGS} */ (resolved.action)] ?? "Closed";
  return { text: mine ? said : `${said} · answered elsewhere`, approved: resolved.action === "accept" };
};
