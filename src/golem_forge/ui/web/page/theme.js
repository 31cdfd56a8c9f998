/* Light or dark: as the system says, or as the person chose. Kept in localStorage, put on <html data-theme>. */

import { remember, remembered } from "./storage.js";

const KEY = "forge.theme";
export const THEMES = /** @type {const} */ (["auto", "light", "dark"]);
/** @typedef {typeof THEMES[number]} Theme */

/** @returns {Theme} */
export const theme = () => {
  const kept = remembered(KEY);
  return kept === "light" || kept === "dark" ? kept : "auto";
};

/** @param {Theme} wanted */
export const setTheme = (wanted) => {
  remember(KEY, wanted === "auto" ? null : wanted);
  applyTheme();
};

const applyTheme = () => {
  const wanted = theme();
  if (wanted === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = wanted;
};

applyTheme(); // before anything is painted, so that the page does not flash in the other theme
