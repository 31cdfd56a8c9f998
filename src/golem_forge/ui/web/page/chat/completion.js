/* What is offered while a command is typed: commands, tools and prompts of servers, then the options of the one that
   was named and their allowed values; behind an `@` the files of the zones. As in the terminal, a prompt wins over a tool of its name.

   `offers(text, known)` takes the text before the cursor and gives where the word begins and the words that fit.
   Pure. */

import { el, h, replace } from "../dom.js";
import { LEVELS } from "../fold/items.js";

/* The words behind a `/`: Forge's own commands, then the tools a person may run. The runtime reads the line; this only
   tells commands from text and knows what to offer. A test holds the names against the runtime's own. */
export const COMMANDS = /** @type {const} */ ([
  ["help", "list the commands, or explain a command or a tool"],
  ["tools", "list the tools you can run"],
  ["tool", "run a tool by its name"],
  ["t", "the same, shorter"],
  ["model", "show the models, or switch to one"],
  ["clear", "empty the history"],
  ["compact", "condense the history into a summary"],
  ["cost", "show tokens and cost of this session, by worker and model"],
  ["status", "show worker, model, context, cost and open questions"],
  ["config", "show the configuration in force and where it comes from"],
  ["rules", "show remembered choices and rules, or revoke one"],
  ["mode", "show the approval mode, or change it for this session"],
  ["changes", "list the files this session changed, or show a diff"],
  ["undo", "undo what the last turn changed, or another"],
  ["redo", "take the last undo back"],
  ["keep", "make a tool of the last program that worked"],
  ["rewind", "go back to an earlier message of yours"],
  ["ports", "list the ports that commands of this session listen on"],
  ["publish", "get a link to one of those ports for your browser"],
  ["unpublish", "end such a link"],
  ["why", "show what was decided about the last call, or another"],
  ["sessions", "recorded sessions"],
  ["resume", "go on with another session; alone it lists them"],
  ["export", "write this session as Markdown, or as JSON"],
  ["plan", "show the plan of the work"],
  ["output", "show an output that was too long"],
  ["rate", "rate one of your user tools"],
  ["trace", "set how much this page shows: quiet, summary, normal, debug"],
  ["mcp", "show the MCP servers and their states"],
  ["web", "show this session in a browser"],
  ["exit", "end the session"],
]);
/** What works on a session of a team's store: its process is elsewhere. */
const TEAM_COMMANDS = [
  ["stop", "end the session"],
  ["trace", "set how much this page shows: quiet, summary, normal, debug"],
];
const OWN = new Set(COMMANDS.map(([name]) => name));

/** `/` and a name, or `!` and a shell command. A name has no second `/`: `/workspace/notes.txt` is a path in a
 * sentence. `![` begins a picture in Markdown. */
export const isCommand = (line) => {
  if (/^!\s*[^\s[]/.test(line)) return true;
  const name = /^\/(\S+)/.exec(line)?.[1];
  return name !== undefined && !name.includes("/");
};

/** How a tool is typed; one that is called like a command only behind `/tool`. */
const slash = (tool) => (OWN.has(tool.toLowerCase()) ? `/tool ${tool}` : `/${tool}`);

/** @typedef {{value: string, hint: string}} Offer */
/** @typedef {{tools: any[], prompts: any[], servers: string[], files?: string[], team?: boolean}} Known */

const MOST = 50;
const MOST_FILES = 20;
const MODES = ["interactive", "contained", "plan", "strict", "auto_deny"];
const SECOND = { trace: LEVELS, rules: ["revoke"], mcp: ["reconnect"], mode: MODES };

/** @param {string} before @param {Known} known @returns {{start: number, offers: Offer[]}} */
export const offers = (before, known) => {
  const mention = /(?:^|\s)@([^\s@"']*)$/.exec(before);
  if (mention && !isCommand(before))
    return { start: before.length - mention[1].length - 1, offers: filesFitting(mention[1], known.files ?? []) };
  if (!before.startsWith("/") || /["'\n]/.test(before)) return { start: 0, offers: [] };
  const start = before.lastIndexOf(" ") + 1;
  const word = before.slice(start);
  const words = before.slice(1, start).split(/\s+/).filter(Boolean);
  return { start, offers: fitting(word, start === 0 ? first(known) : later(words, known)).slice(0, MOST) };
};

/** Those whose path has the letters that were typed, in their order; the name counts before the folder. */
const filesFitting = (typed, files) => {
  const letters = typed.toLowerCase();
  const has = (path) => {
    let at = -1;
    return [...letters].every((letter) => (at = path.indexOf(letter, at + 1)) >= 0);
  };
  const name = (path) => path.slice(path.lastIndexOf("/") + 1);
  const rank = (path) => (name(path).startsWith(letters) ? 0 : name(path).includes(letters) ? 1 : 2);
  return files.filter((path) => has(path.toLowerCase()))
    .map((path) => ({ path, at: rank(path.toLowerCase()) }))
    .sort((a, b) => a.at - b.at || a.path.length - b.path.length)
    .slice(0, MOST_FILES)
    .map(({ path }) => ({ value: /\s/.test(path) ? `"${path}"` : path, hint: "" }));
};

/** @param {Known} known @returns {Offer[]} */
const first = ({ tools, prompts, team }) => [
  ...(team ? TEAM_COMMANDS : COMMANDS.map(([name, hint]) => [name, hint])).map(([name, hint]) => ({ value: `/${name}`, hint })),
  ...tools.filter((tool) => !named(prompts, tool.name))
    .map((tool) => ({ value: slash(String(tool.name)), hint: String(tool.label ?? tool.description ?? "") })),
  ...prompts.map((prompt) => ({ value: `/${prompt.name}`, hint: String(prompt.description ?? "") })),
];

const named = (some, name) => some.find((one) => String(one.name).toLowerCase() === String(name).toLowerCase());

/** @param {string[]} words those before the one that is typed @param {Known} known @returns {Offer[]} */
const later = ([command, ...given], known) => {
  const { tools, prompts, servers } = known;
  const name = command.toLowerCase();
  const byName = name === "tool" || name === "t";
  if (byName && !given.length)
    return tools.map((tool) => ({ value: String(tool.name), hint: String(tool.label ?? "") }));
  if (Object.hasOwn(SECOND, name) && !given.length) return SECOND[name].map((value) => ({ value, hint: "" }));
  if (name === "help" && !given.length)
    return first(known).map(({ value, hint }) => ({ value: value.replace(/^\/(?:tool )?/, ""), hint }));
  if (name === "mcp" && given.length === 1 && given[0].toLowerCase() === "reconnect")
    return servers.map((value) => ({ value, hint: "" }));
  const wanted = byName ? given[0] : command;
  const fields = ((byName ? null : named(prompts, wanted)) ?? named(tools, wanted))?.fields ?? [];
  const last = given.at(-1) ?? "";
  const chosen = fields.find((field) => `--${field.name}` === last);
  if (chosen?.options)
    return chosen.options.map((one) => ({ value: String(one.value), hint: String(one.label ?? "") }));
  if (chosen && chosen.type !== "boolean") return [];
  return fields.filter((field) => !given.includes(`--${field.name}`)).map((field) => ({
    value: `--${field.name}`,
    hint: String(field.description || field.label || ""),
  }));
};

const fitting = (word, all) => {
  const typed = word.toLowerCase();
  return all.filter((one) => one.value.toLowerCase().startsWith(typed) && one.value !== word);
};

/* What can be named behind a `/` besides Forge's own commands: tools, servers, and the prompts of servers.

   Tools and servers the events tell. Prompts are asked for when a command is typed, and again once a server has
   changed: nobody pays for them who types none. */
const LISTED_MS = 10_000;

export class KnownNames {
  /** @type {any[]} `{name, description, fields}` */
  prompts = [];
  /** What `@` offers: files by their paths in the zones. @type {string[]} */
  files = [];
  #stale = true;
  #listed = 0;

  constructor(ctx) {
    this.ctx = ctx;
    this.close = ctx.store.subscribe((change) => {
      if (change.what === "reset" || (change.what === "standing" && change.part === "servers")) this.#stale = true;
    });
  }

  /** @returns {any[]} those a person may run */
  get tools() { return this.team ? [] : this.ctx.store.standing.tools; }
  get team() { return this.ctx.me?.team === true; }
  get servers() { return [...this.ctx.store.standing.servers.keys()]; }

  /** Asked when somebody types `@`, and not for each letter. @returns {Promise<boolean>} whether there are others now */
  async lookForFiles() {
    const { api, session } = this.ctx;
    if (Date.now() - this.#listed < LISTED_MS || !session.answerable || this.team) return false;
    this.#listed = Date.now();
    const found = await api.get(api.path`/api/sessions/${session.id}/files`).catch(() => ({ files: [] }));
    this.files = found.files;
    return this.files.length > 0;
  }

  /** @returns {Promise<boolean>} whether there is something new to offer */
  async look() {
    const { api, session } = this.ctx;
    if (!this.#stale || !session.answerable || this.team) return false;
    this.#stale = false;
    try {
      this.prompts = (await api.get(api.path`/api/sessions/${session.id}/prompts`)).prompts ?? [];
    } catch {
      this.#stale = true; // the next letter asks again
      return false;
    }
    return this.prompts.length > 0;
  }
}

/* The list above the text box: arrows move in it, Tab or Enter takes, Esc closes. Focus stays in the box, which
   names the option it is on; that there are some is said once. (A text area may not be called a combobox, so it is
   none.) */
let lists = 0;

export class OfferList {
  /** @type {Offer[]} */
  #offers = [];
  #start = 0;
  #active = 0;

  /** @param {HTMLTextAreaElement} box @param {KnownNames} known @param {(words: string) => void} announce */
  constructor(box, known, announce) {
    this.box = box;
    this.known = known;
    this.announce = announce;
    this.id = `offers-${++lists}`;
    this.node = h("ul.completions", { id: this.id, role: "listbox", "aria-label": "Commands, tools and files", hidden: true });
    box.setAttribute("aria-haspopup", "listbox");
    box.setAttribute("aria-autocomplete", "list");
    box.setAttribute("aria-controls", this.id);
    this.close();
  }

  get isOpen() { return !this.node.hidden; }

  typed() {
    const { selectionStart, selectionEnd, value } = this.box;
    if (selectionStart !== selectionEnd) return this.close();
    if (value.startsWith("/")) this.#look(() => this.known.look());
    else if (/(?:^|\s)@/.test(value)) this.#look(() => this.known.lookForFiles());
    const found = offers(value.slice(0, selectionStart), this.known);
    if (!this.isOpen && found.offers.length)
      this.announce(`${found.offers.length} suggestions; arrow keys to choose, Tab to take`);
    this.#offers = found.offers;
    this.#start = found.start;
    this.#active = 0;
    this.#draw();
  }

  async #look(looked) {
    if ((await looked()) && document.activeElement === this.box) this.typed();
  }

  /** @param {KeyboardEvent} event @returns {boolean} whether it was for the list */
  key(event) {
    if (!this.isOpen) return false;
    if (event.key === "Escape") this.close();
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") this.#move(event.key === "ArrowDown" ? 1 : -1);
    else if (event.key === "Tab" && !event.shiftKey) this.#take(this.#active);
    else if (event.key === "Enter" && !event.shiftKey && this.#isUnfinished()) this.#take(this.#active);
    else return false;
    return true;
  }

  close() {
    this.#offers = [];
    this.#draw();
  }

  /** Enter sends a line that is a whole command already; it takes an offer where a command's name is half typed, or a
   * file's. */
  #isUnfinished() {
    return this.#start === 0 || this.box.value[this.#start] === "@";
  }

  #move(by) {
    this.#active = (this.#active + by + this.#offers.length) % this.#offers.length;
    this.#draw();
  }

  #take(index) {
    const taken = this.#offers[index];
    const behind = this.box.value.slice(this.box.selectionStart);
    const before = `${this.box.value.slice(0, this.#start)}${taken.value} `;
    this.box.value = before + behind.trimStart();
    this.box.setSelectionRange(before.length, before.length);
    this.box.dispatchEvent(new Event("input", { bubbles: true }));
    this.box.focus();
  }

  #draw() {
    const open = this.#offers.length > 0;
    this.node.hidden = !open;
    if (!open) {
      this.box.removeAttribute("aria-activedescendant");
      replace(this.node);
      return;
    }
    const options = this.#offers.map((one, index) =>
      h("li",
        {
          role: "option",
          id: `${this.id}-${index}`,
          "aria-selected": String(index === this.#active),
          on: { pointerdown: (event) => event.preventDefault(), click: () => this.#take(index) },
        },
        el("code", one.value),
        el("span.dim", one.hint),
      ),
    );
    replace(this.node, ...options);
    this.box.setAttribute("aria-activedescendant", `${this.id}-${this.#active}`);
    options[this.#active].scrollIntoView({ block: "nearest" });
  }
}
