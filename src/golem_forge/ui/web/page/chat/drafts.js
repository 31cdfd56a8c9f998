/* Drafts: what was typed and not sent, by session, in this tab only. A line of a command is not kept: it may hold a
   secret. */

import { isCommand } from "./commands.js";

const MOST = 100_000;

/** @param {string} session */
const key = (session) => `forge.draft.${session}`;

/** @param {string} session @returns {string} */
export const keptDraft = (session) => {
  try {
    return sessionStorage.getItem(key(session)) ?? "";
  } catch {
    return "";
  }
};

/** @param {string} session @param {string} text */
export const keepDraft = (session, text) => {
  try {
    if (!text || text.length > MOST || isCommand(text)) sessionStorage.removeItem(key(session));
    else sessionStorage.setItem(key(session), text);
  } catch {
    /* no storage: the draft lasts as long as the page */
  }
};
