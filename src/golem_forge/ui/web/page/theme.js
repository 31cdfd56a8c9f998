/* Light or dark: as the system says, or as the person chose. Kept in localStorage, put on <html data-theme>. */

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

export const applyTheme = () => {
  const wanted = theme();
  if (wanted === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = wanted;
};

/** What this browser keeps for this page, "" where it keeps nothing. @param {string} key */
export const remembered = (key) => {
  try {
    return localStorage.getItem(key) ?? "";
  } catch {
    return ""; // storage is switched off: the page works without
  }
};

/** @param {string} key @param {string | null} value null forgets it */
export const remember = (key, value) => {
  try {
    if (value === null) localStorage.removeItem(key);
    else localStorage.setItem(key, value);
  } catch {
    /* storage is switched off or full: then it lasts as long as the page */
  }
};
