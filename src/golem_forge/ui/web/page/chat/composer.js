/* The text box and what belongs to it: files, the list of commands, what waits to be sent, sending and stopping. */

import { h, replace, say } from "../dom.js";
import { dropZone } from "../dropping.js";
import { icon } from "../icons.js";
import { Attaching } from "./attaching.js";
import { closedBecause, standingWords } from "./composer_words.js";
import { keepDraft, keptDraft } from "./drafts.js";
import { KnownNames } from "./known_names.js";
import { OfferList } from "./offer_list.js";
import { queuedChips } from "./queued.js";
import { visibleProse } from "../visible.js";
import { Sending } from "./sending.js";

const MOST_ROWS = 10;
const PLACEHOLDER = "Ask, or type / for commands";

export class Composer {
  #ctx;
  #said = "";

  /** @param {any} ctx @param {import("../socket.js").Link} link */
  constructor(ctx, link) {
    this.#ctx = ctx;
    this.link = link;
    this.box = /** @type {HTMLTextAreaElement} */ (
      h("textarea", {
        rows: "1",
        "aria-label": "Message",
        "aria-describedby": "composer-hint",
        autocomplete: "off",
        spellcheck: "true",
      })
    );
    this.names = new KnownNames(ctx);
    this.offers = new OfferList(this.box, this.names, ctx.announce);
    this.files = new Attaching(ctx, () => this.draw());
    this.sending = new Sending(ctx, () => link.state, {
      changed: () => this.draw(),
      returned: (words, problem) => this.#returned(words, problem),
      said: (text) => this.#say(text),
    });
    this.queue = h("ul", { class: "queued", role: "list", "aria-label": "Waiting to be sent", hidden: true });
    this.hint = h("p", { class: "hint", id: "composer-hint" });
    this.attach = h(
      "button",
      {
        class: "quiet",
        type: "button",
        "aria-label": "Attach files",
        title: "Attach files",
        on: { click: () => this.files.pick() },
      },
      icon("clip"),
    );
    this.stop = h(
      "button",
      { class: "stop", type: "button", hidden: true, on: { click: () => this.sending.interrupt() } },
      icon("stop"),
      h("span", null, "Stop"),
    );
    this.send = h(
      "button",
      {
        class: "send",
        type: "button",
        "aria-label": "Send",
        title: "Send (Enter)",
        on: { click: () => this.#submit() },
      },
      icon("send"),
    );
    this.node = h(
      "div",
      { class: "composer" },
      this.queue,
      this.offers.node,
      h(
        "div",
        { class: "composer-box" },
        this.files.node,
        this.box,
        h("div", { class: "composer-row" }, this.attach, this.files.picker, this.hint, this.stop, this.send),
      ),
    );
    this.#listen();
    this.box.value = keptDraft(ctx.session.id);
    this.draw();
  }

  focus() {
    this.box.focus();
  }

  /** Text was typed at a card instead of an answer: it comes here. @returns {boolean} whether it can */
  takesStrayText() {
    if (this.box.disabled || !this.node.isConnected) return false;
    this.#say("What you type is here now; it answers nothing.");
    this.focus();
    return true;
  }

  /** @param {string} text as if it were typed */
  write(text) {
    this.box.setRangeText(text, this.box.selectionStart, this.box.selectionEnd, "end");
    this.box.dispatchEvent(new Event("input", { bubbles: true }));
  }

  shown() {
    this.draw();
    const idle = document.activeElement === document.body || document.activeElement?.id === "main";
    if (idle && matchMedia("(pointer: fine)").matches) this.focus();
  }

  hidden() {
    this.offers.close();
  }

  close() {
    this.names.close();
    keepDraft(this.#ctx.session.id, this.box.value);
  }

  /** @param {any} change */
  changed(change) {
    if (change.what === "prefill" && this.#ctx.store.caughtUp) this.#insert(change.text);
    else if (change.what === "prompt" || change.what === "caughtUp") this.sending.next();
    else if (change.what === "activity" || change.what === "question" || change.what === "standing") this.draw();
  }

  /** @param {string} state */
  linkChanged(state) {
    if (state === "here") this.sending.next();
    else this.draw();
  }

  draw() {
    const { store } = this.#ctx;
    const why = this.#closedBecause();
    this.box.disabled = Boolean(why);
    this.box.placeholder = why ? "" : PLACEHOLDER;
    this.node.classList.toggle("closed", Boolean(why));
    const running = store.running && this.#ctx.session.answerable;
    this.stop.hidden = !running;
    const empty = !this.box.value.trim() && !this.files.ready.length;
    /** @type {HTMLButtonElement} */ (this.send).disabled = Boolean(why) || empty || this.files.busy;
    /** @type {HTMLButtonElement} */ (this.attach).disabled = Boolean(why);
    const { awaited } = this.sending;
    say(this.hint, why || this.#said || standingWords(store, { link: this.link.state, awaited, running }));
    this.#grow();
    this.#drawQueue();
  }

  #closedBecause() {
    return closedBecause(this.#ctx.store, this.#ctx.session);
  }

  #submit() {
    const text = this.box.value;
    if (this.#closedBecause() || this.files.busy || (!text.trim() && !this.files.ready.length)) return;
    this.#said = "";
    if (!this.sending.put({ text, files: this.files.ready })) return this.#say("Too much waits to be sent already.");
    this.box.value = "";
    keepDraft(this.#ctx.session.id, "");
    this.offers.close();
    this.files.clear();
    this.draw();
  }

  /**
   * It was not sent: back to the person, before what they typed meanwhile.
   * @param {import("./sending.js").Words} words
   * @param {string} problem
   */
  #returned(words, problem) {
    this.box.value = [words.text, this.box.value].filter(Boolean).join("\n");
    this.files.restore(words.files);
    keepDraft(this.#ctx.session.id, this.box.value);
    if (problem) this.#say(problem);
    this.draw();
  }

  /** @param {string} text */
  #insert(text) {
    this.box.value = [this.box.value, text].filter(Boolean).join("\n");
    keepDraft(this.#ctx.session.id, this.box.value);
    const hidden = visibleProse(text) === text ? "" : " It holds characters that cannot be seen there.";
    this.#say(`A text was put into the box; send it, or change it first.${hidden}`);
  }

  /** @param {string} text */
  #say(text) {
    this.#said = text;
    this.#ctx.announce(text);
    this.draw();
  }

  #listen() {
    this.box.addEventListener("input", () => {
      this.#said = "";
      keepDraft(this.#ctx.session.id, this.box.value);
      this.offers.typed();
      this.draw();
    });
    this.box.addEventListener("blur", () => this.offers.close());
    this.box.addEventListener("keydown", (event) => {
      if (event.isComposing) return;
      if (this.offers.key(event)) event.preventDefault();
      else if (event.key === "Enter" && !event.shiftKey && !event.altKey && !event.ctrlKey && !event.metaKey) {
        event.preventDefault();
        this.#submit();
      }
    });
    this.box.addEventListener("paste", (event) => {
      const files = [...(event.clipboardData?.files ?? [])];
      if (!files.length || this.#closedBecause()) return;
      event.preventDefault();
      this.files.add(files);
    });
  }

  /** Files may be dropped anywhere on it. @param {HTMLElement} zone */
  takesDropsOn(zone) {
    dropZone(zone, {
      takes: () => !this.#closedBecause(),
      over: (isOver) => {
        this.node.classList.toggle("over", isOver);
        if (isOver) say(this.hint, "Drop the files here to send them along.");
        else this.draw();
      },
      take: (files) => this.files.add(files),
    });
  }

  #grow() {
    if (CSS.supports("field-sizing", "content")) return;
    this.box.rows = Math.min(this.box.value.split("\n").length, MOST_ROWS);
  }

  #drawQueue() {
    const { queued } = this.sending;
    this.queue.hidden = !queued.length;
    if (!queued.length && !this.queue.hasChildNodes()) return;
    replace(this.queue, ...queuedChips(queued, (index) => this.sending.remove(index)));
  }
}
