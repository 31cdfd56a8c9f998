/* The page begins: exchanges the code of the printed link for a cookie, learns what there is to show, and shows it.

   Threat: the code opens the session. It stands in the fragment, which no server and no referrer sees, and is taken
   out of the address (and so out of the history) before anything else is asked for. */

import * as api from "./api.js";
import { h, replace } from "./dom.js";
import { Desk } from "./desk.js";
import { keepFromDrops } from "./dropping.js";
import { startShortcuts } from "./shortcuts.js";

/** @type {Desk | null} */
let desk = null;

const start = async () => {
  keepFromDrops();
  const skip = document.getElementById("skip");
  skip?.addEventListener("click", (event) => {
    event.preventDefault(); // the fragment is the route
    document.getElementById("main")?.focus();
  });
  window.addEventListener("hashchange", async (event) => {
    if (!code()) return;
    // A new link, opened where the page is: only the fragment changed, and what was typed is still there.
    event.stopImmediatePropagation();
    const refused = await login(new URL(event.oldURL).hash);
    if (desk) await desk.signedIn(refused);
    else await enter(refused);
  });
  await enter(await login(""));
};

/** @param {string} refused why the code was not taken */
const enter = async (refused) => {
  let me;
  try {
    me = await api.get("/api/me");
  } catch (failure) {
    explain(/** @type {api.Failure} */ (failure), refused);
    return;
  }
  desk = new Desk(me);
  startShortcuts(desk);
  desk.start();
};

/** The code in the address, if there is one. */
const code = () => /^#code=([^&]+)$/.exec(location.hash)?.[1];

/**
 * @param {string} before where in the page one was
 * @returns {Promise<string>} why the code was not taken; "" where all is well
 */
const login = async (before) => {
  const given = code();
  if (!given) return "";
  history.replaceState(null, "", `${location.pathname}${before}`);
  try {
    await api.post("/api/login", { code: decodeURIComponent(given) });
    return "";
  } catch (failure) {
    return failure instanceof api.Failure ? failure.problem : "The link could not be read.";
  }
};

/** @param {api.Failure} failure @param {string} refused */
const explain = (failure, refused) => {
  const main = document.getElementById("main");
  if (!main) return;
  const signedOut = failure.status === 401;
  replace(
    main,
    h(
      "div",
      { class: "lost" },
      h("h1", null, signedOut ? "This page is not signed in" : "Forge does not answer"),
      h("p", { role: "alert" }, refused || (signedOut ? null : failure.problem)),
      signedOut
        ? h(
            "p",
            null,
            "A link that forge prints opens this page once, within five minutes. For a new one type ",
            h("kbd", null, "/web"),
            " in the terminal session, or press Enter where ",
            h("kbd", null, "forge web"),
            " runs.",
          )
        : h("button", { class: "primary", type: "button", on: { click: () => location.reload() } }, "Try again"),
    ),
  );
};

start();
