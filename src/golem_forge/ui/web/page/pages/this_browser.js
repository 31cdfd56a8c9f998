/* What this browser keeps for itself: theme, how much of a run is shown, notifications; and signing it out. */

import { h, replace } from "../dom.js";
import { forgetDrafts } from "../chat/drafts.js";
import { LEVELS } from "../chat/levels.js";
import { askPermission, permission } from "../notify.js";
import { setTheme, theme, THEMES } from "../theme.js";
import { actButton, confirmed, saidPlace } from "./acting.js";

const LEVEL_WORDS = {
  quiet: "quiet: answers and errors",
  summary: "summary: and what failed or ended",
  normal: "normal: and calls, plans, notices",
  debug: "debug: and the events behind them",
};
const THEME_WORDS = { auto: "as the system has it", light: "light", dark: "dark" };
const PERMISSION = {
  granted: "Allowed. A notification says only that an answer is awaited, never what is asked.",
  denied: "The browser does not allow them for this page; its own settings can change that.",
  unsupported: "This browser has none.",
};

/** @param {any} ctx */
export const thisBrowser = (ctx) => {
  const said = saidPlace();
  const leave = async () => {
    if (
      !(await confirmed({
        title: "Sign this browser out?",
        words: h("p", null, "The page needs a new link then: type /web in the session, or press Enter where forge web runs."),
        yes: "Sign out",
      }))
    )
      return null;
    await ctx.api.post("/api/logout");
    forgetDrafts();
    location.reload();
    return null;
  };
  return h(
    "div",
    { class: "here" },
    choice(
      "Theme",
      [...THEMES].map((name) => [name, THEME_WORDS[name]]),
      theme(),
      (name) => setTheme(/** @type {any} */ (name)),
    ),
    choice(
      "Trace level of this page",
      LEVELS.map((name) => [name, LEVEL_WORDS[/** @type {keyof typeof LEVEL_WORDS} */ (name)]]),
      ctx.settings.level,
      (name) => ctx.settings.setLevel(name),
    ),
    notifications(ctx),
    h("div", null, actButton("Sign this browser out…", leave, { said }), said),
  );
};

/** @param {string} label @param {string[][]} options @param {string} now @param {(name: string) => void} chosen */
const choice = (label, options, now, chosen) => {
  const id = `here-${label.replace(/\W+/g, "-").toLowerCase()}`;
  const select = /** @type {HTMLSelectElement} */ (
    h(
      "select",
      { id, class: "field-input" },
      options.map(([value, words]) => h("option", { value, selected: value === now }, words)),
    )
  );
  select.addEventListener("change", () => chosen(select.value));
  return h("div", { class: "field" }, h("label", { class: "field-label", for: id }, label), select);
};

/** @param {any} ctx */
const notifications = (ctx) => {
  const place = h("div", { class: "field" });
  const draw = () => {
    const state = permission();
    const ask = h(
      "button",
      { type: "button", on: { click: async () => (await askPermission(), draw()) } },
      "Allow notifications…",
    );
    replace(
      place,
      h("p", { class: "field-label" }, "Notifications"),
      state === "default"
        ? h("div", { class: "buttons" }, ask)
        : h("p", { class: "field-words" }, PERMISSION[/** @type {keyof typeof PERMISSION} */ (state)] ?? ""),
      ctx.me?.notify
        ? null
        : h(
            "p",
            { class: "field-words" },
            "The server sends none: ",
            h("code", null, "ui.web.notify: true"),
            " in forge.yaml turns them on.",
          ),
    );
  };
  draw();
  return place;
};
