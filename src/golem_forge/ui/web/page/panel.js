/* The panel at the side: what waits, the plan, the workers, the meters, the ports, the servers and the walls.

   Beside the conversation on wide screens; a sheet over it on narrow ones, opened by its button, closed by Esc. */

import { randomId } from "./api.js";
import { portLink } from "./cards/results.js";
import { el, h, icon, replace } from "./dom.js";
import { cost, oneLine, wholeNumber } from "./format.js";
import { remember, remembered } from "./storage.js";
import { meter } from "./widgets.js";

/* The worker tree: who works for whom, on what, with which model, at what cost. One branch can be stopped on its
   own. */
const WORKER_MARKS = {
  pending: ["○", "waits"],
  running: ["●", "works"],
  complete: ["✓", "done"],
  error: ["✗", "failed"],
  ended: ["·", "ended"],
};
const MOST_WORKERS = 100;
const DEEPEST = 20;

/** @param {import("./open_session.js").OpenSession} open */
const workers = (open) => {
  const { standing } = open.store;
  if (!standing.workers.size) return null;
  const rows = workerTree([...standing.workers.values()]).map(({ one, depth }) => ({
    id: String(one.workerId),
    name: String(one.name ?? ""),
    task: depth ? String(one.task ?? "") : "",
    model: String(one.model ?? ""),
    status: Object.hasOwn(WORKER_MARKS, one.status) ? one.status : "ended",
    cost: standing.usageByWorker.get(one.workerId)?.cost,
    prices: standing.usageByWorker.get(one.workerId)?.prices,
    depth,
  }));
  const answerable = open.session.answerable;
  return {
    title: "Workers",
    facts: JSON.stringify([rows, answerable]),
    nodes: () => [
      h("ul.worker-tree", { role: "list" }, rows.slice(0, MOST_WORKERS).map((row) => workerRow(row, open, answerable))),
      rows.length > MOST_WORKERS ? el("p.dim", `and ${rows.length - MOST_WORKERS} more`) : null,
    ],
  };
};

const workerRow = (row, open, answerable) => {
  const [mark, words] = WORKER_MARKS[row.status];
  const stop = () => open.ctx.act("interrupt", { workerId: row.id, reason: "user" });
  const facts = [row.model, typeof row.cost === "number" ? cost(row.cost, row.prices) : ""].filter(Boolean).join(" · ");
  return h("li", { dataset: { depth: Math.min(row.depth, 6), status: row.status } },
    h("span.mark", { "aria-hidden": "true" }, mark),
    el("div",
      el("p.who", el("span.unseen", `Depth ${row.depth}: `), row.name, el("span.unseen", ` (${words})`)),
      row.task ? h("p.dim.clamp", { title: row.task }, row.task) : null,
      facts ? el("p.dim.small", facts) : null,
    ),
    answerable && !open.ctx.me?.team && row.depth > 0 && row.status === "running"
      ? h("button.quiet",
          {
            dataset: { focus: row.id },
            "aria-label": `Stop ${row.name}`,
            title: "Stop this branch",
            on: { click: stop },
          },
          icon("stop"),
        )
      : null,
  );
};

/** Children under their parents, in the order they began. @returns {{one: any, depth: number}[]} */
const workerTree = (all) => {
  const known = new Set(all.map((one) => one.workerId));
  const below = new Map();
  for (const one of all) {
    const parent = known.has(one.parentId) ? one.parentId : "";
    below.set(parent, [...(below.get(parent) ?? []), one]);
  }
  const rows = [];
  const seen = new Set();
  const add = (one, depth) => {
    if (seen.has(one.workerId) || depth > DEEPEST) return;
    seen.add(one.workerId);
    rows.push({ one, depth });
    for (const child of below.get(one.workerId) ?? []) add(child, depth + 1);
  };
  for (const root of below.get("") ?? []) add(root, 0);
  return rows;
};

/* The plan: its steps and how far they are. Of several workers' plans the one that changed last. */
const MARKS = { completed: ["✓", "done"], in_progress: ["▸", "now"], pending: ["○", "to do"] };
const MOST_STEPS = 200;

const plan = (open) => {
  const now = open.store.standing.plan;
  const steps = now?.plan ?? [];
  if (!steps.length) return null;
  const done = steps.filter((one) => one?.status === "completed").length;
  return {
    title: "Plan",
    facts: JSON.stringify(now),
    nodes: () => [
      el("p.progress-line",
        h("progress", { value: done, max: steps.length, "aria-label": `${done} of ${steps.length} steps done` }),
        el("span", `${done}/${steps.length}`),
      ),
      now.explanation ? el("p.dim.small", now.explanation) : null,
      h("ol.steps", { role: "list" }, ...steps.slice(0, MOST_STEPS).map(step)),
      steps.length > MOST_STEPS ? el("p.dim.small", `and ${steps.length - MOST_STEPS} more`) : null,
    ],
  };
};

const step = (one) => {
  const status = Object.hasOwn(MARKS, one?.status) ? one.status : "pending";
  const [mark, words] = MARKS[status];
  return h("li", { dataset: { status }, "aria-current": status === "in_progress" ? "step" : null },
    h("span.mark", { "aria-hidden": "true" }, mark),
    el("span", one?.step ?? "", el("span.unseen", ` (${words})`)),
  );
};

/* What the session stands in: its walls, its zones, its servers and how they are. */
const MOST_SERVERS = 50;
const WELL = new Set(["ready", "known"]);
const BADLY = new Set(["failed", "backoff"]);

const surroundings = (open) => {
  const { walls, session, servers } = open.store.standing;
  const zones = Array.isArray(session?.zones) ? session.zones : [];
  if (!walls && !zones.length && !servers.size) return null;
  const list = [...servers.values()];
  return {
    title: "Surroundings",
    facts: JSON.stringify([walls, zones, list]),
    nodes: () => [
      walls ? wallsRow(walls) : null,
      zones.length
        ? h("ul.zones", { role: "list", "aria-label": "Zones" },
            ...zones.slice(0, MOST_SERVERS).map((zone) =>
              el("li", el("code", `/${zone?.name ?? ""}`), ` ${zone?.mode ?? ""}`),
            ),
          )
        : null,
      list.length
        ? h("ul.servers", { role: "list", "aria-label": "Servers" }, ...list.slice(0, MOST_SERVERS).map(server))
        : null,
    ],
  };
};

const wallsRow = (walls) => {
  const none = walls.level === "none" || walls.level === "off";
  const missing = Array.isArray(walls.missing) && walls.missing.length ? `without ${walls.missing.join(", ")}` : "";
  const open = Array.isArray(walls.exits) && walls.exits.length ? `open for ${walls.exits.join(", ")}` : "";
  const why = [missing, walls.cause, walls.fix, open].filter(Boolean).join("; ");
  return h("div.walls", { dataset: { level: none ? "none" : "some" } },
    el("p", el("span", "Walls"), el("strong", walls.level)),
    why ? el("p.dim.small", why) : null,
  );
};

const server = (one) => {
  const state = String(one.state ?? "");
  const how = WELL.has(state) ? "well" : BADLY.has(state) || one.error ? "badly" : "between";
  return h("li", { dataset: { how } },
    el("p", h("span.dot", { "aria-hidden": "true" }), el("span.mono", one.server), el("span.dim", state)),
    one.error ? el("p.dim.small", one.error) : null,
  );
};

/* What commands of the session listen on. Publishing is the person's own call, as by `/publish`. */
const MOST_PORTS = 50;

const ports = (open) => {
  const rows = open.ports?.rows ?? [];
  if (!rows.length) return null;
  const answerable = open.session.answerable;
  return {
    title: "Ports",
    facts: JSON.stringify([rows, answerable]),
    nodes: () => [
      h("ul.ports", { role: "list" }, ...rows.slice(0, MOST_PORTS).map((row) => portRow(row, open, answerable))),
      el("p.dim.small", "Commands of this session reach them at localhost. A published one is reached by every program and user of this computer."),
    ],
  };
};

const portRow = (row, open, answerable) => {
  const verb = row.url ? "unpublish" : "publish";
  const act = () => open.ctx.act("command", { requestId: randomId(), text: `/${verb} ${row.port}` });
  const since = row.since ? ` since ${new Date(row.since).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" })}` : "";
  return el("li",
    el("p",
      el("strong", String(row.port)),
      answerable
        ? h("button.quiet", { dataset: { focus: String(row.port) }, "aria-label": `${verb} port ${row.port}`, on: { click: act } },
            row.url ? "Unpublish" : "Publish",
          )
        : null,
    ),
    h("p.dim.small.clamp", { title: row.command }, row.command ? el("code", row.command) : "nothing listens now", since),
    row.url ? el("p.small", portLink(row.url)) : null,
  );
};

/* What waits for an answer, oldest first. A row leads to its card; nothing is answered from here. */
const MOST_QUESTIONS = 50;

const waiting = (open) => {
  const questions = open.store.openQuestions();
  if (!questions.length) return null;
  const rows = questions.slice(0, MOST_QUESTIONS).map((one) => {
    const { tool, risk, source, title } = one.shown.event.data;
    return one.kind === "approval"
      ? { id: one.requestId, name: String(tool), about: oneLine(one.shown.view?.card?.about ?? ""), risk: String(risk) }
      : { id: one.requestId, name: `${source}: ${title}`, about: "", risk: "" };
  });
  return {
    title: `${open.session.answerable ? "Waiting for you" : open.ctx.me?.team ? "Open questions" : "Asked elsewhere"} (${questions.length})`,
    facts: JSON.stringify([rows, questions.length, open.session.answerable]),
    nodes: () => [
      h("ol.queue", { role: "list" },
        ...rows.map((row) =>
          el("li",
            h("button.row", { dataset: { focus: row.id }, on: { click: () => open.desk.frame.toQuestion(row.id) } },
              el("span.inbox-asks", el("span.mono", row.name), row.about ? el("span.dim.small.about", row.about) : null),
              row.risk ? h("span.risk", { dataset: { risk: row.risk } }, row.risk) : null,
            ),
          ),
        ),
      ),
    ],
  };
};

/* Meters: how full the context is, how many tokens went in and out, what it cost so far, how much of the budget is
   left. */
const meters = (open) => {
  const { context, usage } = open.store.standing;
  const budget = open.budget.rows;
  if (!context && !usage && !budget.length) return null;
  const used = usage?.session;
  return {
    title: "Use",
    facts: JSON.stringify([context, used, budget]),
    nodes: () => [
      context?.tokenLimit ? contextMeter(context) : null,
      used
        ? el("dl.sums",
            fact("Cost", cost(used.cost, used.prices) + (used.prices?.startsWith("as of") ? ` (${oneLine(used.prices)})` : "")),
            fact("Tokens in", wholeNumber(used.input) + (used.cached ? ` (${wholeNumber(used.cached)} cached)` : "")),
            fact("Tokens out", wholeNumber(used.output)),
          )
        : null,
      ...budget.map(budgetMeter),
    ],
  };
};

const contextMeter = ({ tokensUsed, tokenLimit }) =>
  meter("Context", tokensUsed, tokenLimit, `${wholeNumber(tokensUsed)} of ${wholeNumber(tokenLimit)} tokens`);

/** @type {Record<string, [string, (amount: number) => string]>} */
const BUDGETS = {
  USD: ["Cost", (amount) => cost(amount)],
  tokens: ["Tokens", wholeNumber],
  requests: ["Requests", wholeNumber],
  calls: ["Tool calls", wholeNumber],
  seconds: ["Seconds", wholeNumber],
};

/** How much of what the session may use is used. @param {{unit: string, allowed: number, used: number}} one */
const budgetMeter = ({ unit, allowed, used }) => {
  const [name, spelled] = BUDGETS[unit] ?? [unit, wholeNumber];
  return meter(`${name} budget`, used, allowed, `${spelled(used)} of ${spelled(allowed)}`);
};

const fact = (name, value) => el("div", el("dt", name), el("dd", value));
const KEY = "forge.panel";
const WIDE = "(min-width: 68.75rem)";
const SECTIONS = { waiting, plan, workers, ports, meters, surroundings };

export class Panel {
  /** @type {import("./open_session.js").OpenSession | null} */
  #open = null;
  /** @type {any} another time of the session, which a replay shows */
  #beside = null;
  #wide = matchMedia(WIDE);
  /** What each section shows. Not in the document: arguments may hold characters that steer text. */
  #drawn = new Map();

  /** @param {HTMLElement} node @param {HTMLElement} button @param {(where: string) => void} go
   * @param {() => void} changed it was opened or closed */
  constructor(node, button, go, changed = () => {}) {
    this.node = node;
    this.changed = changed;
    this.button = button;
    this.go = go;
    /** @type {Record<string, HTMLElement>} */
    this.places = Object.fromEntries(Object.keys(SECTIONS).map((name) => [name, h("section", { hidden: true })]));
    const close = h("button.quiet.close-panel", { "aria-label": "Close the panel", on: { click: () => this.toggle() } },
      icon("close"),
    );
    replace(node, close, ...Object.values(this.places));
    this.#wide.addEventListener("change", () => this.#arrange());
    button.hidden = true;
  }

  /** @param {import("./open_session.js").OpenSession} open */
  shows(open) {
    this.#open = open;
    this.button.hidden = false;
    this.#drawn.clear();
    this.#arrange();
  }

  /** What an area shows of the session, in place of how it stands now; null: now again.
   * @param {{store: import("./store.js").SessionStore, ctx: any, session: any} | null} other */
  beside(other) {
    if (this.#beside === other) return;
    this.#beside?.forget();
    this.#beside = other && { ...other, forget: other.store.subscribe(() => this.draw()) };
    this.#drawn.clear();
    this.draw();
  }

  toggle() {
    const open = this.node.hidden;
    if (this.#wide.matches) remember(KEY, open ? null : "closed");
    this.#set(open);
    if (!this.#wide.matches) (open ? this.node.querySelector("button") : this.button)?.focus();
  }

  /** @returns {boolean} whether there was a sheet to close */
  closeSheet() {
    if (this.#wide.matches || this.node.hidden) return false;
    this.#set(false);
    this.button.focus();
    return true;
  }

  /** A sheet covers what somebody wants to look at. */
  makeRoom() {
    if (!this.#wide.matches) this.#set(false);
  }

  draw() {
    const open = this.#beside ?? this.#open;
    if (!open || this.node.hidden) return;
    for (const [name, section] of Object.entries(SECTIONS)) {
      const place = this.places[name];
      const drawn = section(open);
      place.hidden = !drawn;
      if (!drawn) {
        this.#drawn.delete(name);
        continue;
      }
      // Only what changed is made anew: focus and what is unfolded stay.
      if (this.#drawn.get(name) === drawn.facts) continue;
      this.#drawn.set(name, drawn.facts);
      const focused = place.querySelector(":focus")?.getAttribute("data-focus");
      replace(place, el("h2", drawn.title), ...drawn.nodes());
      const again = focused ? place.querySelector(`[data-focus="${CSS.escape(focused)}"]`) : null;
      if (again instanceof HTMLElement) again.focus();
    }
  }

  #arrange() {
    this.#set(this.#open !== null && this.#wide.matches && remembered(KEY) !== "closed");
  }

  #set(open) {
    this.node.hidden = !open;
    document.body.dataset.panel = open ? "open" : "closed";
    this.button.setAttribute("aria-expanded", String(open));
    this.draw();
    this.changed();
  }
}
