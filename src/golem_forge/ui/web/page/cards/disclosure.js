/* A button that opens and closes what is below it. The state is on the button (`aria-expanded`); what is closed is
   hidden from everybody. `make` builds the content when it is first opened, so that what nobody opens costs
   nothing. */

import { h, replace } from "../dom.js";

let counted = 0;

/**
 * @param {string | Node} label
 * @param {() => Node | Node[] | Promise<Node | Node[]>} make
 * @param {{open?: boolean, class?: string}} [about]
 */
export const disclosure = (label, make, { open = false, class: look = "" } = {}) => {
  const id = `more-${++counted}`;
  const region = h("div", { id, class: "disclosed", hidden: true });
  const button = h(
    "button",
    { type: "button", class: `disclosure ${look}`.trim(), "aria-expanded": "false", "aria-controls": id },
    label,
  );
  let made = false;
  const set = async (/** @type {boolean} */ wanted) => {
    button.setAttribute("aria-expanded", String(wanted));
    region.hidden = !wanted;
    if (!wanted || made) return;
    made = true;
    const content = make();
    replace(region, content instanceof Promise ? h("p", { class: "dim" }, "loading…") : content);
    if (content instanceof Promise) replace(region, await content.catch((error) => failed(error)));
  };
  const failed = (/** @type {any} */ error) => {
    made = false;
    return h("p", { class: "problem", role: "alert" }, error?.problem ?? "This could not be loaded.");
  };
  button.addEventListener("click", () => set(region.hidden));
  if (open) set(true);
  return { button, region, set, isOpen: () => !region.hidden };
};

/** Both in one node. @param {Parameters<typeof disclosure>} args */
export const disclosed = (...args) => {
  const { button, region } = disclosure(...args);
  return h("div", { class: "disclosure-pair" }, button, region);
};
