/* The panel at the side: what waits, the plan, the workers, the meters, the servers and the walls.

   Beside the conversation on wide screens; a sheet over it on narrow ones, opened by its button, closed by Esc. */

import { h, replace } from "../dom.js";
import { icon } from "../icons.js";
import { remember, remembered } from "../theme.js";
import { meters } from "./meters.js";
import { plan } from "./plan.js";
import { surroundings } from "./surroundings.js";
import { waiting } from "./waiting.js";
import { workers } from "./workers.js";

const KEY = "forge.panel";
const WIDE = "(min-width: 68.75rem)";
const SECTIONS = { waiting, plan, workers, meters, surroundings };

export class Panel {
  /** @type {import("../open_session.js").OpenSession | null} */
  #open = null;
  /** @type {any} another time of the session, which a replay shows */
  #beside = null;
  #wide = matchMedia(WIDE);

  /** @param {HTMLElement} node @param {HTMLElement} button @param {(where: string) => void} go */
  constructor(node, button, go) {
    this.node = node;
    this.button = button;
    this.go = go;
    /** @type {Record<string, HTMLElement>} */
    this.places = Object.fromEntries(Object.keys(SECTIONS).map((name) => [name, h("section", { hidden: true })]));
    const close = h(
      "button",
      {
        class: "quiet close-panel",
        type: "button",
        "aria-label": "Close the panel",
        on: { click: () => this.toggle() },
      },
      icon("close"),
    );
    replace(node, close, ...Object.values(this.places));
    this.#wide.addEventListener("change", () => this.#arrange());
    button.hidden = true;
  }

  /** @param {import("../open_session.js").OpenSession} open */
  shows(open) {
    this.#open = open;
    this.button.hidden = false;
    for (const place of Object.values(this.places)) delete place.dataset.drawn;
    this.#arrange();
  }

  /**
   * What an area shows of the session, in place of how it stands now; null: now again.
   * @param {{store: import("../store.js").SessionStore, ctx: any, session: any} | null} other
   */
  beside(other) {
    if (this.#beside === other) return;
    this.#beside?.forget();
    this.#beside = other && { ...other, forget: other.store.subscribe(() => this.draw()) };
    for (const place of Object.values(this.places)) delete place.dataset.drawn;
    this.draw();
  }

  toggle() {
    const open = this.node.hidden;
    if (this.#wide.matches) remember(KEY, open ? null : "closed");
    this.#set(open);
    if (!this.#wide.matches) (open ? this.node.querySelector("button") : this.button)?.focus();
  }

  /** @returns {boolean} whether there was a sheet to close */
  closeSheet() {
    if (this.#wide.matches || this.node.hidden) return false;
    this.#set(false);
    this.button.focus();
    return true;
  }

  /** A sheet covers what somebody wants to look at. */
  makeRoom() {
    if (!this.#wide.matches) this.#set(false);
  }

  draw() {
    const open = this.#beside ?? this.#open;
    if (!open || this.node.hidden) return;
    for (const [name, section] of Object.entries(SECTIONS)) {
      const place = this.places[name];
      const drawn = section(open);
      place.hidden = !drawn;
      if (!drawn) {
        delete place.dataset.drawn;
        continue;
      }
      // Only what changed is made anew: focus and what is unfolded stay.
      if (place.dataset.drawn === drawn.facts) continue;
      place.dataset.drawn = drawn.facts;
      const active = document.activeElement;
      const focused = place.contains(active) ? active?.getAttribute("data-focus") : null;
      replace(place, h("h2", null, drawn.title), ...drawn.nodes());
      if (focused)
        /** @type {HTMLElement | null} */ (place.querySelector(`[data-focus="${CSS.escape(focused)}"]`))?.focus();
    }
  }

  #arrange() {
    this.#set(this.#wide.matches && remembered(KEY) !== "closed");
  }

  /** @param {boolean} open */
  #set(open) {
    this.node.hidden = !open;
    document.body.dataset.panel = open ? "open" : "closed";
    this.button.setAttribute("aria-expanded", String(open));
    this.draw();
  }
}
