/* The page begins: exchanges the code of the printed link for a cookie, learns what there is to show, and shows it.

   Threat: the code opens the session. It stands in the fragment, which no server and no referrer sees, and is taken
   out of the address (and so out of the history) before anything else is asked for. */

import * as api from "./api.js";
import { keepFromDrops } from "./chat/attachments.js";
import { Desk } from "./desk.js";
import { el, h, isTyping, replace } from "./dom.js";
import { showHelp } from "./frame.js";

/* Keys for the whole page. None of them answers a question, and a plain key does nothing while somebody types.

   Keys are taken by their place (`code`), because Alt changes the letter on some keyboards. */
const AREAS = ["chat", "tools", "sessions", "settings"];
const TEAM_AREAS = ["chat", "inbox", "sessions", "people"];

const startShortcuts = (desk) => {
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
  const area = (desk.me.team ? TEAM_AREAS : AREAS)[Number(/^Digit([1-4])$/.exec(code)?.[1] ?? 0) - 1];
  if (area) desk.go(area);
  return Boolean(area);
};

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
    explain(failure, refused);
    return;
  }
  desk = new Desk(me);
  startShortcuts(desk);
  desk.start();
};

/** The code in the address, if there is one. */
const code = () => /^#code=([^&]+)$/.exec(location.hash)?.[1];

/** @param {string} before where in the page one was
 * @returns {Promise<string>} why the code was not taken; "" where all is well */
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

/** What the server says of a sign-in that failed, by its word in the address.
 * @type {Record<string, string>} */
const SIGN_IN_PROBLEMS = {
  away: "The sign-in provider does not answer. Try again later, or log in with a token.",
  refused: "The sign-in was not accepted. Try again; an admin finds the reason in the audit.",
  removed: "You were removed from this team. Ask an admin to restore you.",
  role: "None of your groups has a role in this team. Ask an admin.",
  again: "This sign-in took too long, or began in another browser. Try again.",
};

/** Why the sign-in failed that this page comes from; "" if none did. */
const signInProblem = () => {
  const word = /^#sign-in=([a-z]+)$/.exec(location.hash)?.[1] ?? "";
  if (word) history.replaceState(null, "", location.pathname);
  return Object.hasOwn(SIGN_IN_PROBLEMS, word) ? SIGN_IN_PROBLEMS[word] : "";
};

/** On a team's page a person signs in at a provider, if the team has one, or logs in with their token.
 * @param {string} problem
 * @param {string | undefined} provider */
const tokenForm = (problem, provider) => {
  const box = h("input.field-input", {
    id: "token", type: "password", name: "token", autocomplete: "current-password", spellcheck: "false", required: true,
  });
  const said = h("p.problem", { role: "alert" }, problem);
  const submit = async (event) => {
    event.preventDefault();
    try {
      await api.post("/api/login", { code: box.value.trim() });
      location.reload();
    } catch (failure) {
      replace(said, failure.problem ?? "The token could not be sent.");
      box.select();
    }
  };
  return el("div.lost",
    el("h1", "Log in"),
    provider ? el("p", h("a.button.primary", { id: "sign-in", href: "/api/oidc/login" }, `Sign in at ${provider}`)) : null,
    h("form.token-form", { on: { submit } },
      h("label.field-label", { for: "token" }, "Your token"),
      box,
      el("p.dim", "An admin of your team makes it: ", el("code", "forge people add NAME")),
      said,
      h("button.primary", { type: "submit" }, "Log in"),
    ),
  );
};

const explain = (failure, refused) => {
  const main = document.getElementById("main");
  if (!main) return;
  if (failure.status === 401 && failure.fields?.team) {
    replace(main, tokenForm(refused || signInProblem(), failure.fields.signIn));
    (document.getElementById("sign-in") ?? document.getElementById("token"))?.focus();
    return;
  }
  const signedOut = failure.status === 401;
  replace(main,
    el("div.lost",
      el("h1", signedOut ? "This page is not signed in" : "Forge does not answer"),
      h("p", { role: "alert" }, refused || (signedOut ? null : failure.problem)),
      signedOut
        ? el("p",
            "A link that forge prints opens this page once, within five minutes. For a new one type ",
            el("kbd", "/web"),
            " in the terminal session, or press Enter where ",
            el("kbd", "forge web"),
            " runs.",
          )
        : h("button.primary", { on: { click: () => location.reload() } }, "Try again"),
    ),
  );
};

start();
