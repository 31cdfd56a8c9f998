/* Choosing a model where there is none: a provider with a key, or a model server of this machine.

   `modelSetup(ctx)` gives `{node, draw}`; `draw` asks the server once what there is. A key stands in a password
   box, goes to our own server and is forgotten here. The server tests the choice with one small request before it keeps
   anything; what it says about a failure is shown as it is. */

import { el, h, replace, say } from "../dom.js";
import { oneLine } from "../format.js";

/** @typedef {{title: string, provider: string, address: string, key: string, keyPage: string}} Source */

/** @param {any} found @returns {Source[]} */
const sourcesOf = (found) => [
  ...found.providers.map((one) => ({ ...one, provider: one.name, address: "" })),
  ...found.local.map((one) => ({ ...one, key: "not needed", keyPage: "", title: `${one.title} on this machine` })),
];

export const modelSetup = (ctx) => {
  const problem = h("p.field-error", { role: "alert", hidden: true });
  const source = h("select.field-input", { id: "setup-source", on: { change: () => chosen() } });
  const key = h("input.field-input", { id: "setup-key", type: "password", autocomplete: "new-password" });
  const keyHint = el("p.dim");
  const keyRow = el("div.field", h("label.field-label", { for: "setup-key" }, "Key"), key, keyHint);
  const names = h("datalist", { id: "setup-models" });
  const model = h("input.field-input", { id: "setup-model", list: "setup-models", spellcheck: "false", autocomplete: "off" });
  const modelRow = h("div.field", { hidden: true }, h("label.field-label", { for: "setup-model" }, "Model"), model, names);
  const next = h("button.primary", { type: "submit" }, "Next");
  const form = h("form.model-setup-form", { on: { submit: (event) => submit(event) } },
    el("p", "There is no model yet. Choose where one comes from. Tools work without it."),
    el("div.field", h("label.field-label", { for: "setup-source" }, "From"), source),
    keyRow,
    modelRow,
    problem,
    el("div.buttons", next),
  );
  const node = el("div", form);
  /** @type {Source[]} */
  let sources = [];
  let asked = false;

  const current = () => sources[Number(source.value)];
  const fail = (text) => {
    problem.hidden = !text;
    say(problem, text);
  };

  const chosen = () => {
    const { key: state, keyPage } = current();
    keyRow.hidden = state === "not needed";
    replace(keyHint, state === "none" ? `Make one at ${keyPage}.` : `There is one (${state}); left empty it is used.`);
    modelRow.hidden = true;
    model.value = "";
    say(next, "Next");
    fail("");
  };

  const body = () => {
    const { provider, address } = current();
    return { provider, address, ...(key.value && !keyRow.hidden ? { key: key.value.trim() } : {}) };
  };

  const listed = async () => {
    const { models } = await ctx.api.post("/api/models/offered", body());
    replace(names, models.map((value) => h("option", { value })));
    model.value = models[0] ?? "";
  };

  const save = async () => {
    const saved = await ctx.api.post("/api/models", { ...body(), model: model.value.trim(), session: ctx.session.id });
    key.value = "";
    replace(node, el("p", `${oneLine(saved.model)} answers from now on. Write what you want.`));
  };

  const submit = async (event) => {
    event.preventDefault();
    if (next.disabled) return;
    next.disabled = true;
    say(next, modelRow.hidden ? "Asking …" : "Testing …");
    fail("");
    try {
      if (modelRow.hidden) {
        await listed();
        modelRow.hidden = false;
        model.focus();
      } else await save();
    } catch (error) {
      fail(error.problem ?? "That did not work. Try again.");
      if (error.status === 409 && !/key|reached/i.test(error.problem)) modelRow.hidden = false;
    } finally {
      next.disabled = false;
      say(next, modelRow.hidden ? "Next" : "Test and use it");
    }
  };

  const draw = async () => {
    if (asked) return;
    asked = true;
    try {
      sources = sourcesOf(await ctx.api.get("/api/models"));
      replace(source, sources.map((one, at) => h("option", { value: String(at) }, oneLine(one.title))));
      source.value = "0";
      chosen();
    } catch (error) {
      fail(error.problem ?? "The list of providers could not be read.");
    }
  };
  return { node, draw };
};
