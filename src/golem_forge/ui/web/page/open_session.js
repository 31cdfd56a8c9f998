/* One open session: its store, its stream, its conversation, and the context that every card and page is given.

   Says what happens to those who cannot see it (notifications.js), and that an answer is awaited to those who look
   elsewhere. */

import * as api from "./api.js";
import { Chat } from "./chat/chat.js";
import { LEVELS } from "./fold/items.js";
import { shortProse } from "./format.js";
import { announce, notifyNoMore, notifyWaiting } from "./notifications.js";
import { address } from "./router.js";
import { Link } from "./socket.js";
import { remember, remembered } from "./storage.js";
import { SessionStore } from "./store.js";

/* What this browser remembers for itself: the trace level of this page. It changes nothing for others. */
const KEY = "forge.trace";
/** @type {Set<() => void>} */
const listeners = new Set();

const settings = {
  get level() {
    const kept = remembered(KEY);
    return LEVELS.includes(kept) ? kept : "normal";
  },
  setLevel(level) {
    if (!LEVELS.includes(level)) return;
    remember(KEY, level === "normal" ? null : level);
    for (const listener of [...listeners]) listener();
  },
  onLevel(listener) {
    listeners.add(listener);
    return () => listeners.delete(listener);
  },
};

/* What the session may use, and which approval mode and model are in force: no event says it, so it is asked for when
   something was used or switched, and never more often than every few seconds. */
const EVERY_MS = 3000;

class Budget {
  /** @type {{unit: string, allowed: number, used: number}[]} those with a limit */
  rows = [];
  mode = "";
  /** @type {string | null} null: nobody said it yet */
  model = null;
  #timer = 0;
  #askedAt = 0;

  constructor(ctx, changed) {
    this.ctx = ctx;
    this.told = changed;
  }

  changed(change) {
    const { store } = this.ctx;
    if (!store.caughtUp || !this.#isRunning || this.#timer) return;
    const part = change.what === "standing" ? change.part : "";
    const used = change.what === "caughtUp" || part === "session" || part === "usage";
    const code = change.what === "item" && change.fresh ? store.items.get(change.key)?.code : "";
    const switched = code === "APPROVAL_MODE" || code === "MODEL_CHANGED" || code === "command";
    if (!used && !switched) return;
    this.#timer = window.setTimeout(
      () => this.#ask(),
      switched ? 0 : Math.max(0, this.#askedAt + EVERY_MS - Date.now()),
    );
  }

  /** Before a session has begun, and when it is over, nobody knows. */
  get #isRunning() {
    const { store, session } = this.ctx;
    return !this.ctx.me?.team && session.answerable && store.standing.session !== null && !store.standing.ended;
  }

  close() {
    clearTimeout(this.#timer);
  }

  async #ask() {
    this.#timer = 0;
    this.#askedAt = Date.now();
    if (!this.#isRunning) return;
    const { api, session } = this.ctx;
    try {
      const settings = await api.get(api.path`/api/sessions/${session.id}/settings`);
      this.rows = settings.budget.filter((one) => one.allowed > 0);
      this.mode = settings.approvalMode;
      this.model = settings.model;
      this.told();
    } catch {
      /* the session ended meanwhile, or the server is away: what was known stays */
    }
  }
}

/* The ports that commands of the session listen on: asked for when a call began or ended, and once more a little later,
   because a server takes a moment to listen. */
class Ports {
  /** @type {{port: number, command: string, since: string, url: string}[]} */
  rows = [];
  #timer = 0;
  #again = false;

  constructor(ctx, changed) {
    this.ctx = ctx;
    this.told = changed;
  }

  changed(change) {
    const { store, session } = this.ctx;
    if (!store.caughtUp || !session.answerable || this.ctx.me?.team) return;
    const call = change.what === "item" && store.items.get(change.key)?.kind === "call";
    if (!call && change.what !== "caughtUp") return;
    this.#again = true;
    if (!this.#timer) this.#timer = window.setTimeout(() => this.ask(), 0);
  }

  close() {
    clearTimeout(this.#timer);
  }

  async ask() {
    clearTimeout(this.#timer);
    this.#timer = 0;
    const { api, session, store } = this.ctx;
    if (store.standing.session === null || store.standing.ended) return;
    try {
      this.rows = (await api.get(api.path`/api/sessions/${session.id}/ports`)).ports;
      this.told();
    } catch {
      /* the session ended meanwhile, or the server is away: what was known stays */
    }
    if (this.#again && !this.#timer) this.#timer = window.setTimeout(() => this.ask(), EVERY_MS);
    this.#again = false;
  }
}

const MOST_SPOKEN = 300;

export class OpenSession {
  notify = false;
  /** Why the server has no room for this page. */
  refusal = "";
  /** @type {any} its row in the list of a team's sessions */
  row = null;
  /** @type {Set<string>} the questions that are open, as they are sent again on each connection */
  #asked = new Set();

  /** @param {import("./desk.js").Desk} desk @param {string} id
   * @param {(change: any) => void} changed tells the page that is shown */
  constructor(desk, id, changed) {
    this.id = id;
    this.desk = desk;
    this.store = new SessionStore();
    this.session = { id, state: "live", answerable: false };
    this.ctx = {
      ...OpenSession.contextWithout(desk),
      store: this.store,
      session: this.session,
      act: (type, data) => this.#act(type, data),
      disconnect: () => this.link.close(),
    };
    this.link = new Link(id, this.store, {
      frame: (frame) => this.#take(frame),
      link: (state, before) => {
        if (state === "here") desk.frame.found();
        else desk.frame.changed();
        this.chat.linkChanged(state);
        if (state === "away") announce("The server does not answer. Trying again.");
        if (state === "here" && this.store.caughtUp && before === "away") announce("The server answers again.");
      },
      refused: (signal) => this.#refused(signal),
    });
    this.chat = new Chat(this.ctx, this.link);
    this.budget = new Budget(this.ctx, () => desk.frame.changed());
    this.ports = new Ports(this.ctx, () => desk.frame.changed());
    this.unsubscribe = this.store.subscribe((change) => {
      this.#speak(change);
      this.budget.changed(change);
      this.ports.changed(change);
      desk.frame.changed(change);
      changed(change);
    });
  }

  /** On a team's page: who started it, and how it stands in the store. */
  async #readRow() {
    if (!this.desk.me.team) return;
    this.row = await api.get(api.path`/api/sessions/${this.id}`).catch(() => this.row);
    this.desk.frame.changed();
  }

  /** What a page without a session gets. @param {import("./desk.js").Desk} desk */
  static contextWithout(desk) {
    return {
      api,
      me: desk.me,
      store: new SessionStore(),
      session: { id: "", state: "closed", answerable: false },
      act: async () => ({ ok: false, problem: "No session is open." }),
      disconnect: () => undefined,
      announce,
      go: (where) => desk.go(where),
      level: () => settings.level,
      settings,
    };
  }

  /** The model in force, "" where there is none. */
  get model() { return this.budget.model ?? this.store.standing.session?.model ?? ""; }

  close() {
    this.unsubscribe();
    this.link.close();
    this.chat.close();
    this.budget.close();
    this.ports.close();
  }

  async #act(type, data) {
    if (!this.session.answerable && this.link.state === "here")
      return { ok: false, problem: "You cannot answer this session here: the page shows it read-only." };
    return this.link.act(type, data);
  }

  #take(frame) {
    const { store } = this;
    if (frame.kind === "event") {
      if (frame.again) this.#asked.add(frame.event.data.requestId);
      store.take(frame);
    } else if (frame.kind === "hello") {
      this.#asked = new Set();
      this.notify = frame.notify === true;
      Object.assign(this.session, { state: frame.session.state, answerable: frame.session.answerable === true });
      if (frame.resumed === false && store.seq) store.reset(); // it has forgotten more than this page has seen
      if (!store.seq) store.more = frame.more === true;
      store.takeStanding(frame.standing ?? []);
      this.#readRow();
    } else if (frame.kind === "caught_up") {
      // A session of another process asks there: what its record leaves open is open.
      store.settle(this.session.state === "elsewhere" ? null : this.#asked, new Set(frame.streams ?? []));
    } else if (frame.kind === "state") {
      Object.assign(this.session, { state: frame.state, answerable: frame.answerable === true && this.desk.me.role !== "viewer" });
      if (frame.state === "closed" && store.caughtUp) store.settle(new Set(), new Set());
      this.chat.composer.draw();
      this.#readRow();
    } else if (frame.kind === "bye" && frame.session) this.desk.go(address("chat", frame.session));
    // A goodbye instead of a greeting: the server has no room for this page, and says so.
    this.refusal = frame.kind === "bye" && this.link.state !== "here" ? `${frame.reason ?? ""}` : "";
    if (frame.kind !== "event") this.desk.frame.changed();
  }

  /** Connecting failed without a word: a browser does not say why, so it is asked for. @param {AbortSignal} signal */
  async #refused(signal) {
    try {
      await api.get(api.path`/api/sessions/${this.id}`, signal);
      return false;
    } catch (failure) {
      const { status, problem } = failure;
      if (status !== 401 && status !== 404) return false;
      this.desk.frame.lost(status, problem);
      return true;
    }
  }

  #speak(change) {
    const { store } = this;
    if (!store.caughtUp) return;
    if (change.what === "question" && !store.openQuestions().length) notifyNoMore();
    if (change.what === "question" && change.fresh) {
      const question = store.questions.get(change.requestId);
      if (question?.state !== "open" || !this.session.answerable) return;
      const { tool, risk, source, title } = question.shown.event.data;
      announce(
        question.kind === "approval" ? `Approval needed: ${tool}, risk ${risk}` : `${source} asks: ${title}`,
        "assertive",
      );
      notifyWaiting(this.notify, () => this.desk.frame.toQuestion(change.requestId));
    } else if (change.what === "said" && change.role === "assistant") {
      announce(shortProse(`${store.items.get(change.key)?.text ?? ""}`, MOST_SPOKEN));
    } else if (change.what === "item" && change.fresh) {
      const item = store.items.get(change.key);
      if (item?.kind === "status" && item.type === "error") announce(`Error: ${item.text}`);
      else if (item?.kind === "status" && item.code === "command") announce(item.text);
      else if (item?.kind === "ended") announce("The session ended.");
    }
  }
}
