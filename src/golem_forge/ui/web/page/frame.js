/* The frame around the areas: the bar at the top, the areas to go to, the banners, the panel at the side, the line
   below.

   Redrawn at most once a frame of the screen, from the store; the title counts the open questions at once. */

import { el, h, icon, part, replace, say } from "./dom.js";
import { cost, percent } from "./format.js";
import { address } from "./router.js";
import { Panel } from "./panel.js";
import { setTheme, theme, THEMES } from "./theme.js";
import { visible } from "./visible.js";

/* What stands above the areas when something is not as usual: signed out, the server away, a session to look at
   only. */
const READ_ONLY = {
  elsewhere: "Another process runs this session. You can watch it here; answer it where it runs.",
  closed: "Nobody runs this session. What you see is its record.",
};
const SERVER_AWAY = "The server is away. This page tries again; what you answer now is sent when it is back.";
const GONE = "The session has ended, and its server with it. What you see stays until you close this page.";

/** @param {HTMLElement} place @param {import("./open_session.js").OpenSession | null} open
 * @param {string} lost why the server lets this page in no more */
const drawBanners = (place, open, lost) => {
  const row = lost ? h("p.banner.fail", { role: "alert" }, lost) : open ? ofSession(open) : null;
  const words = row?.textContent ?? "";
  if (place.dataset.words === words) return;
  place.dataset.words = words;
  replace(place, row);
};

const ofSession = (open) => {
  if (open.link.state === "away")
    return open.store.standing.ended ? el("p.banner", GONE) : el("p.banner.warn", SERVER_AWAY);
  const why = open.store.caughtUp ? READ_ONLY[open.session.state] : undefined;
  return why ? el("p.banner", why, " ", h("a", { href: address("replay", open.id) }, "Replay it")) : null;
};

/* The line below everything, as the terminal has it: approval mode, context, cost, walls. */
const drawFoot = (place, open) => {
  const { session, context, usage, walls } = open.store.standing;
  const spent = usage?.session?.cost;
  const words = [
    session ? `approval ${open.budget.mode || session.approvalMode}` : "",
    context?.tokenLimit ? `context ${percent(context.tokensUsed, context.tokenLimit)}` : "",
    typeof spent === "number" ? cost(spent) : "",
    walls ? `walls ${walls.level}` : "",
  ].filter(Boolean);
  if (place.dataset.words === words.join()) return;
  place.dataset.words = words.join();
  replace(place, ...words.map((one) => el("span", one)));
};

/* The help dialog: what the keys do. Opened by `?` or the button; Esc and the button close it, nothing is answered
   by it. */
const KEYS = [
  ["Enter", "send what is typed"],
  ["Shift+Enter", "a new line"],
  ["/", "commands and tools, at the start of a line"],
  ["Esc", "close the list of commands, or the panel"],
  ["Alt+A", "go to the oldest question that waits for an answer"],
  ["Alt+1 … Alt+4", "chat, tools, sessions, settings"],
  ["Alt+I", "go to the text box"],
  ["?", "this help, when you are not typing"],
];

/** @type {HTMLDialogElement} made when it is first shown */
let dialog;

export const showHelp = () => {
  dialog ??= made();
  if (!dialog.isConnected) document.body.append(dialog);
  if (!dialog.open) dialog.showModal();
};

const made = () => {
  const rows = KEYS.map(([key, does]) => el("div", el("dt", el("kbd", key)), el("dd", does)));
  const close = h("button.primary", { on: { click: () => dialog.close() } }, "Close");
  return h("dialog.help-dialog", { "aria-labelledby": "help-title" },
    h("h2", { id: "help-title" }, "Keys"),
    el("dl", ...rows),
    close,
  );
};

const NAMES = { chat: "Chat", tools: "Tools", sessions: "Sessions", settings: "Settings", replay: "Replay" };
const AWAY = { connecting: "connecting", away: "connecting", over: "not connected" };
const STATES = { live: "live", elsewhere: "runs elsewhere", closed: "closed" };
const SIGNED_OUT =
  "This page is no longer signed in. Type /web in the terminal session, or press Enter where forge web runs, and open " +
  "the new link in this browser. What you typed is kept.";

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
    this.name = el("h1.name", "Forge");
    this.state = h("span.pill", { hidden: true });
    this.model = el("span.model");
    this.count = el("span.badge");
    this.waiting = h("button.quiet.waiting", { on: { click: () => this.toOldest() } }, icon("bell"), this.count);
    this.themeButton = h("button.quiet", { on: { click: () => this.#nextTheme() } });
    this.panelButton = h("button.quiet",
      {
        "aria-label": "Session panel",
        title: "Session panel",
        "aria-controls": "panel",
        on: { click: () => this.panel.toggle() },
      },
      icon("panel"),
    );
    const help = h("button.quiet.help", { "aria-label": "Help", title: "Help (?)", on: { click: showHelp } },
      icon("help"),
    );
    replace(part("top"),
      h("span.brand", { title: "Golem Forge" }, icon("anvil")),
      el("div.what", this.name, this.model, this.state),
      el("div.acts", this.waiting, this.themeButton, help, this.panelButton),
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

  shows(area) {
    this.#area = area;
    const session = this.#open?.id ?? "";
    const links = Object.entries(NAMES).filter(([one]) => one === "sessions" || (session && one !== "replay"))
      .map(([one, name]) => {
        const key = `Alt+${Object.keys(NAMES).indexOf(one) + 1}`;
        const current = one === area ? "page" : null;
        return el("li",
          h("a", { href: address(one, session), "aria-current": current, title: `${name} (${key})` },
            icon(one),
            el("span", name),
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

  changed(change) {
    if (change?.what === "question") this.#drawTitle();
    if (change?.what === "item" || this.#due) return;
    this.#due = requestAnimationFrame(() => {
      this.#due = 0;
      this.#draw();
    });
  }

  /** The server does not let this page in any more. */
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
