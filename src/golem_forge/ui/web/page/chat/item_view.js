/* One item of the conversation as an element: who speaks and how deep it stands, around what it is.

   `itemView(item, ctx)` gives `{node, update, focus?}`; the replay shows the same views. A view that cannot be drawn
   says so and leaves the others standing. */

import { approvalCard } from "../cards/approval_card.js";
import { formCard } from "../cards/form_card.js";
import { toolCard } from "../cards/tool_card.js";
import { h, replace, say } from "../dom.js";
import { endedView, noticeView, statusView } from "./notices.js";
import { rawEvents } from "./raw_events.js";
import { commandView, speechView } from "./speech.js";

/** @typedef {{node: Node, update: (item: any) => void, focus?: () => void}} Inner */

/** @type {Record<string, (item: any, ctx: any) => Inner>} */
const VIEWS = {
  message: speechView,
  stream: speechView,
  command: commandView,
  call: toolCard,
  question: (item, ctx) => (item.asks === "form" ? formCard : approvalCard)(item, ctx),
  status: statusView,
  notice: noticeView,
  ended: endedView,
};

/**
 * @param {any} item
 * @param {any} ctx
 * @returns {{node: HTMLElement, update: (item: any) => void, focus?: () => void}}
 */
export const itemView = (item, ctx) => {
  const inner = drawn(item, ctx);
  const tag = h("p", { class: "tag", hidden: true });
  const raw = ctx.level() === "debug" ? rawEvents(item, ctx) : null;
  const node = h("li", { class: `item item-${item.kind}`, dataset: { key: item.key } }, tag, inner.node, raw?.node);
  /** @param {any} now */
  const dress = (now) => {
    const name = ctx.store.workerName(now.worker);
    tag.hidden = !name || now.kind === "notice";
    if (name) say(tag, name);
    node.dataset.voice = tag.hidden ? `${now.kind}:` : name;
    node.dataset.kind = now.kind;
    if (now.role) node.dataset.role = now.role;
    node.dataset.depth = String(Math.min(ctx.store.workerDepth(now.worker) + (now.depth ?? 0), 6));
    node.classList.toggle("waits", now.kind === "question" && !now.resolved);
  };
  dress(item);
  return {
    node,
    update: (now) => {
      guarded(inner, now);
      dress(now);
      raw?.update(now);
    },
    focus: inner.focus ? () => inner.focus?.() : undefined,
  };
};

/** @param {any} item @param {any} ctx @returns {Inner} */
const drawn = (item, ctx) => {
  try {
    return VIEWS[item.kind](item, ctx);
  } catch (failure) {
    console.error(failure);
    return { node: broken(), update: () => {} };
  }
};

/** @param {Inner} inner @param {any} item */
const guarded = (inner, item) => {
  try {
    inner.update(item);
  } catch (failure) {
    console.error(failure);
    if (inner.node instanceof HTMLElement) replace(inner.node, broken());
  }
};

const broken = () => h("p", { class: "broken" }, "This could not be drawn. The event itself is in the journal.");
