/* Sending what was typed: at once where input is awaited, else in order when it is. Commands go at once.

   As in the terminal: one text for each prompt, and after an interrupt what waited comes back to the person. */

import { randomId } from "../ids.js";
import { isCommand } from "./commands.js";
import { LEVELS } from "./levels.js";

const MOST_QUEUED = 100;

/** @typedef {{text: string, files: {digest: string, name: string}[]}} Words */

export class Sending {
  /** @type {Words[]} */
  queued = [];
  /** The prompt that was answered from here, until the server says so too. */
  #answered = "";

  /**
   * @param {any} ctx @param {() => string} link the state of the connection
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
    if (this.awaited && this.queued.length) this.#send(/** @type {Words} */ (this.queued.shift()));
    this.on.changed();
  }

  /** @param {number} index */
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

  /** @param {Words} words */
  async #send(words) {
    const { requestId } = this.ctx.store.prompt;
    this.#answered = requestId;
    const attachments = words.files.length ? { attachments: words.files } : {};
    const { ok, problem } = await this.ctx.act("userInput", { requestId, content: words.text, ...attachments });
    if (ok) return;
    if (this.#answered === requestId) this.#answered = "";
    this.on.returned(words, problem ?? "It was not taken.");
  }

  /** @param {Words} words */
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
    if (!ok) this.on.returned(words, problem ?? "The command was not taken.");
  }
}
