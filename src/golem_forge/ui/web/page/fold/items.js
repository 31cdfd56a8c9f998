/* Trace levels: how much of a run is shown. Each item says from which level on (`item.least`). */

export const LEVELS = ["quiet", "summary", "normal", "debug"];

/** @param {{least: string}} item @param {string} level */
export const isShown = (item, level) => LEVELS.indexOf(level) >= LEVELS.indexOf(item.least);

/* What every step of the fold uses: adding an item, telling that one changed, and reading values that may be
   anything. */
/** @typedef {import("./fold.js").State} State */
/** @typedef {import("./fold.js").Shown} Shown */
/** @typedef {import("./fold.js").Item} Item */
/** @typedef {import("./fold.js").Change} Change */

/** At most so many characters of what a call puts out, or a model thinks, are kept here: the last ones. */
const MOST_TAIL = 64 * 1024;
const MOST_SEQS = 20;

/** The key of an item that one event makes. */
export const keyOf = (state, kind, shown) => `${kind}:${shown.event.seq || `before-${++state.loose}`}`;

/** Puts an item at the end.
 * @param {State} state @param {Shown} shown @param {Change[]} changes
 * @param {string} key @param {string} kind @param {Record<string, any>} more `least`: the trace level it is shown from
 * @returns {Item} */
export const addItem = (state, shown, changes, key, kind, more) => {
  const { event } = shown;
  const worker = event.workerId ?? "";
  const item = { key, kind, worker, ts: event.ts ?? "", seqs: event.seq ? [event.seq] : [], least: "normal", ...more };
  state.items.set(key, item);
  changes.push({ what: "item", key, fresh: true });
  return item;
};

export const itemChanged = (item, shown, changes) => {
  const { seq } = shown.event;
  if (seq && item.seqs.length < MOST_SEQS && !item.seqs.includes(seq)) item.seqs.push(seq);
  changes.push({ what: "item", key: item.key, fresh: false });
};

export const dropItem = (state, key, changes) => {
  if (state.items.delete(key)) changes.push({ what: "gone", key });
};

const lastItem = (state) => {
  let last;
  for (last of state.items.values());
  return last;
};

export const words = (value) =>
  typeof value === "string" ? value : value === null || value === undefined ? "" : String(value);

export const number = (value) => (typeof value === "number" && Number.isFinite(value) ? value : 0);

/** @param {unknown} value @returns {any[]} */
export const list = (value) => (Array.isArray(value) ? value : []);

export const tail = (value) => (value.length > MOST_TAIL ? value.slice(-MOST_TAIL) : value);

/** Forgets the oldest of a Map or Set that grew too long. */
export const bounded = (kept, most) => {
  while (kept.size > most) kept.delete(kept.keys().next().value);
};

/* Calls of tools: one item from `toolStarted` to `toolResult`, with its progress and the end of its output.

   A result whose start this page has not seen (it stands on an earlier page) makes the item itself. What hooks and a
   reviewer say of a call stands at its card; while there is none, as a notice. */
const MOST_SAID = 20;
const MOST_SPOKEN = 500;
const DEEPEST = 6;

export const callKey = (id) => `t:${id}`;

/** How deep a call stands that another made. @param {Map<string, any>} items @param {unknown} parent */
export const depthBelow = (items, parent) => {
  const above = items.get(callKey(words(parent)));
  return above ? Math.min((above.depth ?? 0) + 1, DEEPEST) : 0;
};

/** @param {any} call @param {any[]} lines `{type, data, least}` each, in order @param {boolean} [before] */
export const addSaid = (call, lines, before = false) => {
  call.said = (before ? [...lines, ...call.said] : [...call.said, ...lines]).slice(-MOST_SAID);
  if (call.least === "normal" && lines.some((one) => one.least === "summary")) call.least = "summary";
};

/** The call has a card now. */
const takeSpoken = (state, call, changes) => {
  const keys = (state.spoken.get(call.id) ?? []).filter((key) => state.items.has(key));
  addSaid(call, keys.map((key) => state.items.get(key)).map(({ type, data, least }) => ({ type, data, least })));
  for (const key of keys) dropItem(state, key, changes);
  state.spoken.delete(call.id);
};

/** @type {Record<string, import("./fold.js").Step>} */
export const CALLS = {
  toolStarted: (state, shown, changes) => {
    const { event } = shown;
    const { toolCallId, toolName, label, args, caller, workerId, parentCallId } = event.data;
    const key = callKey(toolCallId);
    if (state.items.has(key)) return;
    const item = addItem(state, shown, changes, key, "call", {
      ...blank(toolCallId, toolName, args),
      label: label ?? null,
      caller: words(caller),
      parent: parentCallId ?? null,
      depth: depthBelow(state.items, parentCallId),
      startedAt: event.ts,
      argsCut: shown.view?.cut === true,
      subject: words(shown.view?.subject),
      least: caller === "human" ? "quiet" : "normal",
    });
    if (workerId) item.worker = words(workerId);
    takeSpoken(state, item, changes);
    state.running.add(toolCallId);
    changes.push({ what: "activity" });
  },

  toolProgress: (state, shown, changes) => {
    const { toolCallId, progress, total, message } = shown.event.data;
    const item = state.items.get(callKey(toolCallId));
    if (!item || item.result) return;
    item.progress = { progress, total: total ?? null, message: message ?? null };
    changes.push({ what: "item", key: item.key, fresh: false });
  },

  toolOutput: (state, shown, changes) => {
    const { toolCallId, stream, delta, whole } = shown.event.data;
    const item = state.items.get(callKey(toolCallId));
    if (!item || item.result || (stream !== "stdout" && stream !== "stderr")) return;
    item.output[stream] = tail(typeof whole === "string" ? whole : item.output[stream] + words(delta));
    changes.push({ what: "item", key: item.key, fresh: false });
  },

  toolResult: (state, shown, changes) => {
    const { event } = shown;
    const { toolCallId, toolName, args, status } = event.data;
    const key = callKey(toolCallId);
    const item = state.items.get(key) ?? addItem(state, shown, changes, key, "call", blank(toolCallId, toolName, args));
    takeSpoken(state, item, changes);
    item.result = shown;
    item.failed = status !== "success";
    item.lost = false;
    item.least = leastOf(item.least, item.failed, event.data);
    state.running.delete(toolCallId);
    itemChanged(item, shown, changes);
    changes.push({ what: "activity" });
  },

  sessionStarted: (state, _, changes) => abandon(state, changes),
  sessionEnd: (state, _, changes) => abandon(state, changes),
};

/* What calls changed: at the card of each call, and once for the turn, behind its answer. A turn that goes on shows
   nothing yet (`least` is `debug`). What an undo took back is marked. */
const MOST_CHANGED = 500;

const turnKey = (turn) => `changes:${turn}`;

/** @param {any} data of the event */
const changedFiles = (data) => ({
  call: words(data.callId),
  tool: words(data.tool),
  turn: number(data.turn),
  files: list(data.files).filter((file) => file && typeof file === "object"),
  count: number(data.count),
  added: number(data.added),
  removed: number(data.removed),
  undone: false,
  problem: words(data.problem),
  remade: list(data.remade).map(words),
  reached: list(data.reached).map(words),
  undoable: data.undoable !== false,
});

/** Whether there is anything to show; calls that only reached a host changed nothing. */
export const changedAnything = (calls) => calls.some((one) => one.undoable || one.remade.length || one.problem);

/** @type {Record<string, import("./fold.js").Step>} */
export const CHANGES = {
  filesChanged: (state, shown, changes) => {
    const made = changedFiles(shown.event.data);
    const call = state.items.get(callKey(made.call));
    if (call) {
      call.changed = made;
      itemChanged(call, shown, changes);
    }
    for (const id of list(shown.event.data.undoes)) {
      for (const again of state.undoes.get(words(id)) ?? []) mark(state, again, false, changes);
      mark(state, words(id), true, changes);
    }
    state.undoes.set(made.call, list(shown.event.data.undoes).map(words));
    bounded(state.undoes, MOST_CHANGED);
    if (made.turn < 1) return;
    const known = state.items.get(turnKey(made.turn));
    if (known) {
      known.calls = [...known.calls, made].slice(-MOST_CHANGED);
      itemChanged(known, shown, changes);
    } else
      addItem(state, shown, changes, turnKey(made.turn), "changes", {
        turn: made.turn,
        calls: [made],
        open: true,
        least: "debug",
      });
  },

  message: (state, shown, changes) => {
    if (shown.event.data.message?.role === "user") endTurnChanges(state, changes);
  },
  inputPrompt: (state, _, changes) => endTurnChanges(state, changes),
  sessionEnd: (state, _, changes) => endTurnChanges(state, changes),
  sessionStarted: (state, _, changes) => endTurnChanges(state, changes),
};

/** The turn is over: what it changed stands behind its answer. */
export const endTurnChanges = (state, changes) => {
  for (const item of [...state.items.values()]) {
    if (item.kind !== "changes" || !item.open) continue;
    dropItem(state, item.key, changes);
    state.items.set(item.key, { ...item, open: false, least: changedAnything(item.calls) ? "summary" : "debug" });
    changes.push({ what: "item", key: item.key, fresh: true });
  }
};

/** An undo took a call back, or a redo brought it again. */
const mark = (state, call, undone, changes) => {
  for (const item of state.items.values()) {
    if (item.kind === "changes" && item.calls.some((one) => one.call === call))
      item.calls = item.calls.map((one) => (one.call === call ? { ...one, undone } : one));
    else if (item.kind === "call" && item.id === call && item.changed) item.changed = { ...item.changed, undone };
    else continue;
    changes.push({ what: "item", key: item.key, fresh: false });
  }
};

/** The trace level a finished call is shown from, as in a terminal: what a command left behind is not hidden by one. */
export const leastOf = (least, failed, data) => {
  const left = Array.isArray(data?.leftovers) ? data.leftovers : [];
  const has = (severity) => left.some((one) => one?.severity === severity);
  if (least === "quiet" || has("critical")) return "quiet";
  return failed || has("warning") || data?.protectedCreated?.length ? "summary" : least;
};

const blank = (id, name, args) => ({
  id: words(id),
  name: words(name),
  label: null,
  args,
  argsCut: false,
  caller: "",
  parent: null,
  depth: 0,
  output: { stdout: "", stderr: "" },
  progress: null,
  result: null,
  failed: false,
  lost: false,
  startedAt: null,
  changed: null,
  said: [],
});

/** Whoever ran them is gone: no result will come. @param {import("./fold.js").Change[]} changes */
const abandon = (state, changes) => {
  state.begun = true;
  for (const id of state.running) {
    const item = state.items.get(callKey(id));
    if (!item) continue;
    item.lost = true;
    changes.push({ what: "item", key: item.key, fresh: false });
  }
  state.running.clear();
  changes.push({ what: "activity" });
};

/* What is said beside the conversation: statuses, the start and end of a session, and changes worth a line.

   Neighbours that only repeat each other (a plan that moves on, a worker that goes on) stay one line. */
/** @param {string} type @param {string} [least] @returns {import("./fold.js").Step} */
const notice =
  (type, least = "normal") =>
  (state, shown, changes) => {
    addItem(state, shown, changes, keyOf(state, "n", shown), "notice", {
      type,
      data: shown.event.data,
      view: shown.view ?? null,
      least,
    });
  };

/** What is said of a call. */
const spoken = (type, least, state, shown, changes) => {
  const { data } = shown.event;
  const id = words(data.toolCallId);
  const call = state.items.get(callKey(id));
  if (id && call) {
    addSaid(call, [{ type, data, least }]);
    return itemChanged(call, shown, changes);
  }
  const key = keyOf(state, "n", shown);
  addItem(state, shown, changes, key, "notice", { type, data, view: null, least });
  if (!id) return;
  state.spoken.set(id, [...(state.spoken.get(id) ?? []), key].slice(-MOST_SAID));
  bounded(state.spoken, MOST_SPOKEN);
};

/** One line for a row of them. @param {string} type @param {string} [least] @returns {import("./fold.js").Step} */
const latest =
  (type, least = "normal") =>
  (state, shown, changes) => {
    const last = lastItem(state);
    if (last?.kind === "notice" && last.type === type && last.worker === shown.event.workerId) {
      last.data = shown.event.data;
      itemChanged(last, shown, changes);
    } else notice(type, least)(state, shown, changes);
  };

/** @type {Record<string, import("./fold.js").Step>} */
export const NOTICES = {
  status: (state, shown, changes) => {
    const { type, message, code } = shown.event.data;
    if (code === "prefill") {
      changes.push({ what: "prefill", text: words(message) });
      return;
    }
    const told = lastItem(state);
    const repeats = code === "command" && type === "error" && told?.kind === "call" && told.failed;
    if (repeats && words(told.result?.event.data.error) === words(message)) return; // its card has said so
    if (shown.event.data.mode && state.standing.session) {
      state.standing.session = { ...state.standing.session, approvalMode: words(shown.event.data.mode) };
      changes.push({ what: "standing", part: "session" });
    }
    const least = type === "error" || code === "command" ? "quiet" : type === "warning" ? "summary" : "normal";
    addItem(state, shown, changes, keyOf(state, "n", shown), "status", {
      type: words(type),
      text: words(message),
      code: code ?? null,
      least,
    });
  },

  sessionStarted: notice("sessionStarted"),
  planUpdated: latest("planUpdated"),
  contextCompacted: notice("contextCompacted"),
  catalogChanged: (state, shown, changes) => {
    const { added, changed, removed, diagnostics } = shown.event.data;
    if ([added, changed, removed, diagnostics].some((one) => list(one).length))
      notice("catalogChanged")(state, shown, changes);
  },
  /** One line a server, where it was last heard of. */
  mcpStatus: (state, shown, changes) => {
    const { data } = shown.event;
    const key = `mcp:${words(data.server)}`;
    dropItem(state, key, changes);
    addItem(state, shown, changes, key, "notice", { type: "mcpStatus", data, view: null });
  },
  toolSuggested: notice("toolSuggested"),
  wallsReport: notice("wallsReport"),
  credentialUsed: notice("credentialUsed"),
  diffSummary: notice("diffSummary"),
  rewound: notice("rewound", "summary"),
  reviewed: (state, shown, changes) => spoken("reviewed", "normal", state, shown, changes),
  hookRan: (state, shown, changes) => {
    const { line, status } = shown.event.data;
    if (line) spoken("hookRan", status === "failed" ? "summary" : "normal", state, shown, changes);
  },
  diffContent: notice("diffContent"),
  usageUpdated: notice("usageUpdated", "debug"),
  contextUsage: (state, shown, changes) =>
    latest("contextUsage", shown.event.data.exceeded === true ? "summary" : "debug")(state, shown, changes),

  workerUpdate: (state, shown, changes) => {
    const { data } = shown.event;
    if (number(data.depth) < 1) return;
    const key = `w:${words(data.workerId)}`;
    const known = state.items.get(key);
    if (known) {
      known.data = { ...known.data, ...data };
      itemChanged(known, shown, changes);
    } else {
      const item = addItem(state, shown, changes, key, "notice", { type: "workerUpdate", data, view: null });
      item.worker = words(data.parentId);
    }
  },

  sessionEnd: (state, shown, changes) => {
    const { reason, message } = shown.event.data;
    const last = lastItem(state);
    const told = last?.kind === "status" && last.type === "error" && last.text === words(message);
    addItem(state, shown, changes, keyOf(state, "n", shown), "ended", {
      reason: words(reason),
      text: told ? "" : words(message),
      used: state.standing.usage?.session ?? null,
      least: reason === "completed" ? "summary" : "quiet",
    });
  },
};
