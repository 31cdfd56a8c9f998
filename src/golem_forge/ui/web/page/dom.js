/* Making elements. Foreign text enters the page only here: as text nodes, with hidden characters shown as escapes.

   `trusted` is the one place where HTML is parsed; it takes `view.html`, made and cleaned by our server, and nothing
   else. */

import { visible, visibleProse } from "./visible.js";

const SVG = "http://www.w3.org/2000/svg";

/** @typedef {Node | string | number | null | undefined | false | any[]} Child */

/** A text node with every hidden character visible. */
export const text = (value) => document.createTextNode(visible(value));

/** A text node of somebody's own words: emoji keep their joiners. */
export const prose = (value) => document.createTextNode(visibleProse(value));

const nodes = (child) => {
  if (child === null || child === undefined || child === false) return [];
  if (Array.isArray(child)) return child.flatMap(nodes);
  return [child instanceof Node ? child : text(child)];
};

/** An element of a tag with classes: `h("button.quiet", {on: {click: go}, "aria-label": "Go"}, "Go")`.
 * `null`, `undefined` and `false` leave an attribute out, `true` sets it empty. Handlers go through `on`, never through
 * attributes. A button submits no form unless its `type` says so.
 * @param {string} selector @param {Record<string, any> | null} [props] @param {...Child} children
 * @returns {any} the element of that tag */
export const h = (selector, props, ...children) => {
  const [tag, ...classes] = selector.split(".");
  const node = document.createElement(tag);
  if (tag === "button") node.setAttribute("type", "button");
  if (classes.length) node.setAttribute("class", classes.join(" "));
  return filled(node, props, children);
};

/** An element without attributes: `el("p.dim", "text")`. What stands behind the selector is content, whatever it is. */
export const el = (selector, ...children) => h(selector, null, ...children);

/** The same for a picture. @param {string} tag @param {Record<string, any> | null} [props] @param {...Child} children */
export const svg = (tag, props, ...children) => filled(document.createElementNS(SVG, tag), props, children);

/** @template {HTMLElement | SVGElement} T @param {T} node @returns {T} */
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

/** A part of the page's own document. @param {string} id */
export const part = (id) => /** @type {HTMLElement} */ (document.getElementById(id));

/** @param {ParentNode} node @param {...Child} children */
export const replace = (node, ...children) => node.replaceChildren(...children.flatMap(nodes));

/** Gives the nodes of `view.html`. Only that: anything else is text. */
export const trusted = (html) => {
  const template = document.createElement("template");
  template.innerHTML = html;
  return template.content;
};

/** Sets the words of a node only when they changed, so that nothing is selected away. */
export const say = (node, value) => {
  const shown = visible(value);
  if (node.textContent !== shown) node.textContent = shown;
};

/** Whether keys pressed there write something. @param {EventTarget | null} target */
export const isTyping = (target) =>
  target instanceof HTMLElement &&
  (target.isContentEditable || target.matches("input, textarea, select, [role=combobox], [role=textbox]"));

/* Pictures of the page, drawn here with strokes of the text's colour. They are decoration: the words stand beside
   them. */
const PATHS = {
  chat: ["M4 5.5h16v10.5H11l-4.5 3.5V16H4z"],
  tools: [
    "M14.5 4.5a4.5 4.5 0 0 0-4.2 6L4 16.8 7.2 20l6.3-6.3a4.5 4.5 0 0 0 5.8-5.8l-2.7 2.7-2.5-.7-.7-2.5 2.7-2.7" +
      "a4.5 4.5 0 0 0-1.6-.2z",
  ],
  sessions: ["M4 6.5h16", "M4 12h16", "M4 17.5h10"],
  settings: [
    "M4 7h9",
    "M17 7h3",
    "M4 17h3",
    "M11 17h9",
    "M15 4.8a2.2 2.2 0 1 0 0 4.4 2.2 2.2 0 0 0 0-4.4z",
    "M9 14.8a2.2 2.2 0 1 0 0 4.4 2.2 2.2 0 0 0 0-4.4z",
  ],
  people: ["M9 4.5a3.5 3.5 0 1 0 0 7 3.5 3.5 0 0 0 0-7z", "M3 19.5a6 6 0 0 1 12 0", "M15.5 5a3.3 3.3 0 0 1 0 6.2", "M17.5 14a6 6 0 0 1 3.5 5.5"],
  replay: ["M5 12a7 7 0 1 0 2.3-5.2", "M4.5 4.5v3.8h3.8", "M12 8.5V12l2.6 1.8"],
  panel: ["M4 5h16v14H4z", "M14.5 5v14"],
  bell: ["M6.5 16.5V11a5.5 5.5 0 0 1 11 0v5.5l1.5 1.5H5z", "M10.3 20.3a1.9 1.9 0 0 0 3.4 0"],
  help: [
    "M9.3 9.2a2.8 2.8 0 1 1 4 2.5c-.9.5-1.3 1-1.3 2.1",
    "M12 17.2v.1",
    "M12 3.5a8.5 8.5 0 1 0 0 17 8.5 8.5 0 0 0 0-17z",
  ],
  theme: [
    "M12 3.5a8.5 8.5 0 1 0 0 17 8.5 8.5 0 0 0 0-17z",
    "M12 3.5v17",
    "M12 8l5.9-2",
    "M12 13l8.2-2.4",
    "M12 18l7-2",
  ],
  send: ["M12 19V5.5", "M6 11l6-6 6 6"],
  stop: ["M7 7h10v10H7z"],
  clip: ["M19 11.2l-7.4 7.4a4.4 4.4 0 0 1-6.2-6.2l7.8-7.8a3 3 0 0 1 4.2 4.2l-7.7 7.7a1.5 1.5 0 0 1-2.1-2.1l6.9-6.9"],
  down: ["M12 5v13.5", "M6 13l6 6 6-6"],
  close: ["M6 6l12 12", "M18 6L6 18"],
  copy: ["M9 9h10v10H9z", "M15 9V5H5v10h4"],
  anvil: ["M3.5 7.5H20.5c0 3-2.6 4.8-6 5v2.7l2.5 2.8v1.5H8V18l2.5-2.8v-2.4C7 12.4 3.9 10.6 3.5 7.5z"],
};

export const icon = (name) =>
  svg("svg", { class: `icon icon-${name}`, viewBox: "0 0 24 24", "aria-hidden": "true", focusable: "false" },
    ...(PATHS[name] ?? []).map((d) => svg("path", { d })),
  );
