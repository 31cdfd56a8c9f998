/* Everything that is approved, literally, and why it is asked: the middle of an approval card.

   Threat: whoever wrote the arguments wants a yes. That nothing confines the call stands first; the literal part
   has a bar before each line; what the model says is quoted as the model's; nothing is cut at its end. */

import { path } from "../api.js";
import { h } from "../dom.js";
import { pretty } from "../forms/exact_json.js";
import {
  aboutLines,
  defaults,
  fieldErrors,
  isTrust,
  literalText,
  riskWords,
  segmentWords,
  standingLines,
  warningLines,
  whyWords,
} from "./card_words.js";
import { countdown } from "./countdown.js";
import { diffView } from "./diff.js";
import { disclosed } from "./disclosure.js";
import { literal } from "./literal.js";
import { objects, oneLine, words } from "./plain.js";

const MOST_DIFF_ROWS = 40;

/**
 * The question as it is, where the server sent it shortened.
 * @param {any} shown @param {any} ctx @returns {Promise<Record<string, any>>}
 */
export const wholeQuestion = async (shown, ctx) => {
  const { seq, data } = shown.event;
  if (!shown.view?.cut) return data;
  const session = path`/api/sessions/${ctx.session.id}`;
  const open = ctx.api.get(`${session}${path`/questions/${data.requestId}`}`);
  const found = await open.catch((/** @type {any} */ failure) => {
    if (failure?.status === 0) throw failure;
    return ctx.api.get(`${session}${path`/events/${seq}`}`); // answered already: as it was recorded
  });
  if (found?.event?.data?.requestId !== data.requestId) throw { problem: "The whole request could not be loaded." };
  return found.event.data;
};

/** @param {string} text @param {string} look @param {string} [mark] */
const line = (text, look, mark = "") =>
  h("li", { class: look }, mark ? h("span", { class: "fact-mark", "aria-hidden": "true" }, mark) : null, oneLine(text));

/** @param {Record<string, any>} request */
const segments = (request) => {
  const all = objects(request.segments).map(segmentWords);
  if (all.length < 2 && !all.some((one) => one.dangers.length)) return null;
  const row = (/** @type {ReturnType<typeof segmentWords>} */ one) =>
    h(
      "li",
      null,
      h("code", null, one.text),
      one.dangers.length ? h("span", { class: "fact-warn" }, ` ${one.dangers.join(", ")}`) : null,
      one.proven ? h("span", { class: "dim" }, " only reads") : null,
    );
  return h(
    "div",
    { class: "card-segments" },
    h("p", { class: "fact-name" }, all.length > 1 ? `${all.length} commands` : "the command"),
    h("ol", null, all.map(row)),
  );
};

/** What it would change, as a unified diff; "" where it is something else. @param {any} request */
const diffOf = (request) => {
  if (request.diff) return words(request.diff);
  const text = isTrust(request) ? literalText(request) : "";
  return text.startsWith("--- ") ? text : ""; // a program that is trusted anew: its files against those of then
};

/** @param {any} shown @param {any} ctx */
const literalPart = (shown, ctx) => {
  const { data } = shown.event;
  /** @param {(request: any) => string} pick */
  const whole = (pick) => (shown.view?.cut ? async () => pick(await wholeQuestion(shown, ctx)) : null);
  const diff = diffOf(data);
  if (!diff) return literal(literalText(data), { label: "What would run, literally", whole: whole(literalText) });
  const root = isTrust(data) ? "" : "/"; // a program's files are named from its directory, all others by their zone
  return diffView(diff, ctx, { most: MOST_DIFF_ROWS, whole: whole(diffOf), root });
};

/** Every argument, and what the tool fills in. @param {any} shown @param {any} ctx */
const allArguments = (shown, ctx) => {
  const { data } = shown.event;
  if (!data.diff && pretty(data.args ?? {}) === literalText(data)) return null;
  return disclosed(
    "All arguments",
    async () => {
      const request = await wholeQuestion(shown, ctx);
      const filled = defaults(request).map(([name, value]) => h("li", null, `${name} = ${value} (default)`));
      return h(
        "div",
        null,
        literal(pretty(request.args ?? {}), { label: "All arguments" }),
        filled.length ? h("ul", { class: "facts-lines" }, filled) : null,
      );
    },
    { class: "small" },
  );
};

/** @param {any} shown an `approvalRequired` @param {any} ctx @returns {Node[]} */
export const approvalFacts = (shown, ctx) => {
  const request = shown.event.data;
  const risk = riskWords(request);
  const errors = Object.entries(fieldErrors(request));
  const warnings = [
    ...risk.others.map((reason) => line(reason, "fact-warn", "! ")),
    ...warningLines(request).map((warning) => line(warning, "fact-warn", "! ")),
    ...errors.map(([name, problem]) => line(`${name}: ${problem}`, "fact-fail", "✗ ")),
  ];
  const standing = standingLines(request).map(({ text, warn }) =>
    line(text, warn ? "fact-warn" : "", warn ? "! " : ""),
  );
  const about = aboutLines(request).map((text) => line(text, ""));
  return [
    risk.noWalls.length
      ? h(
          "ul",
          { class: "card-no-walls" },
          risk.noWalls.map((reason) => line(reason, "")),
        )
      : null,
    literalPart(shown, ctx),
    segments(request),
    about.length ? h("ul", { class: "facts-lines" }, about) : null,
    request.modelNote
      ? h(
          "figure",
          { class: "card-note" },
          h("figcaption", null, "the caller says"),
          h("blockquote", null, words(request.modelNote)),
        )
      : null,
    warnings.length ? h("ul", { class: "facts-lines card-warnings" }, warnings) : null,
    request.changed
      ? h(
          "div",
          { class: "card-changed" },
          h("p", { class: "fact-warn" }, "the tool's definition changed:"),
          diffView(words(request.changed), ctx, {
            most: MOST_DIFF_ROWS,
            whole: shown.view?.cut ? async () => words((await wholeQuestion(shown, ctx)).changed) : null,
          }),
        )
      : null,
    allArguments(shown, ctx),
    standing.length ? h("ul", { class: "facts-lines" }, standing) : null,
    request.expiresAt
      ? h("p", { class: "card-expires" }, "Without an answer it is denied ", countdown(words(request.expiresAt)), ".")
      : null,
    h("p", { class: "card-why" }, h("span", { class: "fact-name" }, "why asked: "), oneLine(whyWords(request))),
  ].filter((node) => node !== null);
};
