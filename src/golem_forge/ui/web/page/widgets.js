/* Parts that cards and pages share: disclosures, boxes that scroll, meters, literal text. */

import { el, h, replace } from "./dom.js";
import { counted, percent } from "./format.js";

let disclosures = 0;

/** A button that opens and closes the region below it. `make` builds the content when it is first opened.
 * @param {string | Node} label @param {() => Node | Node[] | Promise<Node | Node[]>} make
 * @param {{open?: boolean, class?: string, name?: string}} [about] `name`: said before the label, not seen */
export const disclosure = (label, make, { open = false, class: look = "", name = "" } = {}) => {
  const id = `more-${++disclosures}`;
  const region = h("div.disclosed", { id, hidden: true });
  const button = h("button", { class: `disclosure ${look}`.trim(), "aria-expanded": "false", "aria-controls": id },
    name ? el("span.unseen", name) : null,
    label,
  );
  let made = false;
  const set = async (wanted) => {
    button.setAttribute("aria-expanded", String(wanted));
    region.hidden = !wanted;
    if (!wanted || made) return;
    made = true;
    const content = make();
    replace(region, content instanceof Promise ? el("p.dim", "loading…") : content);
    if (content instanceof Promise) replace(region, await content.catch((error) => failed(error)));
  };
  const failed = (error) => {
    made = false;
    return h("p.problem", { role: "alert" }, error?.problem ?? "This could not be loaded.");
  };
  button.addEventListener("click", () => set(region.hidden));
  if (open) set(true);
  return { button, region, set, isOpen: () => !region.hidden };
};

/** Both in one node. @param {Parameters<typeof disclosure>} args */
export const disclosed = (...args) => {
  const { button, region } = disclosure(...args);
  return el("div.disclosure-pair", button, region);
};

/** Opens a dialog of the page under its title. Esc closes it; what had the focus has it again.
 * @param {string} title @param {string} [look] */
export const openDialog = (title, look = "") => {
  const opener = /** @type {HTMLElement | null} */ (document.activeElement);
  const heading = h("h2", { id: `dialog-${++disclosures}` }, title);
  const dialog = h("dialog", { class: look || null, "aria-labelledby": heading.id }, heading);
  dialog.addEventListener("close", () => {
    dialog.remove();
    if (opener?.isConnected) opener.focus();
  });
  document.body.append(dialog);
  return dialog;
};

const STEPS = { ArrowDown: 1, ArrowUp: -1 };

/** Up, Down, Home and End move the focus among the buttons of a list. @param {HTMLElement} list
 * @param {HTMLElement} [above] a field over the list: Down leads into the list, Up back from its beginning */
export const arrowKeys = (list, above) => {
  const move = (event) => {
    const rows = [...(above ? [above] : []), .../** @type {NodeListOf<HTMLElement>} */ (list.querySelectorAll("button"))];
    const at = rows.indexOf(event.target);
    const inField = event.target === above;
    const wanted = event.key === "Home" ? 0 : event.key === "End" ? rows.length - 1 : at + (STEPS[event.key] ?? NaN);
    if (at < 0 || !rows[wanted] || (inField && !STEPS[event.key])) return;
    event.preventDefault();
    rows[wanted].focus();
  };
  for (const node of [list, above]) node?.addEventListener("keydown", move);
};

const LINE_EM = 1.5;
const LEAST_LINES = 3;

/** A box that scrolls by itself, also by keyboard. @param {string} label its name for a screen reader
 * @param {number | null | undefined} lines at most so many; null: as the page has it @param {...any} children */
export const scrollBox = (label, lines, ...children) => {
  const node = h("div.scroll-box", { tabindex: "0", role: "region", "aria-label": label }, children);
  if (typeof lines === "number" && lines > 0) node.style.maxHeight = `${Math.max(lines, LEAST_LINES) * LINE_EM}em`;
  return node;
};

const FULL = 0.9;
const NEARLY = 0.75;

/** How much of what is allowed is used. @param {string} name @param {number} used @param {number} allowed @param {string} words the same in words */
export const meter = (name, used, allowed, words, label = el("span", name)) => {
  const share = allowed > 0 ? used / allowed : 1;
  return h("div.meter", { dataset: { level: share >= FULL ? "full" : share >= NEARLY ? "nearly" : "fine" } },
    el("p", label, el("span", percent(used, allowed))),
    h("progress", { value: Math.min(used, allowed), max: Math.max(allowed, 1e-9), "aria-label": `${name}: ${words}` }),
    el("p.dim.small", words),
  );
};

/* Literal text: what will be used, character by character, with a bar before each line.

   Over 40 lines the first and the last 20 stand there, with the number between and a button for all: an end that is
   not shown is where a trick would hide. A wrapped line hangs deeper than a line begins, so no text can look like a
   line of its own. `whole` fetches the text where the server has shortened it. */
const MOST_LINES = 40;
const LONGEST_LINE = 20_000;
/** More lines than this are one block of text: an element a line would make the page slow. */
const MOST_ELEMENTS = 2000;

/** Text as the lines it has; a line end at its end begins no further line. */
export const linesOf = (text) => {
  const rows = text.split("\n");
  if (rows.length > 1 && rows.at(-1) === "") rows.pop();
  return text ? rows : [];
};

const lineNode = (row) => el("span.literal-line", `${row}\n`);
const linesNode = (rows) => rows.length > MOST_ELEMENTS ? el("span.literal-line", rows.join("\n")) : rows.map(lineNode);

const between = (words, { click, isWhole }) =>
  el("span.literal-between",
    `… ${isWhole ? "" : "at least "}${words} between … `,
    h("button.link", { on: { click } }, "Show all"),
  );

/** @typedef {{click: () => void, isWhole: boolean}} Ask for all; whether what is here is all there is */

/** A long line as its beginning and its end. @param {string} row @param {Ask} ask */
const longLine = (row, ask) => {
  const half = LONGEST_LINE / 2;
  return [
    lineNode(row.slice(0, half)),
    between(counted(row.length - LONGEST_LINE, "character"), ask),
    lineNode(row.slice(-half)),
  ];
};

const excerpt = (rows, ask) => {
  const half = MOST_LINES / 2;
  const some = (part) => part.map((row) => (row.length > LONGEST_LINE ? longLine(row, ask) : lineNode(row)));
  if (rows.length <= MOST_LINES) return some(rows);
  return [some(rows.slice(0, half)), between(counted(rows.length - MOST_LINES, "line"), ask), some(rows.slice(-half))];
};

/** @param {string} text @param {{label?: string, whole?: (() => Promise<string>) | null, class?: string}} [about]
 * `label`: its name for a screen reader
 * @returns {HTMLElement} */
export const literal = (text, { label, whole = null, class: look = "" } = {}) => {
  const node = h("pre", { class: `literal ${look}`.trim(), "aria-label": label, role: label ? "group" : null });
  const problem = h("p.problem", { role: "alert", hidden: true });
  const showAll = async () => {
    try {
      replace(node, linesNode(linesOf(whole ? await whole() : text)));
      shortened?.remove();
      node.tabIndex = -1;
      node.focus({ preventScroll: true });
    } catch (error) {
      problem.hidden = false;
      replace(problem, error?.problem ?? "The whole text could not be loaded.");
    }
  };
  const shortened = whole
    ? el("p.literal-cut", "Shortened in the middle. ", h("button.link", { on: { click: () => showAll() } }, "Show all"))
    : null;
  replace(node, excerpt(linesOf(text), { click: showAll, isWhole: !whole }));
  return shortened ? el("div.literal-whole", node, shortened, problem) : node;
};

/** Puts a text into the clipboard, and says so. @param {string} label @param {() => string} text */
export const copyButton = (label, text) => {
  const node = h("button.small", { on: { click: () => copy() } }, label);
  const copy = async () => {
    const done = await navigator.clipboard?.writeText(text()).then(() => true).catch(() => false);
    replace(node, done ? "Copied" : "Select and copy it");
    setTimeout(() => replace(node, label), 1500);
  };
  return node;
};
