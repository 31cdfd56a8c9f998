/* A form from fields: `formFor(fields, values, {id})` gives its node, its arguments, and a place for each error.

   Errors come by path (`tags[0].name`) or, from the server, by top field with the path in the words; each ends up
   at the deepest field that is there, what fits none in a list above the form. Nothing is sent from here, and Enter
   sends nothing. */

import { h, replace } from "../dom.js";
import { formArguments } from "./arguments.js";
import { booleanField, multiselectField, selectField } from "./choices.js";
import { FieldProblem } from "./field_shell.js";
import { groupField, members } from "./group.js";
import { listField } from "./list.js";
import { fixedField, jsonField, numberField, secretField, textField } from "./scalars.js";
import { variantsField } from "./variants.js";

/** @typedef {import("./arguments.js").Field} Field */

const KINDS = new Map([
  ["text", textField],
  ["secret", secretField],
  ["number", numberField],
  ["boolean", booleanField],
  ["select", selectField],
  ["multiselect", multiselectField],
  ["fixed", fixedField],
  ["group", groupField],
  ["list", listField],
  ["variants", variantsField],
]);
const MASK = "[secret, not shown]";

/** @param {Field} field @param {any} given @returns {import("./field_shell.js").Control} */
const make = (field, given) => {
  const value = given === MASK && field.type !== "secret" ? undefined : given;
  const control = (KINDS.get(field.type) ?? jsonField)(field, value, make);
  if (field.error) control.showError("", field.error);
  return control;
};

/**
 * @param {Field[]} fields
 * @param {Record<string, any>} [values] what stands in the fields to begin with
 * @param {{id?: string}} [about]
 */
export const formFor = (fields, values = {}, { id } = {}) => {
  const inner = members(fields, values, make);
  const problems = h("div", { class: "form-problems", role: "alert" });
  const node = h(
    "div",
    { class: "form", id },
    problems,
    fields.length ? inner.nodes : h("p", { class: "field-words" }, "No arguments."),
  );

  const clearErrors = () => {
    replace(problems);
    inner.clearErrors();
  };
  const firstError = () =>
    /** @type {HTMLElement | null} */ (node.querySelector("[aria-invalid=true], .field-error:not([hidden])"));
  return {
    node,
    /** The arguments, or null: then what is wrong stands at its field and the focus is there. */
    values: () => {
      clearErrors();
      try {
        return formArguments(fields, inner.value());
      } catch (problem) {
        if (!(problem instanceof FieldProblem)) throw problem;
        problem.control.focus();
        return null;
      }
    },
    /** @param {Record<string, string>} errors by path; the empty name: by none */
    showErrors: (errors) => {
      clearErrors();
      for (const [path, words] of Object.entries(errors))
        for (const [where, what] of placed(path, words))
          if (!where || !inner.showError(where, what))
            problems.append(h("p", { class: "field-error" }, where ? `${where}: ${what}` : what));
    },
    clearErrors,
    firstError,
    focus: () => inner.focus(),
    /** Empties the secrets: they were sent, or never will be. */
    forget: inner.forget,
  };
};

/**
 * `tags` with `tags[0].name: too short; tags[1]: …` → each with its own path.
 * @param {string} path @param {string} words
 */
const placed = (path, words) => {
  if (!path) return [[path, words]];
  /** @type {[string, string][]} */
  const found = [];
  for (const part of words.split("; ")) {
    const at = part.indexOf(": ");
    const deeper = at > 0 && (part.startsWith(`${path}.`) || part.startsWith(`${path}[`)) ? part.slice(0, at) : "";
    if (deeper) found.push([deeper, part.slice(at + 2)]);
    else if (found.length) found[found.length - 1][1] += `; ${part}`;
    else found.push([path, part]);
  }
  return found;
};
