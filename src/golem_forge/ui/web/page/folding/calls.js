/* Calls of tools: one item from `toolStarted` to `toolResult`, with its progress and the end of its output.

   A result whose start this page has not seen (it stands on an earlier page) makes the item itself. */

import { addItem, itemChanged, tail, words } from "./item.js";

const DEEPEST = 6;

/** @param {string} id */
export const callKey = (id) => `t:${id}`;

/** How deep a call stands that another made. @param {Map<string, any>} items @param {unknown} parent */
export const depthBelow = (items, parent) => {
  const above = items.get(callKey(words(parent)));
  return above ? Math.min((above.depth ?? 0) + 1, DEEPEST) : 0;
};

/** @type {Record<string, import("../fold.js").Step>} */
export const CALLS = {
  toolStarted: (state, shown, changes) => {
    const { event } = shown;
    const { toolCallId, toolName, label, args, caller, workerId, parentCallId } = event.data;
    const key = callKey(toolCallId);
    if (state.items.has(key)) return;
    const item = addItem(state, shown, changes, key, "call", {
      ...blank(toolCallId, toolName, args),
      label: label ?? null,
      caller: words(caller),
      parent: parentCallId ?? null,
      depth: depthBelow(state.items, parentCallId),
      startedAt: event.ts,
      argsCut: shown.view?.cut === true,
      least: caller === "human" ? "quiet" : "normal",
    });
    if (workerId) item.worker = words(workerId);
    state.running.add(toolCallId);
    changes.push({ what: "activity" });
  },

  toolProgress: (state, shown, changes) => {
    const { toolCallId, progress, total, message } = shown.event.data;
    const item = state.items.get(callKey(toolCallId));
    if (!item || item.result) return;
    item.progress = { progress, total: total ?? null, message: message ?? null };
    changes.push({ what: "item", key: item.key, fresh: false });
  },

  toolOutput: (state, shown, changes) => {
    const { toolCallId, stream, delta, whole } = shown.event.data;
    const item = state.items.get(callKey(toolCallId));
    if (!item || item.result || (stream !== "stdout" && stream !== "stderr")) return;
    item.output[stream] = tail(typeof whole === "string" ? whole : item.output[stream] + words(delta));
    changes.push({ what: "item", key: item.key, fresh: false });
  },

  toolResult: (state, shown, changes) => {
    const { event } = shown;
    const { toolCallId, toolName, args, status } = event.data;
    const key = callKey(toolCallId);
    const item = state.items.get(key) ?? addItem(state, shown, changes, key, "call", blank(toolCallId, toolName, args));
    item.result = shown;
    item.failed = status !== "success";
    item.lost = false;
    item.least = leastOf(item.least, item.failed, event.data);
    state.running.delete(toolCallId);
    itemChanged(item, shown, changes);
    changes.push({ what: "activity" });
  },

  sessionStarted: (state, shown, changes) => abandon(state, changes),
  sessionEnd: (state, shown, changes) => abandon(state, changes),
};

/**
 * The trace level a finished call is shown from, as in a terminal: what a command left behind is not hidden by one.
 * @param {string} least @param {boolean} failed @param {any} data
 */
export const leastOf = (least, failed, data) => {
  const left = Array.isArray(data?.leftovers) ? data.leftovers : [];
  const has = (/** @type {string} */ severity) => left.some((/** @type {any} */ one) => one?.severity === severity);
  if (least === "quiet" || has("critical")) return "quiet";
  return failed || has("warning") || data?.protectedCreated?.length ? "summary" : least;
};

/** @param {unknown} id @param {unknown} name @param {unknown} args */
const blank = (id, name, args) => ({
  id: words(id),
  name: words(name),
  label: null,
  args,
  argsCut: false,
  caller: "",
  parent: null,
  depth: 0,
  output: { stdout: "", stderr: "" },
  progress: null,
  result: null,
  failed: false,
  lost: false,
  startedAt: null,
});

/** Whoever ran them is gone: no result will come. @param {any} state @param {import("../fold.js").Change[]} changes */
const abandon = (state, changes) => {
  state.begun = true;
  for (const id of state.running) {
    const item = state.items.get(callKey(id));
    if (!item) continue;
    item.lost = true;
    changes.push({ what: "item", key: item.key, fresh: false });
  }
  state.running.clear();
  changes.push({ what: "activity" });
};
