/* Putting an earlier page of events before what is already folded.

   The page is folded on its own, then joined: a call that began there and ended here becomes one item at its
   beginning, a question that was answered here is closed there, and a question that is open here stays where it is. */

import { emptyState, fold } from "../fold.js";
import { depthBelow, leastOf } from "./calls.js";
import { bounded } from "./item.js";
import { GONE, MOST_RESOLUTIONS } from "./questions.js";
import { settleAnswer } from "./speech.js";

/** @typedef {import("../fold.js").State} State */

/** @param {State} state @param {import("../fold.js").Shown[]} page @returns {State} */
export const merged = (state, page) => {
  const older = emptyState();
  older.standing.workers = new Map(state.standing.workers); // who is a child of whom
  for (const shown of page) fold(older, shown);
  const opening = older.opening ?? state.opening;
  if (state.opening === "ends") settleAnswer(older, []);
  const resolutions = new Map([...older.resolutions, ...state.resolutions]);
  bounded(resolutions, MOST_RESOLUTIONS);
  const items = new Map(older.items);
  const running = new Set(state.running);
  for (const item of items.values()) close(item, state, running);
  for (const [key, item] of state.items) {
    const before = items.get(key);
    if (before?.kind === "call") items.set(key, joined(before, item));
    else {
      items.delete(key);
      items.set(key, item);
    }
  }
  for (const item of items.values())
    if (item.kind === "call" && item.parent) item.depth = depthBelow(items, item.parent);
  const begun = state.begun || older.begun;
  return { ...state, items, resolutions, running, opening, begun, firstSeq: older.firstSeq || state.firstSeq };
};

/**
 * What is open on an earlier page was answered here, or nobody asks it; a call may run on.
 * @param {any} item
 * @param {State} state
 * @param {Set<string>} running
 */
const close = (item, state, running) => {
  if (item.kind === "question") item.resolved ??= state.resolutions.get(item.requestId) ?? GONE;
  if (item.kind !== "call" || item.result || item.lost || state.items.has(item.key)) return;
  if (state.begun || state.standing.ended) item.lost = true;
  else running.add(item.id);
};

/** @param {any} before @param {any} after */
const joined = (before, after) => ({
  ...before,
  result: after.result,
  failed: after.failed,
  output: after.output,
  progress: after.progress,
  least: leastOf(before.least, after.failed, after.result?.event?.data),
  seqs: [...before.seqs, ...after.seqs],
});
