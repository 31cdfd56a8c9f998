/* Words of models and people. A stream grows block by block: what is finished stays as it is, so that it can be
   selected and read while the rest still arrives; the message that follows takes its place without a flicker. */

import { randomId } from "../api.js";
import { el, h, icon, prose, replace, say, text, trusted } from "../dom.js";
import { clock, size } from "../format.js";
import { confirmed } from "../pages/parts.js";

const ROLES = { user: "You", assistant: "Forge", system: "System" };

export const speechView = (item, ctx) => {
  const who = el("h3.unseen");
  const thinking = thinkingView();
  const body = el("div.words");
  const files = h("ul.attached", { role: "list", "aria-label": "Attachments", hidden: true });
  const foot = el("p.said-at");
  const node = el("article.speech", who, thinking.node, body, files, foot);
  const blocks = new Blocks(body);
  const update = (now) => {
    const role = now.role ?? "assistant";
    node.dataset.role = role;
    node.classList.toggle("live", now.live === true);
    say(who, `${ctx.store.workerName(now.worker) || now.by || ROLES[role] || role}:`);
    thinking.update(now.thinking ?? "", now.live === true && !now.text);
    if (now.kind === "stream") blocks.stream(now.chunks, now.text);
    else blocks.whole(now.html, now.text);
    attached(files, now.attachments ?? []);
    drawFoot(foot, now, ctx);
  };
  update(item);
  return { node, update };
};

export const commandView = (item) => ({
  node: h("article.speech.command", { dataset: { role: "user" } },
    el("h3.unseen", "Command:"),
    el("div.words.mono", item.text),
  ),
  update: () => {},
});

class Blocks {
  /** @type {any[]} the pieces that were put in, in order */
  #applied = [];
  #shown = "";

  constructor(body) {
    this.body = body;
  }

  /** @param {{keep: number, html: string}[]} chunks @param {string} words for a stream without a view */
  stream(chunks, words) {
    if (!chunks.length) {
      if (words) replace(this.body, el("p.plain", prose(words)));
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

  whole(html, words) {
    const now = html ?? words;
    if (now === this.#shown) return;
    this.#shown = now;
    if (html === null) replace(this.body, words ? el("p.plain", prose(words)) : null);
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
  const title = el("summary", "Thinking");
  const shown = el("div.thought");
  const node = h("details.thinking", { hidden: true }, title, shown);
  let last = "";
  return {
    node,
    update: (words, live) => {
      node.hidden = !words.trim();
      node.classList.toggle("live", live);
      say(title, live ? "Thinking…" : "Thought");
      if (words !== last) replace(shown, prose(words));
      last = words;
    },
  };
};

const attached = (files, attachments) => {
  files.hidden = !attachments.length;
  if (files.children.length === attachments.length) return;
  replace(files,
    ...attachments.slice(0, 100).map((one) =>
      el("li.chip", icon("clip"), one?.name ?? "file", one?.size ? el("span.dim", ` ${size(one.size)}`) : null),
    ),
  );
};

/** Which message of the person it is, counted from the first one of the session; 0: nobody here knows. */
const turnOf = (item, { store }) => {
  if (store.more) return 0;
  const own = [...store.items.values()].filter((one) => one.kind === "message" && one.role === "user" && !store.workerDepth(one.worker));
  return own.findIndex((one) => one.key === item.key) + 1;
};

const mayRewind = (item, ctx) =>
  Boolean(ctx.session?.answerable) && !ctx.me?.team && !ctx.store.workerDepth(item.worker);

/** Back to before a message: the words come into the text box again, the files go back as far as they can. */
const rewindButton = (item, ctx) => {
  const ask = async () => {
    const turn = turnOf(item, ctx);
    if (!turn) return ctx.announce("Earlier messages are not here yet: scroll up, or type /rewind.");
    const what = h("select.field-input", { "aria-label": "What goes back" },
      [["both", "The conversation and the files"], ["conversation", "Only the conversation"], ["files", "Only the files"]]
        .map(([value, words]) => h("option", { value }, words)),
    );
    const words = el("div", el("p", "What was said and done since then goes back. Forge shows the files first."), what);
    const sure = await confirmed({ title: "Go back to before this message?", words, yes: "Rewind", look: "primary" });
    if (sure) await ctx.act("command", { requestId: randomId(), text: `/rewind ${turn} ${what.value}` });
    return null;
  };
  const label = "Rewind to before this message";
  return h("button.quiet.small", { "aria-label": label, title: label, on: { click: ask } }, "Rewind");
};

const drawFoot = (foot, now, ctx) => {
  foot.hidden = now.kind !== "message";
  if (foot.hidden || foot.childNodes.length) return;
  const copy = async () => {
    await navigator.clipboard?.writeText(now.text);
    ctx.announce("Copied");
  };
  const button = h("button.quiet", { "aria-label": "Copy this message", title: "Copy", on: { click: copy } },
    icon("copy"),
  );
  replace(foot,
    now.by ? el("span.said-by", now.by) : null,
    h("time", { datetime: now.ts }, text(clock(now.ts))),
    now.role === "assistant" ? button : null,
    now.role === "user" && mayRewind(now, ctx) ? rewindButton(now, ctx) : null,
    now.cut ? el("span.dim", "shortened here") : null,
  );
};
