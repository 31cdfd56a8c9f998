/* What stands around every control of a form: its label, what it is for, what it allows, and what is wrong with it.

   All three texts are tied to the control by id (`aria-describedby`), so a screen reader says them with it. Ids are
   counted, never made of a name: names are a tool's or a server's. */

import { el, h, replace } from "../dom.js";
import { visible } from "../visible.js";

let counted = 0;

export const newId = (about = "f") => `${about}-${++counted}`;

/** @typedef {object} Control one field on the page @property {HTMLElement} node
 * @property {() => any} value `undefined`: left empty. Throws FieldProblem where what stands there is no value
 * @property {(path: string, words: string) => boolean} showError at `path` below it (`""`: itself)
 * @property {() => void} clearErrors @property {() => void} focus
 * @property {() => void} [forget] empties what must not stay (secrets) */

/** What stands in a field is no value of it. `control` is where to go. */
export class FieldProblem extends Error {
  constructor(words, control) {
    super(words);
    this.control = control;
    this.said = false;
  }
}

/** What it allows, in a few words. @param {import("./arguments.js").Field} field @param {string} [hint] */
export const aboutField = (field, hint = "") =>
  [hint, field.format && field.format !== "multiline" ? field.format : ""].filter(Boolean).join("; ");

const requiredMark = (field) =>
  field.required && field.type !== "fixed" ? el("span.field-required", " (required)") : null;

/** Texts under a label, and the line for an error. `describe(target)` ties them to a control. */
export const fieldTexts = (field, hint) => {
  const id = newId("about");
  const about = [field.description, hint].filter(Boolean).join(" · ");
  const words = about ? h("p.field-words", { id: `${id}-words` }, about) : null;
  const error = h("p.field-error", { id: `${id}-error`, hidden: true });
  let target = null;
  const tie = () => {
    const ids = [words, error.hidden ? null : error].flatMap((node) => (node ? [node.id] : []));
    if (ids.length) target?.setAttribute("aria-describedby", ids.join(" "));
    else target?.removeAttribute("aria-describedby");
  };
  return {
    words,
    error,
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

/** A field with one control: label above, texts between, error below.
 * @param {import("./arguments.js").Field} field @param {HTMLElement} input
 * @param {{hint?: string, value: (control: Control) => any, forget?: () => void, beside?: boolean,
 * after?: Node | null}} about
 * `beside`: the label stands after the control, as with a checkbox
 * @returns {Control} */
export const single = (field, input, { hint = "", value, forget, beside = false, after = null }) => {
  input.id = newId("field");
  const texts = fieldTexts(field, hint);
  texts.describe(input);
  if (field.required && !beside) input.setAttribute("aria-required", "true");
  const label = h("label.field-label", { for: input.id },
    field.label || field.name,
    beside ? null : requiredMark(field),
  );
  const head = beside ? el("div.field-check", input, label) : label;
  const node = el("div.field", head, texts.words, beside ? null : input, after, texts.error);
  input.addEventListener("input", () => texts.say(""));
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

/** A fieldset of several controls, described the same way. */
export const several = (field, hint) => {
  const texts = fieldTexts(field, hint);
  const body = el("div.field-body");
  const legend = el("legend.field-label", field.label || field.name, requiredMark(field));
  const node = el("fieldset.field.field-several", legend, texts.words, body, texts.error);
  texts.describe(node);
  return { node, body, texts };
};

/** Another name for a field that has moved in its list. */
export const relabel = (control, label) => {
  const words = control.node.querySelector(".field-label")?.firstChild;
  if (words) words.nodeValue = visible(label);
};
