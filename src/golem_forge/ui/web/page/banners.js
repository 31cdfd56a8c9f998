/* What stands above the areas when something is not as usual: signed out, the server away, a session to look at
   only. */

import { h, replace } from "./dom.js";
import { address } from "./router.js";

/** @type {Record<string, string>} */
const READ_ONLY = {
  elsewhere: "Another process runs this session. You can watch it here; answer it where it runs.",
  closed: "Nobody runs this session. What you see is its record.",
};
const AWAY = "The server is away. This page tries again; what you answer now is sent when it is back.";
const GONE = "The session has ended, and its server with it. What you see stays until you close this page.";

/**
 * @param {HTMLElement} place
 * @param {import("./open_session.js").OpenSession | null} open
 * @param {string} lost why the server lets this page in no more
 */
export const drawBanners = (place, open, lost) => {
  const row = lost ? h("p", { class: "banner fail", role: "alert" }, lost) : open ? ofSession(open) : null;
  const words = row?.textContent ?? "";
  if (place.dataset.words === words) return;
  place.dataset.words = words;
  replace(place, row);
};

/** @param {import("./open_session.js").OpenSession} open */
const ofSession = (open) => {
  if (open.link.state === "away")
    return open.store.standing.ended ? h("p", { class: "banner" }, GONE) : h("p", { class: "banner warn" }, AWAY);
  const why = open.store.caughtUp ? READ_ONLY[open.session.state] : undefined;
  return why ? h("p", { class: "banner" }, why, " ", h("a", { href: address("replay", open.id) }, "Replay it")) : null;
};
