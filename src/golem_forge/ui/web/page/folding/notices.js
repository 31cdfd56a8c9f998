/* What is said beside the conversation: statuses, the start and end of a session, and changes worth a line.

   Neighbours that only repeat each other (a plan that moves on, a worker that goes on) stay one line. */

import { addItem, itemChanged, keyOf, lastItem, list, number, words } from "./item.js";

/** @param {string} type @param {string} [least] @returns {import("../fold.js").Step} */
const notice =
  (type, least = "normal") =>
  (state, shown, changes) => {
    addItem(state, shown, changes, keyOf(state, "n", shown), "notice", {
      type,
      data: shown.event.data,
      view: shown.view ?? null,
      least,
    });
  };

/** One line for a row of them. @param {string} type @param {string} [least] @returns {import("../fold.js").Step} */
const latest =
  (type, least = "normal") =>
  (state, shown, changes) => {
    const last = lastItem(state);
    if (last?.kind === "notice" && last.type === type && last.worker === shown.event.workerId) {
      last.data = shown.event.data;
      itemChanged(last, shown, changes);
    } else notice(type, least)(state, shown, changes);
  };

/** @type {Record<string, import("../fold.js").Step>} */
export const NOTICES = {
  status: (state, shown, changes) => {
    const { type, message, code } = shown.event.data;
    if (code === "prefill") {
      changes.push({ what: "prefill", text: words(message) });
      return;
    }
    const told = lastItem(state);
    const repeats = code === "command" && type === "error" && told?.kind === "call" && told.failed;
    if (repeats && words(told.result?.event.data.error) === words(message)) return; // its card has said so
    const least = type === "error" || code === "command" ? "quiet" : type === "warning" ? "summary" : "normal";
    addItem(state, shown, changes, keyOf(state, "n", shown), "status", {
      type: words(type),
      text: words(message),
      code: code ?? null,
      least,
    });
  },

  sessionStarted: notice("sessionStarted"),
  planUpdated: latest("planUpdated"),
  contextCompacted: notice("contextCompacted"),
  catalogChanged: (state, shown, changes) => {
    const { added, changed, removed, diagnostics } = shown.event.data;
    if ([added, changed, removed, diagnostics].some((one) => list(one).length))
      notice("catalogChanged")(state, shown, changes);
  },
  mcpStatus: notice("mcpStatus"),
  toolSuggested: notice("toolSuggested"),
  wallsReport: notice("wallsReport"),
  diffSummary: notice("diffSummary"),
  diffContent: notice("diffContent"),
  usageUpdated: notice("usageUpdated", "debug"),
  contextUsage: (state, shown, changes) =>
    latest("contextUsage", shown.event.data.exceeded === true ? "summary" : "debug")(state, shown, changes),

  workerUpdate: (state, shown, changes) => {
    const { data } = shown.event;
    if (number(data.depth) < 1) return;
    const key = `w:${words(data.workerId)}`;
    const known = state.items.get(key);
    if (known) {
      known.data = { ...known.data, ...data };
      itemChanged(known, shown, changes);
    } else {
      const item = addItem(state, shown, changes, key, "notice", { type: "workerUpdate", data, view: null });
      item.worker = words(data.parentId);
    }
  },

  sessionEnd: (state, shown, changes) => {
    const { reason, message } = shown.event.data;
    const last = lastItem(state);
    const told = last?.kind === "status" && last.type === "error" && last.text === words(message);
    addItem(state, shown, changes, keyOf(state, "n", shown), "ended", {
      reason: words(reason),
      text: told ? "" : words(message),
      used: state.standing.usage?.session ?? null,
      least: reason === "completed" ? "summary" : "quiet",
    });
  },
};
