/* Content that may be higher than a card should be: it scrolls in a box of its own, also by keyboard. */

import { h } from "../dom.js";

const LINE_EM = 1.5;
const LEAST_LINES = 3;

/**
 * @param {string} label its name for a screen reader
 * @param {number | null | undefined} lines at most so many; null: as the page has it @param {...any} children
 */
export const scrollBox = (label, lines, ...children) => {
  const node = h("div", { class: "scroll-box", tabindex: "0", role: "region", "aria-label": label }, children);
  if (typeof lines === "number" && lines > 0) node.style.maxHeight = `${Math.max(lines, LEAST_LINES) * LINE_EM}em`;
  return node;
};
