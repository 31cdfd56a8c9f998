/* Where in the page one is: `#/s/<session>/chat|tools|settings|replay`, `#/sessions`, and on a team's page `#/inbox`
   and `#/people`. The fragment never leaves the
   browser.

   `route(hash)` reads it, `address(route)` writes it; both are pure, so that what is written is what is read. */

const AREAS = /** @type {const} */ (["chat", "tools", "sessions", "settings", "replay", "inbox", "people"]);
/** Areas of no session. @type {string[]} */
const OF_ALL = ["sessions", "inbox", "people"];
/** @typedef {{session: string, area: typeof AREAS[number], params: string[]}} Route */

/** @param {string} hash @param {string} current the session to show where none is named @returns {Route} */
export const route = (hash, current) => {
  const [first, ...rest] = hash.replace(/^#\/?/, "").split("/").filter(Boolean).map(decoded);
  if (first === "s" && rest[0]) {
    const area = AREAS.find((one) => one === rest[1]) ?? "chat";
    return { session: rest[0], area, params: rest.slice(2) };
  }
  const area = AREAS.find((one) => one === first);
  if (area && OF_ALL.includes(area)) return { session: current, area, params: rest };
  if (!current) return { session: current, area: "sessions", params: [] };
  return { session: current, area: area ?? "chat", params: rest };
};

/** @param {string} area @param {string} session @param {...string} params */
export const address = (area, session, ...params) => {
  const parts = OF_ALL.includes(area) ? [area, ...params] : ["s", session, area, ...params];
  return `#/${parts.map(encodeURIComponent).join("/")}`;
};

const decoded = (part) => {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
};
