/* Which questions this tab has answered: a reload, or coming back to a session, does not make it another window.
   Only the ids, and only as long as the tab. */

const KEY = "forge.answered";
const MOST = 200;

/** @returns {string[]} */
const kept = () => {
  try {
    const found = JSON.parse(sessionStorage.getItem(KEY) ?? "[]");
    return Array.isArray(found) ? found : [];
  } catch {
    return [];
  }
};

/** @param {string} requestId */
export const wasAnsweredHere = (requestId) => kept().includes(requestId);

/** @param {string} requestId @param {boolean} answered */
export const noteAnswer = (requestId, answered) => {
  const others = kept().filter((one) => one !== requestId);
  try {
    sessionStorage.setItem(KEY, JSON.stringify(answered ? [...others, requestId].slice(-MOST) : others));
  } catch {
    // no storage: the page knows as long as it is there
  }
};
