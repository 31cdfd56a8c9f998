/* Buttons that change something: one press at a time, what came of it in words beside them, and a question before what is
   not easily undone. The question is a dialog of the page; Esc and its first button leave everything as it is. */

import { h, replace } from "../dom.js";
import { problemWords } from "./parts.js";

/**
 * @param {string} label @param {() => Promise<any>} act @param {{look?: string, busy?: string, name?: string, said?: HTMLElement}} [about]
 *   `name`: for a screen reader, where the label alone says too little; `said`: where the outcome stands
 * @returns {HTMLButtonElement}
 */
export const actButton = (label, act, { look = "", busy = "One moment…", name, said } = {}) => {
  const node = /** @type {HTMLButtonElement} */ (
    h("button", { type: "button", class: look || null, "aria-label": name }, label)
  );
  node.addEventListener("click", async () => {
    if (node.getAttribute("aria-disabled")) return;
    node.setAttribute("aria-disabled", "true");
    replace(node, busy);
    if (said) replace(said);
    try {
      const words = await act();
      if (said && typeof words === "string") replace(said, outcome(words));
    } catch (failure) {
      if (said) replace(said, h("p", { class: "problem", role: "alert" }, problemWords(failure)));
      else console.error(failure);
    }
    node.removeAttribute("aria-disabled");
    replace(node, label);
  });
  return node;
};

/** What was done. @param {string} words */
export const outcome = (words) => h("p", { class: "outcome", role: "status" }, words);

/** Where outcomes stand. */
export const saidPlace = () => h("div", { class: "said" });

/**
 * Asks before something is done.
 * @param {{title: string, words?: any, yes: string, no?: string, look?: string}} about @returns {Promise<boolean>}
 */
export const confirmed = ({ title, words, yes, no = "Cancel", look = "danger" }) =>
  new Promise((resolve) => {
    const opener = /** @type {HTMLElement | null} */ (document.activeElement);
    const heading = h("h2", { id: "confirm-title" }, title);
    const dialog = /** @type {HTMLDialogElement} */ (
      h("dialog", { class: "confirm", "aria-labelledby": "confirm-title" })
    );
    const press = (/** @type {string} */ label, /** @type {string} */ value, kind = "") =>
      h("button", { type: "button", class: kind || null, on: { click: () => dialog.close(value) } }, label);
    replace(
      dialog,
      heading,
      words ? h("div", { class: "confirm-words" }, words) : null,
      h("div", { class: "buttons" }, press(no, ""), press(yes, "yes", look)),
    );
    dialog.addEventListener("close", () => {
      dialog.remove();
      if (opener?.isConnected) opener.focus();
      resolve(dialog.returnValue === "yes");
    });
    document.body.append(dialog);
    dialog.showModal();
  });
