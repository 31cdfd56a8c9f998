/* Keys for the whole page. None of them answers a question, and a plain key does nothing while somebody types.

   Keys are taken by their place (`code`), because Alt changes the letter on some keyboards. */

import { isTyping } from "./dom.js";
import { showHelp } from "./help.js";

const AREAS = ["chat", "tools", "sessions", "settings"];

/** @param {import("./desk.js").Desk} desk */
export const startShortcuts = (desk) => {
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.isComposing) return;
    if (event.altKey && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
      if (withAlt(desk, event.code)) event.preventDefault();
    } else if (event.key === "?" && !event.ctrlKey && !event.metaKey && !isTyping(event.target)) {
      event.preventDefault();
      showHelp();
    } else if (event.key === "Escape" && desk.frame.panel.closeSheet()) event.preventDefault();
  });
};

/** @param {import("./desk.js").Desk} desk @param {string} code @returns {boolean} whether it was one of ours */
const withAlt = (desk, code) => {
  if (code === "KeyA") {
    desk.frame.toOldest();
    return true;
  }
  if (code === "KeyI") {
    desk.go("chat");
    setTimeout(() => desk.open?.chat.composer.focus(), 0);
    return true;
  }
  const area = AREAS[Number(/^Digit([1-4])$/.exec(code)?.[1] ?? 0) - 1];
  if (area) desk.go(area);
  return Boolean(area);
};
