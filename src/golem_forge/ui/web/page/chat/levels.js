/* Trace levels: how much of a run is shown. Each item says from which level on (`item.least`). */

export const LEVELS = ["quiet", "summary", "normal", "debug"];

/** @param {{least: string}} item @param {string} level */
export const isShown = (item, level) => LEVELS.indexOf(level) >= LEVELS.indexOf(item.least);
