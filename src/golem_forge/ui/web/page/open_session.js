/* One open session: its store, its stream, its conversation, and the context that every card and page is given.

   Says what happens to those who cannot see it (announce.js), and that an answer is awaited to those who look
   elsewhere. */

import * as api from "./api.js";
import { announce } from "./announce.js";
import { Chat } from "./chat/chat.js";
import { notifyNoMore, notifyWaiting } from "./notify.js";
import { Budget } from "./side/budget.js";
import { address } from "./router.js";
import { settings } from "./settings_here.js";
import { Link } from "./socket.js";
import { SessionStore } from "./store.js";

const MOST_SPOKEN = 300;

export class OpenSession {
  notify = false;
  /** @type {Set<string>} the questions that are open, as they are sent again on each connection */
  #asked = new Set();

  /**
   * @param {import("./desk.js").Desk} desk
   * @param {string} id
   * @param {(change: any) => void} changed tells the page that is shown
   */
  constructor(desk, id, changed) {
    this.id = id;
    this.desk = desk;
    this.store = new SessionStore();
    this.session = { id, state: "live", answerable: false };
    this.ctx = {
      ...OpenSession.contextWithout(desk),
      store: this.store,
      session: this.session,
      act: (/** @type {string} */ type, /** @type {any} */ data) => this.#act(type, data),
    };
    this.link = new Link(id, this.store, {
      frame: (frame) => this.#take(frame),
      link: (state, before) => {
        if (state === "here") desk.frame.found();
        else desk.frame.changed();
        this.chat.linkChanged(state);
        if (state === "away") announce("The server is away. Trying again.");
        if (state === "here" && this.store.caughtUp && before === "away") announce("The server is back.");
      },
      refused: () => this.#refused(),
    });
    this.chat = new Chat(this.ctx, this.link);
    this.budget = new Budget(this.ctx, () => desk.frame.changed());
    this.unsubscribe = this.store.subscribe((change) => {
      this.#speak(change);
      this.budget.changed(change);
      desk.frame.changed(change);
      changed(change);
    });
  }

  /** What a page without a session gets. @param {import("./desk.js").Desk} desk @returns {any} */
  static contextWithout(desk) {
    return {
      api,
      me: desk.me,
      store: new SessionStore(),
      session: { id: "", state: "closed", answerable: false },
      act: async () => ({ ok: false, problem: "No session is open." }),
      announce,
      go: (/** @type {string} */ where) => desk.go(where),
      level: () => settings.level,
      settings,
    };
  }

  close() {
    this.unsubscribe();
    this.link.close();
    this.chat.close();
    this.budget.close();
  }

  /** @param {string} type @param {any} data */
  async #act(type, data) {
    if (!this.session.answerable && this.link.state === "here")
      return { ok: false, problem: "This session cannot be answered here: it is shown read-only." };
    return this.link.act(type, data);
  }

  /** @param {any} frame */
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
    } else if (frame.kind === "caught_up") {
      // A session of another process asks there: what its record leaves open is open.
      store.settle(this.session.state === "elsewhere" ? null : this.#asked, new Set(frame.streams ?? []));
    } else if (frame.kind === "state") {
      Object.assign(this.session, { state: frame.state, answerable: frame.answerable === true });
      if (frame.state === "closed" && store.caughtUp) store.settle(new Set(), new Set());
      this.chat.composer.draw();
    } else if (frame.kind === "bye" && frame.session) this.desk.go(address("chat", frame.session));
    if (frame.kind !== "event") this.desk.frame.changed();
  }

  /** Connecting failed without a word: a browser does not say why, so it is asked for. */
  async #refused() {
    try {
      await api.get(api.path`/api/sessions/${this.id}`);
      return false;
    } catch (failure) {
      const { status, problem } = /** @type {api.Failure} */ (failure);
      if (status !== 401 && status !== 404) return false;
      this.desk.frame.lost(status, problem);
      return true;
    }
  }

  /** @param {any} change */
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
      announce(`${store.items.get(change.key)?.text ?? ""}`.slice(0, MOST_SPOKEN));
    } else if (change.what === "item" && change.fresh) {
      const item = store.items.get(change.key);
      if (item?.kind === "status" && item.type === "error") announce(`Error: ${item.text}`);
      else if (item?.kind === "status" && item.code === "command") announce(item.text);
      else if (item?.kind === "ended") announce("The session ended.");
    }
  }
}
