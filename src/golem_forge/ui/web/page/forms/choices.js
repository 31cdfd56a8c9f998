/* Fields that are chosen: yes or no, one of several, any of several. Options are told apart by their place in the
   list, so that a value may be any JSON: a number and the text of it are two options. */

import { h } from "../dom.js";
import { mayBeNull } from "./arguments.js";
import { equalJson } from "./exact_json.js";
import { aboutField, FieldProblem, newId, several, single } from "./field_shell.js";
import { startOf } from "./scalars.js";

/** @typedef {import("./arguments.js").Field} Field */
/** @typedef {import("./field_shell.js").Control} Control */

const UNSET = "";
const NEEDED = "a value is needed";

/**
 * @param {{label: string}[]} options
 * @param {number} chosen -1: none
 * @param {string} unset what stands for no choice; empty: there is always one
 */
const selectOf = (options, chosen, unset) =>
  /** @type {HTMLSelectElement} */ (
    h(
      "select",
      { class: "field-input" },
      unset ? h("option", { value: UNSET, selected: chosen < 0 }, unset) : null,
      options.map((option, at) => h("option", { value: String(at), selected: at === chosen }, option.label)),
    )
  );

/**
 * A tick, or three states where leaving it empty is something else than no.
 * @param {Field} field @param {any} given @returns {Control}
 */
export const booleanField = (field, given) => {
  const start = startOf(field, given);
  if (!field.required && (typeof field.default !== "boolean" || mayBeNull(field))) return threeStates(field, start);
  const input = /** @type {HTMLInputElement} */ (h("input", { type: "checkbox" }));
  input.checked = start === true;
  return single(field, input, { beside: true, value: () => input.checked });
};

/** @param {Field} field @param {any} start @returns {Control} */
const threeStates = (field, start) => {
  const input = selectOf([{ label: "Yes" }, { label: "No" }], start === true ? 0 : start === false ? 1 : -1, "Not set");
  return single(field, input, {
    hint: aboutField(field),
    value: () => (input.value === UNSET ? undefined : input.value === "0"),
  });
};

/** @param {Field} field @param {any} given @returns {Control} */
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

/** @param {Field} field */
const amount = ({ min, max }) => {
  if (min && max !== undefined) return `choose ${min} to ${max}`;
  if (min) return `choose at least ${min}`;
  return max === undefined ? "" : `choose at most ${max}`;
};

/**
 * No item at all: an empty list where there was one or must be one, else nothing.
 * @param {Field} field @param {any} start
 */
export const emptyList = (field, start) => (field.required || (Array.isArray(start) && !field.min) ? [] : undefined);

/** @param {Field} field @param {any} given @returns {Control} */
export const multiselectField = (field, given) => {
  const start = startOf(field, given);
  const chosen = Array.isArray(start) ? start : [];
  const { node, body, texts } = several(field, aboutField(field, amount(field)));
  const boxes = (field.options ?? []).map((option) => {
    const box = /** @type {HTMLInputElement} */ (h("input", { type: "checkbox", id: newId("option") }));
    box.checked = chosen.some((value) => equalJson(value, option.value));
    body.append(h("div", { class: "field-check" }, box, h("label", { for: box.id }, option.label)));
    return { box, value: option.value };
  });
  body.classList.add("field-options");
  node.addEventListener("input", () => texts.say(""));
  /** @type {Control} */
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
