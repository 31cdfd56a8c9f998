/* Words of models and people: messages, and streams that become messages.

   A stream and the message that repeats it are one item with one key, so nothing flickers and nothing stands twice.
   They belong together by worker: what a worker streamed last is what its next message says. */

import { addItem, bounded, dropItem, itemChanged, keyOf, tail, words } from "./items.js";

/** @typedef {import("./items.js").State} State */
/** @typedef {import("./items.js").Change} Change */

const MOST_CLOSED = 500;

/** @type {Record<string, import("./fold.js").Step>} */
export const SPEECH = {
  message: (state, shown, changes) => {
    const { event, view } = shown;
    const message = event.data.message ?? {};
    const role = words(message.role);
    const said = {
      kind: "message",
      role,
      by: words(message.by),
      text: words(message.content),
      html: typeof view?.html === "string" ? view.html : null,
      cut: view?.cut === true,
      attachments: Array.isArray(message.attachments) ? message.attachments : [],
      final: false,
      least: role === "system" ? "debug" : role === "user" ? "summary" : "normal",
    };
    if (role === "user") settleAnswer(state, changes);
    const streamed = role === "assistant" ? takeStream(state, event.workerId) : undefined;
    if (streamed) {
      Object.assign(streamed, said, { chunks: null, live: false, ts: event.ts });
      itemChanged(streamed, shown, changes);
    }
    const { key } = streamed ?? addItem(state, shown, changes, keyOf(state, "m", shown), "message", said);
    if (role === "assistant" && !isChild(state, event.workerId)) mayAnswer(state, key);
    changes.push({ what: "said", key, role });
  },

  streaming: (state, shown, changes) => {
    const { event, view } = shown;
    const { requestId, delta, whole, done, channel, discarded } = event.data;
    if (state.closedStreams.has(requestId)) return;
    const key = `s:${requestId}`;
    if (discarded) {
      close(state, event.workerId, requestId);
      dropItem(state, key, changes);
      return;
    }
    let item = state.items.get(key);
    if (!item) {
      if (!delta && !whole) return;
      item = addItem(state, shown, changes, key, "stream", {
        chunks: [],
        text: "",
        thinking: "",
        live: true,
        html: null,
      });
      endStream(state, event.workerId, changes);
      state.streams.set(event.workerId, key);
      if (!isChild(state, event.workerId)) mayAnswer(state, null);
    } else changes.push({ what: "item", key, fresh: false });
    if (channel === "thinking") item.thinking = tail(typeof whole === "string" ? whole : item.thinking + words(delta));
    else addText(item, words(delta), whole, view);
    if (done) item.live = false;
  },

  interrupt: (state, _, changes) => {
    for (const worker of [...state.streams.keys()]) endStream(state, worker, changes);
  },

  inputPrompt: (state, _, changes) => settleAnswer(state, changes),
  sessionEnd: (state, _, changes) => settleAnswer(state, changes),
  toolStarted: (state, shown, changes) => {
    if (shown.event.data.caller !== "llm") return;
    endStream(state, shown.event.workerId, changes);
    state.streams.delete(shown.event.workerId);
    if (!isChild(state, shown.event.workerId)) mayAnswer(state, null);
  },

  command: (state, shown, changes) => {
    addItem(state, shown, changes, keyOf(state, "c", shown), "command", {
      text: words(shown.event.data.text),
      least: "quiet",
    });
  },
};

const addText = (item, delta, whole, view) => {
  item.text = typeof whole === "string" ? whole : item.text + delta;
  if (typeof view?.html !== "string") return;
  const keep = Number.isInteger(view.keep) && view.keep > 0 ? view.keep : 0;
  // What was at or behind `keep` is replaced: those pieces are never needed again.
  item.chunks = [...item.chunks.filter((one) => one.keep < keep), { keep, html: view.html }];
};

const takeStream = (state, worker) => {
  const key = state.streams.get(worker);
  const item = key === undefined ? undefined : state.items.get(key);
  if (key !== undefined) close(state, worker, key.slice(2));
  return item;
};

const close = (state, worker, requestId) => {
  state.closedStreams.add(requestId);
  bounded(state.closedStreams, MOST_CLOSED);
  if (state.streams.get(worker) === `s:${requestId}`) state.streams.delete(worker);
};

/** It goes on to something else: no caret any more. */
const endStream = (state, worker, changes) => {
  const item = state.items.get(state.streams.get(worker) ?? "");
  if (!item?.live) return;
  item.live = false;
  changes.push({ what: "item", key: item.key, fresh: false });
};

/** Streams that the server no longer knows have ended while nobody was told. */
export const endStreamsBut = (state, open, changes) => {
  for (const item of state.items.values()) {
    if (item.kind !== "stream" || !item.live || open.has(item.key.slice(2))) continue;
    item.live = false;
    changes.push({ what: "item", key: item.key, fresh: false });
  }
};

/** The turn goes on: what was said was not the end; this may be. */
const mayAnswer = (state, key) => {
  state.answer = key;
  state.opening ??= "goes on";
};

/** The turn is over: the last words of the root worker were the answer. */
export const settleAnswer = (state, changes) => {
  state.opening ??= "ends";
  for (const worker of [...state.streams.keys()]) endStream(state, worker, changes);
  state.streams.clear();
  const item = state.answer === null ? undefined : state.items.get(state.answer);
  state.answer = null;
  if (!item || item.kind !== "message") return;
  Object.assign(item, { final: true, least: "quiet" });
  changes.push({ what: "item", key: item.key, fresh: false });
};

const isChild = (state, worker) => (state.standing.workers.get(worker)?.depth ?? 0) > 0;
