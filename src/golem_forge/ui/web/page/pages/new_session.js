/* A new session: where, with which worker and model, and the first thing to say. Everything may be left as the directory's
   own configuration has it. What is wrong stands at its field. */

import { h, replace } from "../dom.js";
import { disclosure } from "../cards/disclosure.js";
import { address } from "../router.js";
import { problemWords } from "./parts.js";

const MODES = [
  ["", "as configured"],
  ["interactive", "interactive: what asks is asked here"],
  ["strict", "strict: everything that touches anything asks"],
  ["auto_deny", "auto_deny: what would ask is denied"],
  ["approve_all", "approve_all: what would ask runs"],
];
let counted = 0;

/** @param {any} ctx */
export const newSession = (ctx) => {
  const form = sessionForm(ctx);
  const { button, region, set } = disclosure("New session", () => form.node, { class: "new-session-button" });
  button.addEventListener("click", () => region.hidden || form.focus());
  return { button, region, open: () => set(true) };
};

/** @param {any} ctx */
const sessionForm = (ctx) => {
  const input = field(
    "First message",
    h("textarea", { rows: "3", class: "field-input", name: "input" }),
    "What should be done? May be left empty.",
  );
  const directory = field(
    "Directory",
    h("input", {
      class: "field-input field-literal",
      name: "directory",
      placeholder: ctx.me?.directory ?? "",
      spellcheck: "false",
      autocomplete: "off",
    }),
    "Where it works; the one this server was started in, unless said.",
  );
  const worker = field(
    "Worker",
    h("input", {
      class: "field-input",
      name: "worker",
      placeholder: "the program's own",
      spellcheck: "false",
      autocomplete: "off",
    }),
    "A name, or a .worker file.",
  );
  const model = field(
    "Model",
    h("input", {
      class: "field-input",
      name: "model",
      placeholder: "as configured",
      spellcheck: "false",
      autocomplete: "off",
    }),
    "provider:model",
  );
  const approval = field(
    "Approval",
    h(
      "select",
      { class: "field-input", name: "approval" },
      MODES.map(([value, words]) => h("option", { value }, words)),
    ),
    "",
  );
  const fields = { input, directory, worker, model, approval };
  const said = h("div", { class: "said" });
  const start = h("button", { type: "submit", class: "primary" }, "Start");
  let sending = false;

  const send = async () => {
    if (sending) return;
    sending = true;
    start.setAttribute("aria-disabled", "true");
    replace(start, "Starting…");
    replace(said);
    for (const one of Object.values(fields)) one.wrong("");
    try {
      const wish = Object.fromEntries(
        Object.entries(fields)
          .map(([name, one]) => [name, one.control.value])
          .filter(([, value]) => value !== ""),
      );
      const { id } = await ctx.api.post("/api/sessions", wish);
      ctx.go(address("chat", id));
    } catch (failure) {
      const wrong = Object.entries(/** @type {any} */ (failure)?.fields ?? {}).filter(([name]) =>
        Object.hasOwn(fields, name),
      );
      for (const [name, words] of wrong) fields[/** @type {keyof typeof fields} */ (name)].wrong(String(words));
      replace(said, h("p", { class: "problem", role: "alert" }, problemWords(failure, "It could not be started.")));
      if (wrong.some(([name]) => name !== "input")) options.set(true);
      if (wrong.length) fields[/** @type {keyof typeof fields} */ (wrong[0][0])].control.focus();
    }
    sending = false;
    start.removeAttribute("aria-disabled");
    replace(start, "Start");
  };
  const options = disclosure("Directory, worker, model, approval", () =>
    h("div", { class: "new-session-more" }, directory.node, worker.node, model.node, approval.node),
  );
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    send();
  };
  const node = h(
    "form",
    { class: "new-session", novalidate: true, "aria-label": "New session", on: { submit } },
    input.node,
    h("div", { class: "buttons" }, start, options.button),
    options.region,
    said,
  );
  return { node, focus: () => input.control.focus() };
};

/** @param {string} label @param {HTMLElement} control @param {string} hint */
const field = (label, control, hint) => {
  const id = `new-${++counted}`;
  const error = h("p", { class: "field-error", id: `${id}-error`, hidden: true });
  control.id = id;
  control.setAttribute("aria-describedby", [hint ? `${id}-hint` : "", `${id}-error`].filter(Boolean).join(" "));
  const node = h(
    "div",
    { class: "field" },
    h("label", { class: "field-label", for: id }, label),
    hint ? h("p", { class: "field-words", id: `${id}-hint` }, hint) : null,
    control,
    error,
  );
  return {
    node,
    control: /** @type {HTMLInputElement} */ (control),
    /** @param {string} words */
    wrong: (words) => {
      error.hidden = !words;
      replace(error, words);
      if (words) control.setAttribute("aria-invalid", "true");
      else control.removeAttribute("aria-invalid");
    },
  };
};
