/* What stands below the text box: why nothing can be sent, or what becomes of what is sent. Pure. */

/**
 * Why nothing can be sent at all; "" where something can.
 * @param {import("../store.js").SessionStore} store
 * @param {any} session
 */
export function closedBecause(store, session) {
  if (!store.caughtUp) return "";
  if (session.state === "elsewhere") return "Read-only: another process runs this session.";
  if (session.state === "closed" || !session.answerable) return "Read-only: nobody runs this session.";
  if (store.standing.ended) return "The session has ended.";
  const once = store.standing.session?.mode === "single" && !store.prompt;
  if (once) return "This session answers once; it takes no more input.";
  return "";
}

/**
 * @param {import("../store.js").SessionStore} store
 * @param {{link: string, awaited: boolean, running: boolean}} now
 */
export function standingWords(store, { link, awaited, running }) {
  if (link === "over") return "Not connected.";
  if (link !== "here") return "Connecting… what you send waits.";
  if (store.openQuestions().length) return "Waiting for your answer.";
  if (awaited) return "";
  return running ? "Working… what you send waits for its turn." : "";
}
