/* Replay: a recorded session shown again, event by event, in the same cards, at a chosen speed.

   It folds what was recorded with the same fold and only ever asks for what was recorded: nothing runs, nothing is answered
   and nothing is written. Going back folds anew from shortly before. */

import { h, replace, say } from "../dom.js";
import { Feed } from "../chat/feed.js";
import { itemView } from "../chat/item_view.js";
import { address } from "../router.js";
import { SessionStore } from "../store.js";
import { playerBar, SPEEDS } from "./player_bar.js";
import { elapsed } from "./moments.js";
import { loading, problem } from "./parts.js";
import { Recording } from "./recording.js";
import { timeline } from "./timeline.js";

/** So many events before a place are folded for it: the rest can be scrolled up to. */
const REACH = 400;
const LONGEST_PAUSE_MS = 2000;
/** At full speed so many events are taken between two drawings, more where drawing is slow. */
const AT_ONCE = 50;
const MOST_AT_ONCE = 1000;
const SLOW_MS = 100;

/** @param {any} ctx */
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

  /** @param {any} ctx */
  constructor(ctx) {
    this.live = ctx;
    this.store = new SessionStore();
    this.ctx = {
      ...ctx,
      store: this.store,
      session: { id: ctx.session.id, state: "closed", answerable: false },
      act: async () => ({ ok: false, problem: "This is a replay: nothing is answered here." }),
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
    this.said = h("div", { class: "replay-said" }, loading());
    this.list = h("ol", { class: "items", role: "list" });
    this.scroller = h(
      "div",
      { class: "scroller", tabindex: "0", role: "region", "aria-label": "What was recorded" },
      this.list,
    );
    const back = h("a", { class: "back", href: address("chat", ctx.session.id) }, "Back to the session");
    this.node = h(
      "div",
      { class: "replay" },
      h(
        "header",
        { class: "sheet-head replay-head" },
        h("h2", { class: "sheet-title" }, "Replay"),
        h("p", { class: "dim small" }, "Read-only: nothing runs. Pauses over 2 s are shortened."),
        back,
      ),
      this.said,
      this.scroller,
      h("div", { class: "player", role: "group", "aria-label": "Player" }, this.line.node, this.bar.node),
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
      if (!this.recording.last)
        return replace(this.said, h("p", { class: "nothing" }, "Nothing was recorded of this session."));
      replace(this.said);
      this.line.begin(this.recording.last);
      this.bar.begin(this.recording.last);
      await this.seek(1);
      const whole = await this.recording.scan((marks) => this.line.add(marks));
      if (!whole && !this.recording.left)
        replace(
          this.said,
          h("p", { class: "dim small" }, "The session is long: only its first part is marked on the timeline."),
        );
    } catch (failure) {
      replace(this.said, problem(failure, "The record could not be read."));
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

  /** Shows everything up to an event. @param {number} wanted */
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

  /** @param {number} by */
  #step(by) {
    this.#playing = false;
    return this.seek(this.#at + by);
  }

  /** @param {1 | -1} direction */
  #toMark(direction) {
    const found = this.line.beside(this.#at, direction);
    this.#playing = false;
    return this.seek(found ?? (direction > 0 ? this.recording.last : 1));
  }

  /** Folds anew from an event on. @param {number} seq */
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

  /** @param {any} shown */
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
