/* Words of models and people. A stream grows block by block: what is finished stays as it is, so that it can be
   selected and read while the rest still arrives; the message that follows takes its place without a flicker. */

import { h, prose, replace, say, text, trusted } from "../dom.js";
import { icon } from "../icons.js";
import { clock, size } from "../side/words.js";

const ROLES = { user: "You", assistant: "Forge", system: "System" };

/** @param {any} item @param {any} ctx */
export const speechView = (item, ctx) => {
  const who = h("h3", { class: "unseen" });
  const thinking = thinkingView();
  const body = h("div", { class: "words" });
  const files = h("ul", { class: "attached", role: "list", "aria-label": "Attachments", hidden: true });
  const foot = h("p", { class: "said-at" });
  const node = h("article", { class: "speech" }, who, thinking.node, body, files, foot);
  const blocks = new Blocks(body);
  /** @param {any} now */
  const update = (now) => {
    const role = now.role ?? "assistant";
    node.dataset.role = role;
    node.classList.toggle("live", now.live === true);
    say(who, `${ctx.store.workerName(now.worker) || ROLES[/** @type {keyof typeof ROLES} */ (role)] || role}:`);
    thinking.update(now.thinking ?? "", now.live === true && !now.text);
    if (now.kind === "stream") blocks.stream(now.chunks, now.text);
    else blocks.whole(now.html, now.text);
    attached(files, now.attachments ?? []);
    drawFoot(foot, now, ctx);
  };
  update(item);
  return { node, update };
};

/** @param {any} item */
export const commandView = (item) => ({
  node: h(
    "article",
    { class: "speech command", dataset: { role: "user" } },
    h("h3", { class: "unseen" }, "Command:"),
    h("div", { class: "words mono" }, item.text),
  ),
  update: () => {},
});

class Blocks {
  /** @type {any[]} the pieces that were put in, in order */
  #applied = [];
  #shown = "";

  /** @param {HTMLElement} body */
  constructor(body) {
    this.body = body;
  }

  /** @param {{keep: number, html: string}[]} chunks @param {string} words for a stream without a view */
  stream(chunks, words) {
    if (!chunks.length) {
      if (words) replace(this.body, h("p", { class: "plain" }, prose(words)));
      return;
    }
    const known = chunks.findIndex((chunk, index) => chunk !== this.#applied[index]);
    if (known < 0 && chunks.length <= this.#applied.length) return;
    for (const chunk of chunks.slice(known < 0 ? this.#applied.length : known)) {
      while (this.body.children.length > chunk.keep) this.body.lastElementChild?.remove();
      this.body.append(...blocksOf(chunk.html));
    }
    this.#applied = [...chunks];
  }

  /** @param {string | null} html @param {string} words */
  whole(html, words) {
    const now = html ?? words;
    if (now === this.#shown) return;
    this.#shown = now;
    if (html === null) replace(this.body, words ? h("p", { class: "plain" }, prose(words)) : null);
    else this.#exchange(blocksOf(html));
  }

  /** Only the blocks that differ are exchanged: a selection in the others stays. @param {Element[]} wanted */
  #exchange(wanted) {
    const { body } = this;
    wanted.forEach((block, index) => {
      const now = body.children[index];
      if (!now) body.append(block);
      else if (!now.isEqualNode(block)) now.replaceWith(block);
    });
    while (body.children.length > wanted.length) body.lastElementChild?.remove();
  }
}

/** What may be wider than the page can be scrolled by keyboard too. @param {string} html @returns {Element[]} */
const blocksOf = (html) => {
  const made = trusted(html);
  for (const wide of made.querySelectorAll("pre, table")) wide.setAttribute("tabindex", "0");
  return [...made.children];
};

const thinkingView = () => {
  const title = h("summary", null, "Thinking");
  const shown = h("div", { class: "thought" });
  const node = h("details", { class: "thinking", hidden: true }, title, shown);
  let last = "";
  return {
    node,
    /** @param {string} words @param {boolean} live */
    update: (words, live) => {
      node.hidden = !words.trim();
      node.classList.toggle("live", live);
      say(title, live ? "Thinking…" : "Thought");
      if (words !== last) replace(shown, prose(words));
      last = words;
    },
  };
};

/** @param {HTMLElement} files @param {any[]} attachments */
const attached = (files, attachments) => {
  files.hidden = !attachments.length;
  if (files.children.length === attachments.length) return;
  replace(
    files,
    ...attachments
      .slice(0, 100)
      .map((one) =>
        h(
          "li",
          { class: "chip" },
          icon("clip"),
          one?.name ?? "file",
          one?.size ? h("span", { class: "dim" }, ` ${size(one.size)}`) : null,
        ),
      ),
  );
};

/** @param {HTMLElement} foot @param {any} now @param {any} ctx */
const drawFoot = (foot, now, ctx) => {
  foot.hidden = now.kind !== "message";
  if (foot.hidden || foot.childNodes.length) return;
  const copy = async () => {
    await navigator.clipboard?.writeText(now.text);
    ctx.announce("Copied");
  };
  const button = h(
    "button",
    { class: "quiet", type: "button", "aria-label": "Copy this message", title: "Copy", on: { click: copy } },
    icon("copy"),
  );
  replace(
    foot,
    h("time", { datetime: now.ts }, text(clock(now.ts))),
    now.role === "assistant" ? button : null,
    now.cut ? h("span", { class: "dim" }, "shortened here") : null,
  );
};
