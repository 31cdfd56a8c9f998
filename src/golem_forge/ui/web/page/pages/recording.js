/* A recorded session, read as it is needed: events by number, in pages of at most 200, a bounded part of them kept.

   Only asks for what was recorded; nothing is run and nothing is written by looking. `scan` walks through all of it once, for
   the marks of a timeline, and keeps only what kind of moment each event is. */

import { path } from "../api.js";

const MOST_KEPT = 2000;
const MOST_SCANNED = 20_000;

/** @typedef {{seq: number, kind: "call" | "question" | "error" | "said"}} Mark */

export class Recording {
  /** @type {Map<number, any>} */
  #kept = new Map();
  last = 0;
  began = "";
  ended = "";
  left = false;

  /** @param {any} ctx */
  constructor(ctx) {
    this.ctx = ctx;
  }

  /** How long it is, and when. */
  async open() {
    const [first, last] = await Promise.all([this.#page("after=0"), this.#page("limit=1")]);
    this.last = last.events.at(-1)?.event.seq ?? 0;
    this.began = first.events[0]?.event.ts ?? "";
    this.ended = last.events.at(-1)?.event.ts ?? "";
  }

  /** The event that follows a number; null: there is none. @param {number} seq */
  async after(seq) {
    const known = this.#kept.get(seq + 1);
    if (known || seq >= this.last) return known ?? null;
    const { events } = await this.#page(`after=${seq}`);
    return events[0] ?? null;
  }

  /** The one that follows, if it is here already. @param {number} seq */
  known(seq) {
    return this.#kept.get(seq + 1) ?? null;
  }

  /** @param {number} seq @returns {Promise<{events: any[], more: boolean}>} those just below a number */
  before(seq) {
    return this.#page(`before=${seq}`);
  }

  /** @param {(marks: Mark[], to: number) => void} found page by page @returns {Promise<boolean>} whether it reached the end */
  async scan(found) {
    let at = 0;
    while (at < this.last && at < MOST_SCANNED && !this.left) {
      const { events } = await this.#page(`after=${at}`);
      if (!events.length || this.left) break;
      at = events.at(-1).event.seq;
      found(events.flatMap(markOf), at);
    }
    return at >= this.last;
  }

  /** @param {string} which */
  async #page(which) {
    const answer = await this.ctx.api.get(`${path`/api/sessions/${this.ctx.session.id}/events`}?${which}`);
    for (const shown of answer.events) {
      this.#kept.delete(shown.event.seq);
      this.#kept.set(shown.event.seq, shown);
    }
    for (const seq of this.#kept.keys()) {
      if (this.#kept.size <= MOST_KEPT) break;
      this.#kept.delete(seq);
    }
    return answer;
  }
}

/** @param {any} shown @returns {Mark[]} */
export const markOf = ({ event }) => {
  const { type, seq, data } = event;
  if (type === "toolResult" && data.status !== "success") return [{ seq, kind: "error" }];
  if (type === "status" && data.type === "error") return [{ seq, kind: "error" }];
  if (type === "sessionEnd" && data.reason === "error") return [{ seq, kind: "error" }];
  if (type === "toolStarted") return [{ seq, kind: "call" }];
  if (type === "approvalRequired" || type === "formRequired") return [{ seq, kind: "question" }];
  if (type === "message" && data.message?.role === "user") return [{ seq, kind: "said" }];
  return [];
};
