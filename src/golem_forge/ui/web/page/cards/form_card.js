/* A form that a server, or a command, wants filled in: who asks, what for, the fields, and Accept, Decline, Cancel.

   Threat: a server's words and link are a stranger's. Its name stands first, its link is shown whole with the host
   apart, and is opened only by the person, in a window that knows nothing of this one: https, or http on this
   machine. */

import { h, replace } from "../dom.js";
import { formFor } from "../forms/form.js";
import { fieldErrors, workerWords } from "./card_words.js";
import { onPress } from "./guard.js";
import { objects, oneLine, words } from "./plain.js";
import { isSameQuestion, questionShell, readOnly } from "./question_shell.js";
import { formEnding } from "./resolution.js";

const LOOPBACK = /^(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])$/;

/** A link a person may open; null: its words only. @param {string} text @returns {URL | null} */
export const openable = (text) => {
  try {
    const url = new URL(text);
    const safe = url.protocol === "https:" || (url.protocol === "http:" && LOOPBACK.test(url.hostname));
    return safe && !url.username && !url.password ? url : null;
  } catch {
    return null;
  }
};

/** @param {string} text */
const linkNode = (text) => {
  const url = openable(text);
  return h(
    "div",
    { class: "card-link" },
    url
      ? h("p", null, "It asks you to open a page of ", h("strong", null, url.host), ":")
      : h("p", { class: "fact-warn" }, "It names an address that is not opened from here:"),
    h("code", { class: "card-url" }, text),
    url
      ? h(
          "a",
          { href: url.href, target: "_blank", rel: "noopener noreferrer", class: "button" },
          `Open ${url.host} in a new window`,
        )
      : null,
  );
};

/** @param {any} item @param {any} ctx @returns {{node: HTMLElement, update: (item: any) => void, focus: () => void}} */
export const formCard = (item, ctx) => {
  const shell = questionShell("form-card", item.requestId, ctx, "formResponse");
  /** @type {ReturnType<typeof formFor> | null} */
  let form = null;
  /** @type {any} what is drawn: the question, or its resolution */
  let drawn = null;

  const accept = () => {
    const values = form?.values();
    if (values) shell.send({ action: "accept", values });
  };
  const button = (/** @type {string} */ label, /** @type {() => void} */ act, look = "") => {
    const one = h("button", { type: "button", class: look || null }, label);
    onPress(one, act);
    return one;
  };
  const answers = () =>
    h(
      "div",
      { class: "buttons" },
      button("Decline", () => shell.send({ action: "decline" })),
      button("Cancel", () => shell.send({ action: "cancel" }), "quiet"),
      button("Accept", accept, "primary"),
    );

  const open = () => {
    const { data } = item.shown.event;
    const again = drawn !== null && drawn !== item.shown;
    if (isSameQuestion(drawn, item.shown)) drawn = item.shown;
    if (drawn === item.shown && Boolean(form) === Boolean(ctx.session?.answerable)) return;
    drawn = item.shown;
    replace(shell.heading, titleOf(data));
    if (!ctx.session?.answerable) {
      form = null;
      replace(shell.place, readOnly());
      return replace(shell.facts, headOf(data));
    }
    const known = form;
    form ??= formFor(/** @type {any} */ (objects(data.fields)), {});
    replace(shell.facts, headOf(data), objects(data.fields).length ? form.node : null);
    if (!known) return shell.begin(answers());
    if (!again) return;
    shell.again();
    form.showErrors(fieldErrors(data));
  };
  const close = () => {
    drawn = item.resolved;
    form?.forget();
    form = null;
    replace(shell.heading, titleOf(item.shown.event.data));
    shell.close(formEnding(item.resolved, shell.sent));
    replace(shell.facts, headOf({ ...item.shown.event.data, url: "" }));
  };
  shell.afterwards = close;
  const update = (/** @type {any} */ now) => {
    item = now;
    if (!item.resolved) open();
    else if (drawn !== item.resolved) close();
  };
  update(item);
  return { node: shell.node, update, focus: shell.focus };
};

/** @param {any} data */
const titleOf = (data) => oneLine(data.title || `${words(data.source)} asks`);

/** @param {any} data */
const headOf = (data) => {
  const worker = workerWords(data);
  return [
    data.source && data.source !== "command" && !words(data.title).includes(words(data.source))
      ? h("p", { class: "fact-name" }, `from ${oneLine(data.source)}`)
      : null,
    data.message ? h("p", { class: "card-message" }, words(data.message)) : null,
    worker ? h("p", { class: "dim" }, worker) : null,
    data.url ? linkNode(words(data.url)) : null,
  ];
};
