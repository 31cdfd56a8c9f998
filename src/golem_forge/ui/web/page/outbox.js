/* What a person does goes out through here: at once while the server is there, else when it is back.

   Threat: doing something twice, or answering a question that is no longer asked. An answer goes out again only
   while its question is open (the first answer wins, so a second one does nothing). Anything else that was sent
   without a confirmation is not sent again: the person is told to look. */

const QUESTION_ACTIONS = new Set(["approvalResponse", "formResponse"]);
const MOST_WAITING = 200;
const UNSURE = "The connection was lost before this was confirmed. Look whether it was done before you do it again.";

/**
 * @typedef {{ok: boolean, problem?: string}} Answer
 * @typedef {{id: string, type: string, data: any, sent: boolean, done: (answer: Answer) => void}} Waiting
 */

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

  /** @param {string} type @param {any} data @returns {Promise<{ok: boolean, problem?: string}>} */
  put(type, data) {
    if (this.#waiting.size >= MOST_WAITING)
      return Promise.resolve({ ok: false, problem: "Too much waits to be sent already." });
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
      this.#finish(one, { ok: false, problem: "This session was left before it was sent." });
  }

  /** Whether it must not be sent now, and what became of it instead. @param {Waiting} one */
  #refused(one) {
    if (QUESTION_ACTIONS.has(one.type)) {
      const question = this.store.questions.get(one.data.requestId);
      if (question?.state === "open") return null;
      const by = question?.resolved?.by;
      if (one.sent && by === "browser") return { ok: true };
      return { ok: false, problem: by ? `Too late: answered in ${by}.` : "Too late: this is no longer asked." };
    }
    if (one.type === "userInput") {
      if (this.store.prompt?.requestId === one.data.requestId) return null;
      return one.sent ? { ok: true } : { ok: false, problem: "Too late: the session went on without it." };
    }
    return one.sent ? { ok: false, problem: UNSURE } : null;
  }

  /** @param {Waiting} one */
  #go(one) {
    one.sent = this.send({ id: one.id, type: one.type, data: one.data }) || one.sent;
  }

  /** @param {Waiting | undefined} one @param {{ok: boolean, problem?: string}} answer */
  #finish(one, answer) {
    if (one && this.#waiting.delete(one.id)) one.done(answer);
  }
}
