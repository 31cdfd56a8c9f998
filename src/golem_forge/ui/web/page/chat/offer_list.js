/* The list above the text box: arrows move in it, Tab or Enter takes, Esc closes. Focus stays in the box, which
   names the option it is on; that there are some is said once. (A text area may not be called a combobox, so it is
   none.) */

import { h, replace } from "../dom.js";
import { offers } from "./completion.js";

let lists = 0;

export class OfferList {
  /** @type {import("./completion.js").Offer[]} */
  #offers = [];
  #start = 0;
  #active = 0;

  /**
   * @param {HTMLTextAreaElement} box @param {import("./known_names.js").KnownNames} known
   * @param {(words: string) => void} announce
   */
  constructor(box, known, announce) {
    this.box = box;
    this.known = known;
    this.announce = announce;
    this.id = `offers-${++lists}`;
    this.node = h("ul", {
      class: "completions",
      id: this.id,
      role: "listbox",
      "aria-label": "Commands and tools",
      hidden: true,
    });
    box.setAttribute("aria-haspopup", "listbox");
    box.setAttribute("aria-autocomplete", "list");
    box.setAttribute("aria-controls", this.id);
    this.close();
  }

  get isOpen() {
    return !this.node.hidden;
  }

  typed() {
    const { selectionStart, selectionEnd, value } = this.box;
    if (selectionStart !== selectionEnd) return this.close();
    if (value.startsWith("/")) this.#look();
    const found = offers(value.slice(0, selectionStart), this.known);
    if (!this.isOpen && found.offers.length)
      this.announce(`${found.offers.length} suggestions; arrow keys to choose, Tab to take`);
    this.#offers = found.offers;
    this.#start = found.start;
    this.#active = 0;
    this.#draw();
  }

  async #look() {
    if ((await this.known.look()) && document.activeElement === this.box) this.typed();
  }

  /** @param {KeyboardEvent} event @returns {boolean} whether it was for the list */
  key(event) {
    if (!this.isOpen) return false;
    if (event.key === "Escape") this.close();
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") this.#move(event.key === "ArrowDown" ? 1 : -1);
    else if (event.key === "Tab" && !event.shiftKey) this.#take(this.#active);
    else if (event.key === "Enter" && !event.shiftKey && this.#isUnfinished()) this.#take(this.#active);
    else return false;
    return true;
  }

  close() {
    this.#offers = [];
    this.#draw();
  }

  /** Enter sends a line that is a whole command already; it takes an offer where a command's name is half typed. */
  #isUnfinished() {
    return this.#start === 0;
  }

  /** @param {number} by */
  #move(by) {
    this.#active = (this.#active + by + this.#offers.length) % this.#offers.length;
    this.#draw();
  }

  /** @param {number} index */
  #take(index) {
    const taken = this.#offers[index];
    const behind = this.box.value.slice(this.box.selectionStart);
    const before = `${this.box.value.slice(0, this.#start)}${taken.value} `;
    this.box.value = before + behind.trimStart();
    this.box.setSelectionRange(before.length, before.length);
    this.box.dispatchEvent(new Event("input", { bubbles: true }));
    this.box.focus();
  }

  #draw() {
    const open = this.#offers.length > 0;
    this.node.hidden = !open;
    if (!open) {
      this.box.removeAttribute("aria-activedescendant");
      replace(this.node);
      return;
    }
    const options = this.#offers.map((one, index) =>
      h(
        "li",
        {
          role: "option",
          id: `${this.id}-${index}`,
          "aria-selected": String(index === this.#active),
          on: { pointerdown: (/** @type {Event} */ event) => event.preventDefault(), click: () => this.#take(index) },
        },
        h("code", null, one.value),
        h("span", { class: "dim" }, one.hint),
      ),
    );
    replace(this.node, ...options);
    this.box.setAttribute("aria-activedescendant", `${this.id}-${this.#active}`);
    options[this.#active].scrollIntoView({ block: "nearest" });
  }
}
