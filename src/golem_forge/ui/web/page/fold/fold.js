/* The fold: events in, what a page shows out. No DOM here, so that a live page, a reload and a replay fold alike.

   `fold(state, shown)` changes the state and gives the changes, each `{what, …}` (see store.js). An event that was
   folded before changes nothing; types this page does not know are ignored. Everything in the state is bounded. */

import { addSaid, bounded, callKey, CALLS, CHANGES, depthBelow, endTurnChanges, leastOf, list, NOTICES, number, words } from "./items.js";
import { GONE, MOST_RESOLUTIONS, QUESTIONS } from "./questions.js";
import { settleAnswer, SPEECH } from "./speech.js";

/* What still holds, whatever has scrolled away: the session, its plan, workers, usage, context, tools, servers,
   walls. */
const MOST_WORKERS = 500;
const MOST_SERVERS = 200;

/** @returns {Record<string, any>} */
const emptyStanding = () => ({
  session: null, // the latest `sessionStarted`
  plans: new Map(), // worker → the latest `planUpdated`
  plan: null, // the plan that changed last
  workers: new Map(), // worker → the latest `workerUpdate`
  usage: null, // the latest `usageUpdated`
  usageByWorker: new Map(), // worker → the sums of its branch
  context: null,
  tools: [], // the manual tools
  servers: new Map(),
  walls: null,
  ended: null, // the `sessionEnd`, until the session starts again
});

const keeps = (part, put) => (state, shown, changes) => {
  put(state.standing, shown.event.data, shown.event);
  changes.push({ what: "standing", part });
};

/** @type {Record<string, Step>} */
const STANDING = {
  sessionStarted: keeps("session", (standing, data, event) => {
    standing.session = { ...data, ts: event.ts };
    standing.ended = null;
  }),
  planUpdated: keeps("plan", (standing, data, event) => {
    const plan = { explanation: data.explanation ?? null, plan: list(data.plan), worker: words(event.workerId) };
    standing.plan = plan;
    standing.plans.delete(plan.worker);
    standing.plans.set(plan.worker, plan);
    bounded(standing.plans, MOST_WORKERS);
  }),
  workerUpdate: keeps("workers", (standing, data) => {
    const known = standing.workers.get(data.workerId);
    standing.workers.set(data.workerId, { ...known, ...data, depth: number(data.depth) });
    bounded(standing.workers, MOST_WORKERS);
  }),
  usageUpdated: keeps("usage", (standing, data) => {
    standing.usage = data;
    standing.usageByWorker.set(data.workerId, data.worker ?? data);
    bounded(standing.usageByWorker, MOST_WORKERS);
  }),
  contextUsage: keeps("context", (standing, data, event) => {
    // The meter is the conversation's own; a worker below has another context.
    if (!(standing.workers.get(event.workerId)?.depth > 0)) standing.context = data;
  }),
  manualToolsAvailable: keeps("tools", (standing, data) => {
    standing.tools = list(data.tools).filter((tool) => tool && typeof tool === "object");
  }),
  mcpStatus: keeps("servers", (standing, data) => {
    standing.servers.set(data.server, data);
    bounded(standing.servers, MOST_SERVERS);
  }),
  wallsReport: keeps("walls", (standing, data) => {
    standing.walls = data;
  }),
  sessionEnd: keeps("ended", (standing, data) => {
    standing.ended = data;
    for (const [id, one] of standing.workers)
      if (one.status === "running" || one.status === "pending") standing.workers.set(id, { ...one, status: "ended" });
  }),
};

/** @typedef {{type: string, seq: number, ts: string, sessionId: string, workerId: string, data: any}} Envelope */
/** @typedef {{event: Envelope, view?: any}} Shown */
/** @typedef {{key: string, kind: string, worker: string, ts: string, seqs: number[], least: string,
 * [more: string]: any}} Item */
/** @typedef {{what: string, [more: string]: any}} Change */
/** @typedef {(state: State, shown: Shown, changes: Change[]) => void} Step */
/** @typedef {ReturnType<typeof emptyState>} State */

/** Not in the journal: these carry the number of the last recorded event. */
const UNRECORDED = new Set(["streaming", "toolOutput", "toolProgress"]);
/** Sent again under the same id when a page connects. */
const SENT_AGAIN = new Set(["approvalRequired", "formRequired", "inputPrompt"]);

/** @type {Record<string, Step[]>} */
const STEPS = {};
for (const part of [SPEECH, CALLS, QUESTIONS, NOTICES, CHANGES, STANDING])
  for (const [type, step] of Object.entries(part)) (STEPS[type] ??= []).push(step);

export const emptyState = () => ({
  items: new Map(), // what stands in the conversation, in order
  /** @type {Map<string, {requestId: string, kind: string, shown: Shown, state: string, resolved: any}>} */
  questions: new Map(),
  resolutions: new Map(), // answers to questions that this page has not seen
  askedFor: new Map(), // call → the key of the question about it
  standing: emptyStanding(),
  prompt: /** @type {{requestId: string, prompt: string} | null} */ (null), // the input that is awaited
  running: new Set(), // calls without a result
  undoes: new Map(), // call → the calls that it took back
  spoken: new Map(), // call without a card → the keys of what was said of it
  streams: new Map(), // worker → the key of what it streams
  closedStreams: new Set(), // streams whose message has come, or that were withdrawn
  answer: null, // the words that may turn out to be the answer of this turn
  opening: null, // "ends" or "goes on": what the first of these events does to the turn before them
  begun: false, // whether a run began or ended in what was folded: no call from before it runs on
  seq: 0,
  firstSeq: 0,
  loose: 0, // how many events without a number were folded
});

export const fold = (state, shown) => {
  const event = shown?.event;
  if (!event || typeof event.type !== "string" || !event.data || typeof event.data !== "object") return [];
  if (!UNRECORDED.has(event.type) && !isNew(state, event) && !SENT_AGAIN.has(event.type)) return [];
  const steps = Object.hasOwn(STEPS, event.type) ? STEPS[event.type] : [];
  const changes = [];
  for (const step of steps) step(state, shown, changes);
  return changes;
};

/** An event that still holds, from before what is shown: it makes no item. */
export const foldStanding = (state, shown) => {
  const changes = [];
  const type = shown?.event?.type;
  if (shown?.event?.data && Object.hasOwn(STANDING, type)) STANDING[type](state, shown, changes);
  return changes;
};

/** An event before the session began has no number: nobody sends it again. */
const isNew = (state, event) => {
  if (event.seq === 0) return true;
  if (!(event.seq > state.seq)) return false;
  state.seq = event.seq;
  state.firstSeq ||= event.seq;
  return true;
};

/* Putting an earlier page of events before what is already folded.

   The page is folded on its own, then joined: a call that began there and ended here becomes one item at its
   beginning, a question that was answered here is closed there, and a question that is open here stays where it is. */
/** @param {State} state @param {Shown[]} page @returns {State} */
export const merged = (state, page) => {
  const older = emptyState();
  older.standing.workers = new Map(state.standing.workers); // who is a child of whom
  for (const shown of page) fold(older, shown);
  const opening = older.opening ?? state.opening;
  if (state.opening === "ends") {
    settleAnswer(older, []);
    endTurnChanges(older, []);
  }
  const resolutions = new Map([...older.resolutions, ...state.resolutions]);
  bounded(resolutions, MOST_RESOLUTIONS);
  const items = new Map(older.items);
  const running = new Set(state.running);
  for (const item of items.values()) close(item, state, running);
  for (const [key, item] of state.items) {
    const before = items.get(key);
    if (before?.kind === "call") items.set(key, joined(before, item));
    else {
      items.delete(key);
      items.set(key, before?.kind === "changes" ? { ...item, calls: [...before.calls, ...item.calls] } : item);
    }
  }
  for (const [key, item] of items) // of a turn that ended here, without another change
    if (item.kind === "changes" && item.open && !state.items.has(key)) Object.assign(item, { open: false, least: "summary" });
  for (const item of items.values())
    if (item.kind === "call" && item.parent) item.depth = depthBelow(items, item.parent);
  for (const [id, keys] of older.spoken) {
    const call = items.get(callKey(id));
    if (!call) continue;
    const lines = keys.map((key) => items.get(key)).filter(Boolean);
    addSaid(call, lines.map(({ type, data, least }) => ({ type, data, least })), true);
    for (const key of keys) items.delete(key);
    older.spoken.delete(id);
  }
  const spoken = new Map([...older.spoken, ...state.spoken]);
  const begun = state.begun || older.begun;
  const askedFor = new Map([...older.askedFor, ...state.askedFor]);
  const undoes = new Map([...older.undoes, ...state.undoes]);
  return { ...state, undoes, spoken, items, resolutions, askedFor, running, opening, begun, firstSeq: older.firstSeq || state.firstSeq };
};

/** What is open on an earlier page was answered here, or nobody asks it; a call may run on. */
const close = (item, state, running) => {
  if (item.kind === "question") item.resolved ??= state.resolutions.get(item.requestId) ?? GONE;
  if (item.kind !== "call" || item.result || item.lost || state.items.has(item.key)) return;
  if (state.begun || state.standing.ended) item.lost = true;
  else running.add(item.id);
};

const joined = (before, after) => ({
  ...before,
  result: after.result,
  failed: after.failed,
  output: after.output,
  progress: after.progress,
  changed: after.changed ?? before.changed,
  said: [...before.said, ...after.said],
  least: leastOf(after.least === "summary" && before.least === "normal" ? "summary" : before.least, after.failed, after.result?.event?.data),
  seqs: [...before.seqs, ...after.seqs],
});
