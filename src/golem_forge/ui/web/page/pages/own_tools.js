/* The person's own tools: the state of each folder, why it is not offered if it is not, and what can be done about it.

   Trusting is done where every line can be read: the tool's own page. Here is only the way there. */

import { h, replace } from "../dom.js";
import { path } from "../api.js";
import { oneLine, words } from "../cards/plain.js";
import { address } from "../router.js";
import { actButton, confirmed, saidPlace } from "./acting.js";
import { fits, pill, redraw } from "./parts.js";

const HOW = { active: "ok", retired: "", unusable: "fail" };

/** @param {string} state */
export const stateHow = (state) => HOW[/** @type {keyof typeof HOW} */ (state)] ?? "warn";

/** @param {any} ctx @param {string} name @param {string} verb @param {any} [body] */
export const toolAct = (ctx, name, verb, body) =>
  ctx.api.post(`${path`/api/sessions/${ctx.session.id}/tools/${name}`}/${verb}`, body);

/** @param {any} ctx @param {() => void} changed */
export const ownTools = (ctx, changed) => {
  const said = saidPlace();
  const list = h("ul", { class: "rows", role: "list" });
  /** @type {any[]} */
  let all = [];
  let query = "";
  const found = () =>
    all.filter((tool) => fits(query, tool.name, tool.state, tool.reason, tool.description, tool.author, tool.category));
  const arrange = () => redraw(list, found(), () => found().map((tool) => row(tool, ctx, said, changed)));
  return {
    node: h("div", null, said, list),
    draw: (/** @type {any[]} */ tools) => {
      all = tools;
      arrange();
    },
    filter: (/** @type {string} */ typed) => {
      query = typed;
      arrange();
    },
    shown: () => found().length,
  };
};

/** @param {any} tool @param {any} ctx @param {HTMLElement} said @param {() => void} changed */
const row = (tool, ctx, said, changed) => {
  const name = oneLine(tool.name);
  const where = address("tools", ctx.session.id, tool.name);
  const waits = !["active", "retired", "unusable"].includes(tool.state);
  return h(
    "li",
    { class: "row-card", dataset: { how: stateHow(tool.state) } },
    h(
      "div",
      { class: "row-head" },
      h("a", { class: "row-name mono", href: where }, name),
      pill(oneLine(tool.state), stateHow(tool.state)),
      tool.version ? h("span", { class: "dim small" }, `v${oneLine(tool.version)}`) : null,
      tool.agentMade ? pill("made by a model") : null,
      tool.imported ? pill("imported") : null,
    ),
    tool.description ? h("p", { class: "row-words" }, oneLine(tool.description)) : null,
    tool.reason ? h("p", { class: "row-why" }, words(tool.reason)) : null,
    h(
      "div",
      { class: "row-foot" },
      tool.author ? h("span", { class: "dim small" }, oneLine(tool.author)) : null,
      h(
        "span",
        { class: "row-acts" },
        waits ? h("a", { class: "button", href: `${where}/trust`, "aria-label": `Review ${name}` }, "Review…") : null,
        switchButton(tool, ctx, said, changed),
      ),
    ),
  );
};

/** Off, or on again. @param {any} tool @param {any} ctx @param {HTMLElement} said @param {() => void} changed */
export const switchButton = (tool, ctx, said, changed) => {
  const name = oneLine(tool.name);
  if (tool.state === "retired")
    return actButton("Restore", async () => done(await toolAct(ctx, tool.name, "restore"), changed), {
      name: `Restore ${name}`,
      said,
    });
  if (tool.state !== "active") return null;
  const retire = async () => {
    const sure = await confirmed({
      title: `Retire ${name}?`,
      words: h("p", null, "Nobody can call it any more. Its folder stays, and so does the trust in it."),
      yes: "Retire",
    });
    return sure ? done(await toolAct(ctx, tool.name, "retire"), changed) : null;
  };
  return actButton("Retire…", retire, { name: `Retire ${name}…`, said });
};

/** @param {any} answer @param {() => void} changed */
const done = (answer, changed) => {
  changed();
  return String(answer?.text ?? "Done.");
};
