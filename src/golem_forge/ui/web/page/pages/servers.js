/* MCP servers: how each is, what it offers, what is held back and why; letting it start, connecting anew, agreeing to a
   definition that changed.

   Threat: a server that changes a definition after somebody agreed. A yes names the digest of exactly what stands here. */

import { h, replace } from "../dom.js";
import { path } from "../api.js";
import { diffView } from "../cards/diff.js";
import { disclosed } from "../cards/disclosure.js";
import { literal } from "../cards/literal.js";
import { counted, oneLine, words } from "../cards/plain.js";
import { address } from "../router.js";
import { actButton, saidPlace } from "./acting.js";
import { factList, fits, pill, redraw } from "./parts.js";
import { moment } from "./moments.js";

const HOW = {
  ready: "ok",
  known: "ok",
  disabled: "",
  connecting: "info",
  pending: "warn",
  needs_login: "warn",
  backoff: "fail",
  failed: "fail",
};
const HELD = {
  drift: "its definition changed",
  schema_invalid: "its schema is not valid",
  entry_invalid: "its entry is not valid",
  hidden_text: "it hides text",
};

/** @param {any} ctx @param {() => void} changed */
export const serverList = (ctx, changed) => {
  const list = h("ul", { class: "rows", role: "list" });
  /** @type {Map<string, HTMLElement>} */
  const places = new Map();
  /** @type {any[]} */
  let all = [];
  let query = "";
  const found = () =>
    all.filter((one) =>
      fits(
        query,
        one.name,
        one.state,
        one.error,
        one.transport,
        ...(one.offers ?? []).map((/** @type {any} */ tool) => tool.name),
      ),
    );
  const arrange = () => {
    const shown = found().map((one) => {
      const place = places.get(one.name) ?? h("li", { class: "row-card" });
      places.set(one.name, place);
      place.dataset.how = howOf(one);
      redraw(place, one, () => serverCard(one, ctx, changed));
      return place;
    });
    if (shown.length !== list.children.length || shown.some((place, at) => list.children[at] !== place))
      replace(list, shown);
  };
  return {
    node: list,
    draw: (/** @type {any[]} */ servers) => {
      all = servers;
      arrange();
    },
    filter: (/** @type {string} */ typed) => {
      query = typed;
      arrange();
    },
    shown: () => found().length,
  };
};

/** @param {any} server */
const howOf = (server) => HOW[/** @type {keyof typeof HOW} */ (server.state)] ?? "warn";

/** @param {any} server @param {any} ctx @param {() => void} changed */
const serverCard = (server, ctx, changed) => {
  const said = saidPlace();
  const name = oneLine(server.name);
  const act = (/** @type {string} */ verb, /** @type {any} */ body) => async () => {
    await ctx.api.post(`${path`/api/sessions/${ctx.session.id}/servers/${server.name}`}/${verb}`, body);
    changed();
    return "Done.";
  };
  const facts = {
    Transport: server.transport,
    Configured: server.origin,
    Trust: server.trust,
    Protocol: server.protocol,
    "Tries again": server.retryAt ? moment(server.retryAt) : null,
  };
  return [
    h(
      "div",
      { class: "row-head" },
      h("h4", { class: "row-name mono" }, name),
      pill(oneLine(server.state), howOf(server)),
      server.required ? pill("required") : null,
      server.tools === null ? null : h("span", { class: "dim small" }, counted(server.tools, "tool")),
      server.held ? pill(`${server.held} held back`, "warn") : null,
    ),
    server.error ? h("p", { class: "row-why" }, words(server.error)) : null,
    factList(facts),
    server.lastWords?.length
      ? disclosed(
          "Its last words",
          () => h("pre", { class: "result-text", tabindex: "0" }, server.lastWords.join("\n")),
          { class: "small" },
        )
      : null,
    server.approved ? null : startQuestion(server, act("approve", { digest: server.digest }), said),
    (server.heldBack ?? []).map((/** @type {any} */ held) =>
      heldTool(held, name, (tool, digest) => act("agree", { tool, digest }), ctx, said),
    ),
    (server.offers ?? [])
      .filter((/** @type {any} */ tool) => tool.definition)
      .map((/** @type {any} */ tool) =>
        newTool(tool, name, act("agree", { tool: tool.tool, digest: tool.digest }), said),
      ),
    (server.diagnostics ?? []).map((/** @type {string} */ line) => h("p", { class: "row-why" }, line)),
    server.offers?.length
      ? disclosed(`Offers ${counted(server.offers.length, "tool")}`, () => offers(server.offers, ctx), {
          class: "small",
        })
      : null,
    server.prompts?.length
      ? h("p", { class: "dim small" }, `Prompts: ${server.prompts.map(oneLine).join(", ")}`)
      : null,
    said,
    server.approved && ctx.session.answerable
      ? h(
          "div",
          { class: "row-foot" },
          h(
            "span",
            { class: "row-acts" },
            actButton("Reconnect", act("reconnect", undefined), {
              name: `Reconnect ${name}`,
              busy: "Connecting…",
              said,
            }),
          ),
        )
      : null,
  ];
};

/** What a yes to start it is given to. @param {any} server @param {() => Promise<string>} yes @param {HTMLElement} said */
const startQuestion = (server, yes, said) =>
  h(
    "div",
    { class: "consent" },
    h("p", { class: "consent-title" }, "It waits for your yes. This is what would be started:"),
    literal(words(server.card), { label: `What ${oneLine(server.name)} is` }),
    server.configDiff
      ? [
          h("p", { class: "fact-warn" }, "This changed since somebody agreed:"),
          diffView(words(server.configDiff), null),
        ]
      : null,
    h(
      "div",
      { class: "buttons" },
      actButton("Let it start", yes, {
        look: "primary",
        name: `Let ${oneLine(server.name)} start`,
        busy: "Starting…",
        said,
      }),
    ),
  );

/** @param {any} held @param {string} server @param {(tool: string, digest: string) => () => Promise<string>} agree @param {any} ctx @param {HTMLElement} said */
const heldTool = (held, server, agree, ctx, said) =>
  h(
    "div",
    { class: "consent", dataset: { how: "warn" } },
    h(
      "p",
      { class: "consent-title" },
      h("code", null, oneLine(held.name)),
      ` is held back: ${HELD[/** @type {keyof typeof HELD} */ (held.reason)] ?? oneLine(held.reason)}`,
    ),
    held.message ? h("p", { class: "dim small" }, words(held.message)) : null,
    held.diff ? diffView(words(held.diff), ctx) : null,
    held.digest && held.diff
      ? h(
          "div",
          { class: "buttons" },
          actButton("Agree to this definition", agree(held.tool, held.digest), {
            name: `Agree to this definition of ${oneLine(held.name)}`,
            said,
          }),
        )
      : null,
  );

/** One that came after the first list. @param {any} tool @param {string} server @param {() => Promise<string>} agree @param {HTMLElement} said */
const newTool = (tool, server, agree, said) =>
  h(
    "div",
    { class: "consent", dataset: { how: "warn" } },
    h(
      "p",
      { class: "consent-title" },
      h("code", null, oneLine(tool.name)),
      " is new: its first call asks, unless you agree to it here.",
    ),
    literal(words(tool.definition), { label: `Definition of ${oneLine(tool.name)}` }),
    h(
      "div",
      { class: "buttons" },
      actButton("Agree to this definition", agree, { name: `Agree to this definition of ${oneLine(tool.name)}`, said }),
    ),
  );

/** @param {any[]} tools @param {any} ctx */
const offers = (tools, ctx) =>
  h(
    "ul",
    { class: "offers", role: "list" },
    tools.map((tool) =>
      h(
        "li",
        null,
        h("a", { class: "mono", href: address("tools", ctx.session.id, tool.name) }, oneLine(tool.name)),
        tool.pin === "pinned" ? null : pill(oneLine(tool.pin), "warn"),
        tool.offered ? null : pill("not offered"),
        tool.description ? h("span", { class: "dim small" }, oneLine(tool.description).slice(0, 200)) : null,
      ),
    ),
  );
