/* What is offered while a command is typed: commands, tools and prompts of servers, then the options of the one that
   was named and their allowed values. As in the terminal, a prompt wins over a tool of its name.

   `offers(text, known)` takes the text before the cursor and gives where the word begins and the words that fit.
   Pure. */

import { COMMANDS, slash } from "./commands.js";
import { LEVELS } from "./levels.js";

/** @typedef {{value: string, hint: string}} Offer */
/** @typedef {{tools: any[], prompts: any[], servers: string[]}} Known */

const MOST = 50;
/** @type {Record<string, string[]>} */
const SECOND = { trace: LEVELS, rules: ["revoke"], mcp: ["reconnect"] };

/** @param {string} before @param {Known} known @returns {{start: number, offers: Offer[]}} */
export const offers = (before, known) => {
  if (!before.startsWith("/") || /["'\n]/.test(before)) return { start: 0, offers: [] };
  const start = before.lastIndexOf(" ") + 1;
  const word = before.slice(start);
  const words = before.slice(1, start).split(/\s+/).filter(Boolean);
  return { start, offers: fitting(word, start === 0 ? first(known) : later(words, known)).slice(0, MOST) };
};

/** @param {Known} known @returns {Offer[]} */
const first = ({ tools, prompts }) => [
  ...COMMANDS.map(([name, hint]) => ({ value: `/${name}`, hint })),
  ...tools
    .filter((tool) => !named(prompts, tool.name))
    .map((tool) => ({ value: slash(String(tool.name)), hint: String(tool.label ?? tool.description ?? "") })),
  ...prompts.map((prompt) => ({ value: `/${prompt.name}`, hint: String(prompt.description ?? "") })),
];

/** @param {any[]} some @param {unknown} name */
const named = (some, name) => some.find((one) => String(one.name).toLowerCase() === String(name).toLowerCase());

/** @param {string[]} words those before the one that is typed @param {Known} known @returns {Offer[]} */
const later = ([command, ...given], known) => {
  const { tools, prompts, servers } = known;
  const name = command.toLowerCase();
  const byName = name === "tool" || name === "t";
  if (byName && !given.length)
    return tools.map((tool) => ({ value: String(tool.name), hint: String(tool.label ?? "") }));
  if (Object.hasOwn(SECOND, name) && !given.length) return SECOND[name].map((value) => ({ value, hint: "" }));
  if (name === "help" && !given.length)
    return first(known).map(({ value, hint }) => ({ value: value.replace(/^\/(?:tool )?/, ""), hint }));
  if (name === "mcp" && given.length === 1 && given[0].toLowerCase() === "reconnect")
    return servers.map((value) => ({ value, hint: "" }));
  const wanted = byName ? given[0] : command;
  const fields = ((byName ? null : named(prompts, wanted)) ?? named(tools, wanted))?.fields ?? [];
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
