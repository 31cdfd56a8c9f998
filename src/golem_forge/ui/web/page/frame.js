/* The frame around the areas: the bar at the top, the areas to go to, the banners, the panel at the side, the line
   below.

   Redrawn at most once a frame of the screen, from the store; the title counts the open questions at once. */

import * as api from "./api.js";
import { el, h, icon, part, replace, say } from "./dom.js";
import { cost, moment, oneLine, percent } from "./format.js";
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
  if (!why) return null;
  const mayResume = open.session.state === "closed" && open.desk.me.mayStart;
  return el("div.banner",
    el("span", why),
    mayResume ? resumeButton(open) : null,
    h("a", { href: address("replay", open.id) }, "Replay it"),
  );
};

/** Goes on with a session that nobody runs; the server tells this page when it runs. */
const resumeButton = (open) => {
  const button = el("button.primary", "Resume");
  button.addEventListener("click", async () => {
    button.disabled = true;
    try {
      await api.post("/api/sessions", { resume: open.id });
    } catch (failure) {
      button.disabled = false;
      button.after(h("span", { role: "alert" }, failure?.problem ?? "It could not be resumed."));
    }
  });
  return button;
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

/* The model picker: the same as the command `/model`, which answers in the conversation. Offered are the models that
   sessions of this home have used and those of model servers on this machine. */
const MOST_MODELS = 8;

/** @param {import("./open_session.js").OpenSession} open */
const pickModel = async (open) => {
  const now = open.model;
  const box = h("input.field-input", {
    id: "model-name",
    value: now,
    list: "model-names",
    placeholder: "provider:model",
    spellcheck: "false",
    autocomplete: "off",
  });
  const names = h("datalist", { id: "model-names" });
  const chips = el("div.buttons");
  const problem = h("p.field-error", { role: "alert", hidden: true });
  const dialog = h("dialog.help-dialog", { "aria-labelledby": "model-title" });
  const choose = async (name) => {
    const wrong = /^[^\s'"\\]+$/.test(name) ? "" : "Write one name, such as anthropic:claude-sonnet-4-5.";
    const said = wrong
      ? { ok: false, problem: wrong }
      : await open.ctx.act("command", { requestId: api.randomId(), text: `/model ${name}` });
    if (said.ok) return dialog.close();
    problem.hidden = false;
    say(problem, said.problem ?? "The command was not taken.");
  };
  const submit = (event) => {
    event.preventDefault();
    choose(box.value.trim());
  };
  replace(dialog,
    h("h2", { id: "model-title" }, "Model"),
    el("p.dim", now ? `In force: ${now}.` : "This session has no model.", " Another one counts from the next request on."),
    h("form.model-form", { on: { submit } },
      h("label.field-label", { for: "model-name" }, "Model"),
      box,
      names,
      problem,
      chips,
      el("div.buttons",
        h("button", { on: { click: () => dialog.close() } }, "Cancel"),
        h("button.primary", { type: "submit" }, "Use this model"),
      ),
    ),
  );
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  box.select();
  const [listed, found] = await Promise.all([
    api.get("/api/sessions?limit=100").catch(() => ({ sessions: [] })),
    api.get("/api/models").catch(() => ({ local: [] })),
  ]);
  const local = found.local.flatMap(({ provider, models }) => models.map((name) => `${provider}:${name}`));
  const used = listed.sessions.map((one) => one.model).filter(Boolean);
  const known = [...new Set([...used, ...local])].slice(0, MOST_MODELS);
  replace(names, known.map((value) => h("option", { value })));
  replace(chips, known.filter((name) => name !== now).map((name) =>
    h("button.chip", { on: { click: () => choose(name) } }, oneLine(name)),
  ));
};

/* The inbox: what waits for an answer in every session of this process. A row leads to its card; nothing is answered
   from here. */
/** @typedef {{session: string, requestId: string, asks: string, risk: string, since: string}} Waiting */

/** @param {Waiting[]} rows @param {(row: Waiting) => void} go @param {string} here */
const showInbox = (rows, go, here) => {
  const dialog = h("dialog.help-dialog.inbox", { "aria-labelledby": "inbox-title" });
  const row = (one) =>
    el("li",
      h("button.row", { on: { click: () => (dialog.close(), go(one)) } },
        el("span.inbox-asks",
          el("span.mono", oneLine(one.asks)),
          one.session === here ? null : el("span.dim", "in another session"),
        ),
        one.risk ? h("span.risk", { dataset: { risk: one.risk } }, one.risk) : null,
        el("span.dim.small", moment(one.since)),
      ),
    );
  replace(dialog,
    h("h2", { id: "inbox-title" }, `Waiting for you (${rows.length})`),
    h("ol.queue", { role: "list" }, rows.map(row)),
    h("button", { on: { click: () => dialog.close() } }, "Close"),
  );
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
};

const INBOX_MS = 4000;
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
  /** What waits in other sessions of this process. @type {Waiting[]} */
  #elsewhere = [];

  /** @param {import("./desk.js").Desk} desk */
  constructor(desk) {
    this.desk = desk;
    this.name = el("h1.name", "Forge");
    this.state = h("span.pill", { hidden: true });
    this.model = h("button.quiet.model", { hidden: true, on: { click: () => this.#open && pickModel(this.#open) } });
    this.count = el("span.badge");
    this.waiting = h("button.quiet.waiting", { on: { click: () => this.#showWaiting() } }, icon("bell"), this.count);
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
    if (desk.me.mayStart) window.setInterval(() => this.#lookAround(), INBOX_MS);
  }

  /** @param {import("./open_session.js").OpenSession} open */
  opened(open) {
    this.#open = open;
    this.#elsewhere = this.#elsewhere.filter((one) => one.session !== open.id);
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

  /** The oldest question of this session, else of another. */
  toOldest() {
    const oldest = this.#waiting()[0];
    if (oldest) this.#goTo(oldest);
    return Boolean(oldest);
  }

  /** @returns {Waiting[]} those of this session first */
  #waiting() {
    const open = this.#open;
    const here = open?.session.answerable ? open.store.openQuestions() : [];
    return [
      ...here.map(({ requestId, shown: { event } }) => ({
        session: open?.id ?? "",
        requestId,
        asks: event.data.tool ?? `${event.data.source}: ${event.data.title}`,
        risk: event.data.risk ?? "",
        since: event.ts,
      })),
      ...this.#elsewhere,
    ];
  }

  #goTo({ session, requestId }) {
    if (session === this.#open?.id) this.toQuestion(requestId);
    else this.desk.go(address("chat", session));
  }

  #showWaiting() {
    const rows = this.#waiting();
    if (rows.length > 1) showInbox(rows, (one) => this.#goTo(one), this.#open?.id ?? "");
    else this.toOldest();
  }

  async #lookAround() {
    if (document.hidden || this.#lost || (this.#open && this.#open.link.state !== "here")) return;
    const inbox = await api.get("/api/questions").catch(() => null);
    if (!inbox) return;
    this.#elsewhere = inbox.questions.filter((one) => one.session !== this.#open?.id);
    this.#drawTitle();
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
    this.model.hidden = !store.standing.session;
    this.model.disabled = !session.answerable || store.standing.ended;
    say(this.model, open.model || "no model");
    this.model.setAttribute("aria-label", `Model: ${open.model || "none"}. Choose another one`);
    const away = open.link.state !== "here";
    this.state.hidden = false;
    this.state.dataset.state = away ? "away" : session.state;
    say(this.state, away ? AWAY[open.link.state] : (STATES[session.state] ?? session.state));
    this.panel.draw();
    drawFoot(part("foot"), open);
  }

  #drawTitle() {
    const open = this.#open;
    const count = this.#waiting().length;
    const name = this.#pageTitle || open?.store.standing.session?.worker || "";
    document.title = `${count ? `(${count}) ` : ""}Forge${name ? ` – ${visible(name)}` : ""}`;
    this.waiting.hidden = !count;
    say(this.count, count ? String(count) : "");
    const words = count === 1 ? "One answer is awaited" : `${count} answers are awaited`;
    this.waiting.setAttribute("aria-label", count > 1 ? `${words}: show them` : `${words}: go to it (Alt+A)`);
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
