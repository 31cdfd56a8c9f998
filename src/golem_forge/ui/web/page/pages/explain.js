/* How a call would be judged: a tool with its form, or the text of a command. Nothing is run, asked or recorded. */

import { h, replace } from "../dom.js";
import { path } from "../api.js";
import { decisionList } from "../cards/decision.js";
import { objects, oneLine, words } from "../cards/plain.js";
import { formFor } from "../forms/form.js";
import { dataTable, problem, problemWords } from "./parts.js";
import { verdictPill } from "./rules.js";

/** @param {any} ctx */
export const explainPart = (ctx) => {
  const answer = h("div", { class: "explained", "aria-live": "polite" });
  const parts = { tool: toolQuestion(ctx, (body) => ask(body)), command: commandQuestion((body) => ask(body)) };
  const place = h("div", null, parts.tool);
  const ask = async (/** @type {any} */ body) => {
    replace(answer, h("p", { class: "dim" }, "One moment…"));
    try {
      replace(answer, explanation(await ctx.api.post(path`/api/sessions/${ctx.session.id}/rules/explain`, body)));
    } catch (failure) {
      replace(answer, problem(failure, "It could not be judged."));
    }
  };
  const choose = (/** @type {keyof typeof parts} */ which) => () => {
    replace(place, parts[which]);
    replace(answer);
    for (const one of group.children)
      one.setAttribute("aria-pressed", String(/** @type {HTMLElement} */ (one).dataset.which === which));
  };
  const press = (/** @type {keyof typeof parts} */ which, /** @type {string} */ label) =>
    h(
      "button",
      { type: "button", dataset: { which }, "aria-pressed": String(which === "tool"), on: { click: choose(which) } },
      label,
    );
  const group = h(
    "div",
    { class: "switch", role: "group", "aria-label": "What to explain" },
    press("tool", "A tool call"),
    press("command", "A command"),
  );
  return h(
    "div",
    { class: "explain" },
    h("p", { class: "dim small" }, "What would become of a call, and who decides. Nothing runs."),
    group,
    place,
    answer,
  );
};

/** @param {(body: any) => void} ask */
const commandQuestion = (ask) => {
  const input = /** @type {HTMLTextAreaElement} */ (
    h("textarea", { class: "field-input field-literal", rows: "2", id: "explain-command", spellcheck: "false" })
  );
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    if (input.value.trim()) ask({ command: input.value });
  };
  return h(
    "form",
    { class: "explain-form", on: { submit } },
    h("label", { for: "explain-command", class: "field-label" }, "Command"),
    input,
    h("div", { class: "buttons" }, h("button", { type: "submit" }, "Explain")),
  );
};

/** A name, then the form of that tool. @param {any} ctx @param {(body: any) => void} ask */
const toolQuestion = (ctx, ask) => {
  const names = new Set((ctx.store.standing.tools ?? []).map((/** @type {any} */ tool) => tool.name));
  for (const item of ctx.store.items.values()) if (item.kind === "call") names.add(item.name);
  const input = /** @type {HTMLInputElement} */ (
    h("input", {
      class: "field-input field-literal",
      id: "explain-tool",
      list: "explain-tools",
      autocomplete: "off",
      spellcheck: "false",
      "aria-describedby": "explain-tool-error",
    })
  );
  const error = h("p", { class: "field-error", id: "explain-tool-error", hidden: true });
  const fields = h("div", { class: "explain-fields" });
  /** @type {{name: string, form: ReturnType<typeof formFor>} | null} */
  let chosen = null;

  const wrong = (/** @type {string} */ text) => {
    error.hidden = !text;
    replace(error, text);
    if (text) input.setAttribute("aria-invalid", "true");
    else input.removeAttribute("aria-invalid");
  };
  const choose = async () => {
    const name = input.value.trim();
    if (!name || chosen?.name === name) return;
    chosen = null;
    try {
      const tool = await ctx.api.get(path`/api/sessions/${ctx.session.id}/tools/${name}`);
      if (input.value.trim() !== name) return;
      chosen = { name, form: formFor(tool.fields ?? []) };
      wrong("");
      replace(fields, chosen.form.node);
    } catch (failure) {
      wrong(problemWords(failure));
      replace(fields);
    }
  };
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    await choose();
    const args = chosen?.form.values();
    if (chosen && args) ask({ tool: chosen.name, args });
    else if (!chosen) input.focus();
  };
  input.addEventListener("change", choose);
  return h(
    "form",
    { class: "explain-form", novalidate: true, on: { submit } },
    h("label", { for: "explain-tool", class: "field-label" }, "Tool"),
    input,
    h(
      "datalist",
      { id: "explain-tools" },
      [...names].sort().map((name) => h("option", { value: name })),
    ),
    error,
    fields,
    h("div", { class: "buttons" }, h("button", { type: "submit" }, "Explain")),
  );
};

/** @param {any} said an Explanation */
const explanation = (said) => {
  if (!said.verdict) return h("p", { class: "problem" }, words(said.error || "There is nothing to judge."));
  const effects = objects(said.effects);
  return h(
    "div",
    { class: "consent" },
    h("p", { class: "explained-head" }, verdictPill(said.verdict), h("strong", null, oneLine(said.then))),
    effects.length
      ? dataTable(
          "What it touches",
          ["Effect", "Verdict", "Risk", "Notes"],
          effects.map((one) => ({
            cells: [
              h("code", null, oneLine(one.effect)),
              verdictPill(one.verdict),
              oneLine(one.risk),
              oneLine(one.notes),
            ],
          })),
        )
      : h(
          "p",
          { class: "dim small" },
          said.effects === null ? "The tool does not say what it touches." : "It touches nothing.",
        ),
    said.decision ? decisionList(said.decision) : null,
    (said.notices ?? []).map((/** @type {string} */ line) => h("p", { class: "dim small" }, line)),
  );
};
