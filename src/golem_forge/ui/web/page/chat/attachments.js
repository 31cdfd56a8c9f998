/* Files that go with what is said: picked, dropped or pasted. Each is sent to the server at once and named by its
   digest.

   Threat: a file that is dropped beside the box would be opened in place of the page, with its drafts and open
   cards. So a drop of files is never left to the browser. */

import { el, h, icon, replace } from "../dom.js";
import { size } from "../format.js";

const hasFiles = (event) => event.dataTransfer?.types.includes("Files") === true;

/** Whatever else is dropped (text into a field) is the browser's as ever. */
export const keepFromDrops = () => {
  window.addEventListener("dragover", (event) => {
    if (!hasFiles(event) || event.defaultPrevented) return;
    event.preventDefault();
    if (event.dataTransfer) event.dataTransfer.dropEffect = "none";
  });
  window.addEventListener("drop", (event) => {
    if (hasFiles(event)) event.preventDefault();
  });
};

/** @param {HTMLElement} zone
 * @param {{takes: () => boolean, over: (isOver: boolean) => void, take: (files: File[]) => void}} on */
export const dropZone = (zone, on) => {
  zone.addEventListener("dragover", (event) => {
    if (!hasFiles(event) || !on.takes()) return;
    event.preventDefault();
    on.over(true);
  });
  zone.addEventListener("dragleave", (event) => {
    if (!(event.relatedTarget instanceof Node && zone.contains(event.relatedTarget))) on.over(false);
  });
  zone.addEventListener("drop", (event) => {
    on.over(false);
    if (hasFiles(event) && on.takes()) on.take([...(event.dataTransfer?.files ?? [])]);
  });
};

const MOST = 20;

/** @typedef {{name: string, size: number, digest: string, problem: string}} File_ */

export class Attachments {
  /** @type {File_[]} */
  #files = [];

  constructor(ctx, changed) {
    this.ctx = ctx;
    this.changed = changed;
    this.node = h("ul.attached", { role: "list", "aria-label": "Attachments", hidden: true });
    this.picker = h("input", { type: "file", multiple: true, hidden: true, "aria-label": "Files to attach" });
    this.picker.addEventListener("change", () => {
      this.add([...(this.picker.files ?? [])]);
      this.picker.value = "";
    });
  }

  /** Whether some file is still on its way. */
  get busy() { return this.#files.some((file) => !file.digest && !file.problem); }

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
      one.problem = failure.problem;
      this.ctx.announce(`${one.name}: ${one.problem}`, "assertive");
    }
    this.#draw();
  }

  #draw() {
    this.node.hidden = !this.#files.length;
    replace(this.node,
      ...this.#files.map((file) => {
        const remove = () => {
          this.#files = this.#files.filter((one) => one !== file);
          this.#draw();
        };
        return h("li.chip", { dataset: { state: file.problem ? "refused" : file.digest ? "ready" : "sending" } },
          icon("clip"),
          el("span", file.name, file.problem ? `: ${file.problem}` : ""),
          el("span.dim", file.problem ? "" : file.digest ? (file.size ? size(file.size) : "") : "sending…"),
          h("button.quiet", { "aria-label": `Remove ${file.name}`, on: { click: remove } }, icon("close")),
        );
      }),
    );
    this.changed();
  }
}
