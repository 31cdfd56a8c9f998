/* Replay: a recorded session shown again, event by event, in the same cards, at a chosen speed.

   It folds what was recorded with the same fold and only ever asks for what was recorded: nothing runs, nothing is answered
   and nothing is written. Going back folds anew from shortly before. */

import { path } from "../api.js";
import { Feed } from "../chat/feed.js";
import { itemView } from "../chat/item_view.js";
import { el, h, replace, say, svg } from "../dom.js";
import { elapsed } from "../format.js";
import { loading, problem } from "./parts.js";
import { address } from "../router.js";
import { SessionStore } from "../store.js";

/* A recorded session, read as it is needed: events by number, in pages of at most 200, a bounded part of them kept.

   Only asks for what was recorded; nothing is run and nothing is written by looking. `scan` walks through all of it once, for
   the marks of a timeline, and keeps only what kind of moment each event is. */
const MOST_KEPT = 2000;
const MOST_SCANNED = 20_000;

/** @typedef {{seq: number, kind: "call" | "question" | "error" | "said"}} Mark */

class Recording {
  /** @type {Map<number, any>} */
  #kept = new Map();
  last = 0;
  began = "";
  ended = "";
  left = false;

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

  /** The event that follows a number; null: there is none. */
  async after(seq) {
    const known = this.#kept.get(seq + 1);
    if (known || seq >= this.last) return known ?? null;
    const { events } = await this.#page(`after=${seq}`);
    return events[0] ?? null;
  }

  /** The one that follows, if it is here already. */
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

const markOf = ({ event }) => {
  const { type, seq, data } = event;
  if (type === "toolResult" && data.status !== "success") return [{ seq, kind: "error" }];
  if (type === "status" && data.type === "error") return [{ seq, kind: "error" }];
  if (type === "sessionEnd" && data.reason === "error") return [{ seq, kind: "error" }];
  if (type === "toolStarted") return [{ seq, kind: "call" }];
  if (type === "approvalRequired" || type === "formRequired") return [{ seq, kind: "question" }];
  if (type === "message" && data.message?.role === "user") return [{ seq, kind: "said" }];
  return [];
};

/* The timeline of a replay: a slider over the numbers of the events, with marks where something was said, called, asked or
   went wrong. Marks of a long session share a column; the worst of them is the one that is seen. */
const COLUMNS = 240;
const HEIGHT = 22;
const ORDER = ["call", "said", "question", "error"];
const WORDS = { said: "said by a person", call: "call", question: "asked", error: "error" };

/** @param {(seq: number) => void} moved */
const timeline = (moved) => {
  const slider = h("input.timeline-slider", {
    type: "range",
    min: "0",
    max: "0",
    value: "0",
    step: "1",
    "aria-label": "Position in the session",
  });
  const picture = svg("svg", {
    class: "timeline-marks",
    viewBox: `0 0 ${COLUMNS} ${HEIGHT}`,
    preserveAspectRatio: "none",
    "aria-hidden": "true",
  });
  const legend = h("p.timeline-legend.dim.small", { "aria-hidden": "true" },
    ORDER.toReversed().map((kind) => h("span", { dataset: { kind } }, WORDS[kind])),
  );
  const node = el("div.timeline", picture, slider, legend);
  const marks = [];
  let last = 0;
  slider.addEventListener("input", () => moved(Number(slider.value)));

  const drawMarks = () => {
    const columns = new Map();
    for (const { seq, kind } of marks) {
      const at = Math.min(COLUMNS - 1, Math.floor(((seq - 0.5) / Math.max(last, 1)) * COLUMNS));
      if (ORDER.indexOf(kind) > ORDER.indexOf(columns.get(at) ?? "")) columns.set(at, kind);
    }
    replace(picture, [...columns].map(([at, kind]) => markNode(at, kind)));
  };
  return {
    node,
    begin: (seq) => {
      last = seq;
      slider.max = String(seq);
    },
    /** @param {Mark[]} more */
    add: (more) => {
      marks.push(...more);
      drawMarks();
    },
    at: (seq, words) => {
      slider.value = String(seq);
      slider.setAttribute("aria-valuetext", words);
    },
    /** The next mark in a direction; null: there is none. @param {number} seq @param {1 | -1} direction */
    beside: (seq, direction) => {
      const beyond = marks.filter((mark) => (direction > 0 ? mark.seq > seq : mark.seq < seq)).map((mark) => mark.seq);
      if (!beyond.length) return null;
      return direction > 0 ? Math.min(...beyond) : Math.max(...beyond);
    },
  };
};

const markNode = (at, kind) => {
  const height = kind === "error" || kind === "question" ? HEIGHT : kind === "said" ? HEIGHT * 0.7 : HEIGHT * 0.4;
  return svg("rect", { class: `mark-${kind}`, x: at, y: HEIGHT - height, width: 0.8, height });
};

/* The buttons of a replay: play and pause, one event on or back, to the moment before or after, speed, and a number to go to. */
const SPEEDS = { "1×": 1, "2×": 2, "8×": 8, max: Infinity };

const SHAPES = {
  play: "M8 5.5v13l10.5-6.5z",
  pause: "M8 5.5h3v13H8z M13.5 5.5h3v13h-3z",
  back: "M17 6v12l-8-6z M6.5 6h2v12h-2z",
  on: "M7 6v12l8-6z M15.5 6h2v12h-2z",
  markBack: "M18 6v12l-6-6z M12 6v12l-6-6z",
  markOn: "M6 6v12l6-6z M12 6v12l6-6z",
};

const shape = (name) =>
  svg("svg", { class: "icon player-icon", viewBox: "0 0 24 24", "aria-hidden": "true", focusable: "false" },
    svg("path", { d: SHAPES[name] }),
  );

/** @param {Record<string, (...args: any[]) => void>} on `toggle`, `step(by)`, `jump(seq)`, `mark(direction)`, `speed` */
const playerBar = (on) => {
  const press = (name, words, click) =>
    h("button.quiet", { "aria-label": words, title: words, on: { click } }, shape(name));
  const play = h("button.primary.player-play", { on: { click: on.toggle } });
  const speed = h("select", { id: "replay-speed" },
    Object.keys(SPEEDS).map((name) => h("option", { value: name }, name)),
  );
  const number = h("input.player-number", {
    type: "number",
    id: "replay-event",
    min: "1",
    value: "1",
    inputmode: "numeric",
  });
  const total = el("span.dim.small");
  const clock = el("span.player-clock.mono.small");
  speed.addEventListener("change", on.speed);
  number.addEventListener("change", () => on.jump(Number(number.value)));
  const node = el("div.player-bar",
    el("div.player-buttons",
      press("markBack", "To the moment before", () => on.mark(-1)),
      press("back", "One event back", () => on.step(-1)),
      play,
      press("on", "One event on", () => on.step(1)),
      press("markOn", "To the next moment", () => on.mark(1)),
    ),
    clock,
    el("div.player-place", h("label.small", { for: "replay-event" }, "Event"), number, total),
    el("div.player-speed", h("label.small", { for: "replay-speed" }, "Speed"), speed),
  );
  return {
    node,
    clock,
    speed: () => speed.value,
    begin: (last) => {
      number.max = String(last);
      replace(total, `of ${last.toLocaleString("en")}`);
    },
    /** @param {{seq: number, last: number, playing: boolean}} now */
    at: ({ seq, last, playing }) => {
      if (document.activeElement !== number || playing) number.value = String(seq);
      const words = playing ? "Pause" : seq >= last ? "Play again" : "Play";
      if (play.dataset.words === words) return;
      play.dataset.words = words;
      replace(play, shape(playing ? "pause" : "play"), words);
    },
  };
};

/** So many events before a place are folded for it: the rest can be scrolled up to. */
const REACH = 400;
const LONGEST_PAUSE_MS = 2000;
/** Events before the first words, at most. */
const MOST_BEFORE = 100;
/** At full speed so many events are taken between two drawings, more where drawing is slow. */
const AT_ONCE = 50;
const MOST_AT_ONCE = 1000;
const SLOW_MS = 100;

export const page = (ctx) => {
  const player = new Player(ctx);
  player.open();
  const { store, ctx: then } = player;
  return {
    node: player.node,
    title: "Replay",
    beside: { store, ctx: then, session: then.session, budget: { rows: [] } },
    leave: () => player.close(),
  };
};

class Player {
  #at = 0;
  #playing = false;
  #timer = 0;
  /** Counts the jumps: what an earlier one has asked for comes too late. */
  #turn = 0;
  #ts = "";
  #batch = AT_ONCE;
  #ticked = 0;

  constructor(ctx) {
    this.live = ctx;
    this.store = new SessionStore();
    this.ctx = {
      ...ctx,
      store: this.store,
      session: { id: ctx.session.id, state: "closed", answerable: false },
      act: async () => ({ ok: false, problem: "This is a replay: you cannot answer here." }),
    };
    this.recording = new Recording(ctx);
    this.bar = playerBar({
      toggle: () => this.toggle(),
      step: (by) => this.#step(by),
      jump: (seq) => this.seek(seq),
      mark: (direction) => this.#toMark(direction),
      speed: () => this.#playing && this.#next(),
    });
    this.line = timeline((seq) => this.seek(seq));
    this.said = el("div.replay-said", loading());
    this.list = h("ol.items", { role: "list" });
    this.scroller = h("div.scroller", { tabindex: "0", role: "region", "aria-label": "What was recorded" }, this.list);
    const back = h("a.back", { href: address("chat", ctx.session.id) }, "Back to the session");
    this.node = el("div.replay",
      el("header.sheet-head.replay-head",
        el("h2.sheet-title", "Replay"),
        el("p.dim.small", "Read-only: nothing runs. Pauses over 2 s are shortened."),
        back,
      ),
      this.said,
      this.scroller,
      h("div.player", { role: "group", "aria-label": "Player" }, this.line.node, this.bar.node),
    );
    this.feed = new Feed(this.scroller, this.list, this.store, {
      view: (item) => itemView(item, this.ctx),
      level: ctx.level,
      earlier: () => this.#earlier(),
      moved: () => {},
    });
    this.forget = [
      this.store.subscribe((change) => this.feed.changed(change)),
      ctx.settings.onLevel(() => this.feed.refilter()),
    ];
  }

  async open() {
    try {
      await this.recording.open();
      if (!this.recording.last) return replace(this.said, el("p.nothing", "This session has no record."));
      replace(this.said);
      this.line.begin(this.recording.last);
      this.bar.begin(this.recording.last);
      await this.#toFirstWords();
      if (!this.recording.left && !this.#at) await this.seek(1);
      this.toggle();
      const whole = await this.recording.scan((marks) => this.line.add(marks));
      if (!whole && !this.recording.left)
        replace(this.said, el("p.dim.small", "The session is long: only its first part is marked on the timeline."));
    } catch (failure) {
      replace(this.said, problem(failure, "The record could not be read."));
    }
  }

  /** What a session says of itself before anybody speaks is not worth waiting for. */
  async #toFirstWords() {
    for (let seen = 0; seen < MOST_BEFORE; seen += 1) {
      const shown = this.recording.known(this.#at) ?? (await this.#fetched());
      if (!shown || this.recording.left) return;
      this.#take(shown);
      if (shown.event.type === "message") return;
    }
  }

  close() {
    this.#playing = false;
    this.recording.left = true;
    this.#turn += 1;
    clearTimeout(this.#timer);
    for (const forget of this.forget) forget();
    this.feed.close();
  }

  toggle() {
    this.#playing = !this.#playing;
    if (this.#playing && this.#at >= this.recording.last) this.seek(0);
    else if (this.#playing) this.#next();
    else clearTimeout(this.#timer);
    this.#show();
  }

  /** Shows everything up to an event. */
  async seek(wanted) {
    const turn = ++this.#turn;
    const to = Math.max(0, Math.min(Math.round(wanted) || 0, this.recording.last));
    clearTimeout(this.#timer);
    if (to < this.#at || to - this.#at > REACH) this.#beginAt(Math.max(0, to - REACH));
    while (this.#at < to) {
      const shown = this.recording.known(this.#at) ?? (await this.#fetched());
      if (turn !== this.#turn) return;
      if (!shown) break;
      this.#take(shown);
    }
    this.#show();
    if (this.#playing) this.#next();
  }

  #step(by) {
    this.#playing = false;
    return this.seek(this.#at + by);
  }

  #toMark(direction) {
    const found = this.line.beside(this.#at, direction);
    this.#playing = false;
    return this.seek(found ?? (direction > 0 ? this.recording.last : 1));
  }

  /** Folds anew from an event on. */
  #beginAt(seq) {
    this.store.reset();
    this.store.more = seq > 0;
    this.#at = seq;
    // Who is a child of whom was said before: the session itself knows it.
    for (const [id, worker] of this.live.store.standing.workers)
      this.store.standing.workers.set(id, { ...worker, status: "pending" });
  }

  /** Takes what comes next when its time has come. */
  async #next() {
    clearTimeout(this.#timer);
    const turn = this.#turn;
    const speed = SPEEDS[this.bar.speed()] ?? 1;
    const shown = this.recording.known(this.#at) ?? (await this.#fetched());
    if (turn !== this.#turn || !this.#playing) return;
    if (!shown) return this.#stop();
    if (speed === Infinity) {
      const since = performance.now() - this.#ticked;
      this.#batch = since > SLOW_MS && this.#ticked ? Math.min(this.#batch * 2, MOST_AT_ONCE) : AT_ONCE;
      this.#ticked = performance.now();
      this.#take(shown);
      for (let more = 1; more < this.#batch && this.recording.known(this.#at); more += 1)
        this.#take(this.recording.known(this.#at));
      this.#show();
      this.#timer = window.setTimeout(() => this.#next(), 16);
      return;
    }
    const pause =
      Math.min(Math.max(Date.parse(shown.event.ts) - Date.parse(this.#ts) || 0, 0), LONGEST_PAUSE_MS) / speed;
    this.#timer = window.setTimeout(() => {
      this.#take(shown);
      this.#show();
      this.#next();
    }, pause);
  }

  #stop() {
    this.#playing = false;
    this.#show();
    this.live.announce("The replay is at its end.");
  }

  #take(shown) {
    this.store.take(shown);
    this.#at = shown.event.seq;
    this.#ts = shown.event.ts;
  }

  async #fetched() {
    try {
      return await this.recording.after(this.#at);
    } catch (failure) {
      this.#playing = false;
      replace(this.said, problem(failure, "The record could not be read further."));
      return null;
    }
  }

  async #earlier() {
    const { events, more } = await this.recording.before(this.store.firstSeq);
    this.store.takeEarlier(events, more && events.length > 0);
  }

  #show() {
    const { last, began, ended } = this.recording;
    const [now, whole] = [Date.parse(this.#ts || began) - Date.parse(began), Date.parse(ended) - Date.parse(began)];
    const words = `event ${this.#at} of ${last}`;
    this.line.at(this.#at, `${words}, ${elapsed(now)}`);
    this.bar.at({ seq: this.#at, last, playing: this.#playing });
    say(this.bar.clock, `${elapsed(now)} / ${elapsed(whole)}`);
    this.bar.clock.title = this.#ts ? new Date(this.#ts).toLocaleString() : "";
  }
}
