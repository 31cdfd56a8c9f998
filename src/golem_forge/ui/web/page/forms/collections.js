/* Several fields together, and the group: a field that holds fields. `make` builds the controls inside.

   A group that is not required is there only when it is ticked. Each field that has no value says so, not only the
   first. */

import { el, h } from "../dom.js";
import { isObject, own } from "./arguments.js";
import { aboutField, FieldProblem, newId, relabel, several } from "./field.js";
import { emptyList, jsonField } from "./scalars.js";

/** @typedef {import("./arguments.js").Field} Field */
/** @typedef {import("./field.js").Control} Control */
/** @typedef {(field: Field, given: any) => Control} Make */

/** `name.rest` or `name[0].rest` → the first step and what is below it. */
const firstStep = (path) => {
  const found = /^(?:\[(\d+)\]|([^.[]+))\.?(.*)$/s.exec(path);
  return found ? [found[1] ?? found[2], found[3]] : ["", ""];
};

/** The values of all; where some have none, each says so, and the first is thrown. */
const gathered = (controls) => {
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

/** The controls of several fields, by name. */
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

export const groupField = (field, given, make) => {
  const start = isObject(given) ? given : isObject(field.default) ? field.default : {};
  const inner = members(field.fields ?? [], start, make);
  const { node, body, texts } = several(field, "");
  body.append(...inner.nodes);
  const wanted = field.required ? null : h("input", { type: "checkbox", id: newId("wanted") });
  if (wanted) {
    wanted.checked = isObject(given);
    body.hidden = !wanted.checked;
    wanted.addEventListener("change", () => {
      body.hidden = !wanted.checked;
    });
    body.before(el("div.field-check", wanted, h("label", { for: wanted.id }, "Fill it in")));
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

/* A list: items are added, removed and moved, each a field of its own. A list that is too long for that is edited
   as JSON, so that nothing of it is lost. */
const MOST_ITEMS = 200;
const MOST_ADDED = 1000;

export const listField = (field, given, make) => {
  const start = given === undefined ? field.default : given;
  if (Array.isArray(start) && start.length > MOST_ITEMS) return jsonField(field, start);
  const item = field.item;
  const most = Math.min(field.max ?? MOST_ADDED, MOST_ADDED);
  const { node, body, texts } = several(field, aboutField(field, limits(field)));
  const rows = el("ol.field-items");
  const add = h("button.field-add", { on: { click: () => added().control.focus() } },
    `Add to ${field.label || field.name}`,
  );
  body.append(rows, add);
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
  const added = (value = undefined) => {
    texts.say("");
    const control = make(item, value);
    const up = h("button.field-up", { on: { click: () => moved(one) } }, "↑");
    const remove = h("button.field-remove", { on: { click: () => removed(one) } }, "×");
    const row = el("li.field-item", el("div.field-item-body", control.node), el("div.field-item-tools", up, remove));
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

const limits = ({ min, max }) => {
  if (min && max !== undefined) return `${min} to ${max} items`;
  if (min) return `at least ${min} ${min === 1 ? "item" : "items"}`;
  return max === undefined ? "" : `at most ${max} ${max === 1 ? "item" : "items"}`;
};
