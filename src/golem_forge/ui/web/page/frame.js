/* The frame around the areas: the bar at the top, the areas to go to, the banners, the panel at the side, the line
   below.

   Redrawn at most once a frame of the screen, from the store; the title counts the open questions at once. */

import { drawBanners } from "./banners.js";
import { h, replace, say } from "./dom.js";
import { drawFoot } from "./foot.js";
import { showHelp } from "./help.js";
import { icon } from "./icons.js";
import { address } from "./router.js";
import { Panel } from "./side/panel.js";
import { setTheme, THEMES, theme } from "./theme.js";
import { visible } from "./visible.js";

const NAMES = { chat: "Chat", tools: "Tools", sessions: "Sessions", settings: "Settings", replay: "Replay" };
/** @type {Record<string, string>} */
const AWAY = { connecting: "connecting", away: "connecting", over: "not connected" };
/** @type {Record<string, string>} */
const STATES = { live: "live", elsewhere: "runs elsewhere", closed: "closed" };
const SIGNED_OUT =
  "This page is no longer signed in. Type /web in the terminal session, or press Enter where forge web runs, and open " +
  "the new link in this browser. What you typed is kept.";
/** @param {string} id */
const part = (id) => /** @type {HTMLElement} */ (document.getElementById(id));

export class Frame {
  /** @type {import("./open_session.js").OpenSession | null} */
  #open = null;
  #pageTitle = "";
  #area = "chat";
  #due = 0;
  #lost = "";

  /** @param {import("./desk.js").Desk} desk */
  constructor(desk) {
    this.desk = desk;
    this.name = h("h1", { class: "name" }, "Forge");
    this.state = h("span", { class: "pill", hidden: true });
    this.model = h("span", { class: "model" });
    this.count = h("span", { class: "badge" });
    this.waiting = h(
      "button",
      { class: "quiet waiting", type: "button", on: { click: () => this.toOldest() } },
      icon("bell"),
      this.count,
    );
    this.themeButton = h("button", { class: "quiet", type: "button", on: { click: () => this.#nextTheme() } });
    this.panelButton = h(
      "button",
      {
        class: "quiet",
        type: "button",
        "aria-label": "Session panel",
        title: "Session panel",
        "aria-controls": "panel",
        on: { click: () => this.panel.toggle() },
      },
      icon("panel"),
    );
    const help = h(
      "button",
      { class: "quiet help", type: "button", "aria-label": "Help", title: "Help (?)", on: { click: showHelp } },
      icon("help"),
    );
    replace(
      part("top"),
      h("span", { class: "brand", title: "Golem Forge" }, icon("anvil")),
      h("div", { class: "what" }, this.name, this.model, this.state),
      h("div", { class: "acts" }, this.waiting, this.themeButton, help, this.panelButton),
    );
    this.panel = new Panel(part("panel"), this.panelButton, (area) => desk.go(area));
    this.#drawTheme();
  }

  /** @param {import("./open_session.js").OpenSession} open */
  opened(open) {
    this.#open = open;
    this.#lost = "";
    this.panel.shows(open);
    this.changed();
  }

  /** @param {string} area */
  shows(area) {
    this.#area = area;
    const session = this.#open?.id ?? "";
    const links = Object.entries(NAMES)
      .filter(([one]) => one === "sessions" || (session && one !== "replay"))
      .map(([one, name]) => {
        const key = `Alt+${Object.keys(NAMES).indexOf(one) + 1}`;
        const current = one === area ? "page" : null;
        return h(
          "li",
          null,
          h(
            "a",
            { href: address(one, session), "aria-current": current, title: `${name} (${key})` },
            icon(one),
            h("span", null, name),
          ),
        );
      });
    replace(part("areas"), h("ul", { role: "list" }, ...links));
    document.body.dataset.area = area;
    this.changed();
  }

  /** @param {string} words of the page that is shown */
  title(words) {
    this.#pageTitle = words;
    this.#drawTitle();
  }

  /** @param {any} [change] */
  changed(change) {
    if (change?.what === "question") this.#drawTitle();
    if (change?.what === "item" || this.#due) return;
    this.#due = requestAnimationFrame(() => {
      this.#due = 0;
      this.#draw();
    });
  }

  /** The server does not let this page in any more. @param {number} status @param {string} problem */
  lost(status, problem) {
    this.#lost = status === 401 ? SIGNED_OUT : problem;
    this.changed();
  }

  /** It does again. */
  found() {
    this.#lost = "";
    this.changed();
  }

  toOldest() {
    const oldest = this.#open?.store.openQuestions()[0];
    if (!oldest) return false;
    this.toQuestion(oldest.requestId);
    return true;
  }

  /** @param {string} requestId */
  toQuestion(requestId) {
    const chat = this.#open?.chat;
    if (this.#area !== "chat") this.desk.go("chat");
    this.panel.makeRoom();
    setTimeout(() => chat?.toQuestion(requestId), 0); // the route is followed first
  }

  #draw() {
    const open = this.#open;
    this.#drawTitle();
    drawBanners(part("banners"), this.#open, this.#lost);
    if (!open) return;
    const { store, session } = open;
    say(this.name, store.standing.session?.worker || "Forge");
    say(this.model, store.standing.session?.model ?? "");
    const away = open.link.state !== "here";
    this.state.hidden = false;
    this.state.dataset.state = away ? "away" : session.state;
    say(this.state, away ? AWAY[open.link.state] : (STATES[session.state] ?? session.state));
    this.panel.draw();
    drawFoot(part("foot"), open);
  }

  #drawTitle() {
    const open = this.#open;
    const count = open?.session.answerable ? open.store.openQuestions().length : 0;
    const name = this.#pageTitle || open?.store.standing.session?.worker || "";
    document.title = `${count ? `(${count}) ` : ""}Forge${name ? ` – ${visible(name)}` : ""}`;
    this.waiting.hidden = !count;
    say(this.count, count ? String(count) : "");
    const words = count === 1 ? "One answer is awaited" : `${count} answers are awaited`;
    this.waiting.setAttribute("aria-label", `${words}: go to the oldest (Alt+A)`);
    this.waiting.setAttribute("title", `${words} (Alt+A)`);
  }

  #nextTheme() {
    setTheme(THEMES[(THEMES.indexOf(theme()) + 1) % THEMES.length]);
    this.#drawTheme();
  }

  #drawTheme() {
    replace(this.themeButton, icon("theme"));
    const words = `Theme: ${theme()}`;
    this.themeButton.setAttribute("aria-label", words);
    this.themeButton.setAttribute("title", words);
  }
}
