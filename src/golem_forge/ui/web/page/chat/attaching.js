/* Files that go with what is said: picked, dropped or pasted. Each is sent to the server at once and named by its
   digest. */

import { h, replace } from "../dom.js";
import { icon } from "../icons.js";
import { size } from "../side/words.js";

const MOST = 20;

/** @typedef {{name: string, size: number, digest: string, problem: string}} File_ */

export class Attaching {
  /** @type {File_[]} */
  #files = [];

  /** @param {any} ctx @param {() => void} changed */
  constructor(ctx, changed) {
    this.ctx = ctx;
    this.changed = changed;
    this.node = h("ul", { class: "attached", role: "list", "aria-label": "Attachments", hidden: true });
    this.picker = /** @type {HTMLInputElement} */ (
      h("input", { type: "file", multiple: true, hidden: true, "aria-label": "Files to attach" })
    );
    this.picker.addEventListener("change", () => {
      this.add([...(this.picker.files ?? [])]);
      this.picker.value = "";
    });
  }

  /** Whether some file is still on its way. */
  get busy() {
    return this.#files.some((file) => !file.digest && !file.problem);
  }

  /** What the next input names. @returns {{digest: string, name: string}[]} */
  get ready() {
    return this.#files.filter((file) => file.digest).map(({ digest, name }) => ({ digest, name }));
  }

  pick() {
    this.picker.click();
  }

  /** @param {File[]} files */
  add(files) {
    for (const file of files.slice(0, MOST - this.#files.length)) this.#send(file);
    if (files.length && this.#files.length >= MOST) this.ctx.announce(`At most ${MOST} files go with one message.`);
  }

  /** Gives them back, for a message that was not sent. @param {{digest: string, name: string}[]} ready */
  restore(ready) {
    this.#files.push(...ready.map(({ digest, name }) => ({ digest, name, size: 0, problem: "" })));
    this.#draw();
  }

  clear() {
    this.#files = [];
    this.#draw();
  }

  /** @param {File} file */
  async #send(file) {
    const one = { name: file.name || "pasted", size: file.size, digest: "", problem: "" };
    this.#files.push(one);
    this.#draw();
    const { api, session } = this.ctx;
    try {
      const where = `${api.path`/api/sessions/${session.id}/attachments`}?name=${encodeURIComponent(one.name)}`;
      const kept = await api.upload(where, file);
      Object.assign(one, { digest: kept.digest, name: kept.name });
    } catch (failure) {
      one.problem = /** @type {any} */ (failure).problem;
      this.ctx.announce(`${one.name}: ${one.problem}`, "assertive");
    }
    this.#draw();
  }

  #draw() {
    this.node.hidden = !this.#files.length;
    replace(
      this.node,
      ...this.#files.map((file) => {
        const remove = () => {
          this.#files = this.#files.filter((one) => one !== file);
          this.#draw();
        };
        return h(
          "li",
          { class: "chip", dataset: { state: file.problem ? "refused" : file.digest ? "ready" : "sending" } },
          icon("clip"),
          h("span", null, file.name, file.problem ? `: ${file.problem}` : ""),
          h(
            "span",
            { class: "dim" },
            file.problem ? "" : file.digest ? (file.size ? size(file.size) : "") : "sending…",
          ),
          h(
            "button",
            { class: "quiet", type: "button", "aria-label": `Remove ${file.name}`, on: { click: remove } },
            icon("close"),
          ),
        );
      }),
    );
    this.changed();
  }
}
