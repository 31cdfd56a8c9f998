/* The inbox of a team: every open question of every session, oldest first, as the same cards that the conversation
   shows. The first answer counts; a card that somebody else answered says who it was, and stays until one leaves. */

import { approvalCard } from "../cards/approval_card.js";
import { formCard } from "../cards/form_card.js";
import { el, h, replace } from "../dom.js";
import { moment, oneLine } from "../format.js";
import { address } from "../router.js";
import { loading, nothing, problem, refreshed, sheet } from "./parts.js";

const LOOK_MS = 2000;
const VIEWER = "You are a viewer: you see what is asked. Operators and admins answer.";
const STARTER = "You started this session, and this call needs the answer of somebody else.";

/** What a card of the inbox is given: its session is another one each time. */
const contextFor = (ctx, { question, person, fourEyes }) => {
  const { session } = question;
  const isViewer = ctx.me.role === "viewer";
  const isStarter = fourEyes && person === ctx.me.person;
  return {
    ...ctx,
    session: {
      id: session,
      state: "live",
      answerable: !isViewer && !isStarter,
      why: isViewer ? "" : isStarter ? STARTER : undefined,
    },
    act: async (type, data) => {
      try {
        await ctx.api.post(ctx.api.path`/api/sessions/${session}/actions`, { type, data });
        return { ok: true };
      } catch (failure) {
        return { ok: false, problem: failure.problem, fields: failure.fields };
      }
    },
  };
};

/** How a question ended, as the record of its session would say it. */
const resolution = ({ state, person, door, answer }) => {
  if (state === "expired") return { approved: false, action: "cancel", by: "timeout", reason: "nobody answered in time" };
  if (state !== "answered") return { gone: true };
  const { approved, choice, args, reason, action = "accept" } = answer;
  return { approved: approved === true, action, by: `${person} (${door})`, choice, reason, edited: Boolean(args) };
};

const entry = (one, ctx) => {
  const { session, requestId, kind, asks, risk, since } = one.question;
  const title = oneLine(one.title) || `session ${oneLine(session.slice(0, 12))}`;
  const about = el("p.inbox-about",
    h("a", { href: address("chat", session) }, title),
    el("span.dim.small", `started by ${oneLine(one.person || "nobody known")} · asked `, moment(since)),
  );
  const item = { kind, key: requestId, requestId, asks: kind, state: "open", resolved: null, shown: { event: one.event, view: one.view } };
  const card = (kind === "approval" ? approvalCard : formCard)(item, contextFor(ctx, one));
  const node = h("li.inbox-entry", { dataset: { id: requestId, risk, asks } }, about, card.node);
  return { node, open: true, close: (resolved) => card.update({ ...item, state: "resolved", resolved }) };
};

export const page = (ctx) => {
  const list = h("ol.inbox-cards", { role: "list", "aria-label": "Open questions" });
  const state = el("div", loading());
  /** @type {Map<string, {node: HTMLElement, open: boolean, close: (resolved: any) => void}>} cards stay as they are
   * while others come and go */
  const shown = new Map();
  /** Nobody waits for it any more: says why, once. */
  const close = async (id, one) => {
    one.open = false;
    const found = await ctx.api.get(`/api/team/questions?prefix=${encodeURIComponent(id)}`).catch(() => null);
    const row = found?.rows[0];
    if (row?.state === "open") one.open = true;
    else one.close(row ? resolution(row) : { gone: true });
  };
  const draw = ({ questions, more }) => {
    const wanted = new Set(questions.map((one) => one.question.requestId));
    for (const [id, one] of shown) if (one.open && !wanted.has(id)) close(id, one);
    for (const one of questions) {
      const id = one.question.requestId;
      if (shown.get(id)?.open) continue;
      shown.get(id)?.node.remove(); // it is asked again
      shown.set(id, entry(one, ctx));
      list.append(shown.get(id)?.node ?? "");
    }
    const words = more ? "There are more; answer these first." : questions.length ? "" : "Nothing waits for an answer.";
    replace(state, words ? nothing(words) : null);
  };
  const facts = refreshed(() => ctx.api.get("/api/inbox"), draw, (failure) => replace(state, problem(failure)));
  facts.now();
  const timer = window.setInterval(() => document.hidden || facts.soon(), LOOK_MS);
  return {
    node: sheet("Inbox", null, ctx.me.role === "viewer" ? el("p.dim", VIEWER) : null, list, state),
    title: "Inbox",
    leave: () => {
      clearInterval(timer);
      facts.leave();
    },
  };
};
