/* A list: items are added, removed and moved, each a field of its own. A list that is too long for that is edited
   as JSON, so that nothing of it is lost. */

import { h } from "../dom.js";
import { emptyList } from "./choices.js";
import { aboutField, FieldProblem, relabel, several } from "./field_shell.js";
import { firstStep, gathered } from "./group.js";
import { jsonField } from "./scalars.js";

/** @typedef {import("./arguments.js").Field} Field */
/** @typedef {import("./field_shell.js").Control} Control */
/** @typedef {import("./group.js").Make} Make */

const MOST_ITEMS = 200;
const MOST_ADDED = 1000;

/** @param {Field} field @param {any} given @param {Make} make @returns {Control} */
export const listField = (field, given, make) => {
  const start = given === undefined ? field.default : given;
  if (Array.isArray(start) && start.length > MOST_ITEMS) return jsonField(field, start);
  const item = /** @type {Field} */ (field.item);
  const most = Math.min(field.max ?? MOST_ADDED, MOST_ADDED);
  const { node, body, texts } = several(field, aboutField(field, limits(field)));
  const rows = h("ol", { class: "field-items" });
  const add = h(
    "button",
    { type: "button", class: "field-add", on: { click: () => added().control.focus() } },
    `Add to ${field.label || field.name}`,
  );
  body.append(rows, add);
  /** @type {{row: HTMLElement, control: Control, up: HTMLElement}[]} */
  const items = [];

  const recount = () => {
    items.forEach((one, at) => {
      relabel(one.control, `${item.label || field.label} ${at + 1}`);
      one.up.hidden = at === 0;
      one.row.querySelector(".field-remove")?.setAttribute("aria-label", `Remove item ${at + 1}`);
      one.up.setAttribute("aria-label", `Move item ${at + 1} up`);
    });
    add.hidden = items.length >= most;
  };
  const added = (/** @type {any} */ value = undefined) => {
    texts.say("");
    const control = make(item, value);
    const up = h("button", { type: "button", class: "field-up", on: { click: () => moved(one) } }, "↑");
    const remove = h("button", { type: "button", class: "field-remove", on: { click: () => removed(one) } }, "×");
    const row = h(
      "li",
      { class: "field-item" },
      h("div", { class: "field-item-body" }, control.node),
      h("div", { class: "field-item-tools" }, up, remove),
    );
    const one = { row, control, up };
    items.push(one);
    rows.append(row);
    recount();
    return one;
  };
  const removed = (/** @type {typeof items[0]} */ one) => {
    const at = items.indexOf(one);
    items.splice(at, 1);
    one.row.remove();
    recount();
    (items[Math.min(at, items.length - 1)]?.control ?? add).focus();
  };
  const moved = (/** @type {typeof items[0]} */ one) => {
    const at = items.indexOf(one);
    items.splice(at, 1);
    items.splice(at - 1, 0, one);
    rows.insertBefore(one.row, items[at].row);
    recount();
    (at - 1 === 0 ? one.control : one.up).focus();
  };
  for (const value of Array.isArray(start) ? start : []) added(value);
  if (field.required && !items.length) for (let at = 0; at < Math.min(field.min ?? 0, most); at += 1) added();
  recount();

  /** @type {Control} */
  const control = {
    node,
    value: () => {
      if (!items.length && !field.min) return emptyList(field, start);
      if (!items.length && !field.required) return undefined;
      if (items.length < (field.min ?? 0))
        throw new FieldProblem(`${limits({ ...field, max: undefined })} needed`, control);
      return gathered(items.map((one) => one.control)).map((value) => (value === undefined ? null : value));
    },
    showError: (path, words) => {
      const [at, rest] = firstStep(path);
      const found = path ? items[Number(at)] : undefined;
      if (found) return found.control.showError(rest, words);
      texts.say(path ? `${path}: ${words}` : words);
      return true;
    },
    clearErrors: () => {
      texts.say("");
      items.forEach((one) => one.control.clearErrors());
    },
    focus: () => (items[0]?.control ?? add).focus(),
    forget: () => items.forEach((one) => one.control.forget?.()),
  };
  return control;
};

/** @param {Field} field */
const limits = ({ min, max }) => {
  if (min && max !== undefined) return `${min} to ${max} items`;
  if (min) return `at least ${min} ${min === 1 ? "item" : "items"}`;
  return max === undefined ? "" : `at most ${max} ${max === 1 ? "item" : "items"}`;
};
