/* The help dialog: what the keys do. Opened by `?` or the button; Esc and the button close it, nothing is answered
   by it. */

import { h } from "./dom.js";

const KEYS = [
  ["Enter", "send what is typed"],
  ["Shift+Enter", "a new line"],
  ["/", "commands and tools, at the start of a line"],
  ["Esc", "close the list of commands, or the panel"],
  ["Alt+A", "go to the oldest question that waits for an answer"],
  ["Alt+1 … Alt+4", "chat, tools, sessions, settings"],
  ["Alt+I", "go to the text box"],
  ["?", "this help, when you are not typing"],
];

/** @type {HTMLDialogElement | null} */
let dialog = null;

export const showHelp = () => {
  dialog ??= made();
  if (!dialog.isConnected) document.body.append(dialog);
  if (!dialog.open) dialog.showModal();
};

const made = () => {
  const rows = KEYS.map(([key, does]) => h("div", null, h("dt", null, h("kbd", null, key)), h("dd", null, does)));
  const close = h("button", { class: "primary", type: "button", on: { click: () => dialog?.close() } }, "Close");
  return /** @type {HTMLDialogElement} */ (
    h(
      "dialog",
      { class: "help-dialog", "aria-labelledby": "help-title" },
      h("h2", { id: "help-title" }, "Keys"),
      h("dl", null, ...rows),
      close,
    )
  );
};
