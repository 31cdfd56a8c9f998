/* A form that a server, or a command, wants filled in: who asks, what for, the fields, and Accept, Decline, Cancel.

   Threat: a server's words and link are a stranger's. Its name stands first, its link is shown whole with the host
   apart, and is opened only by the person, in a window that knows nothing of this one: https, or http on this
   machine. */

import { answerButton } from "./guard.js";
import { fieldErrors, formEnding, isSameQuestion, questionShell, readOnly } from "./question_card.js";
import { el, h, replace } from "../dom.js";
import { objects, oneLine, words } from "../format.js";
import { formFor } from "../forms/form.js";

const LOOPBACK = /^(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])$/;

/** A link a person may open; null: its words only. @param {string} text @returns {URL | null} */
const openable = (text) => {
  try {
    const url = new URL(text);
    const safe = url.protocol === "https:" || (url.protocol === "http:" && LOOPBACK.test(url.hostname));
    return safe && !url.username && !url.password ? url : null;
  } catch {
    return null;
  }
};

const linkNode = (text) => {
  const url = openable(text);
  return el("div.card-link",
    url
      ? el("p", "It asks you to open a page of ", el("strong", url.host), ":")
      : el("p.fact-warn", "It names an address that this page does not open:"),
    el("code.card-url", text),
    url
      ? h("a.button", { href: url.href, target: "_blank", rel: "noopener noreferrer" },
          `Open ${url.host} in a new window`,
        )
      : null,
  );
};

/** @returns {{node: HTMLElement, update: (item: any) => void, focus: () => void}} */
export const formCard = (item, ctx) => {
  const shell = questionShell("form-card", item.requestId, ctx, "formResponse");
  let form = null;
  /** @type {any} what is drawn: the question, or its resolution */
  let drawn = null;

  const accept = () => {
    const values = form?.values();
    if (values) shell.send({ action: "accept", values });
  };
  const answers = () =>
    choiceOf(item.shown.event.data)
      ? el("div.buttons.buttons-choice",
          answerButton(oneLine(item.shown.event.data.accept), () => shell.send({ action: "accept", values: {} }), "primary"),
          answerButton(oneLine(item.shown.event.data.decline || "No"), () => shell.send({ action: "decline" })),
          answerButton("Not now", () => shell.send({ action: "cancel" }), "quiet"),
        )
      : ordinary();
  const ordinary = () =>
    el("div.buttons",
      answerButton("Decline", () => shell.send({ action: "decline" })),
      answerButton("Cancel", () => shell.send({ action: "cancel" }), "quiet"),
      answerButton("Accept", accept, "primary"),
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
      replace(shell.place, readOnly(ctx));
      return replace(shell.facts, headOf(data));
    }
    const known = form;
    form ??= formFor(objects(data.fields), {});
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
    const { data } = item.shown.event;
    const ending = formEnding(item.resolved, shell.sent);
    const chosen = choiceOf(data) && { accept: data.accept, decline: data.decline || "No", cancel: "Not now" }[item.resolved.action];
    // Both answers of a choice are answers: neither is a refusal.
    shell.close(chosen ? { text: oneLine(chosen), approved: item.resolved.action !== "cancel" } : ending);
    replace(shell.facts, headOf({ ...item.shown.event.data, url: "" }));
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

/** A form without fields that says what each answer means. */
const choiceOf = (data) => Boolean(data.accept) && !objects(data.fields).length;

const titleOf = (data) => oneLine(data.title || `${words(data.source)} asks`);

/** `worker: main › analyzer - its task`; the root alone needs no line. */
const workerWords = (data) => {
  const path = objects(data.workerPath);
  if (path.length < 2) return "";
  const task = path.at(-1)?.task;
  return `worker: ${path.map((one) => words(one.name ?? "")).join(" › ")}${task ? ` - ${words(task)}` : ""}`;
};

const headOf = (data) => {
  const worker = workerWords(data);
  return [
    data.source && data.source !== "command" && !words(data.title).includes(words(data.source))
      ? el("p.fact-name", `from ${oneLine(data.source)}`)
      : null,
    data.message ? el("p.card-message", words(data.message)) : null,
    worker ? el("p.dim", worker) : null,
    data.url ? linkNode(words(data.url)) : null,
  ];
};
