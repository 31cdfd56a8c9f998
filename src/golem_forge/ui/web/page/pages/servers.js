/* MCP servers: how each is, what it offers, what is held back and why; letting it start, connecting anew, agreeing to a
   definition that changed.

   Threat: a server that changes a definition after somebody agreed. A yes names the digest of exactly what stands here. */

import { path } from "../api.js";
import { diffView } from "../cards/diff.js";
import { el, h, replace } from "../dom.js";
import { counted, moment, oneLine, shortProse, words } from "../format.js";
import { actButton, factList, pill, redraw, saidPlace, searchable } from "./parts.js";
import { address } from "../router.js";
import { disclosed, literal } from "../widgets.js";

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

export const serverList = (ctx, changed) => {
  const list = h("ul.rows", { role: "list" });
  const places = new Map();
  const arrange = () => {
    const shown = part.found().map((one) => {
      const place = places.get(one.name) ?? el("li.row-card");
      places.set(one.name, place);
      place.dataset.how = howOf(one);
      redraw(place, one, () => serverCard(one, ctx, changed));
      return place;
    });
    if (shown.length !== list.children.length || shown.some((place, at) => list.children[at] !== place))
      replace(list, shown);
  };
  const part = searchable(list,
    (one) => [one.name, one.state, one.error, one.transport, ...(one.offers ?? []).map((tool) => tool.name)],
    arrange,
  );
  return part;
};

const howOf = (server) => HOW[server.state] ?? "warn";

const serverCard = (server, ctx, changed) => {
  const said = saidPlace();
  const name = oneLine(server.name);
  const act = (verb, body) => async () => {
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
    el("div.row-head",
      el("h4.row-name.mono", name),
      pill(oneLine(server.state), howOf(server)),
      server.required ? pill("required") : null,
      server.tools === null ? null : el("span.dim.small", counted(server.tools, "tool")),
      server.held ? pill(`${server.held} held back`, "warn") : null,
    ),
    server.error ? el("p.row-why", words(server.error)) : null,
    factList(facts),
    server.lastWords?.length
      ? disclosed("Its last lines of stderr",
          () => h("pre.result-text", { tabindex: "0" }, server.lastWords.join("\n")),
          { class: "small" },
        )
      : null,
    server.approved ? null : startQuestion(server, act("approve", { digest: server.digest }), said),
    (server.heldBack ?? []).map((held) => heldTool(held, act("agree", { tool: held.tool, digest: held.digest }), said)),
    (server.offers ?? []).filter((tool) => tool.definition).map((tool) =>
      newTool(tool, act("agree", { tool: tool.tool, digest: tool.digest }), said),
    ),
    (server.diagnostics ?? []).map((line) => el("p.row-why", line)),
    server.offers?.length
      ? disclosed(`Offers ${counted(server.offers.length, "tool")}`, () => offers(server.offers, ctx), {
          class: "small",
        })
      : null,
    server.prompts?.length ? el("p.dim.small", `Prompts: ${server.prompts.map(oneLine).join(", ")}`) : null,
    said,
    server.approved && ctx.session.answerable
      ? el("div.row-foot",
          el("span.row-acts",
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

/** What a yes to start it is given to. */
const startQuestion = (server, yes, said) =>
  el("div.consent",
    el("p.consent-title", "It waits for your approval. Forge would start this:"),
    literal(words(server.card), { label: `What ${oneLine(server.name)} is` }),
    server.configDiff
      ? [el("p.fact-warn", "This changed since you agreed:"), diffView(words(server.configDiff))]
      : null,
    el("div.buttons",
      actButton("Let it start", yes, {
        look: "primary",
        name: `Let ${oneLine(server.name)} start`,
        busy: "Starting…",
        said,
      }),
    ),
  );

const agreeButton = ({ name }, agree, said) =>
  el("div.buttons",
    actButton("Agree to this definition", agree, { name: `Agree to this definition of ${oneLine(name)}`, said }),
  );

const heldTool = (held, agree, said) =>
  h("div.consent", { dataset: { how: "warn" } },
    el("p.consent-title",
      el("code", oneLine(held.name)),
      ` is held back: ${HELD[held.reason] ?? oneLine(held.reason)}`,
    ),
    held.message ? el("p.dim.small", words(held.message)) : null,
    held.diff ? diffView(words(held.diff)) : null,
    held.digest && held.diff ? agreeButton(held, agree, said) : null,
  );

/** One that came after the first list. */
const newTool = (tool, agree, said) =>
  h("div.consent", { dataset: { how: "warn" } },
    el("p.consent-title", el("code", oneLine(tool.name)), " is new: its first call asks, unless you agree to it here."),
    literal(words(tool.definition), { label: `Definition of ${oneLine(tool.name)}` }),
    agreeButton(tool, agree, said),
  );

const offers = (tools, ctx) =>
  h("ul.offers", { role: "list" },
    tools.map((tool) =>
      el("li",
        h("a.mono", { href: address("tools", ctx.session.id, tool.name) }, oneLine(tool.name)),
        tool.pin === "pinned" ? null : pill(oneLine(tool.pin), "warn"),
        tool.offered ? null : pill("not offered"),
        tool.description ? el("span.dim.small", shortProse(tool.description, 200)) : null,
      ),
    ),
  );
