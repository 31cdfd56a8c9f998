/* A conversation that has not begun: what can be asked, and what the agent may do.

   `emptyState(ctx, write)` gives `{node, draw}`. An example is written into the text box; the person sends it. Only
   what this session can do is offered. `node` holds `.model-setup`, the place for the form that chooses a model where
   there is none. */

import { el, h, replace } from "../dom.js";
import { oneLine, texts } from "../format.js";
import { modelSetup } from "./model_setup.js";

/** What to ask for, and the tool without which nobody could do it. */
const EXAMPLES = [
  ["read_file", "Understand this project", "Read the most important files here and explain how the project is built."],
  ["exec_command", "Find what is broken", "Run the tests. Say which ones fail, why, and what would mend them."],
  ["write_file", "Write something down", "Write a short NOTES.md: what this directory holds and how to start with it."],
  ["create_custom_tool", "Make a tool", "Make a tool for something that I do here again and again. Ask me what it is."],
];
const MOST_EXAMPLES = 3;

/** Without a model a person runs the tools by hand. @param {string} zone */
const COMMANDS = (zone) => [
  ["list_files", "See the files", `/list_files --path /${zone}`],
  ["exec_command", "Run a command", '/exec_command --cmd "git status"'],
  ["", "See all tools", "/tools"],
];

const MODES = {
  interactive: "It asks you before it changes something, unless a rule allows it.",
  strict: "It asks you before every call that has an effect.",
  contained: "It works on its own in this directory; it asks before anything leaves it or cannot be undone.",
  plan: "It reads and proposes, and changes nothing until you say go.",
  auto_deny: "Forge denies every call that needs your approval.",
  approve_all: "It asks nothing.",
};
const ACCESS = { rw: "reads and writes", ro: "reads" };

/** @param {{name: string, mode: string}[]} zones @returns {string} `It reads and writes /workspace. It reads /docs.` */
const filesWords = (zones) => {
  const named = (mode) => zones.filter((zone) => zone?.mode === mode).map((zone) => `/${zone.name}`);
  const said = Object.entries(ACCESS).filter(([mode]) => named(mode).length)
    .map(([mode, does]) => `It ${does} ${named(mode).join(" and ")}.`);
  return said.join(" ") || "It has no files.";
};

const commandWords = (level) => {
  if (!level) return "";
  return level === "none" || level === "off"
    ? "Commands run without walls: they can do what you can do."
    : "Commands run inside walls and can reach only these files.";
};

/** @param {(text: string) => void} write puts a text into the box */
export const exampleRows = (write, some = EXAMPLES) =>
  some.slice(0, MOST_EXAMPLES).map(([, title, text]) =>
    el("li", h("button.example", { on: { click: () => write(text) } }, el("strong", title), el("span.dim", text))),
  );

/** @param {(text: string) => void} write */
export const emptyState = (ctx, write) => {
  const examples = h("ul.examples", { role: "list", "aria-label": "Examples" });
  const may = el("ul.may");
  const chooser = modelSetup(ctx);
  const setup = h("div.model-setup", { hidden: true }, chooser.node);
  const greeting = el("h3.greeting");
  const standing = el("p.dim.standing");
  const node = h("div.empty", { hidden: true }, greeting, standing, setup, examples, may);
  let drawn = "";

  let directory = "";
  /** Where it works, and with which model. */
  const drawStanding = async (model) => {
    if (!directory && !ctx.me?.team)
      directory = (await ctx.api.get(ctx.api.path`/api/sessions/${ctx.session.id}`).catch(() => null))?.directory ?? "";
    replace(standing,
      directory ? ["In ", el("code", oneLine(directory))] : null,
      model ? [directory ? ", with " : "With ", el("code", oneLine(model))] : null,
    );
  };

  const draw = () => {
    const { session, tools, walls } = ctx.store.standing;
    const zones = (Array.isArray(session?.zones) ? session.zones : []).slice(0, 20);
    const names = new Set((tools ?? []).map((one) => one.name));
    const model = session?.model ?? "";
    const facts = JSON.stringify([session, walls?.level, [...names], ctx.session.answerable]);
    if (facts === drawn) return;
    drawn = facts;
    node.dataset.walls = walls?.level ?? "";
    replace(greeting, ctx.session.answerable ? "What do you want to do?" : "This session has no messages.");
    const offered = model ? EXAMPLES : COMMANDS(texts(zones.map((zone) => zone?.name))[0] || "workspace");
    const some = ctx.session.answerable ? offered.filter(([tool]) => !tool || names.has(tool)) : [];
    replace(examples, exampleRows(write, some));
    const asks = MODES[session?.approvalMode] ?? `Approval mode: ${session?.approvalMode}.`;
    drawStanding(model);
    const rows = session ? [filesWords(zones), commandWords(walls?.level), asks] : [];
    replace(may, rows.filter(Boolean).map((row) => el("li", row)));
    setup.hidden = Boolean(model) || !ctx.session.answerable;
    if (!setup.hidden) chooser.draw();
  };
  return { node, draw };
};

/** The kinds of items that begin a conversation; a notice, a status or an answered question of trust does not. */
const SPOKEN = new Set(["message", "stream", "command", "call", "question", "ended"]);

/** @param {import("../store.js").SessionStore} store */
export const hasBegun = (store) => {
  for (const item of store.items.values()) {
    const early = item.kind === "question" && item.resolved && !item.shown.event.data.toolCallId;
    if (SPOKEN.has(item.kind) && !early) return true;
  }
  return store.more;
};
