/* Questions: approvals, forms, and the input that is awaited.

   A question may come again under its id: with the errors of an edit, or because the page connected anew. The first
   answer closes it, whoever gave it; an answer to a question that was not seen is kept for when its page is loaded. */

import { addItem, bounded, itemChanged, words } from "./items.js";

/** @typedef {import("./items.js").State} State */

export const MOST_RESOLUTIONS = 1000;
/** What stands in for the answer of a question that nobody asks any more. */
export const GONE = Object.freeze({ gone: true, approved: false, by: "", edited: false, action: "cancel" });

export const questionKey = (requestId) => `q:${requestId}`;

const asked = (asks) => (state, shown, changes) => {
  const requestId = words(shown.event.data.requestId);
  const known = state.questions.get(requestId);
  const resolved = state.resolutions.get(requestId) ?? null;
  const answeredAt = known?.state === "resolved" && !known.resolved.gone ? known.resolved.seq : -1;
  if (shown.event.seq <= answeredAt) return;
  const key = questionKey(requestId);
  const item = state.items.get(key);
  if (item) {
    Object.assign(item, { shown, resolved });
    itemChanged(item, shown, changes);
  } else addItem(state, shown, changes, key, "question", { requestId, asks, shown, resolved, least: "quiet" });
  state.questions.set(requestId, { requestId, kind: asks, shown, state: resolved ? "resolved" : "open", resolved });
  if (shown.event.data.toolCallId) state.askedFor.set(words(shown.event.data.toolCallId), key);
  bounded(state.askedFor, MOST_RESOLUTIONS);
  changes.push({ what: "question", requestId, fresh: !known });
};

/** @type {import("./fold.js").Step} */
const answered = (state, shown, changes) => {
  const requestId = words(shown.event.data.requestId);
  close(state, requestId, { ...shown.event.data, seq: shown.event.seq });
  const item = state.items.get(questionKey(requestId));
  if (item) itemChanged(item, shown, changes);
  changes.push({ what: "question", requestId, fresh: false });
};

const close = (state, requestId, resolved) => {
  state.resolutions.set(requestId, resolved);
  bounded(state.resolutions, MOST_RESOLUTIONS);
  const known = state.questions.get(requestId);
  if (known) Object.assign(known, { state: "resolved", resolved });
  const item = state.items.get(questionKey(requestId));
  if (item) item.resolved = resolved;
  if (state.questions.size > MOST_RESOLUTIONS) forgetOldest(state);
};

const forgetOldest = (state) => {
  for (const [requestId, one] of state.questions) {
    if (one.state === "open") continue;
    state.questions.delete(requestId);
    return;
  }
};

/**
 * Closes the open questions that nobody asks any more (the process that asked was killed).
 * @param {State} state @param {(requestId: string) => boolean} stillAsked @param {import("./fold.js").Change[]} changes
 */
export const closeUnasked = (state, stillAsked, changes) => {
  for (const one of state.questions.values()) {
    if (one.state !== "open" || stillAsked(one.requestId)) continue;
    Object.assign(one, { state: "resolved", resolved: GONE });
    const item = state.items.get(questionKey(one.requestId));
    if (item) {
      item.resolved = GONE;
      changes.push({ what: "item", key: item.key, fresh: false });
    }
    changes.push({ what: "question", requestId: one.requestId, fresh: false });
  }
};

/** @type {Record<string, import("./fold.js").Step>} */
export const QUESTIONS = {
  approvalRequired: asked("approval"),
  formRequired: asked("form"),
  approvalResolved: answered,
  formResolved: answered,

  inputPrompt: (state, shown, changes) => {
    const { requestId, prompt } = shown.event.data;
    if (state.resolutions.has(requestId)) return;
    state.prompt = { requestId: words(requestId), prompt: words(prompt) };
    changes.push({ what: "prompt" });
  },
  inputResolved: (state, shown, changes) => {
    const { requestId } = shown.event.data;
    state.resolutions.set(requestId, {});
    if (state.prompt?.requestId === requestId) state.prompt = null;
    changes.push({ what: "prompt" });
  },
  sessionStarted: (state, shown, changes) => {
    // A first run has no questions but its own: a server's may be asked before it stands.
    if (shown.event.data.resumed) over(state, changes);
  },
  sessionEnd: (state, _, changes) => over(state, changes),
};

/** A run ended, or another one goes on: what was asked before is not asked now. */
const over = (state, changes) => {
  state.prompt = null;
  closeUnasked(state, () => false, changes);
  changes.push({ what: "prompt" });
};
