/* The frame around the areas: the bar at the top, the areas to go to, the banners, the panel at the side, the line
   below.

   Redrawn at most once a frame of the screen, from the store; the title counts the open questions at once. */

import * as api from "./api.js";
import { el, h, icon, part, replace, say } from "./dom.js";
import { cost, modeWords, moment, oneLine, percent, shortened } from "./format.js";
import { address } from "./router.js";
import { Panel } from "./panel.js";
import { setTheme, theme, THEMES } from "./theme.js";
import { visible } from "./visible.js";
import { confirmed } from "./pages/parts.js";
import { forgetDrafts } from "./chat/composer.js";
import { arrowKeys, openDialog } from "./widgets.js";

/* What stands above the areas when something is not as usual: signed out, the server away, a session to look at
   only. */
const READ_ONLY = {
  elsewhere: "Another process runs this session. You can watch it here; answer it where it runs.",
  closed: "This session does not run. You see its record.",
};
const SERVER_AWAY = "The server does not answer. This page tries again and then sends what you answer now.";
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

/** How a session of a team ended. */
const teamEnding = ({ row, session }) => {
  if (!row || session.state !== "closed") return undefined;
  return `This session ${row.status === "stopped" ? "was stopped" : row.status}${row.error ? `: ${oneLine(row.error)}` : ""}. You see its record.`;
};

const ofSession = (open) => {
  if (open.link.state === "away")
    return open.store.standing.ended ? el("p.banner", GONE) : el("p.banner.warn", open.refusal || SERVER_AWAY);
  const why = open.store.caughtUp ? (teamEnding(open) ?? READ_ONLY[open.session.state]) : undefined;
  if (!why) return null;
  const mayResume = open.session.state === "closed" && open.desk.me.mayStart && !open.desk.me.team;
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

/* The approval mode of this session, chosen in a dialog: each with what it means. What asks nobody at all is chosen in
   the settings, with a question of its own. */
/** @param {import("./open_session.js").OpenSession} open */
const pickMode = async (open) => {
  const dialog = openDialog("Approval mode", "help-dialog");
  const list = h("ul.model-list", { role: "list" }, el("li.dim", "loading…"));
  const problem = h("p.field-error", { role: "alert", hidden: true });
  const fail = (words) => {
    problem.hidden = false;
    say(problem, words);
  };
  const where = api.path`/api/sessions/${open.id}/settings`;
  const choose = async (mode) => {
    try {
      await api.patch(where, { approvalMode: mode });
      dialog.close();
    } catch (failure) {
      fail(failure.problem ?? "The server did not accept it.");
    }
  };
  arrowKeys(list);
  dialog.append(
    el("p.dim", "For the rest of this session."),
    list,
    problem,
    h("button", { on: { click: () => dialog.close() } }, "Close"),
  );
  dialog.showModal();
  try {
    const { approvalMode, modes } = await api.get(where);
    const row = ({ mode, meaning }) =>
      el("li",
        h("button.row", { "aria-current": mode === approvalMode ? "true" : null, on: { click: () => choose(mode) } },
          el("span", el("strong", modeWords(mode)), el("span.dim.small", ` ${oneLine(meaning)} `), el("code.dim.small", oneLine(mode))),
        ),
      );
    replace(list, modes.filter(({ mode }) => mode !== "approve_all" || mode === approvalMode).map(row));
    list.querySelector("button")?.focus();
  } catch (failure) {
    fail(failure.problem ?? "The modes could not be loaded.");
  }
};

/* The line below everything, as the terminal has it: approval mode, context, cost, walls. */
/** @param {boolean} panelShown what the panel shows stands there alone */
const drawFoot = (place, open, panelShown) => {
  const { session, context, usage, walls } = open.store.standing;
  const spent = usage?.session?.cost;
  const mode = session ? open.budget.mode || session.approvalMode : "";
  const mayChoose = open.session.answerable && !open.store.standing.ended && open.desk.me.team !== true;
  const words = [
    open.row?.person ? `started by ${oneLine(open.row.person)}` : "",
    mode ? modeWords(mode) : "",
    ...(panelShown
      ? [] // it has them
      : [
          context?.tokenLimit ? `context ${percent(context.tokensUsed, context.tokenLimit)}` : "",
          typeof spent === "number" ? cost(spent, usage.session.prices) : "",
          walls ? `walls ${walls.level}${walls.exits?.length ? ", open in places" : ""}` : "",
        ]),
  ].filter(Boolean);
  const drawn = `${mayChoose} ${open.id} ${words.join()}`;
  if (place.dataset.words === drawn) return;
  place.dataset.words = drawn;
  const shown = (one) =>
    mayChoose && one === modeWords(mode)
      ? el("span",
          h("button.link.foot-mode",
            { "aria-label": `Approval mode: ${modeWords(mode)}. Choose another one`, on: { click: () => pickMode(open) } },
            one,
          ),
        )
      : el("span", one);
  replace(place, ...words.map(shown));
};

/* The help dialog: what the keys do. Opened by `?` or the button; Esc and the button close it, nothing is answered
   by it. */
const KEYS = [
  ["Enter", "send what is typed"],
  ["Shift+Enter", "a new line"],
  ["/", "commands and tools, at the start of a line"],
  ["Esc", "close the list of commands, or the panel"],
  ["Alt+A", "go to the oldest question that waits for an answer"],
  ["Alt+1 … Alt+4", "the areas at the side, from the top"],
  ["Alt+I", "go to the text box"],
  ["?", "this help, when you are not typing"],
];

export const showHelp = () => {
  if (document.querySelector("dialog[open]")) return;
  const dialog = openDialog("Keys", "help-dialog");
  dialog.append(
    el("dl", KEYS.map(([key, does]) => el("div", el("dt", el("kbd", key)), el("dd", does)))),
    h("button.primary", { on: { click: () => dialog.close() } }, "Close"),
  );
  dialog.showModal();
};

/* The model picker: the same as the command `/model`, which answers in the conversation. Offered are the models that
   sessions of this home have used and those of model servers on this machine; on request those that the providers
   with a key list. What is typed filters them. */
const MOST_MODELS = 100;
const LONGEST_LIST = 1000;

/** The models that the providers of the person list, and what those said that did not. */
const providerModels = async () => {
  const { providers } = await api.get("/api/models");
  const usable = providers.filter(({ key }) => key !== "none");
  if (!usable.length) return { models: [], problems: ["No provider has a key yet. `forge models setup` stores one."] };
  const models = [];
  const problems = [];
  await Promise.all(
    usable.map(async ({ name, title }) => {
      try {
        const offered = (await api.post("/api/models/offered", { provider: name })).models;
        models.push(...offered.slice(0, LONGEST_LIST).map((model) => `${name}:${model}`));
      } catch (failure) {
        problems.push(`${title}: ${failure.problem ?? "It did not answer."}`);
      }
    }),
  );
  return { models: models.sort(), problems };
};

/** @param {import("./open_session.js").OpenSession} open */
const pickModel = async (open) => {
  const now = open.model;
  const box = h("input.field-input", {
    id: "model-name",
    value: now,
    placeholder: "provider:model",
    spellcheck: "false",
    autocomplete: "off",
  });
  const list = h("ul.model-list", { role: "list", "aria-label": "Choices" });
  const more = h("button.quiet", { on: { click: () => load() } }, "More models…");
  const problem = h("p.field-error", { role: "alert", hidden: true });
  const dialog = openDialog("Model", "help-dialog");
  /** @type {Set<string>} */
  const known = new Set();
  let filter = "";

  const fitting = () => [...known].filter((name) => name.toLowerCase().includes(filter));
  const draw = () => {
    const rows = fitting().map((name) =>
      el("li",
        h("button", { "aria-current": name === now ? "true" : null, on: { click: () => choose(name) } }, oneLine(name)),
      ),
    );
    const left = rows.length - MOST_MODELS;
    replace(list, rows.slice(0, MOST_MODELS), left > 0 ? el("li.dim", `and ${left} more: type to find them`) : null);
    if (!rows.length && known.size) replace(list, el("li.dim", "No known model has this in its name."));
  };
  const fail = (words) => {
    problem.hidden = !words;
    say(problem, words);
  };
  const load = async () => {
    more.disabled = true;
    say(more, "Asking the providers …");
    const found = await providerModels().catch((failure) => ({ models: [], problems: [failure.problem] }));
    for (const name of found.models) known.add(name);
    fail(found.problems.join(" "));
    more.hidden = found.problems.length === 0;
    more.disabled = false;
    say(more, "More models…");
    draw();
    box.focus();
  };
  const choose = async (name) => {
    const wrong = /^[^\s'"\\]+$/.test(name) ? "" : "Write one name, such as anthropic:claude-sonnet-4-5.";
    const said = wrong
      ? { ok: false, problem: wrong }
      : await open.ctx.act("command", { requestId: api.randomId(), text: `/model ${name}` });
    if (said.ok) dialog.close();
    else fail(said.problem ?? "The server did not accept the command.");
  };
  const submit = (event) => {
    event.preventDefault();
    const [only, ...others] = fitting();
    choose(filter && only && !others.length ? only : box.value.trim());
  };
  box.addEventListener("input", () => {
    filter = box.value.trim().toLowerCase();
    draw();
  });
  arrowKeys(list, box);
  dialog.append(
    el("p.dim", now ? `In force: ${now}.` : "This session has no model.", " A new choice counts from the next request on."),
    h("form.model-form", { on: { submit } },
      h("label.field-label", { for: "model-name" }, "Model"),
      box,
      problem,
      list,
      more,
      el("div.buttons",
        h("button", { on: { click: () => dialog.close() } }, "Cancel"),
        h("button.primary", { type: "submit" }, "Use this model"),
      ),
    ),
  );
  dialog.showModal();
  box.select();
  const [listed, found] = await Promise.all([
    api.get("/api/sessions?limit=100").catch(() => ({ sessions: [] })),
    api.get("/api/models").catch(() => ({ local: [] })),
  ]);
  const local = found.local.flatMap(({ provider, models }) => models.map((name) => `${provider}:${name}`));
  for (const name of [...listed.sessions.map((one) => one.model), ...local]) if (name) known.add(name);
  draw();
};

/* The inbox: what waits for an answer in every session of this process. A row leads to its card; nothing is answered
   from here. */
/** @typedef {{session: string, requestId: string, asks: string, about?: string, risk: string, since: string}} Waiting */

/** @param {Waiting[]} rows @param {(row: Waiting) => void} go @param {string} here */
const showInbox = (rows, go, here) => {
  const dialog = openDialog(`Waiting for you (${rows.length})`, "help-dialog inbox");
  const row = (one) =>
    el("li",
      h("button.row", { on: { click: () => (dialog.close(), go(one)) } },
        el("span.inbox-asks",
          el("span.mono", oneLine(one.asks)),
          one.about ? el("span.dim.small.about", oneLine(one.about)) : null,
          one.session === here ? null : el("span.dim.small", "in another session"),
        ),
        one.risk ? h("span.risk", { dataset: { risk: one.risk } }, one.risk) : null,
        el("span.dim.small", moment(one.since)),
      ),
    );
  const list = h("ol.queue", { role: "list" }, rows.map(row));
  arrowKeys(list);
  dialog.append(list, h("button", { on: { click: () => dialog.close() } }, "Close"));
  dialog.showModal();
};

const LONGEST_TITLE = 80;
const INBOX_MS = 4000;
const TEAM_INBOX_MS = 2000;
const NAMES = { chat: "Chat", tools: "Tools", sessions: "Sessions", settings: "Settings", replay: "Replay" };
const TEAM_NAMES = { chat: "Chat", inbox: "Inbox", sessions: "Sessions", people: "Team" };
/** Those without an icon of their own. */
const ICONS = { inbox: "bell" };
const AWAY = { connecting: "connecting", away: "connecting", over: "not connected" };
const STATES = { live: "live", elsewhere: "runs elsewhere", closed: "closed" };
const SIGNED_OUT =
  "This page is no longer signed in. Type /web in the terminal session, or press Enter where forge web runs, and open " +
  "the new link in this browser. What you typed is kept.";

const TEAM_SIGNED_OUT =
  "You are no longer logged in: your token was removed, or twelve hours are over. Reload the page to log in again.";

/* The sessions beside the conversation, on wide screens: the last ones, to go from one to another. */
const RECENT = 30;
const RECENT_MS = 6000;
const WIDE = "(min-width: 68.75rem)";

class RecentSessions {
  #rows = [];
  #drawn = "";

  /** @param {HTMLElement} node @param {import("./desk.js").Desk} desk */
  constructor(node, desk) {
    this.node = node;
    this.desk = desk;
    this.wide = matchMedia(WIDE);
    this.wide.addEventListener("change", () => this.look());
    window.setInterval(() => document.hidden || this.look(), RECENT_MS);
  }

  /** What is open has another title now. */
  again() { this.#draw(this.#rows); }

  titleOf(id) { return this.#rows.find((one) => one.id === id)?.title ?? ""; }

  async look() {
    if (!this.wide.matches || this.desk.me.team) return this.#draw([]);
    const found = await api.get(`/api/sessions?limit=${RECENT}`).catch(() => null);
    if (found) this.#draw(found.sessions);
  }

  #draw(rows) {
    this.#rows = rows;
    const here = this.desk.frame?.openId ?? "";
    const named = this.desk.frame?.openTitle ?? "";
    const drawn = JSON.stringify([here, named, rows.map(({ id, title, input, state, updated }) => [id, title, input, state, updated])]);
    if (drawn === this.#drawn) return;
    this.#drawn = drawn;
    this.node.hidden = !rows.length;
    document.body.dataset.recent = rows.length ? "shown" : "";
    this.desk.frame?.changed();
    const row = (one) =>
      el("li",
        h("a",
          {
            href: address("chat", one.id),
            "aria-current": one.id === here ? "true" : null,
            title: oneLine(one.directory ?? ""),
          },
          el("span.clamp",
            shortened(oneLine(one.title || one.input) || (one.id === here && named) || "Nothing was said yet", LONGEST_TITLE),
          ),
          el("span.dim.small",
            one.state === "live" ? "runs here" : moment(one.updated),
            typeof one.cost === "number" ? ` · ${cost(one.cost, one.prices)}` : null,
          ),
        ),
      );
    replace(this.node, el("h2", "Sessions"), h("ul", { role: "list" }, rows.map(row)));
  }
}

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
    this.who = h("button.quiet.who.small", { hidden: true, on: { click: () => this.#logOut() } });
    this.count = el("span.badge");
    this.inboxCount = h("span.badge", { hidden: true });
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
      el("div.acts", this.who, this.waiting, this.themeButton, help, this.panelButton),
    );
    this.panel = new Panel(part("panel"), this.panelButton, (area) => desk.go(area), () => this.changed());
    this.recent = new RecentSessions(part("recent"), desk);
    this.#drawTheme();
    if (desk.me.team) {
      this.who.hidden = false;
      this.who.setAttribute("title", "Log out");
      replace(this.who, `${oneLine(desk.me.person)} · ${desk.me.role}`);
      this.#lookAround();
    }
    if (desk.me.mayStart || desk.me.team)
      window.setInterval(() => this.#lookAround(), desk.me.team ? TEAM_INBOX_MS : INBOX_MS);
  }

  /** @param {import("./open_session.js").OpenSession} open */
  opened(open) {
    this.#open = open;
    this.#elsewhere = this.#elsewhere.filter((one) => one.session !== open.id);
    this.#lost = "";
    this.panel.shows(open);
    this.recent.look();
    this.changed();
  }

  /** Its given title, else the first words that were said. */
  #sessionTitle(open) {
    const first = open.store.firstWords;
    return shortened(oneLine(open.row?.title || this.recent.titleOf(open.id) || first), LONGEST_TITLE);
  }

  get openId() { return this.#open?.id ?? ""; }
  get openTitle() { return this.#open ? this.#sessionTitle(this.#open) : ""; }

  shows(area) {
    this.#area = area;
    const session = this.#open?.id ?? "";
    const { me } = this.desk;
    const names = me.team ? TEAM_NAMES : NAMES;
    const fits = (one) =>
      me.team
        ? one !== "chat" || session
        : one === "sessions" || (session && one !== "replay");
    const links = Object.entries(names).filter(([one]) => fits(one))
      .map(([one, name]) => {
        const key = `Alt+${Object.keys(names).indexOf(one) + 1}`;
        const current = one === area ? "page" : null;
        return el("li",
          h("a", { href: address(one, session), "aria-current": current, title: `${name} (${key})` },
            icon(ICONS[one] ?? one),
            el("span", name),
            one === "inbox" ? this.inboxCount : null,
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
    this.#lost = status === 401 ? (this.desk.me.team ? TEAM_SIGNED_OUT : SIGNED_OUT) : problem;
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
    const here = open?.session.answerable || this.desk.me.team ? (open?.store.openQuestions() ?? []) : [];
    return [
      ...here.map(({ requestId, shown: { event, view } }) => ({
        session: open?.id ?? "",
        requestId,
        asks: event.data.tool ?? `${event.data.source}: ${event.data.title}`,
        about: oneLine(view?.card?.about ?? ""),
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
    if (this.desk.me.team) this.desk.go("inbox");
    else if (rows.length > 1) showInbox(rows, (one) => this.#goTo(one), this.#open?.id ?? "");
    else this.toOldest();
  }

  async #lookAround() {
    if (document.hidden || this.#lost || (this.#open && !this.desk.me.team && this.#open.link.state !== "here")) return;
    const inbox = await api.get("/api/questions").catch((failure) => {
      if (failure.status === 401 && this.desk.me.team) this.lost(401, "");
      return null;
    });
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
    say(this.name, this.#sessionTitle(open) || store.standing.session?.worker || "Forge");
    this.model.hidden = !store.standing.session;
    this.model.disabled = !session.answerable || store.standing.ended || this.desk.me.team === true;
    say(this.model, open.model || "no model");
    this.model.setAttribute("aria-label", `Model: ${open.model || "none"}. Choose another one`);
    const away = open.link.state !== "here";
    this.state.hidden = false;
    this.state.dataset.state = away ? "away" : session.state;
    say(this.state, away ? AWAY[open.link.state] : (STATES[session.state] ?? session.state));
    this.panel.draw();
    this.recent.again();
    drawFoot(part("foot"), open, !this.panel.node.hidden);
  }

  #drawTitle() {
    const open = this.#open;
    const count = this.#waiting().length;
    const name = this.#pageTitle || (open && this.#sessionTitle(open)) || open?.store.standing.session?.worker || "";
    document.title = `${count ? `(${count}) ` : ""}Forge${name ? ` – ${visible(name)}` : ""}`;
    this.waiting.hidden = !count;
    this.inboxCount.hidden = !count;
    say(this.count, count ? String(count) : "");
    say(this.inboxCount, count ? String(count) : "");
    const words = count === 1 ? "One answer is awaited" : `${count} answers are awaited`;
    const all = count > 1 || this.desk.me.team;
    this.waiting.setAttribute("aria-label", all ? `${words}: show them` : `${words}: go to it (Alt+A)`);
    this.waiting.setAttribute("title", `${words} (Alt+A)`);
  }

  async #logOut() {
    if (!(await confirmed({ title: "Log out?", words: el("p", "You log in again with your token."), yes: "Log out" }))) return;
    await api.post("/api/logout").catch(() => null);
    forgetDrafts();
    location.reload();
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
