/* The text box and what belongs to it: files, the list of commands, what waits to be sent, sending and stopping. */

import { randomId } from "../api.js";
import { Attachments, dropZone } from "./attachments.js";
import { isCommand, KnownNames, OfferList } from "./completion.js";
import { el, h, icon, replace, say } from "../dom.js";
import { LEVELS } from "../fold/items.js";
import { remember, remembered } from "../storage.js";
import { visibleProse } from "../visible.js";

/* Sends what was typed: at once where input is awaited, else in order when it is. Commands go at once.

   As in the terminal: one text for each prompt, and after an interrupt what waited comes back to the person. */
const MOST_QUEUED = 100;

/** @typedef {{text: string, files: {digest: string, name: string}[]}} Words */

class SendQueue {
  /** @type {Words[]} */
  queued = [];
  /** The prompt that was answered from here, until the server says so too. */
  #answered = "";

  /**
   * @param {() => string} link the state of the connection
   * @param {{changed: () => void, returned: (words: Words, problem: string) => void, said: (text: string) => void}} on
   */
  constructor(ctx, link, on) {
    this.ctx = ctx;
    this.link = link;
    this.on = on;
  }

  /** @returns {boolean} whether input is awaited now, and can reach who awaits it */
  get awaited() {
    const { store } = this.ctx;
    return this.link() === "here" && store.prompt !== null && store.prompt.requestId !== this.#answered;
  }

  /** @param {Words} words @returns {boolean} whether they were taken */
  put(words) {
    if (isCommand(words.text) && !words.files.length) {
      this.#command(words);
      return true;
    }
    if (this.queued.length >= MOST_QUEUED) return false;
    this.queued.push(words);
    this.next();
    return true;
  }

  /** Sends the first that waits, if somebody awaits it. */
  next() {
    if (this.awaited && this.queued.length) this.#send(this.queued.shift());
    this.on.changed();
  }

  remove(index) {
    this.queued.splice(index, 1);
    this.on.changed();
  }

  /** Ends the turn. What waited comes back: after an interrupt the person decides anew. */
  async interrupt() {
    const waiting = this.queued.splice(0);
    if (waiting.length)
      this.on.returned(
        { text: waiting.map((one) => one.text).join("\n"), files: waiting.flatMap((one) => one.files) },
        "",
      );
    const { ok, problem } = await this.ctx.act("interrupt", { reason: "user" });
    if (!ok) this.on.said(problem ?? "It could not be stopped.");
    this.on.changed();
  }

  async #send(words) {
    const { requestId } = this.ctx.store.prompt;
    this.#answered = requestId;
    const attachments = words.files.length ? { attachments: words.files } : {};
    const { ok, problem } = await this.ctx.act("userInput", { requestId, content: words.text, ...attachments });
    if (ok) return;
    if (this.#answered === requestId) this.#answered = "";
    this.on.returned(words, problem ?? "The server did not accept it.");
  }

  async #command(words) {
    const [name, level, ...more] = words.text.trim().toLowerCase().split(/\s+/);
    const { settings } = this.ctx;
    if (name === "/trace" && level === undefined)
      return this.on.said(`Trace level: ${settings.level} (${LEVELS.join(", ")})`);
    if (name === "/trace" && LEVELS.includes(level) && !more.length) {
      settings.setLevel(level); // the level is this page's own: nobody else knows it
      return this.on.said(`Trace level: ${level}`);
    }
    const { ok, problem } = await this.ctx.act("command", { requestId: randomId(), text: words.text });
    if (!ok) this.on.returned(words, problem ?? "The server did not accept the command.");
  }
}

/* What stands below the text box: why nothing can be sent, or what becomes of what is sent. Pure. */
/** Why nothing can be sent at all; "" where something can. @param {import("../store.js").SessionStore} store */
function closedBecause(store, session, me) {
  if (!store.caughtUp) return "";
  if (me?.team && session.state === "closed") return "The session has ended.";
  if (me?.role === "viewer") return "You are a viewer: you see this session, and operators write to it.";
  if (session.state === "elsewhere") return "Read-only: another process runs this session.";
  if (session.state === "closed" || !session.answerable) return "Read-only: this session does not run.";
  if (store.standing.ended) return "The session has ended.";
  const once = store.standing.session?.mode === "single" && !store.prompt;
  if (once) return "This session answers once; it takes no more input.";
  return "";
}

/** @param {import("../store.js").SessionStore} store @param {{link: string, awaited: boolean, running: boolean}} now */
function standingWords(store, { link, awaited, running }) {
  if (link === "over") return "Not connected.";
  if (link !== "here") return "Connecting… what you send waits.";
  if (store.openQuestions().length) return "Waiting for your answer.";
  if (awaited) return "";
  return running ? "Working… what you send waits for its turn." : "";
}

/* What waits to be sent, as chips above the text box; each can be taken back. */
/** @param {Words[]} queued @param {(index: number) => void} remove */
function queuedChips(queued, remove) {
  return queued.map((one, index) =>
    el("li.chip",
      el("span.dim", "queued"),
      el("span.clamp", one.text || `${one.files.length} files`),
      h("button.quiet", { "aria-label": "Do not send this", on: { click: () => remove(index) } }, icon("close")),
    ),
  );
}

/* Drafts: what was typed and not sent, by session, in this tab only, until the browser is signed out. A line of a
   command is not kept: it may hold a secret. */
const MOST = 100_000;
const key = (session) => `forge.draft.${session}`;

const keptDraft = (session) => remembered(key(session), true);

/** The person signs out: the next one at this tab finds nothing of theirs. */
export const forgetDrafts = () => {
  try {
    for (const name of Object.keys(sessionStorage)) if (name.startsWith(key(""))) sessionStorage.removeItem(name);
  } catch {
    /* no storage: there is nothing */
  }
};

const keepDraft = (session, text) =>
  remember(key(session), !text || text.length > MOST || isCommand(text) ? null : text, true);

const MOST_ROWS = 10;
const PLACEHOLDER = "Ask, type / for commands, @ for files";
const TEAM_PLACEHOLDER = "Write the next message";

export class Composer {
  #ctx;
  #said = "";

  /** @param {import("../socket.js").Link} link */
  constructor(ctx, link) {
    this.#ctx = ctx;
    this.link = link;
    this.box = h("textarea", {
      rows: "1",
      "aria-label": "Message",
      "aria-describedby": "composer-hint",
      autocomplete: "off",
      spellcheck: "true",
    });
    this.names = new KnownNames(ctx);
    this.offers = new OfferList(this.box, this.names, ctx.announce);
    this.files = new Attachments(ctx, () => this.draw());
    this.sending = new SendQueue(ctx, () => link.state, {
      changed: () => this.draw(),
      returned: (words, problem) => this.#returned(words, problem),
      said: (text) => this.#say(text),
    });
    this.queue = h("ul.queued", { role: "list", "aria-label": "Waiting to be sent", hidden: true });
    this.hint = h("p.hint", { id: "composer-hint" });
    this.attach = h("button.quiet",
      { "aria-label": "Attach files", title: "Attach files", on: { click: () => this.files.pick() } },
      icon("clip"),
    );
    this.stop = h("button.stop", { hidden: true, on: { click: () => this.sending.interrupt() } },
      icon("stop"),
      el("span", "Stop"),
    );
    this.send = h("button.send", { "aria-label": "Send", title: "Send (Enter)", on: { click: () => this.#submit() } },
      icon("send"),
    );
    this.node = el("div.composer",
      this.queue,
      this.offers.node,
      el("div.composer-box",
        this.files.node,
        this.box,
        el("div.composer-row", this.attach, this.files.picker, this.hint, this.stop, this.send),
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
    this.#say("You type into this box now; it does not answer the card.");
    this.focus();
    return true;
  }

  /** @param {string} text as if it were typed */
  write(text) {
    this.box.setRangeText(text, this.box.selectionStart, this.box.selectionEnd, "end");
    this.box.dispatchEvent(new Event("input", { bubbles: true }));
  }

  /** @param {string} text an example: it waits in the box until the person sends it */
  suggest(text) {
    this.box.value = "";
    this.write(text);
    this.focus();
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

  changed(change) {
    if (change.what === "prefill" && this.#ctx.store.caughtUp) this.#insert(change.text);
    else if (change.what === "prompt" || change.what === "caughtUp") this.sending.next();
    else if (change.what === "activity" || change.what === "question" || change.what === "standing") this.draw();
  }

  linkChanged(state) {
    if (state === "here") this.sending.next();
    else this.draw();
  }

  draw() {
    const { store } = this.#ctx;
    const why = this.#closedBecause();
    this.box.disabled = Boolean(why);
    this.box.placeholder = why ? "" : this.#ctx.me?.team ? TEAM_PLACEHOLDER : PLACEHOLDER;
    this.node.classList.toggle("closed", Boolean(why));
    const running = store.running && this.#ctx.session.answerable;
    this.stop.hidden = !running;
    const empty = !this.box.value.trim() && !this.files.ready.length;
    this.send.disabled = Boolean(why) || empty || this.files.busy;
    this.attach.disabled = Boolean(why);
    this.attach.hidden = this.#ctx.me?.team === true; // a session of the store takes no files
    const { awaited } = this.sending;
    say(this.hint, why || this.#said || standingWords(store, { link: this.link.state, awaited, running }));
    this.#grow();
    this.#drawQueue();
  }

  #closedBecause() {
    return closedBecause(this.#ctx.store, this.#ctx.session, this.#ctx.me);
  }

  #submit() {
    const text = this.box.value;
    if (this.#closedBecause() || this.files.busy || (!text.trim() && !this.files.ready.length)) return;
    this.#said = "";
    if (!this.sending.put({ text, files: this.files.ready })) return this.#say("Too many messages wait already; send this one later.");
    this.box.value = "";
    keepDraft(this.#ctx.session.id, "");
    this.offers.close();
    this.files.clear();
    this.draw();
  }

  /** It was not sent: back to the person, before what they typed meanwhile. */
  #returned(words, problem) {
    this.box.value = [words.text, this.box.value].filter(Boolean).join("\n");
    this.files.restore(words.files);
    keepDraft(this.#ctx.session.id, this.box.value);
    if (problem) this.#say(problem);
    this.draw();
  }

  #insert(text) {
    this.box.value = [this.box.value, text].filter(Boolean).join("\n");
    keepDraft(this.#ctx.session.id, this.box.value);
    const hidden = visibleProse(text) === text ? "" : " It has invisible characters.";
    this.#say(`A text was put into the box; send it, or change it first.${hidden}`);
  }

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
      if (!files.length || this.#closedBecause() || this.#ctx.me?.team) return;
      event.preventDefault();
      this.files.add(files);
    });
  }

  /** Files may be dropped anywhere on it. */
  takesDropsOn(zone) {
    dropZone(zone, {
      takes: () => !this.#closedBecause() && !this.#ctx.me?.team,
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
