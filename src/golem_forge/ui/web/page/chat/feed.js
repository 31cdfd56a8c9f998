/* The feed: a window of at most 300 items over all that the store holds. The page's size does not grow with the
   session.

   At the end it follows what comes; scrolled up, or while somebody writes into a card, it stays where the eye is. So
   does a question that waits: nothing that comes pushes it, or another answer, under the pointer. Earlier items come
   from memory first, then from the server in pages. A view with an open question is kept when it leaves the window,
   with all that was typed into it. */

import { moved } from "../cards/guard.js";
import { isShown } from "../fold/items.js";
import { questionKey } from "../fold/questions.js";

/* The window over the feed's items, by their keys: at most 300 of them stand in the page. Arithmetic only. */
const MOST = 300;
/** Of a session that is opened: several screens, so that it is there soon. The rest comes when somebody scrolls up. */
const FIRST = 60;
/** So many come at once when somebody scrolls to an end of the window. */
const STEP = 100;

class FeedWindow {
  /** @type {string[]} everything that may be shown, in order */
  #keys = [];
  #from = 0;
  #to = 0;

  get shown() { return this.#keys.slice(this.#from, this.#to); }
  get last() { return this.#keys[this.#to - 1]; }
  get isAtStart() { return this.#from === 0; }
  get isAtEnd() { return this.#to >= this.#keys.length; }

  has(key) {
    return this.#keys.includes(key);
  }

  /** Other keys; the window holds the same ones as before wherever they still are.
   * @param {string[]} keys @param {boolean} follow whether it ends with the last one, whatever it held */
  rearrange(keys, follow) {
    const [first, atEnd] = [this.#keys[this.#from], this.isAtEnd];
    const length = this.#to - this.#from;
    this.#keys = keys;
    if (follow || first === undefined) {
      const kept = first === undefined ? -1 : this.#keys.indexOf(first);
      this.#to = this.#keys.length;
      this.#from = kept < 0 ? Math.max(0, this.#to - FIRST) : Math.max(kept, this.#to - MOST);
    } else {
      const at = this.#keys.indexOf(first);
      this.#from = at < 0 ? Math.max(0, Math.min(this.#from, this.#keys.length - MOST)) : at;
      const wanted = atEnd ? this.#keys.length : this.#from + length;
      this.#to = Math.min(wanted, this.#from + MOST, this.#keys.length);
    }
  }

  /** Up (below 0) or down; what it grows by at one end beyond the most, it loses at the other. */
  slide(by) {
    if (by < 0) {
      this.#from = Math.max(0, this.#from + by);
      this.#to = Math.min(this.#to, this.#from + MOST);
    } else {
      this.#to = Math.min(this.#keys.length, this.#to + by);
      this.#from = Math.max(this.#from, this.#to - MOST);
    }
  }

  /** Whether it had to move. */
  toEnd() {
    if (this.isAtEnd) return false;
    this.#to = this.#keys.length;
    this.#from = Math.max(0, this.#to - MOST);
    return true;
  }

  /** Whether it had to move. @param {string} key one that it `has` */
  include(key) {
    const at = this.#keys.indexOf(key);
    if (at >= this.#from && at < this.#to) return false;
    this.#from = Math.max(0, Math.min(at - STEP, this.#keys.length - MOST));
    this.#to = Math.min(this.#keys.length, this.#from + MOST);
    return true;
  }
}

const NEAR_PX = 48;
const REACH_PX = 600;
const ABOVE_PX = 8;

/** @typedef {{node: HTMLElement, update: (item: any) => void, focus?: () => void}} View */

export class Feed {
  #window = new FeedWindow();
  /** @type {Map<string, View>} */
  #views = new Map();
  /** @type {Set<string>} */
  #stale = new Set();
  #structure = true;
  #due = 0;
  #follow = true;
  #loading = false;
  #placedAt = -1;
  /** The question that is kept where it stands. @type {{node: Element, offset: number} | null} */
  #kept = null;

  /** @param {HTMLElement} scroller @param {HTMLElement} list @param {import("../store.js").SessionStore} store
   * @param {{view: (item: any) => View, level: () => string, earlier: () => Promise<void>,
   * moved: (atEnd: boolean) => void, ready?: () => boolean, isEmpty?: () => boolean}} on
   * `ready`: false while the past still comes; it is drawn once, not again with each part of it */
  constructor(scroller, list, store, on) {
    this.scroller = scroller;
    this.list = list;
    this.store = store;
    this.on = on;
    scroller.addEventListener("scroll", () => this.#scrolled(), { passive: true });
    this.resized = new ResizeObserver(() => this.#follow && !this.#isWriting() && this.#settle());
    this.resized.observe(list);
    this.resized.observe(scroller);
  }

  /** @param {import("../fold/fold.js").Change} change */
  changed(change) {
    if (change.what === "item") {
      const item = this.store.items.get(change.key);
      const question = item ? this.store.questionOf(item) : undefined;
      this.#stale.add(question?.key ?? change.key);
      if (change.fresh || !this.#views.has(change.key) || item?.kind === "question") this.#structure = true;
    } else if (["gone", "earlier", "trimmed", "reset", "caughtUp"].includes(change.what)) {
      this.#structure = true;
      if (change.what === "reset") this.#follow = true;
    } else return;
    this.schedule();
  }

  /** Everything is judged anew: another trace level. */
  refilter() {
    this.#structure = true;
    for (const [key, view] of this.#views) {
      if (this.#isOpen(key)) continue;
      view.node.remove();
      this.#views.delete(key);
    }
    this.schedule();
  }

  schedule() {
    if (this.on.ready?.() === false) return;
    this.#due ||= requestAnimationFrame(() => {
      this.#due = 0;
      this.draw();
    });
  }

  draw() {
    const kept = this.#waiting();
    const follow = this.#follow && !kept && !this.#isWriting();
    const anchor = follow ? null : (kept ?? this.#anchor());
    if (this.#structure) this.#arrange(follow);
    for (const key of this.#stale) {
      const item = this.store.items.get(key);
      if (item) this.#views.get(key)?.update(item);
    }
    this.#stale.clear();
    if (follow) this.toEnd();
    else if (anchor) this.#restore(anchor);
    this.#kept = this.#waiting();
    if (kept) this.#tellEnd();
  }

  /** Something grew or shrank. */
  #settle() {
    if (!this.#kept?.node.classList.contains("waits")) return this.toEnd();
    this.#restore(this.#kept);
    this.#tellEnd();
  }

  /** Below a question that is kept there may be something new: unless it is the last of all. */
  #tellEnd() {
    this.on.moved(this.#isAtEnd() || (this.#window.isAtEnd && this.#kept?.node === this.list.lastElementChild));
  }

  toEnd() {
    if (this.#window.toEnd()) this.#fill();
    this.#follow = true;
    this.#place(this.#endOf());
    this.#kept = this.#waiting();
    this.on.moved(true);
  }

  /** Brings an item into view and gives its view. @param {string} key @returns {View | undefined} */
  show(key) {
    if (this.#structure) this.#arrange();
    if (!this.#window.has(key)) return undefined;
    if (this.#window.include(key)) this.#fill();
    this.#follow = false;
    const view = this.#views.get(key);
    view?.node.scrollIntoView({ block: "start" });
    return view;
  }

  /** Whether an item is on the screen. */
  isInView(key) {
    const node = this.#views.get(key)?.node;
    if (!node?.isConnected) return false;
    const [box, frame] = [node.getBoundingClientRect(), this.scroller.getBoundingClientRect()];
    return box.bottom > frame.top + NEAR_PX && box.top < frame.bottom - NEAR_PX;
  }

  /** The last item waits for an answer, which stands where the way to the end would stand. */
  get endsWithQuestionInView() {
    return this.#window.isAtEnd && this.#isOpen(this.#window.last) && this.isInView(this.#window.last);
  }

  get hasEarlier() { return !this.#window.isAtStart || this.store.more; }

  async loadEarlier() {
    if (this.#loading || !this.hasEarlier) return;
    this.#loading = true;
    try {
      if (this.#window.isAtStart) await this.on.earlier();
      if (this.#structure) this.draw();
      this.#slide(-STEP);
    } finally {
      this.#loading = false;
    }
  }

  close() {
    cancelAnimationFrame(this.#due);
    this.resized.disconnect();
  }

  /** Which items there are, and which of them the window holds. */
  #arrange(follow = this.#follow) {
    this.#structure = false;
    const level = this.on.level();
    const keys = [];
    for (const item of this.store.items.values())
      if (isShown(item, level) && !this.store.questionOf(item)) keys.push(item.key);
    this.#window.rearrange(keys, follow);
    this.#fill();
  }

  /** Moves the window up or down, keeping in place what the eye is on. */
  #slide(by) {
    const anchor = this.#anchor();
    this.#window.slide(by);
    this.#fill();
    if (anchor) this.#restore(anchor);
  }

  #fill() {
    const wanted = this.#window.shown;
    const kept = new Set(wanted);
    for (const [key, view] of this.#views) {
      if (kept.has(key)) continue;
      view.node.remove();
      if (!this.#isOpen(key)) this.#views.delete(key);
    }
    let place = this.list.firstChild;
    let voice = "";
    for (const key of wanted) {
      let view = this.#views.get(key);
      if (!view) {
        view = this.on.view(this.store.items.get(key));
        this.#views.set(key, view);
        this.#stale.delete(key);
      }
      if (view.node === place) place = place.nextSibling;
      else this.list.insertBefore(view.node, place);
      // A worker that goes on speaking is named once.
      view.node.classList.toggle("same-voice", view.node.dataset.voice === voice);
      voice = view.node.dataset.voice ?? "";
    }
  }

  /** A question is read from its beginning: one that is higher than the screen is not shown by its end. */
  #endOf() {
    const { scroller } = this;
    if (this.on.isEmpty?.()) return 0; // what can be done here stands first
    const last = this.list.lastElementChild;
    if (
      !(last instanceof HTMLElement) || !this.#isOpen(this.#window.last) || last.offsetHeight <= scroller.clientHeight
    )
      return scroller.scrollHeight;
    return scroller.scrollTop + last.getBoundingClientRect().top - scroller.getBoundingClientRect().top - ABOVE_PX;
  }

  /** Scrolls, and remembers where to: the event that follows is not the person's own scrolling. */
  #place(top) {
    const before = this.scroller.scrollTop;
    this.scroller.scrollTop = top;
    this.#placedAt = this.scroller.scrollTop;
    if (Math.abs(this.#placedAt - before) > 1 && this.store.openQuestions().length) moved();
  }

  /** The question on the screen that somebody is at, else the first one, and where it stands. */
  #waiting() {
    const nodes = this.store.openQuestions().map((one) => questionKey(one.requestId))
      .filter((key) => this.isInView(key))
      .map((key) => this.#views.get(key)?.node);
    const node = nodes.find((one) => one?.matches(":hover, :focus-within")) ?? nodes[0];
    if (!node) return null;
    return { node, offset: node.getBoundingClientRect().top - this.scroller.getBoundingClientRect().top };
  }

  #isAtEnd() {
    const { scrollTop, scrollHeight, clientHeight } = this.scroller;
    return this.#window.isAtEnd && scrollHeight - scrollTop - clientHeight < NEAR_PX;
  }

  /** Whether the focus is in a field of a card. */
  #isWriting() {
    const active = document.activeElement;
    return this.list.contains(active) && active?.matches("input, textarea, select") === true;
  }

  /** Whether it is a question that waits. */
  #isOpen(key) {
    const item = this.store.items.get(key ?? "");
    return item?.kind === "question" && !item.resolved;
  }

  /** The first item on the screen, and where it stands. */
  #anchor() {
    const top = this.scroller.getBoundingClientRect().top;
    for (const node of this.list.children) {
      const box = node.getBoundingClientRect();
      if (box.bottom > top) return { node, offset: box.top - top };
    }
    return null;
  }

  /** @param {{node: Element, offset: number}} anchor */
  #restore({ node, offset }) {
    if (!node.isConnected) return;
    const now = node.getBoundingClientRect().top - this.scroller.getBoundingClientRect().top;
    if (Math.abs(now - offset) < 1) return;
    this.scroller.scrollTop += now - offset;
    this.#placedAt = this.scroller.scrollTop;
  }

  #scrolled() {
    if (this.#follow && Math.abs(this.scroller.scrollTop - this.#placedAt) < 2) return;
    const { scrollTop, scrollHeight, clientHeight } = this.scroller;
    const below = scrollHeight - scrollTop - clientHeight;
    this.#follow = this.#isAtEnd();
    this.#kept = this.#waiting();
    if (scrollTop < REACH_PX && !this.#window.isAtStart) this.#slide(-STEP);
    else if (scrollTop < NEAR_PX && this.store.more) this.loadEarlier();
    else if (below < REACH_PX && !this.#window.isAtEnd) this.#slide(STEP);
    this.on.moved(this.#follow);
  }
}
