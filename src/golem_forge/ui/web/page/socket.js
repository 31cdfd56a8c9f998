/* The stream of one session: connects, resumes behind the last event it has, and carries actions to the server.

   While the server is away it tries again, 0.25 s to 5 s apart. A server that answers neither a ping nor an action
   within 10 s is away too: it hangs, and its connection stays open. What is done meanwhile waits in the outbox
   and goes out when the past is folded. Frames are told to `on.frame`, the connection's state to `on.link`. */

import { place } from "./cards/question_card.js";

/* What a person does goes out through here: at once while the server is there, else when it is back.

   Threat: doing something twice, or answering a question that is no longer asked. An answer goes out again only
   while its question is open (the first answer wins, so a second one does nothing). Anything else that was sent
   without a confirmation is not sent again: the person is told to look. */
const QUESTION_ACTIONS = new Set(["approvalResponse", "formResponse"]);
const MOST_WAITING = 200;
const UNSURE = "The connection was lost before the server confirmed this. Check whether it was done before you do it again.";

/** @typedef {{ok: boolean, problem?: string}} Answer
 * @typedef {{id: string, type: string, data: any, sent: boolean, done: (answer: Answer) => void}} Waiting */

export class Outbox {
  /** @type {Map<string, Waiting>} */
  #waiting = new Map();
  #here = false;
  #count = 0;

  /** @param {import("./store.js").SessionStore} store @param {(frame: any) => boolean} send */
  constructor(store, send) {
    this.store = store;
    this.send = send;
  }

  /** @param {string} type @returns {Promise<{ok: boolean, problem?: string}>} */
  put(type, data) {
    if (this.#waiting.size >= MOST_WAITING)
      return Promise.resolve({ ok: false, problem: "Too many messages wait already; send this one later." });
    const id = `c${++this.#count}`;
    return new Promise((done) => {
      const one = { id, type, data, sent: false, done };
      this.#waiting.set(id, one);
      if (this.#here) this.#go(one);
    });
  }

  /** @param {{id?: string, ok?: boolean, problem?: string}} frame */
  answered(frame) {
    this.#finish(this.#waiting.get(frame.id ?? ""), { ok: frame.ok === true, problem: frame.problem });
  }

  /** The server is there and the past is folded. */
  arrived() {
    this.#here = true;
    for (const one of [...this.#waiting.values()]) {
      const refused = this.#refused(one);
      if (refused) this.#finish(one, refused);
      else this.#go(one);
    }
  }

  left() {
    this.#here = false;
  }

  /** Nobody will answer any more. */
  drop() {
    for (const one of [...this.#waiting.values()])
      this.#finish(one, { ok: false, problem: "You left this session before the message was sent." });
  }

  /** Whether it must not be sent now, and what became of it instead. @param {Waiting} one */
  #refused(one) {
    if (QUESTION_ACTIONS.has(one.type)) {
      const question = this.store.questions.get(one.data.requestId);
      if (question?.state === "open") return null;
      const by = question?.resolved?.by;
      if (one.sent && by === "browser") return { ok: true };
      return { ok: false, problem: `Too late: ${place(by, false) || "Forge does not ask this any more"}.` };
    }
    if (one.type === "userInput") {
      if (this.store.prompt?.requestId === one.data.requestId) return null;
      return one.sent ? { ok: true } : { ok: false, problem: "Too late: the session went on without this answer." };
    }
    return one.sent ? { ok: false, problem: UNSURE } : null;
  }

  #go(one) {
    one.sent = this.send({ id: one.id, type: one.type, data: one.data }) || one.sent;
  }

  /** @param {Waiting | undefined} one @param {{ok: boolean, problem?: string}} answer */
  #finish(one, answer) {
    if (one && this.#waiting.delete(one.id)) one.done(answer);
  }
}

/** @typedef {"connecting" | "here" | "away" | "over"} LinkState */

const FIRST_WAIT_MS = 250;
const LONGEST_WAIT_MS = 5000;
const PING_MS = 10_000;
const ANSWER_WITHIN_MS = 10_000;

export class Link {
  /** @type {WebSocket | null} */
  #socket = null;
  #tries = 0;
  #timer = 0;
  #ping = 0;
  /** Runs while the server owes an answer. */
  #answerDue = 0;
  #giveUp = () => {};
  #closed = false;
  #state = /** @type {LinkState} */ ("connecting");

  /** @param {string} session @param {import("./store.js").SessionStore} store
   * @param {{frame: (frame: any) => void, link: (state: LinkState, before: LinkState) => void,
   * refused: (signal: AbortSignal) => Promise<boolean>}} on
   * `refused` is asked when connecting failed: true if trying again is of no use (signed out, no such session) */
  constructor(session, store, on) {
    this.session = session;
    this.store = store;
    this.on = on;
    this.outbox = new Outbox(store, (frame) => this.#send(frame));
    this.wake = () => this.#wake();
    window.addEventListener("online", this.wake);
    window.addEventListener("focus", this.wake);
    document.addEventListener("visibilitychange", this.wake);
    this.#connect();
  }

  get state() { return this.#state; }

  /** @param {string} type @param {Record<string, any>} data @returns {Promise<{ok: boolean, problem?: string}>} */
  act(type, data) {
    return this.outbox.put(type, data);
  }

  close() {
    this.#closed = true;
    clearTimeout(this.#timer);
    clearTimeout(this.#answerDue);
    clearInterval(this.#ping);
    window.removeEventListener("online", this.wake);
    window.removeEventListener("focus", this.wake);
    document.removeEventListener("visibilitychange", this.wake);
    this.#socket?.close(1000);
    this.outbox.drop();
  }

  #connect() {
    const { store } = this;
    const after = store.seq ? `?after=${store.seq}` : "";
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    const where = `${scheme}://${location.host}/api/sessions/${encodeURIComponent(this.session)}/stream${after}`;
    const socket = (this.#socket = new WebSocket(where));
    let opened = false;
    const ended = () => {
      clearTimeout(this.#timer);
      if (this.#socket !== socket || this.#closed) return;
      this.#socket = null;
      this.#left(opened);
    };
    /** Without the goodbye of the other side, which may never come. */
    const giveUp = () => {
      ended();
      socket.close();
    };
    this.#giveUp = giveUp;
    this.#timer = window.setTimeout(giveUp, ANSWER_WITHIN_MS);
    socket.onmessage = (message) => {
      const frame = parsed(message.data);
      if (!frame || this.#socket !== socket) return;
      this.#answered();
      if (frame.kind === "hello") {
        opened = true;
        clearTimeout(this.#timer);
        this.#ping = window.setInterval(() => this.#send({ type: "ping" }), PING_MS);
      } else if (frame.kind === "answer") this.outbox.answered(frame);
      this.on.frame(frame);
      if (frame.kind === "caught_up") this.#arrived();
    };
    socket.onclose = ended;
  }

  #answered() {
    clearTimeout(this.#answerDue);
    this.#answerDue = 0;
  }

  #arrived() {
    this.#tries = 0;
    this.#say("here");
    this.outbox.arrived();
  }

  /** @param {boolean} opened whether the server had spoken */
  async #left(opened) {
    clearInterval(this.#ping);
    this.#answered();
    this.outbox.left();
    this.#say("away");
    const asking = new AbortController();
    const late = window.setTimeout(() => asking.abort(), ANSWER_WITHIN_MS);
    const over = !opened && (await this.on.refused(asking.signal));
    clearTimeout(late);
    if (this.#closed || this.#socket) return; // meanwhile somebody had a reason to try again
    if (over) return this.#say("over");
    const longest = Math.min(FIRST_WAIT_MS * 2 ** this.#tries++, LONGEST_WAIT_MS);
    clearTimeout(this.#timer); // of a try that was left as well
    // Jitter: pages that lost the same server do not all come back at the same moment.
    this.#timer = window.setTimeout(() => this.#connect(), longest * (0.5 + Math.random() / 2));
  }

  /** The machine is back, or the person looks (who may have signed in in another tab): no reason to wait longer. */
  #wake() {
    if (this.#state !== "here" && this.#state !== "connecting" && !document.hidden) this.again();
  }

  /** Tries at once. */
  again() {
    if (this.#closed || this.#socket) return;
    clearTimeout(this.#timer);
    this.#tries = 0;
    this.#connect();
  }

  /** @returns {boolean} whether it went out */
  #send(frame) {
    if (this.#socket?.readyState !== WebSocket.OPEN) return false;
    this.#socket.send(JSON.stringify(frame));
    this.#answerDue ||= window.setTimeout(() => this.#giveUp(), ANSWER_WITHIN_MS);
    return true;
  }

  /** @param {LinkState} state */
  #say(state) {
    const before = this.#state;
    if (state === before) return;
    this.#state = state;
    this.on.link(state, before);
  }
}

const parsed = (said) => {
  try {
    return typeof said === "string" ? JSON.parse(said) : null;
  } catch {
    return null;
  }
};
