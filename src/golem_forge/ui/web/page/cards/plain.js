/* Any value as words: what came as JSON in one line, in a few words, or counted. Never throws; nothing here is
   markup. */

/** A string as it is, anything else as JSON with blanks. @param {any} value @returns {string} */
export const words = (value) => (typeof value === "string" ? value : value === undefined ? "" : compact(value));

/** As Python writes it: a blank after each comma and colon. @param {any} value @returns {string} */
const compact = (value) => {
  if (Array.isArray(value)) return `[${value.map(compact).join(", ")}]`;
  if (value !== null && typeof value === "object" && !JSON.isRawJSON?.(value))
    return `{${Object.entries(value)
      .map(([name, one]) => `${JSON.stringify(name)}: ${compact(one)}`)
      .join(", ")}}`;
  return JSON.stringify(value) ?? "";
};

/** @param {any} value @returns {string} */
export const oneLine = (value) => words(value).replace(/[\n\t]/g, " ");

/** The texts of a list. @param {any} value @returns {string[]} */
export const texts = (value) => (Array.isArray(value) ? value.map(words) : []);

/** The objects of a list. @param {any} value @returns {Record<string, any>[]} */
export const objects = (value) =>
  Array.isArray(value) ? value.filter((one) => one !== null && typeof one === "object" && !Array.isArray(one)) : [];

/** A whole finite number, 0 for anything else. @param {any} value */
export const count = (value) => (typeof value === "number" && Number.isFinite(value) ? Math.trunc(value) : 0);

/**
 * At most `limit` characters, the last of them `…` where something was left out.
 * @param {string} text @param {number} limit
 */
export const shortened = (text, limit) => {
  const characters = [...text.slice(0, limit * 2 + 2)];
  return characters.length <= limit ? text : `${characters.slice(0, limit - 1).join("")}…`;
};

/** @param {number} amount @param {string} one @param {string} [many] */
export const counted = (amount, one, many = `${one}s`) => `${amount.toLocaleString("en")} ${amount === 1 ? one : many}`;

/** `branch="main" force=true`: long values are cut here, and shown whole where they matter. @param {any} args */
export const shortArguments = (args) => {
  if (args === null || typeof args !== "object" || Array.isArray(args)) return "";
  const all = Object.entries(args);
  const short = (/** @type {any} */ value) =>
    shortened(typeof value === "string" ? `"${oneLine(value)}"` : oneLine(value), 60);
  const shown = all.slice(0, 6).map(([name, value]) => `${oneLine(name)}=${short(value)}`);
  return shown.join(" ") + (all.length > 6 ? " …" : "");
};
