/* What approval cards and form cards have in common: their frame, and the way of an answer.

   Open → sending → closed, or open again with the problem. A press counts only while the card is open and nothing
   has just moved (guard.js). Who had the focus in the card keeps it there when the card closes. */

import { guarded, moved } from "./guard.js";
import { el, h, replace } from "../dom.js";
import { objects, words } from "../format.js";
import { remember, remembered } from "../storage.js";

/** The ids of the questions that this tab answered: after a reload it still is the window that did. */
const KEY = "forge.answered";
const MOST = 200;

const kept = () => {
  try {
    const found = JSON.parse(remembered(KEY, true) || "[]");
    return Array.isArray(found) ? found : [];
  } catch {
    return [];
  }
};

const wasAnsweredHere = (requestId) => kept().includes(requestId);

const noteAnswer = (requestId, answered) => {
  const others = kept().filter((one) => one !== requestId);
  remember(KEY, JSON.stringify(answered ? [...others, requestId].slice(-MOST) : others), true);
};

/** Those who answer without being a place. */
const OTHERS = {
  memory: "an earlier answer covered it",
  mode: "the approval mode answered",
  timeout: "",
  interrupt: "the turn was interrupted",
  nobody: "",
};

/** Where somebody of a team answered. */
const DOORS = { page: " on the page", attach: " in a terminal", cli: " with forge inbox", api: " through the API" };

/** Who or what ended a question; empty: this page did. @param {any} by @param {boolean} mine whether this page sent the answer */
export const place = (by, mine) => {
  if (Object.hasOwn(OTHERS, by)) return OTHERS[by];
  if (by === "browser") return mine ? "" : "answered in another browser window";
  const [, person, door] = /^(.+) \((\w+)\)$/.exec(by) ?? [];
  if (person) return `answered by ${words(person)}${DOORS[door] ?? ""}`;
  return by ? `answered in ${words(by)}` : "";
};

/** @param {{id: string, label: string, kept: string}[]} offers @param {Record<string, any>} resolved
 * @param {boolean} mine @returns {{text: string, approved: boolean}} */
export const approvalEnding = (offers, resolved, mine) => {
  if (resolved.gone) return { text: "Closed without an answer: the session does not wait for it any more", approved: false };
  const approved = resolved.approved === true;
  const reason = resolved.reason ? `: ${words(resolved.reason)}` : "";
  const chosen = approved ? offers.find(({ id }) => id === resolved.choice) : undefined;
  const parts = [
    approved ? "Approved" : "Denied",
    place(resolved.by, mine),
    resolved.edited ? "with changed arguments" : "",
    chosen ? `remembered${resolved.edited ? " for the changed arguments" : ` (${chosen.kept}): ${chosen.label}`}` : "",
  ];
  return { text: parts.filter(Boolean).join(" · ") + reason, approved };
};

const ENDINGS = { accept: "Sent", decline: "Declined", cancel: "Cancelled" };

/** @param {Record<string, any>} resolved @param {boolean} mine @returns {{text: string, approved: boolean}} */
export const formEnding = (resolved, mine) => {
  if (resolved.gone) return { text: "Closed without an answer: the session does not wait for it any more", approved: false };
  const said = ENDINGS[resolved.action] ?? "Closed";
  const by = resolved.by ? place(resolved.by, mine) : "answered elsewhere";
  return { text: mine ? said : `${said} · ${by}`, approved: resolved.action === "accept" };
};

const NOT_SENT = "The answer could not be sent. Try again.";
let numbered = 0;

/** @param {string} look @param {string} requestId @param {"approvalResponse" | "formResponse"} type of its answers */
export const questionShell = (look, requestId, ctx, type) => {
  const heading = h("h3.card-title", { id: `question-${++numbered}`, tabindex: "-1" });
  const facts = el("div.card-facts");
  const place = el("div.card-place");
  const said = el("div.card-said");
  const node = h("article", { class: look, "aria-labelledby": heading.id, dataset: { requestId, state: "open" } },
    heading,
    facts,
    place,
    said,
  );
  let state = "open";
  let unguard = () => {};
  const shell = {
    node,
    heading,
    facts,
    place,
    /** Whether this page sent the answer that counted, as far as is known. */
    sent: wasAnsweredHere(requestId),
    isSending: () => state === "sending",
    say: (text) => replace(said, text ? h("p.dim", { role: "status" }, text) : null),

    /** Answers may be pressed from now on. */
    begin: (answers) => {
      state = node.dataset.state = "open"; // it may have been closed, and is asked after all
      replace(said);
      replace(place, answers);
      unguard();
      unguard = guarded(node, place, showState);
      moved();
    },
    /** The card came again. */
    again: () => {
      if (state === "sending") Object.assign(shell, { sent: false });
      state = "open";
      moved();
    },
    send: async (data) => {
      if (state !== "open") return;
      state = "sending";
      shell.sent = true;
      noteAnswer(requestId, true);
      showState(true);
      shell.say("sending…");
      const answer = await ctx.act(type, { requestId, ...data })
        .catch((error) => ({ ok: false, problem: error?.problem }));
      if (answer?.ok) return;
      shell.sent = false;
      noteAnswer(requestId, false);
      shell.refuse(answer?.problem || NOT_SENT);
    },
    refuse: (problem) => {
      said.querySelector("[role=status]")?.remove();
      if (state !== "closed") {
        state = "open";
        showState(true);
      } else shell.afterwards?.();
      said.append(h("p.problem", { role: "alert" }, problem));
    },
    /** Draws the ending again, after an answer that came too late. @type {(() => void) | null} */
    afterwards: null,
    close: (/** @type {{text: string, approved: boolean}} */ { text, approved }) => {
      const hadFocus = node.contains(document.activeElement);
      if (state !== "closed") moved();
      state = "closed";
      node.dataset.state = approved ? "approved" : "denied";
      unguard();
      replace(place);
      const ending = h("p", { class: approved ? "ending ending-ok" : "ending ending-fail", tabindex: "-1" },
        h("span", { "aria-hidden": "true" }, approved ? "✓ " : "✗ "),
        text,
      );
      replace(said, ending);
      if (hadFocus) ending.focus({ preventScroll: true });
    },
    focus: () => {
      heading.focus({ preventScroll: true });
      node.scrollIntoView({ block: "nearest" });
    },
  };
  const showState = (ready) => {
    const idle = ready && state === "open";
    for (const one of place.querySelectorAll("button")) {
      if (idle) one.removeAttribute("aria-disabled");
      else one.setAttribute("aria-disabled", "true");
    }
    node.dataset.ready = String(idle);
  };
  return shell;
};

/** Problems of the last edit, by field. @param {Record<string, any>} request @returns {Record<string, string>} */
export const fieldErrors = (request) =>
  Object.fromEntries(
    objects(request.fields).filter((field) => field.error).map((field) => [words(field.name), words(field.error)]),
  );

/** Whether a question that came again is the one that is drawn: the page only connected anew. */
export const isSameQuestion = (drawn, shown) =>
  drawn?.event !== undefined &&
  JSON.stringify([drawn.event.data, drawn.view]) === JSON.stringify([shown.event.data, shown.view]);

/** Said instead of the answers; the inbox of a team says it once for all cards. */
export const readOnly = (ctx) =>
  ctx.session?.why === ""
    ? null
    : el("p.dim", ctx.session?.why ?? (ctx.me?.role === "viewer" ? VIEWER : "You can answer it only where the session runs."));

const VIEWER = "You are a viewer here: an operator or an admin answers it.";
