/* Numbers in words, as the terminal says them. */

/** `$0.0123`, or that nobody knows. @param {unknown} dollars */
export const cost = (dollars) => {
  if (typeof dollars !== "number" || !Number.isFinite(dollars)) return "unknown";
  return `$${dollars.toFixed(dollars >= 10 || dollars === 0 ? 2 : 4)}`;
};

/** @param {unknown} count */
export const counted = (count) =>
  typeof count === "number" && Number.isFinite(count) ? Math.round(count).toLocaleString("en-US") : "0";

/** @param {number} part @param {number} whole */
export const percent = (part, whole) => `${whole > 0 ? Math.round((100 * part) / whole) : 0} %`;

/** `1,234 in (200 cached) · 56 out · $0.0123`, or `cost unknown`. @param {any} used */
export const usage = (used) => {
  const price = cost(used?.cost);
  const cached = used?.cached ? ` (${counted(used.cached)} cached)` : "";
  return `${counted(used?.input)} in${cached} · ${counted(used?.output)} out · ${price === "unknown" ? "cost unknown" : price}`;
};

/** Made once: to make one takes longer than to draw what it stands in. */
const DAYTIME = new Intl.DateTimeFormat([], { hour: "2-digit", minute: "2-digit" });

/** The time of day of an event. @param {string} ts */
export const clock = (ts) => {
  const when = new Date(ts);
  return Number.isNaN(when.getTime()) ? "" : DAYTIME.format(when);
};

/** @param {number} bytes */
export const size = (bytes) => {
  if (bytes < 1024) return `${bytes} B`;
  return bytes < 1024 * 1024 ? `${(bytes / 1024).toFixed(1)} KB` : `${(bytes / 1024 / 1024).toFixed(1)} MB`;
};
