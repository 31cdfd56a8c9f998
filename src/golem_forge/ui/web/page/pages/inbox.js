/* The inbox of a team: every open question of every session, oldest first, as the same cards that the conversation
   shows. The first answer counts; a card that somebody else answered says who it was, and stays until one leaves.
   Filters and pages keep it short; questions that ask for the same call can be answered together. */

import { approvalCard } from "../cards/approval_card.js";
import { formCard } from "../cards/form_card.js";
import { el, h, replace } from "../dom.js";
import { counted, moment, oneLine } from "../format.js";
import { address } from "../router.js";
import {
  actButton, confirmed, loading, nothing, problem, redraw, refreshed, saidPlace, searchBox, sheet,
} from "./parts.js";

const LOOK_MS = 2000;
const MOST_ALIKE = 200; // that one answer answers
const RISKS = [["", "Any risk"], ...["low", "medium", "high", "critical"].map((one) => [one, `${one} risk`])];
const AGES = [["", "Any age"], ["600", "Older than 10 minutes"], ["3600", "Older than an hour"], ["86400", "Older than a day"]];
const WHOSE = [["", "Everybody's sessions"], ["true", "Started by you"]];
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
    el("span.dim.small",
      one.project ? `${oneLine(one.project)} · ` : "",
      `started by ${oneLine(one.person || "nobody known")} · asked `,
      moment(since),
    ),
  );
  const together = el("div.row-acts.inbox-alike");
  const item = { kind, key: requestId, requestId, asks: kind, state: "open", resolved: null, shown: { event: one.event, view: one.view } };
  const card = (kind === "approval" ? approvalCard : formCard)(item, contextFor(ctx, one));
  const node = h("li.inbox-entry", { dataset: { id: requestId, risk, asks } }, about, card.node, together);
  return { node, together, open: true, close: (resolved) => card.update({ ...item, state: "resolved", resolved }) };
};

/** Which questions are wanted. @param {(chosen: Record<string, string>) => void} choose */
const filtersFor = (choose) => {
  const chosen = (name, label, options) => {
    const node = h("select.field-input", { "aria-label": label }, options.map(([value, words]) => h("option", { value }, words)));
    node.addEventListener("change", () => choose({ [name]: node.value }));
    return node;
  };
  const typed = (name, label) => {
    const node = searchBox(label, (value) => choose({ [name]: value }));
    node.classList.add("search-short");
    return node;
  };
  const project = chosen("project", "Project", []);
  const draw = (projects) => {
    const offered = [["", "All projects"], ...projects.map((one) => [one, oneLine(one)])];
    const { value } = project;
    redraw(project, offered, () => offered.map(([one, words]) => h("option", { value: one }, words)));
    project.value = value;
    project.hidden = projects.length < 2;
  };
  draw([]);
  const node = h("div.sheet-acts.inbox-filters", { role: "group", "aria-label": "Which questions" },
    searchBox("Search words, task, person", (words) => choose({ words })),
    chosen("mine", "Whose", WHOSE), project, chosen("risk", "Risk", RISKS), chosen("olderS", "Age", AGES),
    typed("worker", "Worker"), typed("tool", "Tool"),
  );
  return { node, draw };
};

/** Buttons that answer every question which asks for the same call; how many these are is looked up before. */
const togetherActs = ({ question, same }, number, ctx, said, changed) => {
  const answer = (approved, does) => async () => {
    const { rows } = await ctx.api.get(`/api/team/questions?${new URLSearchParams({ same, limit: String(MOST_ALIKE) })}`);
    const title = `${does} ${counted(rows.length, "question")}?`;
    const words = el("p", "They ask for the call of this card, with the same arguments, targets and difference. Each is answered in your name.");
    if (!(await confirmed({ title, words, yes: does, look: approved ? "primary" : "danger" }))) return null;
    const done = await ctx.api.post(ctx.api.path`/api/team/questions/${question.requestId}/answer-alike`, { approved });
    changed();
    const refused = done.rows.filter((one) => one.problem);
    const why = refused.length ? ` ${oneLine(refused[0].problem)}` : "";
    return `${done.rows.length - refused.length} of ${counted(done.rows.length, "question")} answered.${why}`;
  };
  return [
    el("span.dim.small", `${counted(number, "question")} here ask for the same call.`),
    actButton("Approve all of these…", answer(true, "Approve"), { said }),
    actButton("Deny all of these…", answer(false, "Deny"), { said }),
  ];
};

export const page = (ctx) => {
  const list = h("ol.inbox-cards", { role: "list", "aria-label": "Open questions" });
  const state = el("div", loading());
  const said = saidPlace();
  const foot = el("div.more");
  const isViewer = ctx.me.role === "viewer";
  /** @type {Map<string, {node: HTMLElement, together: HTMLElement, open: boolean, close: (resolved: any) => void}>} cards
   * stay as they are while others come and go */
  const shown = new Map();
  /** @type {Record<string, string>} */
  const asked = {};
  /** The last question of each page before this one. @type {string[]} */
  const before = [];
  const begin = () => {
    shown.clear();
    replace(list);
    replace(state, loading());
    facts.now();
  };
  const filters = filtersFor((chosen) => {
    Object.assign(asked, chosen);
    before.length = 0;
    begin();
  });
  const turn = (label, act) => actButton(label, async () => {
    act();
    begin();
  });
  /** Nobody waits for it any more: says why, once. */
  const close = async (id, one) => {
    one.open = false;
    const found = await ctx.api.get(`/api/team/questions?prefix=${encodeURIComponent(id)}`).catch(() => null);
    const row = found?.rows[0];
    if (row?.state === "open") one.open = true;
    else one.close(row ? resolution(row) : { gone: true });
  };
  const draw = ({ questions, more, projects }) => {
    filters.draw(projects);
    const wanted = new Set(questions.map((one) => one.question.requestId));
    for (const [id, one] of shown) if (one.open && !wanted.has(id)) close(id, one);
    for (const one of questions) {
      const id = one.question.requestId;
      if (shown.get(id)?.open) continue;
      shown.get(id)?.node.remove(); // it is asked again
      shown.set(id, entry(one, ctx));
      list.append(shown.get(id)?.node ?? "");
    }
    /** @type {Map<string, number>} */
    const alike = new Map();
    for (const { same } of questions) alike.set(same, (alike.get(same) ?? 0) + 1);
    for (const one of questions) {
      const number = one.same && !isViewer ? alike.get(one.same) ?? 0 : 0;
      const place = shown.get(one.question.requestId)?.together;
      if (place) redraw(place, number, () => (number > 1 ? togetherActs(one, number, ctx, said, () => facts.now()) : null));
    }
    const narrowed = before.length || Object.values(asked).some(Boolean);
    const none = narrowed ? "No open question fits." : "Nothing waits for an answer.";
    replace(state, questions.length ? null : nothing(none));
    const last = questions.at(-1)?.question.requestId;
    redraw(foot, [before.length, more && last], () => [
      before.length ? turn("Back to older questions", () => before.pop()) : null,
      more && last ? turn("Next questions", () => before.push(last)) : null,
    ]);
  };
  const wish = () => new URLSearchParams(Object.entries({ ...asked, after: before.at(-1) ?? "" }).filter(([, value]) => value));
  const facts = refreshed(() => ctx.api.get(`/api/inbox?${wish()}`), draw, (failure) => replace(state, problem(failure)));
  facts.now();
  const timer = window.setInterval(() => document.hidden || facts.soon(), LOOK_MS);
  return {
    node: sheet("Inbox", null, filters.node, isViewer ? el("p.dim", VIEWER) : null, said, list, state, foot),
    title: "Inbox",
    leave: () => {
      clearInterval(timer);
      facts.leave();
    },
  };
};
