/* The text box and what belongs to it: files, the list of commands, what waits to be sent, sending and stopping. */

import { h, replace, say } from "../dom.js";
import { icon } from "../icons.js";
import { Attaching } from "./attaching.js";
import { keepDraft, keptDraft } from "./drafts.js";
import { OfferList } from "./offer_list.js";
import { visibleProse } from "../visible.js";
import { Sending } from "./sending.js";

const MOST_ROWS = 10;
const PLACEHOLDER = "Ask for something, or type / for commands";

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
    this.offers = new OfferList(this.box, () => ctx.store.standing.tools, ctx.announce);
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

  shown() {
    this.draw();
    const idle = document.activeElement === document.body || document.activeElement?.id === "main";
    if (idle && matchMedia("(pointer: fine)").matches) this.focus();
  }

  hidden() {
    this.offers.close();
  }

  close() {
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
    say(this.hint, why || this.#said || this.#state(running));
    this.#grow();
    this.#drawQueue();
  }

  /** Why nothing can be sent at all; "" where something can. */
  #closedBecause() {
    const { store, session } = this.#ctx;
    if (!store.caughtUp) return "";
    if (session.state === "elsewhere") return "Read-only: another process runs this session.";
    if (session.state === "closed" || !session.answerable) return "Read-only: nobody runs this session.";
    if (store.standing.ended) return "The session has ended.";
    const once = store.standing.session?.mode === "single" && !store.prompt;
    if (once) return "This session answers once; it takes no more input.";
    return "";
  }

  /** @param {boolean} running */
  #state(running) {
    const { store } = this.#ctx;
    if (this.link.state === "over") return "Not connected.";
    if (this.link.state !== "here") return "Connecting… what you send waits.";
    if (store.openQuestions().length) return "Waiting for your answer.";
    if (this.sending.awaited) return "";
    return running ? "Working… what you send waits for its turn." : "";
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
    this.box.addEventListener("paste", (event) => this.#take(event, event.clipboardData));
    this.node.addEventListener("dragover", (event) => {
      event.preventDefault();
      this.node.classList.add("over");
    });
    this.node.addEventListener("dragleave", () => this.node.classList.remove("over"));
    this.node.addEventListener("drop", (event) => this.#take(event, event.dataTransfer));
  }

  /** @param {Event} event @param {DataTransfer | null} given */
  #take(event, given) {
    this.node.classList.remove("over");
    const files = [...(given?.files ?? [])];
    if (!files.length || this.#closedBecause()) return;
    event.preventDefault();
    this.files.add(files);
  }

  #grow() {
    if (CSS.supports("field-sizing", "content")) return;
    this.box.rows = Math.min(this.box.value.split("\n").length, MOST_ROWS);
  }

  #drawQueue() {
    const { queued } = this.sending;
    this.queue.hidden = !queued.length;
    if (!queued.length && !this.queue.hasChildNodes()) return;
    replace(
      this.queue,
      ...queued.map((one, index) =>
        h(
          "li",
          { class: "chip" },
          h("span", { class: "dim" }, "queued"),
          h("span", { class: "clamp" }, one.text || `${one.files.length} files`),
          h(
            "button",
            {
              class: "quiet",
              type: "button",
              "aria-label": "Do not send this",
              on: { click: () => this.sending.remove(index) },
            },
            icon("close"),
          ),
        ),
      ),
    );
  }
}
