/* A tool as a form: a person fills it in and runs it; the call takes the same path as any other and may ask for
   approval.

   What is wrong with the arguments stands at its field; how the call went stands below the form, and in the
   conversation. `args` are values to start from ("run again with changes"). Threat: one wish runs a tool twice. A
   second press of the same double click, and Enter that is held down, run nothing. */

import { randomId } from "../api.js";
import { leftoversNode, resultNode, resultWords } from "../cards/results.js";
import { el, h, replace } from "../dom.js";
import { callKey } from "../fold/items.js";
import { oneLine } from "../format.js";
import { formFor } from "./form.js";

const SAME_PRESS_MS = 500;

/** The errors in the words of a result, by field. */
const errorsOf = (fields, error) => {
  /** @type {Record<string, string>} */
  const found = {};
  for (const line of error.split(/\n|; /)) {
    const at = /^\s*([^\s:]+): (.*)$/s.exec(line);
    const name = at ? at[1].split(/[.[]/, 1)[0] : "";
    if (at && fields.some((field) => field.name === name)) found[at[1]] = at[2];
  }
  return Object.keys(found).length ? found : { "": error };
};

/** @param {any} tool `{name, label, description, fields}` @param {Record<string, any>} [args] @returns {HTMLElement} */
export const toolForm = (tool, ctx, args = {}) => {
  const fields = tool.fields ?? [];
  const form = formFor(fields, args);
  const said = h("div.tool-form-said", { "aria-live": "polite" });
  const run = h("button.primary", { type: "submit" }, `Run ${oneLine(tool.label || tool.name)}`);
  let forget = () => {};
  let sending = false;
  let sentAt = -Infinity;

  /** Follows the call that this form made, and no other of its tool, until its result. */
  const follow = (id) => {
    forget();
    const key = callKey(id);
    const stop = ctx.store.subscribe((change) => {
      const result = change.what === "item" && change.key === key ? ctx.store.items.get(key)?.result : null;
      if (!result) return;
      forget();
      show(result);
    });
    forget = () => {
      stop();
      forget = () => {};
    };
  };
  const show = (shown) => {
    const { status, error } = shown.event.data;
    if (status === "input_invalid") {
      replace(said);
      form.showErrors(errorsOf(fields, String(error ?? "These arguments do not fit.")));
      form.firstError()?.focus?.();
      return;
    }
    const ok = status === "success";
    replace(said,
      h("p", { class: ok ? "said-ok" : "problem" },
        `${ok ? "✓" : "✗"} ${resultWords(shown) || (ok ? "done" : status)}`,
      ),
      leftoversNode(shown),
      resultNode(shown, ctx),
    );
  };
  const send = async () => {
    if (sending || performance.now() - sentAt < SAME_PRESS_MS) return;
    const values = form.values();
    if (!values) return;
    sending = true;
    sentAt = performance.now();
    run.setAttribute("aria-disabled", "true");
    replace(said, el("p.dim", "Running… Its questions appear in the chat: Alt+A goes there."));
    const requestId = randomId();
    follow(requestId);
    const answer = await ctx.act("manualToolInvoke", { toolName: tool.name, args: values, requestId })
      .catch((error) => ({ ok: false, problem: error?.problem ?? "It could not be sent." }));
    sending = false;
    sentAt = performance.now();
    run.removeAttribute("aria-disabled");
    if (answer.ok) return form.forget();
    forget();
    replace(said);
    form.showErrors(
      Object.keys(answer.fields ?? {}).length ? answer.fields : { "": answer.problem || "It could not be sent." },
    );
  };
  return h("form.tool-form",
    {
      novalidate: true,
      autocomplete: "off",
      on: {
        submit: (event) => {
          event.preventDefault();
          send();
        },
        keydown: (event) => {
          if (event.key === "Enter" && event.repeat && !(event.target instanceof HTMLTextAreaElement))
            event.preventDefault();
        },
      },
    },
    tool.description ? el("p.tool-form-words", tool.description) : null,
    form.node,
    el("div.buttons", run),
    said,
  );
};
