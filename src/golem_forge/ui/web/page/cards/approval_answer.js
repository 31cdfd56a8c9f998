/* The answers of an approval card, in the order a keyboard meets them: Deny, Deny with a message, Approve once, Edit,
   what may be remembered, Stop the turn. Each answers by its own press and by nothing else: no Enter in a
   field, no Esc. A message or an edit that is being written stands in the place of the others, with Back.

   The shell sends what an answer says. What was typed stays when the card comes again. */

import { h, replace } from "../dom.js";
import { formFor } from "../forms/form.js";
import { isObject } from "../forms/arguments.js";
import { fieldErrors, isTrust, keptWhere } from "./card_words.js";
import { moved, onPress } from "./guard.js";
import { objects, oneLine, words } from "./plain.js";

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

/** @param {string} words @param {() => void} act @param {string} [look] */
const button = (words, act, look = "") => {
  const node = h("button", { type: "button", class: look || null }, words);
  onPress(node, act);
  return node;
};

/**
 * A choice says what it remembers, where, and as which rule.
 * @param {Record<string, any>} choice @param {(data: any) => void} send
 */
const choiceButton = (choice, send) => {
  const node = h(
    "button",
    { type: "button", class: "choice" },
    h(
      "span",
      { class: "choice-label" },
      h("span", { class: "unseen" }, "Approve and remember: "),
      oneLine(choice.label ?? ""),
    ),
    choice.rule ? h("code", { class: "choice-rule" }, words(choice.rule)) : null,
    h("span", { class: "choice-kept" }, oneLine(keptWhere(choice))),
  );
  onPress(node, () => send({ approved: true, choice: choice.id }));
  return h("li", null, node);
};

/**
 * @param {Record<string, any>} request
 * @param {{send: (data: any) => void, refuse: (problem: string) => void}} shell
 * @param {() => Promise<Record<string, any>>} whole the request unshortened
 */
export const approvalAnswer = (request, { send, refuse }, whole) => {
  const panel = h("div", { class: "card-panel", hidden: true });
  const ways = h("div", { class: "card-answers" });
  /** @type {HTMLElement | null} */
  let opener = null;
  /** @type {{form: ReturnType<typeof formFor>, node: HTMLElement, hasFields: boolean} | null} */
  let edit = null;

  const open = (/** @type {HTMLElement} */ node, /** @type {HTMLElement} */ by) => {
    opener = by;
    replace(panel, node);
    swap(true);
  };
  const close = () => {
    swap(false);
    replace(panel);
    opener?.focus();
  };
  const swap = (/** @type {boolean} */ writing) => {
    panel.hidden = !writing;
    ways.hidden = writing;
    moved();
  };

  const reason = /** @type {HTMLTextAreaElement} */ (
    h("textarea", { class: "field-input", rows: "3", maxlength: String(MOST_REASON), id: `reason-${++numbered}` })
  );
  const denyPanel = h(
    "div",
    { class: "card-deny" },
    h("label", { for: reason.id, class: "field-label" }, "Why not? The model reads this."),
    reason,
    h(
      "div",
      { class: "buttons" },
      button(
        "Send denial",
        () => send({ approved: false, ...(reason.value.trim() ? { reason: reason.value.trim() } : {}) }),
        "danger",
      ),
      button("Back", close),
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
    const form = hasFields ? formFor(/** @type {any} */ (given.fields), args) : formFor([WHOLE], { arguments: args });
    const node = h(
      "div",
      { class: "card-edit", role: "group", "aria-label": "Edit the arguments" },
      h("p", { class: "fact-name" }, "What you change is judged again before it runs."),
      form.node,
      h(
        "div",
        { class: "buttons" },
        button("Approve with these arguments", sendEdit, "primary"),
        button("Back", close),
      ),
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
  const deny = button(trust ? "Do not trust" : "Deny", () => send({ approved: false }), "danger");
  const denyWith =
    trust || request.caller === "human"
      ? null
      : button("Deny with a message…", () => (open(denyPanel, /** @type {HTMLElement} */ (denyWith)), reason.focus()));
  const approve = button(trust ? "Trust" : "Approve once", () => send({ approved: true }), "primary");
  const editButton = button("Edit…", () =>
    startEdit().catch((error) => refuse(error?.problem ?? "The arguments could not be loaded whole.")),
  );
  const choices = objects(request.choices).map((choice) => choiceButton(choice, send));
  replace(
    ways,
    h("div", { class: "buttons" }, deny, denyWith, approve, trust ? null : editButton),
    choices.length
      ? h(
          "div",
          { class: "choices-group", role: "group", "aria-labelledby": `choices-${numbered}` },
          h("p", { class: "fact-name", id: `choices-${numbered}` }, "Approve and remember"),
          h("ul", { class: "choices" }, choices),
        )
      : null,
  );
  const node = h(
    "div",
    { class: "card-answers" },
    ways,
    panel,
    trust
      ? null
      : h(
          "div",
          { class: "buttons buttons-quiet" },
          button("Stop the turn", () => send({ approved: false, stop: true }), "quiet"),
        ),
  );
  return {
    node,
    /** Errors of the last edit, at their fields. @param {Record<string, any>} now */
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
