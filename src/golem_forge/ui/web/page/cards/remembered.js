/* Small wishes of the person, kept in this browser. Nothing here is secret, and a browser that keeps nothing works
   too. */

/** @param {string} name @param {string[]} known @param {string} otherwise */
export const remembered = (name, known, otherwise) => {
  try {
    const value = localStorage.getItem(`forge.${name}`);
    return value !== null && known.includes(value) ? value : otherwise;
  } catch {
    return otherwise;
  }
};

/** @param {string} name @param {string} value */
export const remember = (name, value) => {
  try {
    localStorage.setItem(`forge.${name}`, value);
  } catch {
    // private windows may refuse; the wish then holds for this page only
  }
};
