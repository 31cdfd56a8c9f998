/* An approval card: what is asked, everything it would do, and the answers. `approvalCard(item, ctx)`.

   The first answer closes it, whoever gave it, and it says who. A card that comes again under its id (an edit was
   refused, more calls wait) keeps what was typed; one that is on its way stays so unless its edit was refused.
   Read-only sessions and replays show no button. */

import { path } from "../api.js";
import {
  aboutLines, cardTitle, defaults, fieldErrors, isTrust, keptWhere, literalText, riskWords, segmentWords,
  standingLines, warningLines, whyWords,
} from "./approval_text.js";
import { diffView } from "./diff.js";
import { answerButton, moved, onPress } from "./guard.js";
import { approvalEnding, isSameQuestion, questionShell, readOnly } from "./question_card.js";
import { el, h, replace, say } from "../dom.js";
import { objects, oneLine, words } from "../format.js";
import { isObject, pretty } from "../forms/arguments.js";
import { formFor } from "../forms/form.js";
import { disclosed, literal } from "../widgets.js";

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

const line = (text, look, mark = "") =>
  h("li", { class: look }, mark ? h("span.fact-mark", { "aria-hidden": "true" }, mark) : null, oneLine(text));

const segments = (request) => {
  const all = objects(request.segments).map(segmentWords);
  if (all.length < 2 && !all.some((one) => one.dangers.length)) return null;
  const row = (/** @type {ReturnType<typeof segmentWords>} */ one) =>
    el("li",
      el("code", one.text),
      one.dangers.length ? el("span.fact-warn", ` ${one.dangers.join(", ")}`) : null,
      one.proven ? el("span.dim", " only reads") : null,
    );
  return el("div.card-segments",
    el("p.fact-name", all.length > 1 ? `${all.length} commands` : "the command"),
    el("ol", all.map(row)),
  );
};

/** What it would change, as a unified diff; "" where it is something else. */
const diffOf = (request) => {
  if (request.diff) return words(request.diff);
  const text = isTrust(request) ? literalText(request) : "";
  return text.startsWith("--- ") ? text : ""; // a program that is trusted anew: its files against those of then
};

const literalPart = (shown, ctx) => {
  const { data } = shown.event;
  const whole = (pick) => (shown.view?.cut ? async () => pick(await wholeQuestion(shown, ctx)) : null);
  const diff = diffOf(data);
  if (!diff) return literal(literalText(data), { label: "What would run, literally", whole: whole(literalText) });
  const root = isTrust(data) ? "" : "/"; // a program's files are named from its directory, all others by their zone
  return diffView(diff, ctx, { most: MOST_DIFF_ROWS, whole: whole(diffOf), root });
};

/** Every argument, and what the tool fills in. */
const allArguments = (shown, ctx) => {
  const { data } = shown.event;
  if (!data.diff && pretty(data.args ?? {}) === literalText(data)) return null;
  return disclosed("All arguments",
    async () => {
      const request = await wholeQuestion(shown, ctx);
      const filled = defaults(request).map(([name, value]) => el("li", `${name} = ${value} (default)`));
      return el("div",
        literal(pretty(request.args ?? {}), { label: "All arguments" }),
        filled.length ? el("ul.facts-lines", filled) : null,
      );
    },
    { class: "small" },
  );
};

/** @param {any} shown an `approvalRequired` @returns {Node[]} */
const approvalFacts = (shown, ctx) => {
  const request = shown.event.data;
  const risk = riskWords(request);
  const errors = Object.entries(fieldErrors(request));
  const warnings = [
    ...risk.others.map((reason) => line(reason, "fact-warn", "! ")),
    ...warningLines(request).map((warning) => line(warning, "fact-warn", "! ")),
    ...errors.map(([name, problem]) => line(`${name}: ${problem}`, "fact-fail", "✗ ")),
  ];
  const standing = standingLines(request).map(({ text, warn }) => line(text, warn ? "fact-warn" : "", warn ? "! " : ""),
  );
  const about = aboutLines(request).map((text) => line(text, ""));
  return [
    risk.noWalls.length ? el("ul.card-no-walls", risk.noWalls.map((reason) => line(reason, ""))) : null,
    literalPart(shown, ctx),
    segments(request),
    about.length ? el("ul.facts-lines", about) : null,
    request.modelNote
      ? el("figure.card-note", el("figcaption", "the caller says"), el("blockquote", words(request.modelNote)))
      : null,
    warnings.length ? el("ul.facts-lines.card-warnings", warnings) : null,
    request.changed
      ? el("div.card-changed",
          el("p.fact-warn", "the tool's definition changed:"),
          diffView(words(request.changed), ctx, {
            most: MOST_DIFF_ROWS,
            whole: shown.view?.cut ? async () => words((await wholeQuestion(shown, ctx)).changed) : null,
          }),
        )
      : null,
    allArguments(shown, ctx),
    standing.length ? el("ul.facts-lines", standing) : null,
    request.expiresAt
      ? el("p.card-expires", "Without an answer it is denied ", countdown(words(request.expiresAt)), ".")
      : null,
    el("p.card-why", el("span.fact-name", "why asked: "), oneLine(whyWords(request))),
  ].filter((node) => node !== null);
};

/* The answers of an approval card, in the order a keyboard meets them: Deny, Deny with a message, Approve once, Edit,
   what may be remembered, Stop the turn. Each answers by its own press and by nothing else: no Enter in a
   field, no Esc. A message or an edit that is being written stands in the place of the others, with Back.

   The shell sends what an answer says. What was typed stays when the card comes again. */
const MOST_REASON = 2000;
/** The form of a request that has none: its arguments as one JSON object. */
const WHOLE = {
  name: "arguments",
  label: "Arguments",
  type: "json",
  required: true,
  description: "all arguments as one JSON object",
};
let numbered = 0;

/** A choice says what it remembers, where, and as which rule. */
const choiceButton = (choice, send) => {
  const node = el("button.choice",
    el("span.choice-label", el("span.unseen", "Approve and remember: "), oneLine(choice.label ?? "")),
    choice.rule ? el("code.choice-rule", words(choice.rule)) : null,
    el("span.choice-kept", oneLine(keptWhere(choice))),
  );
  onPress(node, () => send({ approved: true, choice: choice.id }));
  return el("li", node);
};

/** @param {Record<string, any>} request @param {{send: (data: any) => void, refuse: (problem: string) => void}} shell
 * @param {() => Promise<Record<string, any>>} whole the request unshortened */
const approvalAnswer = (request, { send, refuse }, whole) => {
  const panel = h("div.card-panel", { hidden: true });
  const ways = el("div.card-answers");
  let opener = null;
  let edit = null;

  const open = (node, by) => {
    opener = by;
    replace(panel, node);
    swap(true);
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
        "danger",
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
      el("p.fact-name", "What you change is judged again before it runs."),
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
  const deny = answerButton(trust ? "Do not trust" : "Deny", () => send({ approved: false }), "danger");
  const denyWith =
    trust || request.caller === "human"
      ? null
      : answerButton("Deny with a message…", () => (open(denyPanel, denyWith), reason.focus()));
  const approve = answerButton(trust ? "Trust" : "Approve once", () => send({ approved: true }), "primary");
  const editButton = answerButton("Edit…", () =>
    startEdit().catch((error) => refuse(error?.problem ?? "The arguments could not be loaded whole.")),
  );
  const choices = objects(request.choices).map((choice) => choiceButton(choice, send));
  replace(ways,
    el("div.buttons", deny, denyWith, approve, trust ? null : editButton),
    choices.length > 0 &&
      h("div.choices-group", { role: "group", "aria-labelledby": `choices-${numbered}` },
        h("p.fact-name", { id: `choices-${numbered}` }, "Approve and remember"),
        el("ul.choices", choices),
      ),
  );
  const node = el("div.card-answers",
    ways,
    panel,
    trust
      ? null
      : el("div.buttons.buttons-quiet",
          answerButton("Stop the turn", () => send({ approved: false, stop: true }), "quiet"),
        ),
  );
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

  const title = () => {
    const { data } = item.shown.event;
    shell.node.dataset.risk = RISKS.has(data.risk) ? data.risk : "high";
    replace(shell.heading, cardTitle(data), el("span.card-risk", ` · risk ${oneLine(data.risk)}`));
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
      return replace(shell.place, readOnly());
    }
    if (!answers) {
      answers = approvalAnswer(item.shown.event.data, shell, () => wholeQuestion(item.shown, ctx));
      shell.begin(answers.node);
    } else if (again && changed) {
      const refused = Object.keys(fieldErrors(item.shown.event.data)).length > 0;
      if (shell.isSending() && !refused) return;
      if (refused) shell.say("Nothing ran: the card came again, look at what it says now.");
      shell.again();
      answers.showErrors(item.shown.event.data);
    }
  };
  const close = () => {
    const { data } = item.shown.event;
    drawn = item.resolved;
    title();
    answers?.forget();
    answers = null;
    shell.close(approvalEnding(data, item.resolved, shell.sent));
    const asked = { ...item.shown, event: { ...item.shown.event, data: { ...data, expiresAt: null } } };
    replace(shell.facts,
      disclosed("What was asked", () => el("div.card-facts", approvalFacts(asked, ctx)), { class: "small" }),
    );
  };
  shell.afterwards = close;
  const update = (now) => {
    item = now;
    if (!item.resolved) open();
    else if (drawn !== item.resolved) close();
  };
  update(item);
  return { node: shell.node, update, focus: shell.focus };
};
