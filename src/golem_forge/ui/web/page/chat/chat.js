/* The conversation: the feed of items, a bar for questions out of sight, the way back to the end, and the composer. */

import { strayTextGoesTo } from "../cards/guard.js";
import { Composer } from "./composer.js";
import { emptyState, hasBegun } from "./empty.js";
import { Feed } from "./feed.js";
import { itemView } from "./item_view.js";
import { el, h, icon, replace, say } from "../dom.js";
import { questionKey } from "../fold/questions.js";

const PAGE = 200;

export class Chat {
  #ctx;
  #problem = "";
  #due = 0;

  /** @param {import("../socket.js").Link} link */
  constructor(ctx, link) {
    this.#ctx = ctx;
    this.list = h("ol.items", { role: "list" });
    this.more = h("button.earlier", { hidden: true, on: { click: () => this.feed.loadEarlier() } },
      "Show earlier events",
    );
    this.empty = emptyState(ctx, (text) => this.composer.suggest(text));
    this.scroller = h("div.scroller", { tabindex: "0", role: "region", "aria-label": "Conversation" },
      this.more,
      this.empty.node,
      this.list,
    );
    this.latest = h("button.latest", { hidden: true, on: { click: () => this.feed.toEnd() } },
      icon("down"),
      el("span", "Latest"),
    );
    this.waiting = h("div.out-of-sight", { hidden: true });
    this.composer = new Composer(ctx, link);
    this.node = el("div.chat",
      el("h2.unseen", "Conversation"),
      this.scroller,
      el("div.dock", this.latest, this.waiting, this.composer.node),
    );
    this.composer.takesDropsOn(this.node);
    this.feed = new Feed(this.scroller, this.list, ctx.store, {
      view: (item) => itemView(item, ctx),
      level: ctx.level,
      earlier: () => this.#earlier(),
      moved: (atEnd) => this.#moved(atEnd),
      ready: () => ctx.store.caughtUp,
      isEmpty: () => ctx.store.caughtUp && !hasBegun(ctx.store),
    });
    this.forget = [
      ctx.store.subscribe((change) => this.#changed(change)),
      ctx.settings.onLevel(() => this.feed.refilter()),
    ];
  }

  shown() {
    const { composer } = this;
    strayTextGoesTo(() => ({ focus: () => composer.takesStrayText(), insert: (text) => composer.write(text) }));
    this.feed.schedule();
    this.composer.shown();
  }

  hidden() {
    this.composer.hidden();
  }

  linkChanged(state) {
    this.composer.linkChanged(state);
  }

  close() {
    for (const forget of this.forget) forget();
    this.feed.close();
    this.composer.close();
  }

  /** Goes to a card and gives it the focus: only ever because somebody asked for it. */
  toQuestion(requestId) {
    const view = this.feed.show(questionKey(requestId));
    if (!view) return;
    view.node.classList.add("pointed");
    setTimeout(() => view.node.classList.remove("pointed"), 1200);
    if (view.focus) view.focus();
    else view.node.querySelector("button")?.focus();
  }

  #changed(change) {
    this.feed.changed(change);
    this.composer.changed(change);
    if (this.#due || (change.what === "standing" && this.empty.node.hidden)) return;
    this.#due = requestAnimationFrame(() => {
      this.#due = 0;
      this.#drawAround();
    });
  }

  #moved(atEnd) {
    this.latest.hidden = atEnd || this.feed.endsWithQuestionInView;
    this.#drawAround();
  }

  #drawAround() {
    const { store } = this.#ctx;
    this.more.hidden = !this.feed.hasEarlier;
    say(this.more, this.#problem || "Show earlier events");
    this.empty.node.hidden = !store.caughtUp || hasBegun(store);
    if (!this.empty.node.hidden) this.empty.draw();
    this.#drawWaiting();
  }

  /** A question that is not on the screen is pointed at, never scrolled to. */
  #drawWaiting() {
    const open = this.#ctx.store.openQuestions();
    const unseen = open.filter((one) => !this.feed.isInView(questionKey(one.requestId)));
    const oldest = this.#ctx.session.answerable ? unseen[0] : undefined;
    const asks = oldest?.shown.event.data;
    const words = !oldest ? "" : oldest.kind === "approval" ? `Approval needed: ${asks.tool}` : `${asks.source} asks`;
    const facts = `${words}\n${oldest?.requestId}\n${open.length}`;
    this.waiting.hidden = !oldest;
    if (this.waiting.dataset.facts === facts) return;
    this.waiting.dataset.facts = facts;
    if (!oldest) return;
    const go = h("button.primary", { on: { click: () => this.toQuestion(oldest.requestId) } }, "Go to it");
    replace(this.waiting, el("p", words, open.length > 1 ? el("span.dim", ` and ${open.length - 1} more`) : null), go);
  }

  async #earlier() {
    const { store, api, session } = this.#ctx;
    try {
      const page = await api.get(
        `${api.path`/api/sessions/${session.id}/events`}?before=${store.firstSeq}&limit=${PAGE}`,
      );
      store.takeEarlier(page.events ?? [], page.more === true && page.events?.length > 0);
      this.#problem = "";
    } catch (failure) {
      this.#problem = `${failure.problem} Try again.`;
    }
    this.#drawAround();
  }
}
