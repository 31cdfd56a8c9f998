/* The files that a turn or a call changed: one line for all, a row a file with what changed in it on request, and
   Undo for all or one of them. Undo is an ordinary call of the person; its card shows every file before anything
   happens. */

import { path, randomId } from "../api.js";
import { el, h, replace } from "../dom.js";
import { diffView } from "./diff.js";
import { changedAnything } from "../fold/items.js";
import { count, counted, oneLine, texts } from "../format.js";
import { disclosure } from "../widgets.js";

/** @typedef {{call: string, tool: string, turn: number, files: any[], count: number, added: number, removed: number,
 * undone: boolean, problem: string, remade: string[], reached: string[], undoable: boolean}} Changed what one call
 * changed, as the fold keeps it */

const amounts = (added, removed) =>
  added || removed
    ? el("span.diff-amounts", el("span.diff-plus", `+${added}`), " ", el("span.diff-minus", `−${removed}`))
    : null;

/** Rows by path: a file that several calls changed stands once. @param {Changed[]} calls */
const rowsOf = (calls) => {
  const rows = new Map();
  for (const call of calls)
    for (const file of call.files) {
      const name = oneLine(file.path ?? "");
      const row = rows.get(name) ?? { path: name, verb: "", added: 0, removed: 0, calls: [], selected: true };
      row.verb = row.verb === "created" && file.verb !== "deleted" ? "created" : oneLine(file.verb ?? "");
      row.added += count(file.added);
      row.removed += count(file.removed);
      row.selected &&= file.selected !== false;
      row.calls.push(call.call);
      rows.set(name, row);
    }
  return [...rows.values()];
};

const undoButton = (label, args, ctx, said) => {
  const button = h("button.small.quiet", { "aria-label": label, title: label }, "Undo");
  button.addEventListener("click", async () => {
    button.disabled = true;
    const { ok, problem } = await ctx.act("manualToolInvoke", { toolName: "undo_changes", args, requestId: randomId() });
    button.disabled = false;
    replace(said, ok ? null : h("p.problem", { role: "alert" }, problem ?? "The server did not accept it."));
  });
  return button;
};

const fileRow = (row, narrow, ctx, said) => {
  const load = async () => {
    const nodes = [];
    for (const call of row.calls) {
      const where = `${path`/api/sessions/${ctx.session.id}/changes/diff`}?call=${encodeURIComponent(call)}&path=${encodeURIComponent(row.path)}`;
      const { diff } = await ctx.api.get(where);
      nodes.push(diff ? diffView(diff) : el("p.dim", "There is no text to compare."));
    }
    return nodes;
  };
  const label = el("span",
    el("code.changed-path", row.path),
    " ",
    row.verb === "changed" ? null : el("span.dim", `${row.verb} `),
    amounts(row.added, row.removed),
    row.selected ? null : el("span.dim", " perhaps not by this call alone"),
  );
  const { button, region } = disclosure(label, load, { class: "small", name: "What changed in " });
  // Whoever presses this one has read that it may be somebody else's work.
  const named = row.selected ? { paths: [row.path] } : { paths: [row.path], also: [row.path] };
  const mayUndo = mayAct(ctx) ? undoButton(`Undo the changes of ${row.path}`, { ...narrow, ...named }, ctx, said) : null;
  return el("li.changed-file", el("div.changed-row", button, mayUndo), region);
};

/** Whether a person can call the tool from here. */
const mayAct = (ctx) => Boolean(ctx.session?.answerable) && !ctx.me?.team;

/** What undo does not take back. @param {Changed[]} calls */
const lasting = (calls) => {
  const named = (lists) => [...new Set(texts(lists.flat()))].map(oneLine);
  const few = (names) => names.slice(0, MOST_NAMED).join(", ") + (names.length > MOST_NAMED ? `, and ${names.length - MOST_NAMED} more` : "");
  const directories = named(calls.map((one) => one.remade)).map((name) => `${name} (a tool can make it again)`);
  const hosts = named(calls.map((one) => one.reached));
  return [few(directories), hosts.length ? `what was sent to ${few(hosts)}` : ""].filter(Boolean).join("; ");
};

const FEW = 8;
const MOST_NAMED = 20;

/** @param {Changed[]} calls @param {Record<string, any>} narrow what Undo takes back: `{turn}` or `{call}`
 * @param {string} whose `turn 2`, `this call` */
export const changesNode = (calls, narrow, whose, ctx) => {
  const rows = rowsOf(calls);
  const hidden = calls.reduce((sum, one) => sum + Math.max(one.count - one.files.length, 0), 0);
  const [added, removed] = calls.reduce((sum, one) => [sum[0] + one.added, sum[1] + one.removed], [0, 0]);
  if (!changedAnything(calls)) return null;
  const changing = calls.filter((one) => one.undoable);
  const undone = changing.length > 0 && changing.every((one) => one.undone);
  const stays = lasting(calls);
  const said = el("div.said");
  const list = h("ul.changed-files", { role: "list", "aria-label": `Files that ${whose} changed` },
    rows.map((row) => fileRow(row, narrow, ctx, said)),
    hidden ? el("li.dim", `and ${counted(hidden, "more file")}; /changes lists them`) : null,
  );
  const { button, region } = disclosure(
    el("span", `Changed ${counted(rows.length + hidden, "file")} `, amounts(added, removed)),
    () => list,
    { open: Boolean(narrow.turn) && rows.length <= FEW && !undone, class: "small" },
  );
  const problems = texts(calls.map((one) => one.problem)).filter(Boolean);
  return h("section.changes", { "aria-label": `What ${whose} changed` },
    el("div.changed-row",
      button,
      undone ? el("span.pill", "undone") : changing.length && mayAct(ctx) ? undoButton(`Undo what ${whose} changed`, narrow, ctx, said) : null,
    ),
    problems.map((problem) => el("p.dim", `Some changes may be missing: ${problem}`)),
    stays ? el("p.dim", `Not taken back: ${stays}`) : null,
    region,
    said,
  );
};

/** At the end of a turn. @returns {{node: HTMLElement, update: (item: any) => void}} */
export const turnChanges = (item, ctx) => {
  const node = el("div.line.turn-changes");
  const update = (now) => replace(node, changesNode(now.calls, { turn: now.turn }, `turn ${now.turn}`, ctx));
  update(item);
  return { node, update };
};
