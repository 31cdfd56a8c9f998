/* An approval card: what is asked, everything it would do, and the answers. `approvalCard(item, ctx)`.

   What it says is built by the server (`ui/render/card.py`) and comes as sections in `view.card`; a long text stands
   in the event, in the member that its section names. The first answer closes the card, whoever gave it, and it says
   who. A card that comes again under its id (an edit was refused, more calls wait) keeps what was typed; one that is
   on its way stays so unless its edit was refused. Read-only sessions and replays show no button. */

import { path } from "../api.js";
import { diffView, parseDiff } from "./diff.js";
import { answerButton, moved, onPress } from "./guard.js";
import { approvalEnding, fieldErrors, isSameQuestion, questionShell, readOnly } from "./question_card.js";
import { el, h, replace, say } from "../dom.js";
import { objects, oneLine } from "../format.js";
import { isObject, pretty } from "../forms/arguments.js";
import { isShown } from "../fold/items.js";
import { formFor } from "../forms/form.js";
import { toolCard } from "./tool_card.js";
import { arrowKeys, disclosed, disclosure, literal } from "../widgets.js";

/** @typedef {{text: string, look: string, warning: string, note: string}} Row */
/** @typedef {{kind: string, title: string, text: string, member: string, rows: Row[]}} Section */
/** @typedef {{id: string, label: string, kept: string, rule: string}} Offer */

/** A card about a program's or a server's files: nothing to edit, nothing remembered but the trust. */
const isTrust = (request) => request.type === "trust";

/* Of a question that the server could not prepare. Nobody can agree to what they do not see. */
const NO_CARD = { title: "This question cannot be shown here; deny it, or answer it in the terminal", sections: [], offers: [] };

/** @returns {{title: string, sections: Section[], offers: Offer[]}} */
const cardOf = (shown) => shown.view?.card ?? NO_CARD;

/* How long there is to answer, once a second; it ends by itself when it is no longer on the page. */
const clock = (seconds) =>
  seconds >= 60 ? `${Math.floor(seconds / 60)} min ${String(seconds % 60).padStart(2, "0")} s` : `${seconds} s`;

/** @param {string} until ISO 8601 */
const countdown = (until) => {
  const end = Date.parse(until);
  const node = h("time", { datetime: until });
  let seen = false;
  const tick = () => {
    const left = Math.max(Math.ceil((end - Date.now()) / 1000), 0);
    say(node, Number.isNaN(end) ? `at ${until}` : left ? `in ${clock(left)}` : "now");
    seen ||= node.isConnected;
    if (left && (node.isConnected || !seen)) setTimeout(tick, 1000);
  };
  tick();
  return node;
};

/* Everything that is approved, literally, and why it is asked: the middle of an approval card.

   Threat: whoever wrote the arguments wants a yes. That nothing confines the call stands first; the literal part
   has a bar before each line; what the model says is quoted as the model's; nothing is cut at its end. */
const MOST_DIFF_ROWS = 40;

/** The question as it is, where the server sent it shortened. @returns {Promise<Record<string, any>>} */
const wholeQuestion = async (shown, ctx) => {
  const { seq, data } = shown.event;
  if (!shown.view?.cut) return data;
  const session = path`/api/sessions/${ctx.session.id}`;
  const open = ctx.api.get(`${session}${path`/questions/${data.requestId}`}`);
  const found = await open.catch((failure) => {
    if (failure?.status === 0) throw failure;
    return ctx.api.get(`${session}${path`/events/${seq}`}`); // answered already: as it was recorded
  });
  if (found?.event?.data?.requestId !== data.requestId) throw { problem: "The whole request could not be loaded." };
  return found.event.data;
};

const MARKS = { warn: "! ", fail: "✗ " };

/** What holds for a row besides its text. @param {Row} row */
const remarks = ({ warning, note }) => {
  const said = [warning ? el("span.fact-warn", warning) : null, note ? el("span.dim", note) : null].filter(Boolean);
  return said.length ? el("span", " (", said[0], said[1] ? [", ", said[1]] : null, ")") : null;
};

/** @param {Row} row */
const line = (row) =>
  h("li", { class: row.look ? `fact-${row.look}` : null },
    MARKS[row.look] ? h("span.fact-mark", { "aria-hidden": "true" }, MARKS[row.look]) : null,
    oneLine(row.text),
    remarks(row),
  );

/** The rows of a section; nothing where it has none. @param {Row[]} rows */
const lines = (rows, look = "") => (rows.length ? el(`ul.facts-lines${look}`, rows.map(line)) : null);

/** The text that a section names. @param {Section} section @param {Record<string, any>} request @returns {string} */
const textOf = ({ member }, request) => {
  const value = request[member] ?? "";
  return typeof value === "string" ? value : pretty(value);
};

/** What would run or change, literally. @param {Section} section */
const literalPart = (section, shown, ctx) => {
  const { data } = shown.event;
  const whole = shown.view?.cut ? async () => textOf(section, await wholeQuestion(shown, ctx)) : null;
  if (section.kind === "text") return literal(textOf(section, data), { label: "What would run, literally", whole });
  const root = isTrust(data) ? "" : "/"; // a program's files are named from its directory, all others by their zone
  return diffView(textOf(section, data), { most: MOST_DIFF_ROWS, whole, root });
};

/** How each kind of section is drawn. @type {Record<string, (section: Section, shown: any, ctx: any) => any>} */
const SECTIONS = {
  unconfined: ({ rows }) => el("ul.card-no-walls", rows.map(({ text }) => el("li", oneLine(text)))),
  text: literalPart,
  diff: literalPart,
  // one by one only where something holds for one and not for the others: the line itself stands above
  commands: ({ title, rows }) =>
    rows.some(remarks) &&
      el("div.card-segments",
        el("p.fact-name", title),
        el("ol", rows.map((row) => el("li", el("code", row.text), remarks(row)))),
      ),
  facts: ({ rows }) => [
    lines(rows.filter(({ look }) => look !== "said")),
    rows.filter(({ look }) => look === "said").map(({ text }) =>
      el("figure.card-note", el("figcaption", "the caller says"), el("blockquote", text)),
    ),
  ],
  warnings: ({ rows }) => lines(rows, ".card-warnings"),
  changed: (section, shown, ctx) =>
    el("div.card-changed", el("p.fact-warn", section.title), literalPart(section, shown, ctx)),
  arguments: (section, shown, ctx) =>
    section.member
      ? disclosed("All arguments",
          async () =>
            el("div",
              literal(textOf(section, await wholeQuestion(shown, ctx)), { label: "All arguments" }),
              lines(section.rows),
            ),
          { class: "small" },
        )
      : null,
  standing: ({ rows }) => lines(rows),
  deadline: ({ text }) => el("p.card-expires", "Without an answer Forge denies it ", countdown(text), "."),
  // a sentence stands for itself, as in the terminal
  why: ({ text }) => el("p.card-why", /^[A-Z].*\.$/.test(text) ? null : el("span.fact-name", "why asked: "), oneLine(text)),
};

/** What the server left out of many rows stands among them as words. @param {Row | string} row @returns {Row} */
const rowOf = (row) => (typeof row === "string" ? { text: row, look: "", warning: "", note: "" } : row);

/** What the literal part says already: the files of a diff. @param {any} shown @returns {Set<string>} */
const saidByDiff = ({ event }) => {
  const files = parseDiff(typeof event.data.diff === "string" ? event.data.diff : "");
  return new Set(files.filter(({ state }) => state !== "deleted").map(({ title }) => `write ${title}`));
};

/** @param {any} shown an `approvalRequired` @param {boolean} [open] whether it still waits for its answer */
const approvalFacts = (shown, ctx, open = true) => {
  const said = saidByDiff(shown);
  return cardOf(shown)
    .sections.filter(({ kind }) => Object.hasOwn(SECTIONS, kind) && (open || kind !== "deadline"))
    .map((section) => {
      const rows = section.rows.map(rowOf).filter((row) => !said.has(row.text) || row.warning || row.note);
      return SECTIONS[section.kind]({ ...section, rows }, shown, ctx);
    });
};

/* The answers of an approval card, in the order a keyboard meets them: Deny, Approve once, Approve and remember, Edit,
   Deny with a message, Stop the turn. They stay in view while the card is read. Each answers by its own press and by
   nothing else: no Enter in a field, no Esc. The choices to remember stand in a menu above the others; a message or an
   edit that is being written stands in their place, with Back.

   The shell sends what an answer says. What was typed stays when the card comes again. */
const MOST_REASON = 2000;
/** Until the feed has settled after a card grew. */
const SETTLED_MS = 50;
/** The form of a request that has none: its arguments as one JSON object. */
const WHOLE = {
  name: "arguments",
  label: "Arguments",
  type: "json",
  required: true,
  description: "all arguments as one JSON object",
};
let numbered = 0;

/** A choice says what it remembers, where, and as which rule. @param {Offer} offer */
const choiceButton = (offer, send) => {
  const node = el("button.choice",
    el("span.choice-label", el("span.unseen", "Approve and remember: "), oneLine(offer.label)),
    offer.rule ? el("code.choice-rule", offer.rule) : null,
    el("span.choice-kept", oneLine(offer.kept)),
  );
  onPress(node, () => send({ approved: true, choice: offer.id }));
  return el("li", node);
};

/** @param {any} shown @param {{send: (data: any) => void, refuse: (problem: string) => void}} shell
 * @param {() => Promise<Record<string, any>>} whole the request unshortened */
const approvalAnswer = (shown, { send, refuse }, whole, mayOffer) => {
  const request = shown.event.data;
  const panel = h("div.card-panel", { hidden: true });
  const ways = el("div.card-ways");
  let opener = null;
  let edit = null;

  const open = (node, by) => {
    opener = by;
    replace(panel, node);
    swap(true);
    setTimeout(() => panel.scrollIntoView({ block: "nearest" }), SETTLED_MS);
  };
  const close = () => {
    swap(false);
    replace(panel);
    opener?.focus();
  };
  const swap = (writing) => {
    panel.hidden = !writing;
    ways.hidden = writing;
    moved();
  };

  const reason = h("textarea.field-input", { rows: "3", maxlength: String(MOST_REASON), id: `reason-${++numbered}` });
  const denyPanel = el("div.card-deny",
    h("label.field-label", { for: reason.id }, "Why not? The model reads this."),
    reason,
    el("div.buttons",
      answerButton("Send denial",
        () => send({ approved: false, ...(reason.value.trim() ? { reason: reason.value.trim() } : {}) }),
        "primary",
      ),
      answerButton("Back", close),
    ),
  );

  const startEdit = async () => {
    if (edit) {
      open(edit.node, editButton);
      return edit.form.focus();
    }
    const given = await whole();
    const args = isObject(given.args) ? given.args : {};
    const hasFields = objects(given.fields).length > 0;
    const form = hasFields ? formFor(given.fields, args) : formFor([WHOLE], { arguments: args });
    const node = h("div.card-edit", { role: "group", "aria-label": "Edit the arguments" },
      el("p.fact-name", "Forge judges the changed call again before it runs."),
      form.node,
      el("div.buttons", answerButton("Approve with these arguments", sendEdit, "primary"), answerButton("Back", close)),
    );
    edit = { form, node, hasFields };
    open(node, editButton);
    form.focus();
  };
  const sendEdit = () => {
    const values = edit?.form.values();
    if (!edit || !values) return;
    const args = edit.hasFields ? values : values.arguments;
    if (!isObject(args)) return edit.form.showErrors({ arguments: "the arguments are one JSON object" });
    send({ approved: true, args });
  };
  const trust = isTrust(request);
  const offered = cardOf(shown);
  const deny = answerButton(trust ? "Do not trust" : "Deny", () => send({ approved: false }));
  const denyWith =
    trust || request.caller === "human"
      ? null
      : answerButton("Deny with a message…", () => (open(denyPanel, denyWith), reason.focus()), "quiet");
  const approve = answerButton(trust ? "Trust" : "Approve once", () => send({ approved: true }), "primary");
  const editButton = answerButton("Edit…",
    () => startEdit().catch((error) => refuse(error?.problem ?? "Not all of the arguments could be loaded.")),
    "quiet",
  );
  const choices = objects(offered.offers).filter(mayOffer).map((offer) => choiceButton(offer, send));
  const menu = h("div.choices-group", { role: "group", "aria-label": "Approve and remember", hidden: true },
    el("p.fact-name", "Approve this. From now on Forge does not ask for:"),
    el("ul.choices", choices),
  );
  const toggle = (wanted) => {
    menu.hidden = !wanted;
    remember.setAttribute("aria-expanded", String(wanted));
    moved();
    (wanted ? menu.querySelector("button") : remember)?.focus({ preventScroll: true });
    // the card from its beginning, so that there is room for the menu
    if (wanted) setTimeout(() => menu.closest("article")?.scrollIntoView({ block: "start" }), SETTLED_MS);
  };
  const remember = answerButton("Approve and remember…", () => toggle(menu.hidden));
  remember.setAttribute("aria-expanded", "false");
  arrowKeys(menu);
  menu.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    event.stopPropagation();
    toggle(false);
  });
  replace(ways,
    el("div.buttons", deny, ...(offered === NO_CARD ? [] : [approve, choices.length ? remember : null])),
    trust
      ? null
      : el("div.buttons.buttons-quiet",
          offered === NO_CARD ? null : editButton,
          denyWith,
          answerButton("Stop the turn", () => send({ approved: false, stop: true }), "quiet"),
        ),
    choices.length ? menu : null,
  );
  const node = el("div.card-answers", ways, panel);
  return {
    node,
    /** Errors of the last edit, at their fields. */
    showErrors: (now) => {
      if (!edit) return;
      const errors = fieldErrors(now);
      edit.form.showErrors(errors);
      if (Object.keys(errors).length && node.contains(document.activeElement)) edit.form.firstError()?.focus?.();
    },
    /** It was answered: what must not stay is emptied. */
    forget: () => edit?.form.forget(),
  };
};

const RISKS = new Set(["low", "medium", "high", "critical"]);

/** @returns {{node: HTMLElement, update: (item: any) => void, focus: () => void}} */
export const approvalCard = (item, ctx) => {
  const shell = questionShell("approval-card", item.requestId, ctx, "approvalResponse");
  let answers = null;
  /** @type {any} what is drawn: the question, or its resolution */
  let drawn = null;
  /** The call that was asked about, on the same line. @type {ReturnType<typeof toolCard> | null} */
  let call = null;
  /** @type {ReturnType<typeof disclosure> | null} */
  let asked = null;

  const title = () => {
    const { data } = item.shown.event;
    shell.node.dataset.risk = RISKS.has(data.risk) ? data.risk : "high";
    replace(shell.heading, cardOf(item.shown).title, el("span.card-risk", ` · risk ${oneLine(data.risk)}`));
  };
  const open = () => {
    const again = drawn !== null && drawn !== item.shown;
    if (again && isSameQuestion(drawn, item.shown)) drawn = item.shown;
    const changed = drawn !== item.shown;
    if (changed) {
      title();
      replace(shell.facts, approvalFacts(item.shown, ctx));
      drawn = item.shown;
    }
    if (!ctx.session?.answerable) {
      answers = null;
      return replace(shell.place, readOnly(ctx));
    }
    if (!answers) {
      // what counts beyond its session is an admin's to say on a team's page; the server refuses it too
      const mayOffer = ({ id }) => !ctx.me?.team || ctx.me.role === "admin" || String(id).endsWith(":session");
      answers = approvalAnswer(item.shown, shell, () => wholeQuestion(item.shown, ctx), mayOffer);
      shell.begin(answers.node);
    } else if (again && changed) {
      const refused = Object.keys(fieldErrors(item.shown.event.data)).length > 0;
      if (shell.isSending() && !refused) return;
      if (refused) shell.say("Nothing ran: the question came again with changes. Read the card once more.");
      shell.again();
      answers.showErrors(item.shown.event.data);
    }
  };
  const close = () => {
    drawn = item.resolved;
    title();
    answers?.forget();
    answers = null;
    shell.close(approvalEnding(cardOf(item.shown).offers, item.resolved, shell.sent));
    const all = () => el("div.card-facts", el("p", cardOf(item.shown).title), approvalFacts(item.shown, ctx, false));
    const { tool } = item.shown.event.data;
    const name = tool ? oneLine(tool) : cardOf(item.shown).title;
    asked = disclosure(el("span", "What was asked", el("span.asked-name", `: ${name}`)), all, { class: "small" });
    asked.button.setAttribute("aria-label", `What was asked: ${name}`);
    replace(shell.facts, asked.button, asked.region);
  };
  const joinCall = () => {
    const made = ctx.store?.callOf?.(item);
    if (call || !made || !isShown(made, ctx.level())) return made && call?.update(made);
    call = toolCard(made, ctx);
    const head = call.node.querySelector(".tool-head");
    // the line opens to both, but a change that was made stands there once
    head?.addEventListener("click", () => {
      const opened = head.getAttribute("aria-expanded") === "true";
      if (!opened || ctx.store.callOf(item)?.result?.view?.form !== "diff") asked?.set(opened);
    });
    shell.node.classList.add("with-call");
    shell.node.append(call.node);
  };
  shell.afterwards = close;
  const update = (now) => {
    item = now;
    if (!item.resolved) return open();
    if (drawn !== item.resolved) close();
    joinCall();
  };
  update(item);
  return { node: shell.node, update, focus: shell.focus };
};
