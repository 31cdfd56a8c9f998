/* Fields of one value that is written: text, several lines, secret, number, JSON; and the fixed value that is only
   shown.

   An empty text is no value, unless one stood there before: who edits `content` from "x" to "" means it. A secret
   is never prefilled and never stays after it was sent. */

import { h, replace } from "../dom.js";
import { visible } from "../visible.js";
import { exactNumber, isNumber, numberText, parseExactly, pretty } from "./exact_json.js";
import { aboutField, FieldProblem, fieldTexts, single } from "./field_shell.js";

/** @typedef {import("./arguments.js").Field} Field */
/** @typedef {import("./field_shell.js").Control} Control */

const NEEDED = "a value is needed";
const MOST_ROWS = 12;
const PLAIN_DATE = /^\d{4}-\d\d-\d\d$/;
const KEYBOARDS = { email: "email", uri: "url" };

/** What stands in a field to begin with. @param {Field} field @param {any} given */
export const startOf = (field, given) => (given === undefined ? field.default : given);

/** @param {HTMLElement} input */
const quietly = (input) => {
  input.setAttribute("autocomplete", "off");
  input.setAttribute("autocapitalize", "off");
  input.setAttribute("spellcheck", "false");
  return /** @type {HTMLInputElement} */ (input);
};

/** @param {string} text */
const area = (text) => {
  const rows = Math.min(Math.max(text.split("\n").length, 3), MOST_ROWS);
  const input = quietly(h("textarea", { class: "field-input field-literal", rows: String(rows) }));
  input.value = text;
  return input;
};

/**
 * One line, as most texts are; Shift+Enter, or a paste of several, makes it more. Enter sends the form, as in any line.
 */
const line = () => {
  const input = quietly(h("textarea", { class: "field-input field-line", rows: "1" }));
  input.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    if (!event.repeat) input.form?.requestSubmit();
  });
  return input;
};

/**
 * Threat: in a box, hidden characters stay hidden. They are said below it.
 * @param {HTMLInputElement} input
 */
const hiddenNote = (input) => {
  const note = h("p", { class: "field-hidden", hidden: true });
  const look = () => {
    const shown = visible(input.value);
    note.hidden = shown === input.value;
    replace(note, note.hidden ? null : ["holds hidden characters: ", h("code", null, shown)]);
  };
  input.addEventListener("input", look);
  look();
  return note;
};

/** @param {Field} field @param {any} given @returns {Control} */
export const textField = (field, given) => {
  const start = startOf(field, given);
  const text = typeof start === "string" ? start : start === null || start === undefined ? "" : pretty(start);
  const asDate = field.format === "date" && (!text || PLAIN_DATE.test(text));
  const several = field.format === "multiline" || /[\r\n]/.test(text);
  const keyboard = KEYBOARDS[/** @type {keyof typeof KEYBOARDS} */ (field.format)];
  const input = several
    ? area(text)
    : field.format
      ? quietly(h("input", { class: "field-input", type: asDate ? "date" : "text", inputmode: keyboard }))
      : line();
  input.value = text;
  const untouched = input.value; // a box has line ends of its own: what nobody edits goes back as it came
  const hadText = typeof start === "string";
  return single(field, input, {
    hint: aboutField(field, field.pattern ? `must match ${field.pattern}` : ""),
    after: asDate ? null : hiddenNote(input),
    value: (control) => {
      if (input.validity.badInput) throw new FieldProblem("not a whole date", control);
      if (hadText && input.value === untouched) return start;
      if (input.value || hadText) return input.value;
      if (field.required) throw new FieldProblem(NEEDED, control);
      return undefined;
    },
  });
};

/** @param {Field} field @param {any} given a placeholder, if there is a value already @returns {Control} */
export const secretField = (field, given) => {
  const kept = given !== undefined && given !== null;
  const input = quietly(h("input", { class: "field-input", type: "password" }));
  input.setAttribute("autocomplete", "new-password");
  return single(field, input, {
    hint: kept ? "left empty it stays as it is" : "not shown, not kept",
    value: (control) => {
      if (input.value) return input.value;
      if (field.required && !kept) throw new FieldProblem(NEEDED, control);
      return undefined;
    },
    forget: () => {
      input.value = "";
    },
  });
};

/** @param {Field} field */
const range = ({ min, max, step }) => {
  const steps = step === undefined ? "" : `, in steps of ${step}`;
  if (min !== undefined && max !== undefined) return `a number from ${min} to ${max}${steps}`;
  if (min !== undefined) return `a number from ${min}${steps}`;
  return max !== undefined ? `a number up to ${max}${steps}` : `a number${steps}`;
};

/** @param {Field} field @param {any} given @returns {Control} */
export const numberField = (field, given) => {
  const start = startOf(field, given);
  const input = quietly(h("input", { class: "field-input field-number", type: "text", inputmode: "decimal" }));
  input.value = typeof start === "string" ? start : numberText(start);
  return single(field, input, {
    hint: aboutField(field, range(field)),
    value: (control) => {
      const text = input.value.trim();
      if (!text && field.required) throw new FieldProblem(NEEDED, control);
      return text ? checkedNumber(field, text, control) : undefined;
    },
  });
};

/** @param {Field} field @param {string} text @param {Control} control */
const checkedNumber = (field, text, control) => {
  if (!isNumber(text)) throw new FieldProblem("a number is needed", control);
  const size = Number(text);
  if (!Number.isFinite(size)) throw new FieldProblem("a finite number is needed", control);
  if (field.min !== undefined && size < field.min) throw new FieldProblem(`must be at least ${field.min}`, control);
  if (field.max !== undefined && size > field.max) throw new FieldProblem(`must be at most ${field.max}`, control);
  try {
    return exactNumber(text);
  } catch (error) {
    throw new FieldProblem(/** @type {Error} */ (error).message, control);
  }
};

/** @param {Field} field @param {any} given @returns {Control} */
export const jsonField = (field, given) => {
  const start = startOf(field, given);
  const input = area(start === undefined || (start === null && given === undefined) ? "" : pretty(start));
  return single(field, input, {
    hint: aboutField(field, "JSON"),
    after: hiddenNote(input),
    value: (control) => {
      const text = input.value.trim();
      if (!text && field.required) throw new FieldProblem(NEEDED, control);
      if (!text) return undefined;
      try {
        return parseExactly(text);
      } catch (error) {
        throw new FieldProblem(`not JSON: ${/** @type {Error} */ (error).message}`, control);
      }
    },
  });
};

/** Shown, not editable. @param {Field} field @returns {Control} */
export const fixedField = (field) => {
  const texts = fieldTexts(field, "fixed");
  const value = typeof field.default === "string" ? field.default : pretty(field.default);
  const node = h(
    "div",
    { class: "field" },
    h("p", { class: "field-label" }, field.label || field.name, " ", h("code", { class: "field-fixed" }, value)),
    texts.words,
    texts.error,
  );
  return {
    node,
    value: () => field.default,
    showError: (_, words) => {
      texts.say(words);
      return true;
    },
    clearErrors: () => texts.say(""),
    focus: () => node.scrollIntoView({ block: "nearest" }),
  };
};
