/* What this browser keeps for the page, or only for this tab. Where storage is switched off or full nothing is kept:
   what was chosen lasts as long as the page. */

const storage = (tab) => (tab ? sessionStorage : localStorage);

/** "" where nothing is kept. @param {string} key @param {boolean} [tab] kept for this tab only */
export const remembered = (key, tab = false) => {
  try {
    return storage(tab).getItem(key) ?? "";
  } catch {
    return "";
  }
};

/** @param {string} key @param {string | null} value null forgets it @param {boolean} [tab] kept for this tab only */
export const remember = (key, value, tab = false) => {
  try {
    if (value === null) storage(tab).removeItem(key);
    else storage(tab).setItem(key, value);
  } catch {
    /* nothing is kept */
  }
};
