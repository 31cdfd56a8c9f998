/* What waits to be sent, as chips above the text box; each can be taken back. */

import { h } from "../dom.js";
import { icon } from "../icons.js";

/**
 * @param {import("./sending.js").Words[]} queued
 * @param {(index: number) => void} remove
 */
export function queuedChips(queued, remove) {
  return queued.map((one, index) =>
    h(
      "li",
      { class: "chip" },
      h("span", { class: "dim" }, "queued"),
      h("span", { class: "clamp" }, one.text || `${one.files.length} files`),
      h(
        "button",
        { class: "quiet", type: "button", "aria-label": "Do not send this", on: { click: () => remove(index) } },
        icon("close"),
      ),
    ),
  );
}
