/* Drafts: what was typed and not sent, by session, in this tab only, until the browser is signed out. A line of a
   command is not kept: it may hold a secret. */

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

/** The person signs out: the next one at this tab finds nothing of theirs. */
export const forgetDrafts = () => {
  try {
    for (const name of Object.keys(sessionStorage)) if (name.startsWith(key(""))) sessionStorage.removeItem(name);
  } catch {
    /* no storage: there is nothing */
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
