/* SessionStore: one session as this page knows it. Takes frames, folds them, and tells its subscribers what changed.

   A change is `{what}`: item {key, fresh} · gone {key} · said {key, role} · question {requestId, fresh} · prompt ·
   activity · standing {part} · prefill {text} · earlier · trimmed · reset · caughtUp. `fresh` and `said` of the past
   (before `caughtUp`) are told too; who speaks or notifies looks at `store.caughtUp`. Replay folds with the same
   class. */

import { emptyState, fold, foldStanding, merged } from "./fold/fold.js";
import { callKey } from "./fold/items.js";
import { closeUnasked } from "./fold/questions.js";
import { endStreamsBut } from "./fold/speech.js";

/** @typedef {import("./fold/fold.js").Shown} Shown */
/** @typedef {import("./fold/fold.js").Change} Change */

/** More items than this are let go of, the oldest first; they can be loaded again. */
const MOST_ITEMS = 3000;

export class SessionStore {
  #state = emptyState();
  /** @type {Set<(change: Change) => void>} */
  #listeners = new Set();
  /** Whether the server has earlier events than those folded here. */
  more = false;
  /** Whether the past has been folded: from here on what comes is news. */
  caughtUp = false;

  get items() { return this.#state.items; }
  get questions() { return this.#state.questions; }
  get standing() { return this.#state.standing; }
  get prompt() { return this.#state.prompt; }
  get seq() { return this.#state.seq; }
  get firstSeq() { return this.#state.firstSeq; }
  /** Ids of the calls that run. */
  get calls() { return this.#state.running; }

  /** Those that wait for an answer, oldest first. */
  openQuestions() {
    return [...this.questions.values()].filter((one) => one.state === "open");
  }

  /** The answered question about a call: both stand as one. @param {{kind: string, id?: string}} item */
  questionOf(item) {
    const question = item.kind === "call" ? this.items.get(this.#state.askedFor.get(item.id)) : undefined;
    return question?.resolved ? question : undefined;
  }

  /** The call that a question was about, once it is answered. @param {{resolved: any, shown: Shown}} question */
  callOf(question) {
    return question.resolved ? this.items.get(callKey(question.shown.event.data.toolCallId)) : undefined;
  }

  /** Whether there is something to interrupt. */
  get running() {
    if (this.standing.ended || !this.standing.session) return false;
    return !this.prompt || this.calls.size > 0 || this.openQuestions().length > 0;
  }

  /** The name of a sub-worker, "" for the root. */
  workerName(id) {
    const worker = this.standing.workers.get(id);
    return worker && worker.depth > 0 ? String(worker.name ?? "") : "";
  }

  /** The first words that a person said, as far as they are here. */
  get firstWords() {
    for (const item of this.items.values()) if (item.kind === "message" && item.role === "user") return String(item.text);
    return "";
  }

  workerDepth(id) {
    return Math.min(this.standing.workers.get(id)?.depth ?? 0, 6);
  }

  /** Folds one frame `{event, view}`. */
  take(shown) {
    this.#tell(fold(this.#state, shown));
    if (this.items.size > MOST_ITEMS) this.#trim();
  }

  /** What holds from before the events that follow. @param {Shown[]} standing */
  takeStanding(standing) {
    for (const shown of standing) this.#tell(foldStanding(this.#state, shown));
  }

  /** A page of events from before all that is here, in their order. @param {Shown[]} page @param {boolean} more */
  takeEarlier(page, more) {
    this.#state = merged(this.#state, page);
    this.more = more;
    this.#tell([{ what: "earlier" }]);
  }

  /** The past is folded, and what is open now was sent again.
   * @param {Set<string> | null} asked the ids of the questions; null where only the record tells which are open
   * @param {Set<string>} streams the ids of what still grows */
  settle(asked, streams) {
    const changes = [];
    if (asked) closeUnasked(this.#state, (requestId) => asked.has(requestId), changes);
    endStreamsBut(this.#state, streams, changes);
    this.caughtUp = true;
    this.#tell([...changes, { what: "caughtUp" }]);
  }

  /** Begins anew, for a session whose record is another than the one that was shown. */
  reset() {
    this.#state = emptyState();
    this.more = this.caughtUp = false;
    this.#tell([{ what: "reset" }]);
  }

  /** @param {(change: Change) => void} listener @returns {() => void} */
  subscribe(listener) {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Questions that are open stay, however old they are. */
  #trim() {
    let surplus = this.items.size - Math.floor(MOST_ITEMS * 0.8);
    for (const [key, item] of this.items) {
      if (surplus-- <= 0) break;
      if (item.kind === "question" && !item.resolved) continue;
      this.items.delete(key);
    }
    const first = [...this.items.values()].find((item) => item.kind !== "question");
    this.#state.firstSeq = Math.max(...(first?.seqs.slice(0, 1) ?? []), this.firstSeq);
    this.more = true;
    this.#tell([{ what: "trimmed" }]);
  }

  #tell(changes) {
    for (const change of changes) for (const listener of [...this.#listeners]) listener(change);
  }
}
