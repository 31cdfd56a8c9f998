/* Structured data that opens level by level. A level is built when it is first opened, and of many members only the
   first are shown until somebody asks for more. */

import { h } from "../dom.js";
import { counted } from "./plain.js";

const AT_ONCE = 100;
const OPEN_UP_TO = 20;

/** @param {any} value */
const isBranch = (value) =>
  value !== null && typeof value === "object" && !JSON.isRawJSON?.(value) && Object.keys(value).length > 0;

/** @param {any} value */
const leaf = (value) => {
  if (typeof value === "string") return h("span", { class: "tree-text" }, JSON.stringify(value));
  if (value !== null && typeof value === "object" && !JSON.isRawJSON?.(value))
    return h("span", { class: "tree-none" }, Array.isArray(value) ? "[]" : "{}");
  return h("span", { class: "tree-value" }, JSON.stringify(value) ?? "");
};

/** @param {any} value */
const sizeOf = (value) =>
  Array.isArray(value) ? counted(value.length, "item") : counted(Object.keys(value).length, "member");

/** @param {string} name @param {any} value @param {number} depth */
const member = (name, value, depth) => {
  const key = h("span", { class: "tree-key" }, name);
  if (!isBranch(value))
    return h("li", { class: "tree-leaf" }, key, h("span", { class: "tree-colon" }, ": "), leaf(value));
  const open = depth < 1 && Object.keys(value).length <= OPEN_UP_TO;
  const details = h("details", null, h("summary", null, key, h("span", { class: "tree-size" }, ` ${sizeOf(value)}`)));
  const build = () => details.childElementCount === 1 && details.append(branch(value, depth + 1));
  details.addEventListener("toggle", build);
  if (open) {
    build();
    details.setAttribute("open", "");
  }
  return h("li", { class: "tree-branch" }, details);
};

/** @param {any} value @param {number} depth */
const branch = (value, depth) => {
  const entries = Object.entries(value);
  const list = h("ul", { class: "tree" });
  const more = (/** @type {number} */ from) => {
    for (const [name, one] of entries.slice(from, from + AT_ONCE)) list.append(member(name, one, depth));
    const left = entries.length - from - AT_ONCE;
    if (left <= 0) return;
    const row = h(
      "li",
      null,
      h(
        "button",
        { type: "button", class: "link", on: { click: () => (row.remove(), more(from + AT_ONCE)) } },
        `${counted(left, "more", "more")} …`,
      ),
    );
    list.append(row);
  };
  more(0);
  return list;
};

/** @param {any} data */
export const treeNode = (data) => (isBranch(data) ? branch(data, 0) : h("p", { class: "tree" }, leaf(data)));
