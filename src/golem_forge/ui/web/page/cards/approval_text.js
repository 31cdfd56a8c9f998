/* What an approval card says, in words: as `ui/render/card.py` says it at a terminal (a test holds the two
   together).

   Threat: whoever wrote the arguments wants a yes. What the literal part leaves out (a working directory, a
   terminal, an argument) has a line of its own; a label that reads like another tool's name, or that is long enough
   to push the rest away, is left out. */

import { count, objects, oneLine, shortened, texts, words } from "../format.js";
import { isObject, own, pretty } from "../forms/arguments.js";
import { visible } from "../visible.js";

/** @typedef {Record<string, any>} Request the data of `approvalRequired` */

const PLAIN_LABEL = /^(?:[\p{L}\p{N}]|[ .,'&+/#-]){1,60}$/u;
const SEEN = new Set(["text", "number", "boolean", "select", "multiselect"]);
const UNMISTAKABLE = 8;
const MOST_DEFAULT = 60;
const NO_WALLS = "NO WALLS";

/** A card about a program's or a server's files: nothing to edit, nothing remembered but the trust. */
export const isTrust = (request) => request.type === "trust";

/** Asked for its own sake: no call waits behind it. @param {Request} request */
const isQuestion = (request) =>
  isTrust(request) || request.type === "sampling" || (request.type === "definition" && !request.toolCallId);

/** Label and name: the name is what rules and logs know. @param {Request} request */
const named = (request) => {
  const tool = oneLine(request.tool);
  const label = oneLine(request.label || words(request.description).split(": ", 1)[0]);
  return label !== tool && PLAIN_LABEL.test(label) ? `${label} (${tool})` : tool;
};

const WANTS = {
  file_write: "wants to change files",
  worker: "wants to start a worker",
  definition: "is new or changed and wants to run",
};

/** The card's heading without its risk. @param {Request} request */
export const cardTitle = (request) => {
  if (isQuestion(request)) return oneLine(request.description);
  return `${named(request)} ${WANTS[request.type] ?? "wants to run"}`;
};

/** Reasons for the risk, split: that nothing confines it comes first of all. @param {Request} request */
export const riskWords = (request) => {
  const reasons = [...new Set(texts(request.riskReasons))];
  const why = whyWords(request);
  return {
    noWalls: reasons.filter((reason) => reason.startsWith(NO_WALLS)),
    others: reasons.filter((reason) => !reason.startsWith(NO_WALLS) && !why.includes(reason)),
  };
};

/** @param {Request} request */
export const whyWords = (request) => words(request.why ?? "");

/** The literal part: what will be used, as it is. @param {Request} request */
export const literalText = (request) =>
  typeof request.payload === "string" ? request.payload : pretty(request.payload ?? "");

/** `worker: main › analyzer - its task`; the root alone needs no line. @param {Request} request */
export const workerWords = (request) => {
  const path = objects(request.workerPath);
  if (path.length < 2) return "";
  const task = path.at(-1)?.task;
  return `worker: ${path.map((one) => words(one.name ?? "")).join(" › ")}${task ? ` - ${words(task)}` : ""}`;
};

/** What holds for the call besides its text; nothing twice. @param {Request} request @returns {string[]} */
export const aboutLines = (request) => {
  const seen = new Set([visible(`exec ${oneLine(request.payload ?? "")}`).trim()]);
  return [...circumstances(request), ...texts(request.effects)].map((line) => visible(oneLine(line)))
    .filter((line) => !seen.has(line) && seen.add(line));
};

const circumstances = (request) => {
  const args = isObject(request.args) ? request.args : {};
  const path = workerWords(request);
  return [...(path ? [path] : []), ...ofTool(request, args)];
};

const ofTool = (request, args) => {
  if (request.tool === "exec_command") {
    const shell = own(args, "shell") ?? "bash";
    return [
      args.workdir ? `in ${words(args.workdir)}` : "",
      shell !== "bash" || args.login ? `by ${args.login ? "a login " : ""}${words(shell)}` : "",
      args.tty ? "in a terminal" : "",
    ].filter(Boolean);
  }
  if (request.tool === "write_stdin") return [`typed into session ${words(args.session_id ?? "")}`];
  if (request.tool === "shell" || request.diff) return [];
  // The text of a tool's own card is its author's, who could write an argument's value into it to keep it unseen.
  const payload = request.type === "definition" ? "" : (request.payload ?? "");
  const used = defaults(request).map(([name, value]) => `${name} = ${shortened(value, MOST_DEFAULT)} (default)`);
  return [...leftOut(args, payload), ...(used.length ? [used.join(" · ")] : [])];
};

/** Arguments that cannot be read in the payload. A short value found there may be part of something else. */
const leftOut = (args, payload) => {
  const shown = visible(oneLine(payload));
  if (visible(oneLine(pretty(args))) === shown) return [];
  return Object.entries(args).filter(
    ([, value]) =>
      value !== null &&
      !(typeof value === "string" && [...value].length >= UNMISTAKABLE && shown.includes(visible(oneLine(value)))),
  )
    .map(([name, value]) => `${name} = ${words(value)}`);
};

/** Arguments not given that the tool will fill in; none of a field that is not to be seen. */
export const defaults = (request) => {
  const given = isObject(request.args) ? request.args : {};
  return objects(request.fields)
    .filter((field) => !Object.hasOwn(given, field.name) && !isNothing(field.default) && isOpen(field))
    .map((field) => [
      oneLine(field.name),
      words(typeof field.default === "string" ? JSON.stringify(field.default) : field.default),
    ]);
};

const isNothing = (value) =>
  value === undefined || value === null || value === "" || (typeof value === "object" && !Object.keys(value).length);

/** Whether no part of it may be a secret. */
const isOpen = (field) => SEEN.has(field.type) || (field.type === "list" && SEEN.has(field.item?.type));

/** Problems of the last edit, by field. @param {Request} request @returns {Record<string, string>} */
export const fieldErrors = (request) =>
  Object.fromEntries(
    objects(request.fields).filter((field) => field.error).map((field) => [words(field.name), words(field.error)]),
  );

/** Warnings that are not said at a field. @param {Request} request */
export const warningLines = (request) => {
  const said = new Set(Object.entries(fieldErrors(request)).map(([name, problem]) => `${name}: ${problem}`));
  return texts(request.warnings).filter((warning) => !said.has(warning));
};

/** @param {Request} request @returns {{text: string, warn: boolean}[]} */
export const standingLines = (request) => {
  const denied = count(request.previouslyDenied);
  const waiting = count(request.waiting);
  return [
    ...(denied ? [{ text: `denied ${denied} times before in this session`, warn: true }] : []),
    ...(waiting > 1 ? [{ text: `${waiting} identical calls wait for this answer`, warn: false }] : []),
  ];
};

/** Where a choice is kept: `session`, or `always for this project, in .forge/rules.yaml`. */
export const keptWhere = (choice) =>
  words(choice.scope ?? "") + (choice.file ? ` for this project, in ${words(choice.file)}` : "");

/** One command of several in a line.
 * @param {Record<string, any>} segment @returns {{text: string, dangers: string[], proven: boolean}} */
export const segmentWords = (segment) => ({
  text: texts(segment.words).join(" "),
  dangers: texts(segment.dangers),
  proven: segment.proven === true,
});
