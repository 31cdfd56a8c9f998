/* A form from fields: `formFor(fields, values, {id})` gives its node, its arguments, and a place for each error.

   Errors come by path (`tags[0].name`) or, from the server, by top field with the path in the words; each ends up
   at the deepest field that is there, what fits none in a list above the form. Nothing is sent from here, and Enter
   sends nothing. */

import { el, h, replace } from "../dom.js";
import { equalJson, formArguments, isObject, submitted } from "./arguments.js";
import { groupField, listField, members } from "./collections.js";
import { aboutField, FieldProblem, single } from "./field.js";
import {
  booleanField, fixedField, jsonField, multiselectField, numberField, secretField, selectField, textField,
} from "./scalars.js";

/* One of several variants: a choice, then the fields of the one that was chosen. What was typed into another stays
   there. */
/** @typedef {import("./arguments.js").Field} Field */
/** @typedef {import("./field.js").Control} Control */

const variantsField = (field, given, make) => {
  const variants = field.variants ?? [];
  const start = given === undefined ? field.default : given;
  const fitting = start === undefined || start === null ? -1 : variants.findIndex((variant) => fits(variant, start));
  const input = el("select.field-input",
    h("option", { value: "", selected: fitting < 0 }, field.required ? "Choose…" : "Not set"),
    variants.map((variant, at) => h("option", { value: String(at), selected: at === fitting }, variant.label)),
  );
  const place = el("div.field-variant");
  const made = [];
  const chosen = () => (input.value === "" ? null : (made[Number(input.value)] ??= control(Number(input.value))));
  const control = (at) => make({ ...variants[at], required: true }, at === fitting ? start : undefined);
  const show = () => replace(place, chosen()?.node);
  input.addEventListener("change", show);
  const outer = single(field, input, {
    hint: aboutField(field),
    after: place,
    value: (whole) => {
      const inner = chosen();
      if (inner) return submitted({ ...variants[Number(input.value)], required: true }, inner.value());
      if (field.required) throw new FieldProblem("choose one", whole);
      return undefined;
    },
  });
  const ownError = outer.showError;
  outer.showError = (path, words) => {
    const inner = path ? chosen() : null;
    return inner ? inner.showError(path, words) : ownError("", words);
  };
  const clear = outer.clearErrors;
  outer.clearErrors = () => {
    clear();
    made.forEach((one) => one?.clearErrors());
  };
  outer.forget = () => made.forEach((one) => one?.forget?.());
  show();
  return outer;
};

const OF_TYPE = { string: ["text", "select", "secret"], boolean: ["boolean"], number: ["number"] };

/** Whether a present value is most likely of this variant: by its type, and by what the variant fixes. */
const fits = (variant, value) => {
  if (variant.type === "fixed") return equalJson(variant.default, value);
  if (variant.type === "select") return (variant.options ?? []).some((option) => equalJson(option.value, value));
  if (variant.type === "group") return isObject(value) && (variant.fields ?? []).every((field) => agrees(field, value));
  if (Array.isArray(value)) return ["list", "multiselect", "json"].includes(variant.type);
  if (JSON.isRawJSON?.(value)) return variant.type === "number";
  if (isObject(value)) return variant.type === "json";
  return (OF_TYPE[(typeof value)] ?? []).includes(variant.type);
};

const agrees = (field, value) => {
  if (!Object.hasOwn(value, field.name)) return !field.required;
  return field.type !== "fixed" || equalJson(value[field.name], field.default);
};

/** @type {Map<string, (field: Field, value: any, make: any) => any>} */
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

const make = (field, given) => {
  const value = given === MASK && field.type !== "secret" ? undefined : given;
  const control = (KINDS.get(field.type) ?? jsonField)(field, value, make);
  if (field.error) control.showError("", field.error);
  return control;
};

/** @param {Field[]} fields @param {Record<string, any>} [values] what stands in the fields to begin with
 * @param {{id?: string}} [about] */
export const formFor = (fields, values = {}, { id } = {}) => {
  const inner = members(fields, values, make);
  const problems = h("div.form-problems", { role: "alert" });
  const node = h("div.form", { id }, problems, fields.length ? inner.nodes : el("p.field-words", "No arguments."));

  const clearErrors = () => {
    replace(problems);
    inner.clearErrors();
  };
  const firstError = () => node.querySelector("[aria-invalid=true], .field-error:not([hidden])");
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
            problems.append(el("p.field-error", where ? `${where}: ${what}` : what));
    },
    clearErrors,
    firstError,
    focus: () => inner.focus(),
    /** Empties the secrets: they were sent, or never will be. */
    forget: inner.forget,
  };
};

/** `tags` with `tags[0].name: too short; tags[1]: …` → each with its own path. */
const placed = (path, words) => {
  if (!path) return [[path, words]];
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
