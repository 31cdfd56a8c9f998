/* The fold: events in, what a page shows out. No DOM here, so that a live page, a reload and a replay fold alike.

   `fold(state, shown)` changes the state and gives the changes, each `{what, …}` (see store.js). An event that was
   folded before changes nothing; types this page does not know are ignored. Everything in the state is bounded. */

import { CALLS } from "./folding/calls.js";
import { NOTICES } from "./folding/notices.js";
import { QUESTIONS } from "./folding/questions.js";
import { SPEECH } from "./folding/speech.js";
import { emptyStanding, STANDING } from "./folding/standing.js";

/** @typedef {{type: string, seq: number, ts: string, sessionId: string, workerId: string, data: any}} Envelope */
/** @typedef {{event: Envelope, view?: any}} Shown */
/**
 * @typedef {{key: string, kind: string, worker: string, ts: string, seqs: number[], least: string,
 *   [more: string]: any}} Item
 */
/** @typedef {{what: string, [more: string]: any}} Change */
/** @typedef {(state: State, shown: Shown, changes: Change[]) => void} Step */
/** @typedef {ReturnType<typeof emptyState>} State */

/** Not in the journal: these carry the number of the last recorded event. */
const UNRECORDED = new Set(["streaming", "toolOutput", "toolProgress"]);
/** Sent again under the same id when a page connects. */
const SENT_AGAIN = new Set(["approvalRequired", "formRequired", "inputPrompt"]);

/** @type {Record<string, Step[]>} */
const STEPS = {};
for (const part of [SPEECH, CALLS, QUESTIONS, NOTICES, STANDING])
  for (const [type, step] of Object.entries(part)) (STEPS[type] ??= []).push(step);

export const emptyState = () => ({
  /** @type {Map<string, Item>} what stands in the conversation, in order */
  items: new Map(),
  /** @type {Map<string, {requestId: string, kind: string, shown: Shown, state: string, resolved: any}>} */
  questions: new Map(),
  /** @type {Map<string, any>} answers to questions that this page has not seen */
  resolutions: new Map(),
  standing: emptyStanding(),
  /** @type {{requestId: string, prompt: string} | null} the input that is awaited */
  prompt: null,
  /** @type {Set<string>} calls without a result */
  running: new Set(),
  /** @type {Map<string, string>} worker → the key of what it streams */
  streams: new Map(),
  /** @type {Set<string>} streams whose message has come, or that were withdrawn */
  closedStreams: new Set(),
  /** @type {string | null} the words that may turn out to be the answer of this turn */
  answer: null,
  /** @type {"ends" | "goes on" | null} what the first of these events does to the turn before them */
  opening: null,
  /** whether a run began or ended in what was folded: no call from before it runs on */
  begun: false,
  seq: 0,
  firstSeq: 0,
  /** how many events without a number were folded */
  loose: 0,
});

/** @param {State} state @param {Shown} shown @returns {Change[]} */
export const fold = (state, shown) => {
  const event = shown?.event;
  if (!event || typeof event.type !== "string" || !event.data || typeof event.data !== "object") return [];
  if (!UNRECORDED.has(event.type) && !isNew(state, event) && !SENT_AGAIN.has(event.type)) return [];
  const steps = Object.hasOwn(STEPS, event.type) ? STEPS[event.type] : [];
  /** @type {Change[]} */
  const changes = [];
  for (const step of steps) step(state, shown, changes);
  return changes;
};

/** An event that still holds, from before what is shown: it makes no item. @param {State} state @param {Shown} shown */
export const foldStanding = (state, shown) => {
  /** @type {Change[]} */
  const changes = [];
  const type = shown?.event?.type;
  if (shown?.event?.data && Object.hasOwn(STANDING, type)) STANDING[type](state, shown, changes);
  return changes;
};

/**
 * An event before the session began has no number: nobody sends it again.
 * @param {State} state
 * @param {Envelope} event
 */
const isNew = (state, event) => {
  if (event.seq === 0) return true;
  if (!(event.seq > state.seq)) return false;
  state.seq = event.seq;
  state.firstSeq ||= event.seq;
  return true;
};
