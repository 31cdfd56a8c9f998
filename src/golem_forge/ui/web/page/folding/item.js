/* What every step of the fold uses: adding an item, telling that one changed, and reading values that may be
   anything. */

/** @typedef {import("../fold.js").State} State */
/** @typedef {import("../fold.js").Shown} Shown */
/** @typedef {import("../fold.js").Item} Item */
/** @typedef {import("../fold.js").Change} Change */

/** At most so many characters of what a call puts out, or a model thinks, are kept here: the last ones. */
export const MOST_TAIL = 64 * 1024;
const MOST_SEQS = 20;

/** The key of an item that one event makes. @param {State} state @param {string} kind @param {Shown} shown */
export const keyOf = (state, kind, shown) => `${kind}:${shown.event.seq || `before-${++state.loose}`}`;

/**
 * Puts an item at the end.
 * @param {State} state @param {Shown} shown @param {Change[]} changes
 * @param {string} key @param {string} kind @param {Record<string, any>} more `least`: the trace level it is shown from
 * @returns {Item}
 */
export const addItem = (state, shown, changes, key, kind, more) => {
  const { event } = shown;
  const worker = event.workerId ?? "";
  const item = { key, kind, worker, ts: event.ts ?? "", seqs: event.seq ? [event.seq] : [], least: "normal", ...more };
  state.items.set(key, item);
  changes.push({ what: "item", key, fresh: true });
  return item;
};

/** @param {Item} item @param {Shown} shown @param {Change[]} changes */
export const itemChanged = (item, shown, changes) => {
  const { seq } = shown.event;
  if (seq && item.seqs.length < MOST_SEQS && !item.seqs.includes(seq)) item.seqs.push(seq);
  changes.push({ what: "item", key: item.key, fresh: false });
};

/** @param {State} state @param {string} key @param {Change[]} changes */
export const dropItem = (state, key, changes) => {
  if (state.items.delete(key)) changes.push({ what: "gone", key });
};

/** @param {State} state @returns {Item | undefined} */
export const lastItem = (state) => {
  let last;
  for (last of state.items.values());
  return last;
};

/** @param {unknown} value @returns {string} */
export const words = (value) =>
  typeof value === "string" ? value : value === null || value === undefined ? "" : String(value);

/** @param {unknown} value @returns {number} */
export const number = (value) => (typeof value === "number" && Number.isFinite(value) ? value : 0);

/** @param {unknown} value @returns {any[]} */
export const list = (value) => (Array.isArray(value) ? value : []);

/** @param {string} value */
export const tail = (value) => (value.length > MOST_TAIL ? value.slice(-MOST_TAIL) : value);

/**
 * Forgets the oldest of a Map or Set that grew too long.
 * @param {Map<any, any> | Set<any>} kept
 * @param {number} most
 */
export const bounded = (kept, most) => {
  while (kept.size > most) kept.delete(kept.keys().next().value);
};
