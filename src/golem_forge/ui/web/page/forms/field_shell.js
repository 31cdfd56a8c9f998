/* What stands around every control of a form: its label, what it is for, what it allows, and what is wrong with it.

   All three texts are tied to the control by id (`aria-describedby`), so a screen reader says them with it. Ids are
   counted, never made of a name: names are a tool's or a server's. */

import { h, replace } from "../dom.js";
import { visible } from "../visible.js";

let counted = 0;

/** @param {string} [about] */
export const newId = (about = "f") => `${about}-${++counted}`;

/**
 * @typedef {object} Control one field on the page
 * @property {HTMLElement} node
 * @property {() => any} value `undefined`: left empty. Throws FieldProblem where what stands there is no value
 * @property {(path: string, words: string) => boolean} showError at `path` below it (`""`: itself)
 * @property {() => void} clearErrors
 * @property {() => void} focus
 * @property {() => void} [forget] empties what must not stay (secrets)
 */

/** What stands in a field is no value of it. `control` is where to go. */
export class FieldProblem extends Error {
  /** @param {string} words @param {Control} control */
  constructor(words, control) {
    super(words);
    this.control = control;
    this.said = false;
  }
}

/** What it allows, in a few words. @param {import("./arguments.js").Field} field @param {string} [hint] */
export const aboutField = (field, hint = "") =>
  [hint, field.format && field.format !== "multiline" ? field.format : ""].filter(Boolean).join("; ");

/** @param {import("./arguments.js").Field} field */
export const requiredMark = (field) =>
  field.required && field.type !== "fixed" ? h("span", { class: "field-required" }, " (required)") : null;

/**
 * Texts under a label, and the line for an error. `describe(target)` ties them to a control.
 * @param {import("./arguments.js").Field} field @param {string} hint
 */
export const fieldTexts = (field, hint) => {
  const id = newId("about");
  const about = [field.description, hint].filter(Boolean).join(" · ");
  const words = about ? h("p", { class: "field-words", id: `${id}-words` }, about) : null;
  const error = h("p", { class: "field-error", id: `${id}-error`, hidden: true });
  /** @type {HTMLElement | null} */
  let target = null;
  const tie = () => {
    const ids = [words, error.hidden ? null : error].flatMap((node) => (node ? [node.id] : []));
    if (ids.length) target?.setAttribute("aria-describedby", ids.join(" "));
    else target?.removeAttribute("aria-describedby");
  };
  return {
    words,
    error,
    /** @param {HTMLElement} control */
    describe: (control) => {
      target = control;
      tie();
    },
    /** @param {string} problem empty: none */
    say: (problem) => {
      error.hidden = !problem;
      replace(error, problem ? [h("span", { "aria-hidden": "true" }, "✗ "), problem] : null);
      if (problem && target?.matches("input, textarea, select")) target.setAttribute("aria-invalid", "true");
      else target?.removeAttribute("aria-invalid");
      tie();
    },
  };
};

/**
 * A field with one control: label above, texts between, error below.
 * @param {import("./arguments.js").Field} field
 * @param {HTMLElement} input
 * @param {{hint?: string, value: (control: Control) => any, forget?: () => void, beside?: boolean,
 *   after?: Node | null}} about
 *   `beside`: the label stands after the control, as with a checkbox
 * @returns {Control}
 */
export const single = (field, input, { hint = "", value, forget, beside = false, after = null }) => {
  input.id = newId("field");
  const texts = fieldTexts(field, hint);
  texts.describe(input);
  if (field.required && !beside) input.setAttribute("aria-required", "true");
  const label = h(
    "label",
    { for: input.id, class: "field-label" },
    field.label || field.name,
    beside ? null : requiredMark(field),
  );
  const head = beside ? h("div", { class: "field-check" }, input, label) : label;
  const node = h("div", { class: "field" }, head, texts.words, beside ? null : input, after, texts.error);
  input.addEventListener("input", () => texts.say(""));
  /** @type {Control} */
  const control = {
    node,
    value: () => value(control),
    showError: (path, words) => {
      texts.say(path ? `${path}: ${words}` : words);
      return true;
    },
    clearErrors: () => texts.say(""),
    focus: () => input.focus(),
    forget,
  };
  return control;
};

/**
 * A fieldset of several controls, described the same way.
 * @param {import("./arguments.js").Field} field @param {string} hint
 */
export const several = (field, hint) => {
  const texts = fieldTexts(field, hint);
  const body = h("div", { class: "field-body" });
  const legend = h("legend", { class: "field-label" }, field.label || field.name, requiredMark(field));
  const node = h("fieldset", { class: "field field-several" }, legend, texts.words, body, texts.error);
  texts.describe(node);
  return { node, body, texts };
};

/** Another name for a field that has moved in its list. @param {Control} control @param {string} label */
export const relabel = (control, label) => {
  const words = control.node.querySelector(".field-label")?.firstChild;
  if (words) words.nodeValue = visible(label);
};
