/* What is offered while a command is typed: commands and tools, then the options of the tool and their allowed
   values.

   `offers(text, tools)` takes the text before the cursor and gives where the word begins and the words that fit.
   Pure. */

import { COMMANDS, slash } from "./commands.js";
import { LEVELS } from "./levels.js";

/** @typedef {{value: string, hint: string}} Offer */

const MOST = 50;
/** @type {Record<string, string[]>} */
const SECOND = { trace: LEVELS, rules: ["revoke"], mcp: ["reconnect"] };

/** @param {string} before @param {any[]} tools @returns {{start: number, offers: Offer[]}} */
export const offers = (before, tools) => {
  if (!before.startsWith("/") || /["'\n]/.test(before)) return { start: 0, offers: [] };
  const start = before.lastIndexOf(" ") + 1;
  const word = before.slice(start);
  const words = before.slice(1, start).split(/\s+/).filter(Boolean);
  return { start, offers: fitting(word, start === 0 ? first(tools) : later(words, tools)).slice(0, MOST) };
};

/** @param {any[]} tools @returns {Offer[]} */
const first = (tools) => [
  ...COMMANDS.map(([name, hint]) => ({ value: `/${name}`, hint })),
  ...tools.map((tool) => ({ value: slash(String(tool.name)), hint: String(tool.label ?? tool.description ?? "") })),
];

/** @param {string[]} words those before the one that is typed @param {any[]} tools @returns {Offer[]} */
const later = ([command, ...given], tools) => {
  const name = command.toLowerCase();
  const byName = name === "tool" || name === "t";
  if (byName && !given.length)
    return tools.map((tool) => ({ value: String(tool.name), hint: String(tool.label ?? "") }));
  if (Object.hasOwn(SECOND, name) && !given.length) return SECOND[name].map((value) => ({ value, hint: "" }));
  const wanted = (byName ? given[0] : command).toLowerCase();
  const fields = tools.find((tool) => String(tool.name).toLowerCase() === wanted)?.fields ?? [];
  const last = given.at(-1) ?? "";
  const chosen = fields.find((/** @type {any} */ field) => `--${field.name}` === last);
  if (chosen?.options)
    return chosen.options.map((/** @type {any} */ one) => ({
      value: String(one.value),
      hint: String(one.label ?? ""),
    }));
  if (chosen && chosen.type !== "boolean") return [];
  return fields
    .filter((/** @type {any} */ field) => !given.includes(`--${field.name}`))
    .map((/** @type {any} */ field) => ({
      value: `--${field.name}`,
      hint: String(field.description || field.label || ""),
    }));
};

/** @param {string} word @param {Offer[]} all */
const fitting = (word, all) => {
  const typed = word.toLowerCase();
  return all.filter((one) => one.value.toLowerCase().startsWith(typed) && one.value !== word);
};
