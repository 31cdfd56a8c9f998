/* What the pages beside the conversation are built of: the sheet, its sections, tables that become cards on a phone, and
   the words for nothing, for waiting and for a refusal. Everything foreign goes in as text. */

import { el, h, replace } from "../dom.js";
import { oneLine } from "../format.js";
import { openDialog } from "../widgets.js";

let counted = 0;

/** A page's frame. @param {string} title @param {any} beside what stands in the line of the title @param {...any} children */
export const sheet = (title, beside, ...children) =>
  el("div.sheet", el("header.sheet-head", h("h2.sheet-title", { tabindex: "-1" }, title), beside), children);

/** A section under a heading that links can point to. */
export const section = (title, ...children) => {
  const heading = h("h3.part-title", { id: `part-${++counted}`, tabindex: "-1" }, title);
  return h("section.part", { "aria-labelledby": heading.id }, heading, children);
};

export const nothing = (words) => el("p.nothing", words);

export const loading = () => h("p.nothing", { "aria-busy": "true" }, "Loading…");

export const problem = (failure, otherwise = "This could not be loaded.") =>
  h("p.problem", { role: "alert" }, problemWords(failure, otherwise));

export const problemWords = (failure, otherwise = "It could not be done.") => {
  if (typeof failure?.problem !== "string") console.error(failure);
  const fields = Object.entries(failure?.fields ?? {}).map(([name, words]) => `${name}: ${words}`);
  return [failure?.problem || otherwise, ...fields].join("\n");
};

/** Says what is wrong with a field, or with "" that nothing is. */
export const markWrong = (control, error, words) => {
  error.hidden = !words;
  replace(error, words);
  if (words) control.setAttribute("aria-invalid", "true");
  else control.removeAttribute("aria-invalid");
};

/** `{Name: value}` as a list; what is empty is left out. */
export const factList = (facts) => {
  const rows = Object.entries(facts).filter(
    ([, value]) => value !== null && value !== undefined && value !== "" && value !== false,
  );
  return el("dl.facts.page-facts", rows.map(([name, value]) => el("div", el("dt", name), el("dd", value))));
};

/**
 * A table; on a narrow screen each row is a card whose lines carry the names of the columns. The roles stand in the markup,
 * because a browser forgets them of a table that is laid out otherwise.
 * @param {string} label @param {string[]} columns @param {{cells: any[], dataset?: Record<string, string>}[]} rows the first cell heads its row
 */
export const dataTable = (label, columns, rows) =>
  h("table.data", { role: "table", "aria-label": label },
    h("thead", { role: "rowgroup" },
      h("tr", { role: "row" },
        columns.map((name) => h("th", { role: "columnheader", scope: "col" }, name || el("span.unseen", "What to do"))),
      ),
    ),
    h("tbody", { role: "rowgroup" },
      rows.map(({ cells, dataset }) =>
        h("tr", { role: "row", dataset }, cells.map((cell, at) => cellOf(cell, columns[at], at === 0))),
      ),
    ),
  );

const cellOf = (cell, name, heads) => {
  const empty = cell === null || cell === undefined || cell === "";
  const props = { dataset: { name, empty: String(empty) } };
  return heads
    ? h("th", { ...props, role: "rowheader", scope: "row" }, cell)
    : h("td", { ...props, role: "cell" }, cell);
};

/** @param {string} words @param {string} [how] `ok`, `warn`, `fail`, `info` */
export const pill = (words, how = "") => h("span.pill", { dataset: { how } }, words);

const STATUS_LOOKS = { running: "ok", waiting: "warn", queued: "info", failed: "fail" };

/** The state of a team's session. @param {string} status like `waiting (held)` */
export const statusPill = (status) => pill(oneLine(status), STATUS_LOOKS[status.split(" ")[0]] ?? "");

/** Draws again only what changed, so that nobody's focus or selection is lost to a redraw with the same facts. */
export const redraw = (place, facts, make) => {
  const known = JSON.stringify(facts);
  if (drawnFacts.get(place) === known) return;
  drawnFacts.set(place, known);
  replace(place, make());
};
/** @type {WeakMap<Element, string>} */
const drawnFacts = new WeakMap();

/** Whether every word of the query stands in one of the texts. */
export const fits = (query, ...texts) => {
  const said = texts.join(" ").toLocaleLowerCase();
  return query.toLocaleLowerCase().split(/\s+/).every((word) => said.includes(word));
};

/** A part of a page that a search narrows: `draw` takes all there is, `filter` what was typed.
 * @param {HTMLElement} node @param {(one: any) => any[]} textsOf what is searched
 * @param {() => void} arrange shows what is `found` */
export const searchable = (node, textsOf, arrange) => {
  const part = {
    node,
    all: /** @type {any[]} */ ([]),
    query: "",
    found: () => part.all.filter((one) => fits(part.query, ...textsOf(one))),
    shown: () => part.found().length,
    draw: (all) => {
      part.all = all;
      arrange();
    },
    filter: (query) => {
      part.query = query;
      arrange();
    },
  };
  return part;
};

/** @param {string} label @param {(query: string) => void} changed */
export const searchBox = (label, changed) => {
  const input = h("input.search", {
    type: "search",
    "aria-label": label,
    placeholder: label,
    spellcheck: "false",
    autocomplete: "off",
  });
  input.addEventListener("input", () => changed(input.value.trim()));
  return input;
};

/** A form of one line that changes something; what came of it stands below.
 * @param {string} label @param {Record<string, any>} fields label → its control, with an id @param {string} button
 * @param {() => Promise<any>} act gives what is said then @param {string} otherwise where a failure has no words
 * @param {...any} hints */
export const lineForm = (label, fields, button, act, otherwise, ...hints) => {
  const said = h("div.said", { role: "status" });
  const submit = async (event) => {
    event.preventDefault();
    replace(said);
    try {
      replace(said, await act());
    } catch (failure) {
      replace(said, problem(failure, otherwise));
    }
  };
  const labelled = Object.entries(fields).map(([words, control]) =>
    el("div.field", h("label.field-label", { for: control.id }, words), control),
  );
  return h("form.line-form", { "aria-label": label, on: { submit } }, labelled, h("button.primary", { type: "submit" }, button), hints, said);
};

/* Buttons that change something: one press at a time, what came of it in words beside them, and a question before what is
   not easily undone. The question is a dialog of the page; Esc and its first button leave everything as it is. */
/**
 * @param {string} label @param {() => Promise<any>} act @param {{look?: string, busy?: string, name?: string, said?: HTMLElement}} [about]
 * `name`: for a screen reader, where the label alone says too little; `said`: where the outcome stands
 * @returns {HTMLButtonElement}
 */
export const actButton = (label, act, { look = "", busy = "One moment…", name, said } = {}) => {
  const node = h("button", { class: look || null, "aria-label": name }, label);
  node.addEventListener("click", async () => {
    if (node.getAttribute("aria-disabled")) return;
    node.setAttribute("aria-disabled", "true");
    replace(node, busy);
    if (said) replace(said);
    try {
      const words = await act();
      if (said && typeof words === "string") replace(said, outcome(words));
    } catch (failure) {
      if (said) replace(said, h("p.problem", { role: "alert" }, problemWords(failure)));
      else console.error(failure);
    }
    node.removeAttribute("aria-disabled");
    replace(node, label);
  });
  return node;
};

/** What was done. */
const outcome = (words) => h("p.outcome", { role: "status" }, words);

/** Where outcomes stand. */
export const saidPlace = () => el("div.said");

/** Asks before something is done.
 * @param {{title: string, words?: any, yes: string, no?: string, look?: string}} about @returns {Promise<boolean>} */
export const confirmed = ({ title, words, yes, no = "Cancel", look = "danger" }) =>
  new Promise((resolve) => {
    const dialog = openDialog(title, "confirm");
    const press = (label, value, kind = "") =>
      h("button", { class: kind || null, on: { click: () => dialog.close(value) } }, label);
    dialog.append(
      ...(words ? [el("div.confirm-words", words)] : []),
      el("div.buttons", press(no, ""), press(yes, "yes", look)),
    );
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"));
    dialog.showModal();
  });

/* Loading again what may have changed: at most one request at a time, soon after the last change, and not after the page
   was left. An answer that a later one has overtaken is dropped. */
const SOON_MS = 300;

/** @template T @param {() => Promise<T>} load @param {(answer: T) => void} draw @param {(failure: any) => void} failed */
export const refreshed = (load, draw, failed) => {
  let timer = 0;
  let turn = 0;
  let left = false;
  const now = async () => {
    clearTimeout(timer);
    timer = 0;
    const mine = ++turn;
    try {
      const answer = await load();
      if (!left && mine === turn) draw(answer);
    } catch (failure) {
      if (!left && mine === turn) failed(failure);
    }
  };
  return {
    now,
    soon: () => {
      if (!left) timer ||= window.setTimeout(now, SOON_MS);
    },
    leave: () => {
      left = true;
      clearTimeout(timer);
    },
  };
};
