/* Fields of one value that is written: text, several lines, secret, number, JSON; and the fixed value that is only
   shown.

   An empty text is no value, unless one stood there before: who edits `content` from "x" to "" means it. A secret
   is never prefilled and never stays after it was sent. */

import { el, h, replace } from "../dom.js";
import { equalJson, exactNumber, isNumber, mayBeNull, numberText, parseExactly, pretty } from "./arguments.js";
import { aboutField, FieldProblem, fieldTexts, newId, several, single } from "./field.js";
import { visible } from "../visible.js";

/** @typedef {import("./arguments.js").Field} Field */
/** @typedef {import("./field.js").Control} Control */

const NEEDED = "a value is needed";
const MOST_ROWS = 12;
const PLAIN_DATE = /^\d{4}-\d\d-\d\d$/;
const KEYBOARDS = { email: "email", uri: "url" };

/** What stands in a field to begin with. */
const startOf = (field, given) => (given === undefined ? field.default : given);

const quietly = (input) => {
  input.setAttribute("autocomplete", "off");
  input.setAttribute("autocapitalize", "off");
  input.setAttribute("spellcheck", "false");
  return input;
};

const area = (text) => {
  const rows = Math.min(Math.max(text.split("\n").length, 3), MOST_ROWS);
  const input = quietly(h("textarea.field-input.field-literal", { rows: String(rows) }));
  input.value = text;
  return input;
};

/**
 * One line, as most texts are; Shift+Enter, or a paste of several, makes it more. Enter sends the form, as in any line.
 */
const line = () => {
  const input = quietly(h("textarea.field-input.field-line", { rows: "1" }));
  input.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    if (!event.repeat) input.form?.requestSubmit();
  });
  return input;
};

/** Threat: in a box, hidden characters stay hidden. They are said below it. */
const hiddenNote = (input) => {
  const note = h("p.field-hidden", { hidden: true });
  const look = () => {
    const shown = visible(input.value);
    note.hidden = shown === input.value;
    replace(note, note.hidden ? null : ["holds hidden characters: ", el("code", shown)]);
  };
  input.addEventListener("input", look);
  look();
  return note;
};

export const textField = (field, given) => {
  const start = startOf(field, given);
  const text = typeof start === "string" ? start : start === null || start === undefined ? "" : pretty(start);
  const asDate = field.format === "date" && (!text || PLAIN_DATE.test(text));
  const several = field.format === "multiline" || /[\r\n]/.test(text);
  const keyboard = KEYBOARDS[field.format];
  const input = several
    ? area(text)
    : field.format ? quietly(h("input.field-input", { type: asDate ? "date" : "text", inputmode: keyboard })) : line();
  input.value = text;
  const untouched = input.value; // a box has line ends of its own: what nobody edits goes back as it came
  const hadText = typeof start === "string";
  return single(field, input, {
    hint: aboutField(field, field.pattern ? `must match ${field.pattern}` : ""),
    after: asDate ? null : hiddenNote(input),
    value: (control) => {
      if (input.validity.badInput) throw new FieldProblem("the date is not complete", control);
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
  const input = quietly(h("input.field-input", { type: "password" }));
  input.setAttribute("autocomplete", "new-password");
  return single(field, input, {
    hint: kept ? "leave it empty to keep the value" : "not shown, not kept",
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

const range = ({ min, max, step }) => {
  const steps = step === undefined ? "" : `, in steps of ${step}`;
  if (min !== undefined && max !== undefined) return `a number from ${min} to ${max}${steps}`;
  if (min !== undefined) return `a number from ${min}${steps}`;
  return max !== undefined ? `a number up to ${max}${steps}` : `a number${steps}`;
};

export const numberField = (field, given) => {
  const start = startOf(field, given);
  const input = quietly(h("input.field-input.field-number", { type: "text", inputmode: "decimal" }));
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

const checkedNumber = (field, text, control) => {
  if (!isNumber(text)) throw new FieldProblem("a number is needed", control);
  const size = Number(text);
  if (!Number.isFinite(size)) throw new FieldProblem("a finite number is needed", control);
  if (field.min !== undefined && size < field.min) throw new FieldProblem(`must be at least ${field.min}`, control);
  if (field.max !== undefined && size > field.max) throw new FieldProblem(`must be at most ${field.max}`, control);
  try {
    return exactNumber(text);
  } catch (error) {
    throw new FieldProblem(error.message, control);
  }
};

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
        throw new FieldProblem(`not JSON: ${error.message}`, control);
      }
    },
  });
};

/** Shown, not editable. */
export const fixedField = (field) => {
  const texts = fieldTexts(field, "fixed");
  const value = typeof field.default === "string" ? field.default : pretty(field.default);
  const node = el("div.field",
    el("p.field-label", field.label || field.name, " ", el("code.field-fixed", value)),
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

/* Fields that are chosen: yes or no, one of several, any of several. Options are told apart by their place in the
   list, so that a value may be any JSON: a number and the text of it are two options. */
const UNSET = "";

/** @param {{label: string}[]} options @param {number} chosen -1: none
 * @param {string} unset what stands for no choice; empty: there is always one */
const selectOf = (options, chosen, unset) =>
  el("select.field-input",
    unset ? h("option", { value: UNSET, selected: chosen < 0 }, unset) : null,
    options.map((option, at) => h("option", { value: String(at), selected: at === chosen }, option.label)),
  );

/** A tick, or three states where leaving it empty is something else than no. */
export const booleanField = (field, given) => {
  const start = startOf(field, given);
  if (!field.required && (typeof field.default !== "boolean" || mayBeNull(field))) return threeStates(field, start);
  const input = h("input", { type: "checkbox" });
  input.checked = start === true;
  return single(field, input, { beside: true, value: () => input.checked });
};

const threeStates = (field, start) => {
  const input = selectOf([{ label: "Yes" }, { label: "No" }], start === true ? 0 : start === false ? 1 : -1, "Not set");
  return single(field, input, {
    hint: aboutField(field),
    value: () => (input.value === UNSET ? undefined : input.value === "0"),
  });
};

export const selectField = (field, given) => {
  const options = field.options ?? [];
  const start = startOf(field, given);
  const chosen = options.findIndex((option) => equalJson(option.value, start));
  const input = selectOf(options, chosen, field.required ? (chosen < 0 ? "Choose…" : "") : "Not set");
  return single(field, input, {
    hint: aboutField(field),
    value: (control) => {
      if (input.value !== UNSET) return options[Number(input.value)].value;
      if (field.required) throw new FieldProblem(NEEDED, control);
      return undefined;
    },
  });
};

const amount = ({ min, max }) => {
  if (min && max !== undefined) return `choose ${min} to ${max}`;
  if (min) return `choose at least ${min}`;
  return max === undefined ? "" : `choose at most ${max}`;
};

/** No item at all: an empty list where there was one or must be one, else nothing. */
export const emptyList = (field, start) => (field.required || (Array.isArray(start) && !field.min) ? [] : undefined);

export const multiselectField = (field, given) => {
  const start = startOf(field, given);
  const chosen = Array.isArray(start) ? start : [];
  const { node, body, texts } = several(field, aboutField(field, amount(field)));
  const boxes = (field.options ?? []).map((option) => {
    const box = h("input", { type: "checkbox", id: newId("option") });
    box.checked = chosen.some((value) => equalJson(value, option.value));
    body.append(el("div.field-check", box, h("label", { for: box.id }, option.label)));
    return { box, value: option.value };
  });
  body.classList.add("field-options");
  node.addEventListener("input", () => texts.say(""));
  const control = {
    node,
    value: () => {
      const values = boxes.filter(({ box }) => box.checked).map(({ value }) => value);
      if (!values.length && !field.required) return emptyList(field, start);
      if (values.length < (field.min ?? 0)) throw new FieldProblem(`choose at least ${field.min}`, control);
      if (field.max !== undefined && values.length > field.max)
        throw new FieldProblem(`choose at most ${field.max}`, control);
      return values;
    },
    showError: (path, words) => {
      texts.say(path ? `${path}: ${words}` : words);
      return true;
    },
    clearErrors: () => texts.say(""),
    focus: () => boxes[0]?.box.focus(),
  };
  return control;
};
