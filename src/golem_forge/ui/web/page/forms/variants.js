/* One of several variants: a choice, then the fields of the one that was chosen. What was typed into another stays
   there. */

import { h, replace } from "../dom.js";
import { isObject, submitted } from "./arguments.js";
import { equalJson } from "./exact_json.js";
import { aboutField, FieldProblem, single } from "./field_shell.js";

/** @typedef {import("./arguments.js").Field} Field */
/** @typedef {import("./field_shell.js").Control} Control */
/** @typedef {import("./group.js").Make} Make */

/** @param {Field} field @param {any} given @param {Make} make @returns {Control} */
export const variantsField = (field, given, make) => {
  const variants = field.variants ?? [];
  const start = given === undefined ? field.default : given;
  const fitting = start === undefined || start === null ? -1 : variants.findIndex((variant) => fits(variant, start));
  const input = /** @type {HTMLSelectElement} */ (
    h(
      "select",
      { class: "field-input" },
      h("option", { value: "", selected: fitting < 0 }, field.required ? "Choose…" : "Not set"),
      variants.map((variant, at) => h("option", { value: String(at), selected: at === fitting }, variant.label)),
    )
  );
  const place = h("div", { class: "field-variant" });
  /** @type {Control[]} */
  const made = [];
  const chosen = () => (input.value === "" ? null : (made[Number(input.value)] ??= control(Number(input.value))));
  /** @param {number} at */
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

const OF_TYPE = {
  string: ["text", "select", "secret"],
  boolean: ["boolean"],
  number: ["number"],
};

/**
 * Whether a present value is most likely of this variant: by its type, and by what the variant fixes.
 * @param {Field} variant @param {any} value
 */
const fits = (variant, value) => {
  if (variant.type === "fixed") return equalJson(variant.default, value);
  if (variant.type === "select") return (variant.options ?? []).some((option) => equalJson(option.value, value));
  if (variant.type === "group") return isObject(value) && (variant.fields ?? []).every((field) => agrees(field, value));
  if (Array.isArray(value)) return ["list", "multiselect", "json"].includes(variant.type);
  if (JSON.isRawJSON?.(value)) return variant.type === "number";
  if (isObject(value)) return variant.type === "json";
  return (OF_TYPE[/** @type {keyof typeof OF_TYPE} */ (typeof value)] ?? []).includes(variant.type);
};

/** @param {Field} field @param {Record<string, any>} value */
const agrees = (field, value) => {
  if (!Object.hasOwn(value, field.name)) return !field.required;
  return field.type !== "fixed" || equalJson(value[field.name], field.default);
};
