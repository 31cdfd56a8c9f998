/* Several fields together, and the group: a field that holds fields. `make` builds the controls inside.

   A group that is not required is there only when it is ticked. Each field that has no value says so, not only the
   first. */

import { h } from "../dom.js";
import { isObject, own } from "./arguments.js";
import { FieldProblem, newId, several } from "./field_shell.js";

/** @typedef {import("./arguments.js").Field} Field */
/** @typedef {import("./field_shell.js").Control} Control */
/** @typedef {(field: Field, given: any) => Control} Make */

/**
 * `name.rest` or `name[0].rest` → the first step and what is below it.
 * @param {string} path @returns {[string, string]}
 */
export const firstStep = (path) => {
  const found = /^(?:\[(\d+)\]|([^.[]+))\.?(.*)$/s.exec(path);
  return found ? [found[1] ?? found[2], found[3]] : ["", ""];
};

/** The values of all; where some have none, each says so, and the first is thrown. @param {Control[]} controls */
export const gathered = (controls) => {
  /** @type {FieldProblem[]} */
  const problems = [];
  const values = controls.map((control) => {
    try {
      return control.value();
    } catch (problem) {
      if (!(problem instanceof FieldProblem)) throw problem;
      if (!problem.said) problem.control.showError("", problem.message);
      problem.said = true;
      problems.push(problem);
      return undefined;
    }
  });
  if (problems.length) throw problems[0];
  return values;
};

/**
 * The controls of several fields, by name.
 * @param {Field[]} fields @param {any} values @param {Make} make
 */
export const members = (fields, values, make) => {
  const controls = fields.map((field) => ({ name: field.name, control: make(field, own(values, field.name)) }));
  return {
    nodes: controls.map(({ control }) => control.node),
    value: () => {
      const values = gathered(controls.map(({ control }) => control));
      return Object.fromEntries(
        controls.map(({ name }, at) => [name, values[at]]).filter(([, value]) => value !== undefined),
      );
    },
    /** @param {string} path @param {string} words */
    showError: (path, words) => {
      const [name, rest] = firstStep(path);
      const found = controls.find((one) => one.name === path) ?? controls.find((one) => one.name === name);
      return found ? found.control.showError(found.name === path ? "" : rest, words) : false;
    },
    clearErrors: () => controls.forEach(({ control }) => control.clearErrors()),
    focus: () => controls[0]?.control.focus(),
    forget: () => controls.forEach(({ control }) => control.forget?.()),
  };
};

/** @param {Field} field @param {any} given @param {Make} make @returns {Control} */
export const groupField = (field, given, make) => {
  const start = isObject(given) ? given : isObject(field.default) ? field.default : {};
  const inner = members(field.fields ?? [], start, make);
  const { node, body, texts } = several(field, "");
  body.append(...inner.nodes);
  const wanted = field.required
    ? null
    : /** @type {HTMLInputElement} */ (h("input", { type: "checkbox", id: newId("wanted") }));
  if (wanted) {
    wanted.checked = isObject(given);
    body.hidden = !wanted.checked;
    wanted.addEventListener("change", () => {
      body.hidden = !wanted.checked;
    });
    body.before(h("div", { class: "field-check" }, wanted, h("label", { for: wanted.id }, "Fill it in")));
  }
  return {
    node,
    value: () => (wanted && !wanted.checked ? undefined : inner.value()),
    showError: (path, words) => {
      if (path && inner.showError(path, words)) return true;
      texts.say(path ? `${path}: ${words}` : words);
      return true;
    },
    clearErrors: () => {
      texts.say("");
      inner.clearErrors();
    },
    focus: () => (wanted ? wanted.focus() : inner.focus()),
    forget: inner.forget,
  };
};
