/* Making elements. Foreign text enters the page only here: as text nodes, with hidden characters shown as escapes.

   `trusted` is the one place where HTML is parsed; it takes `view.html`, made and cleaned by our server, and nothing
   else. */

import { visible, visibleProse } from "./visible.js";

const SVG = "http://www.w3.org/2000/svg";

/** @typedef {Node | string | number | null | undefined | false | Child[]} Child */

/** A text node with every hidden character visible. @param {unknown} value */
export const text = (value) => document.createTextNode(visible(value));

/** A text node of somebody's own words: emoji keep their joiners. @param {unknown} value */
export const prose = (value) => document.createTextNode(visibleProse(value));

/** @param {Child} child @returns {Node[]} */
const nodes = (child) => {
  if (child === null || child === undefined || child === false) return [];
  if (Array.isArray(child)) return child.flatMap(nodes);
  return [child instanceof Node ? child : text(child)];
};

/**
 * An element: `h("button", {class: "quiet", on: {click: go}, "aria-label": "Go"}, "Go")`.
 * `null`, `undefined` and `false` leave an attribute out, `true` sets it empty. Handlers go through `on`, never through
 * attributes.
 * @param {string} tag
 * @param {Record<string, any> | null} [props]
 * @param {...Child} children
 * @returns {HTMLElement}
 */
export const h = (tag, props, ...children) => filled(document.createElement(tag), props, children);

/**
 * The same for a picture.
 * @param {string} tag
 * @param {Record<string, any> | null} [props]
 * @param {...Child} children
 */
export const svg = (tag, props, ...children) => filled(document.createElementNS(SVG, tag), props, children);

/**
 * @template {Element} T
 * @param {T} node @param {Record<string, any> | null | undefined} props @param {Child[]} children
 * @returns {T}
 */
const filled = (node, props, children) => {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, handler] of Object.entries(value)) node.addEventListener(event, handler);
    else if (name === "dataset") for (const [key, one] of Object.entries(value)) node.dataset[key] = String(one);
    else if (name === "class") node.setAttribute("class", value);
    else if (/^on|^style$|^srcdoc$/i.test(name)) throw new Error(`${name} is not an attribute of this page`);
    else node.setAttribute(name, value === true ? "" : visible(value));
  }
  node.append(...children.flatMap(nodes));
  return node;
};

/** @param {ParentNode} node @param {...Child} children */
export const replace = (node, ...children) => node.replaceChildren(...children.flatMap(nodes));

/**
 * Gives the nodes of `view.html`. Only that: anything else is text.
 * @param {string} html
 * @returns {DocumentFragment}
 */
export const trusted = (html) => {
  const template = document.createElement("template");
  template.innerHTML = html;
  return template.content;
};

/**
 * Sets the words of a node only when they changed, so that nothing is selected away.
 * @param {Node} node
 * @param {unknown} value
 */
export const say = (node, value) => {
  const shown = visible(value);
  if (node.textContent !== shown) node.textContent = shown;
};

/** Whether keys pressed there write something. @param {EventTarget | null} target */
export const isTyping = (target) =>
  target instanceof HTMLElement &&
  (target.isContentEditable || target.matches("input, textarea, select, [role=combobox], [role=textbox]"));
