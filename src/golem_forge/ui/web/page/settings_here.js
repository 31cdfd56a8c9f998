/* What this browser remembers for itself: the trace level of this page. It changes nothing for others. */

import { LEVELS } from "./chat/levels.js";
import { remember, remembered } from "./theme.js";

const KEY = "forge.trace";
/** @type {Set<() => void>} */
const listeners = new Set();

export const settings = {
  get level() {
    const kept = remembered(KEY);
    return LEVELS.includes(kept) ? kept : "normal";
  },
  /** @param {string} level */
  setLevel(level) {
    if (!LEVELS.includes(level)) return;
    remember(KEY, level === "normal" ? null : level);
    for (const listener of [...listeners]) listener();
  },
  /** @param {() => void} listener @returns {() => void} */
  onLevel(listener) {
    listeners.add(listener);
    return () => listeners.delete(listener);
  },
};
