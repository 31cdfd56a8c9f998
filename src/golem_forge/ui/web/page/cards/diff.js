/* A diff on the page: several files, each can be folded; inline or side by side, as the person last chose.

   Bounded: more than `most` rows are shown as their beginning and their end, with the number between and a button
   for all, or for 5,000 more where a page could not bear all. Narrow windows are always inline. `whole` fetches the
   text where the server has shortened it; until then nobody knows how many lines there are. Where all files are
   new they are shown as the files that they will be, with the colours of their languages. */

import { el, h, replace } from "../dom.js";
import { counted } from "../format.js";
import { remember, remembered } from "../storage.js";

/* A unified diff as rows: what each line is, its number before and after, and which file it belongs to.

   Every line of the text becomes a row or a file's title; nothing is dropped, also of text that is no diff at all.
   Threat: a removed line `-- a/x` must not pass for the heading of another file, so a hunk is as long as it says it
   is. A line of a hunk begins with a blank, `+` or `-`: what begins with `@`, `#` or `…` there was put in by who
   shortened the text, and from then on lines have no number and nothing is a heading until the next hunk. Where it was
   cut by characters, what follows is the end of some line: whatever it begins with was put there to look like a mark. */
/** @typedef {{kind: "add" | "del" | "same" | "hunk" | "note" | "warn", text: string, old: number | null, now: number |
 * null}} Row */
/** @typedef {{title: string, state: string, added: number, removed: number, rows: Row[]}} DiffFile */

const HUNK = /^@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@/;
const CUT_ANYWHERE = /^… [\d,]+ characters …$/; // as `ui/web/views.py` writes it
const NOWHERE = "/dev/null";
const NEW = "new file";
const isMarker = (mark) => mark === "#" || mark === "…";

/** @param {string} head `--- a/zone/file` @param {string} root */
const pathOf = (head, root) => {
  const name = head.slice(4);
  return /^[ab]\//.test(name) ? root + name.slice(2) : name;
};

const fileOf = (before, after, root) => {
  const [was, is] = [pathOf(before, root), pathOf(after, root)];
  const file = (title, state) => ({
    title,
    state,
    added: 0,
    removed: 0,
    rows: [],
  });
  if (was === NOWHERE) return file(is, NEW);
  if (is === NOWHERE) return file(was, "deleted");
  return was === is ? file(is, "") : file(is, `moved from ${was}`);
};

/** @param {string} unified @param {string} [root] before the names of files: `/` for those in zones
 * @returns {DiffFile[]} */
export const parseDiff = (unified, root = "/") => {
  const lines = unified.split("\n");
  if (lines.at(-1) === "") lines.pop();
  const files = [];
  let [oldLeft, nowLeft, old, now] = [0, 0, 0, 0];
  let shortened = false;
  /** @type {(kind: Row["kind"], text: string, before?: number | null, after?: number | null) => void} */
  const put = (kind, text, before = null, after = null) => {
    if (!files.length) files.push({ title: "", state: "", added: 0, removed: 0, rows: [] });
    files[files.length - 1].rows.push({ kind, text, old: before, now: after });
  };
  for (let at = 0; at < lines.length; at += 1) {
    const line = lines[at];
    const mark = line[0] ?? "";
    if ((oldLeft > 0 || nowLeft > 0) && (isMarker(mark) || HUNK.test(line))) {
      [oldLeft, nowLeft] = [0, 0];
      shortened = isMarker(mark);
    }
    if (CUT_ANYWHERE.test(lines[at - 1] ?? "")) put("note", line);
    else if (mark === "\\") put("note", line);
    else if (oldLeft > 0 || nowLeft > 0 || (shortened && (mark === "+" || mark === "-" || mark === " "))) {
      if (mark === "+") put("add", line.slice(1), null, shortened ? null : now);
      else if (mark === "-") put("del", line.slice(1), shortened ? null : old, null);
      else put("same", mark === " " ? line.slice(1) : line, shortened ? null : old, shortened ? null : now);
      if (mark !== "+") [oldLeft, old] = [oldLeft - 1, old + 1];
      if (mark !== "-") [nowLeft, now] = [nowLeft - 1, now + 1];
      if (mark === "+") files[files.length - 1].added += 1;
      if (mark === "-") files[files.length - 1].removed += 1;
    } else {
      const hunk = HUNK.exec(line);
      if (hunk) {
        shortened = false;
        [old, now] = [Number(hunk[1]), Number(hunk[3])];
        [oldLeft, nowLeft] = [Number(hunk[2] ?? 1), Number(hunk[4] ?? 1)];
        put("hunk", line);
      } else if (line.startsWith("--- ") && lines[at + 1]?.startsWith("+++ ")) {
        at += 1;
        files.push(fileOf(line, lines[at], root));
      } else put(isMarker(mark) ? "warn" : "note", line);
    }
  }
  return files;
};

/** What differs between two lines, by words: `[from, endOfOld, endOfNow]`; null where little is alike. */
const changedPart = (old, now) => {
  if (old.length > 2000 || now.length > 2000) return null;
  const [one, other] = [tokens(old), tokens(now)];
  const shortest = Math.min(one.length, other.length);
  let head = 0;
  while (head < shortest && one[head] === other[head]) head += 1;
  let tail = 0;
  while (tail < shortest - head && one[one.length - 1 - tail] === other[other.length - 1 - tail]) tail += 1;
  const before = length(one.slice(0, head));
  const after = length(one.slice(one.length - tail));
  const alike = one.slice(0, head).concat(one.slice(one.length - tail)).join("").trim().length;
  if (alike * 3 < Math.max(old.length, now.length)) return null;
  return [before, old.length - after, now.length - after];
};

const tokens = (text) => text.match(/[\p{L}\p{N}_]+|\s+|[^]/gu) ?? [];
const length = (parts) => parts.reduce((sum, part) => sum + part.length, 0);

/* The rows of a diff as a table: inline, one line below the other, or side by side. A change is told by its mark,
   not by its colour alone; within a changed line the words that differ stand out. */
/** @typedef {{gone: Row[], come: Row[], parts: (number[] | null)[]}} Change */

const MARKS = { add: "+", del: "−", same: "\u00a0" };

/** Removed lines and the added ones that follow them stand for each other; other rows alone. */
const grouped = (rows) => {
  const found = [];
  for (let at = 0; at < rows.length;) {
    if (rows[at].kind !== "del" && rows[at].kind !== "add") {
      found.push(rows[at]);
      at += 1;
      continue;
    }
    const gone = run(rows, at, "del");
    const come = run(rows, at + gone.length, "add");
    const parts = gone.slice(0, come.length).map((row, pair) => changedPart(row.text, come[pair].text));
    found.push({ gone, come, parts });
    at += gone.length + come.length;
  }
  return found;
};

const run = (rows, from, kind) => {
  let to = from;
  while (to < rows.length && rows[to].kind === kind) to += 1;
  return rows.slice(from, to);
};

/** @param {Row} row @param {number[] | null | undefined} part @param {number} end which of the two ends is its own */
const code = (row, part, end) => {
  if (!part || part[0] >= part[end]) return el("code", row.text);
  return el("code",
    row.text.slice(0, part[0]),
    el("span.diff-word", row.text.slice(part[0], part[end])),
    row.text.slice(part[end]),
  );
};

const numberCell = (number) => el("td.diff-number", number === null ? "" : String(number));
const markCell = (row) => el("td.diff-mark", MARKS[row.kind] ?? "");

/** A row that is no line of a file. @param {Row} row @param {number} columns */
const wide = (row, columns) =>
  h("tr", { class: `diff-${row.kind}` }, h("td.diff-text", { colspan: String(columns) }, el("code", row.text)));

const inlineRows = (rows) =>
  grouped(rows).flatMap((each) => {
    if ("gone" in each)
      return [
        ...each.gone.map((row, at) => inlineRow(row, each.parts[at], 1)),
        ...each.come.map((row, at) => inlineRow(row, each.parts[at], 2)),
      ];
    return [each.kind === "same" ? inlineRow(each, null, 0) : wide(each, 4)];
  });

const inlineRow = (row, part, end) =>
  h("tr", { class: `diff-${row.kind}` },
    numberCell(row.old),
    numberCell(row.now),
    markCell(row),
    el("td.diff-text", code(row, part, end)),
  );

const half = (row, side, part, end) => {
  if (!row) return [numberCell(null), el("td.diff-mark"), el("td.diff-text.diff-none")];
  const kind = row.kind === "same" ? "" : `diff-${row.kind}`;
  return [
    numberCell(row[side]),
    h("td", { class: `diff-mark ${kind}` }, MARKS[row.kind]),
    h("td", { class: `diff-text ${kind}` }, code(row, part, end)),
  ];
};

const sideRows = (rows) =>
  grouped(rows).flatMap((each) => {
    if (!("gone" in each))
      return [each.kind === "same" ? el("tr", half(each, "old", null, 0), half(each, "now", null, 0)) : wide(each, 6)];
    const longest = Math.max(each.gone.length, each.come.length);
    return Array.from({ length: longest }, (_, at) =>
      el("tr", half(each.gone[at], "old", each.parts[at], 1), half(each.come[at], "now", each.parts[at], 2)),
    );
  });

/* The colours of a new file, line by line: words, strings, numbers, comments and keys. A few patterns for the languages
   that tools are written in; a text that none of them knows stays as it is. Only colours: every character stays. */
const LONGEST_COLOURED = 2000;
const STRING = String.raw`"(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)*'?`;
const NUMBER = String.raw`\b\d[\w.]*`;
const HASH = String.raw`(?<![^\s])#.*`;
const SLASHES = String.raw`(?<!:)\/\/.*`;
const KEY = String.raw`^\s*(?:- )*[\w.$"-]+(?=\s*[:=](?:\s|$))`;
const PYTHON =
  "and as assert async await break class continue def elif else except finally for from if import in is lambda None " +
  "not or pass raise return True False try while with yield";
const SHELL = "case do done elif else esac exit export fi for function if in local return set shift then unset while";
const SCRIPT =
  "async await break case catch class const continue default delete else export extends false finally for from " +
  "function if import in let new null of return static switch this throw true try typeof undefined var while yield";

/** @param {string} comment @param {string} words @param {string} [key] */
const language = (comment, words, key = "(?!)") => {
  const word = String.raw`\b(?:${words.replaceAll(" ", "|")})\b`;
  return new RegExp(`(?<c>${comment})|(?<na>${key})|(?<s>${STRING})|(?<m>${NUMBER})|(?<k>${word})`, "g");
};

const LANGUAGES = {
  py: language(HASH, PYTHON),
  sh: language(HASH, SHELL),
  js: language(SLASHES, SCRIPT),
  yaml: language(HASH, "true false null", KEY),
  json: language("(?!)", "true false null", String.raw`"(?:[^"\\]|\\.)*"(?=\s*:)`),
};
const ENDINGS = { bash: "sh", zsh: "sh", mjs: "js", cjs: "js", ts: "js", yml: "yaml", toml: "yaml" };

/** @param {string} text one line @param {string} name of its file */
const coloured = (text, name) => {
  const ending = /\.(\w+)$/.exec(name)?.[1]?.toLowerCase() ?? "";
  const pattern = LANGUAGES[ENDINGS[ending] ?? ending];
  if (!pattern || text.length > LONGEST_COLOURED) return el("code", text);
  const parts = [];
  let done = 0;
  for (const found of text.matchAll(pattern)) {
    const [look] = Object.entries(found.groups ?? {}).find(([, value]) => value !== undefined) ?? [];
    parts.push(text.slice(done, found.index), el(`span.${look}`, found[0]));
    done = found.index + found[0].length;
  }
  return el("code", ...parts, text.slice(done));
};

/** A file that is not there yet, as it will be. @param {Row[]} rows @param {string} title */
const newFileTable = (rows, title) =>
  h("table.diff-table.diff-new", { "aria-label": `New file ${title}` },
    headings(["Line", "Text"]),
    el("tbody",
      rows.filter(({ kind }) => kind !== "hunk").map((row) =>
        row.kind === "add"
          ? el("tr", numberCell(row.now), el("td.diff-text", coloured(row.text, title)))
          : wide(row, 2),
      ),
    ),
  );

const headings = (names) => el("thead.unseen", el("tr", names.map((name) => h("th", { scope: "col" }, name))));

const diffTable = (rows, mode, title) => {
  const label = { "aria-label": title ? `Changes of ${title}` : "Changes" };
  if (mode === "side")
    return h("table", { class: "diff-table diff-side", ...label },
      el("colgroup",
        ["number", "mark", "text", "number", "mark", "text"].map((of) => h("col", { class: `diff-col-${of}` })),
      ),
      headings(["Old line", "Removed", "Old text", "New line", "Added", "New text"]),
      el("tbody", sideRows(rows)),
    );
  return h("table", { class: "diff-table", ...label },
    headings(["Old line", "New line", "Change", "Text"]),
    el("tbody", inlineRows(rows)),
  );
};

const MOST_ROWS = 5000;
const WIDE = matchMedia("(min-width: 60rem)");

/** Every diff can be drawn anew: the choice holds for all of them. @type {WeakMap<Node, () => void>} */
const drawings = new WeakMap();
const redrawAll = () => document.querySelectorAll(".diff").forEach((node) => drawings.get(node)?.());
WIDE.addEventListener("change", redrawAll);

const chosenMode = () => (remembered("forge.diff") === "side" ? "side" : "inline");

const switchButton = (mode, words) =>
  h("button",
    {
      "aria-pressed": String(chosenMode() === mode),
      dataset: { mode },
      on: {
        click: () => {
          remember("forge.diff", mode);
          redrawAll();
        },
      },
    },
    words,
  );

/** A negative count is one that nobody knows. */
const amounts = (added, removed) =>
  el("span.diff-amounts",
    el("span.diff-plus", `+${added < 0 ? "?" : added}`),
    " ",
    el("span.diff-minus", `−${removed < 0 ? "?" : removed}`),
  );

const fileNode = (file, rows, mode, more, isWhole) => {
  const table = mode === NEW ? newFileTable(rows, file.title) : diffTable(rows, mode, file.title);
  if (!file.title) return el("div.diff-file", table);
  const state = [file.state, more].filter(Boolean).join(", ");
  return h("details.diff-file", { open: true },
    el("summary",
      el("span.diff-path", file.title),
      state ? el("span.diff-state", state) : null,
      isWhole ? amounts(file.added, file.removed) : null,
    ),
    table,
  );
};

/** The rows of consecutive files, each under its title.
 * @param {{file: any, row: any}[]} flat @param {string} mode @param {Set<any>} shown
 * @param {boolean} isWhole whether what there is to count is all there is */
const filesNode = (flat, mode, shown, isWhole) => {
  const nodes = [];
  for (let at = 0; at < flat.length;) {
    const { file } = flat[at];
    let to = at;
    while (to < flat.length && flat[to].file === file) to += 1;
    const rows = flat.slice(at, to).map(({ row }) => row);
    nodes.push(fileNode(file, rows, mode, shown.has(file) ? "continued" : "", isWhole));
    shown.add(file);
    at = to;
  }
  return nodes;
};

/** @param {string} unified
 * @param {{most?: number, whole?: (() => Promise<string>) | null, counts?: number[], root?: string}} [about]
 * `most`: rows before it is cut in the middle; `counts`: added and removed lines, where the text is not all;
 * `root`: before the names of files, `/` for those in zones
 * @returns {HTMLElement} */
export const diffView = (unified, { most = MOST_ROWS, whole = null, counts, root = "/" } = {}) => {
  let files = parseDiff(String(unified ?? ""), root);
  let limit = most;
  let fetch = whole;
  const node = el("div.diff");

  const showAll = async () => {
    try {
      if (fetch) files = parseDiff(await fetch(), root);
      fetch = null;
      limit = nextLimit();
      draw();
      node.querySelector("button")?.focus({ preventScroll: true });
    } catch (error) {
      node.append(h("p.problem", { role: "alert" }, error?.problem ?? "The whole diff could not be loaded."));
    }
  };
  const nextLimit = () => (limit < MOST_ROWS ? MOST_ROWS : limit + MOST_ROWS);
  const between = (words, button = "Show all") =>
    el("p.diff-between", words, h("button.link", { on: { click: showAll } }, button));

  const draw = () => {
    const focused = node.querySelector(":focus")?.dataset.mode;
    const allNew = files.length > 0 && files.every(({ state }) => state === NEW);
    const mode = allNew ? NEW : WIDE.matches ? chosenMode() : "inline";
    const flat = files.flatMap((file) =>
      (file.rows.length ? file.rows : [null]).map((row) => ({
        file,
        row: row ?? { kind: "note", text: "no lines change", old: null, now: null },
      })),
    );
    const cut = flat.length > limit;
    const isWhole = !fetch && !counts;
    const half = Math.floor(limit / 2);
    const shown = new Set();
    const total = fetch
      ? [-1, -1]
      : (counts ?? files.reduce((sum, file) => [sum[0] + file.added, sum[1] + file.removed], [0, 0]));
    replace(node,
      el("div.diff-bar",
        el("span.diff-total",
          files.length > 1 ? `${counted(files.length, "file")} ` : null,
          files.length === 1 && files[0].title && isWhole ? null : amounts(total[0], total[1]),
        ),
        WIDE.matches && !allNew
          ? h("div.switch", { role: "group", "aria-label": "How changes are shown" },
              switchButton("inline", "Inline"),
              switchButton("side", "Side by side"),
            )
          : null,
      ),
      filesNode(cut ? flat.slice(0, half) : flat, mode, shown, isWhole),
      cut
        ? between(
            `… ${isWhole ? "" : "at least "}${counted(flat.length - 2 * half, "line")} between … `,
            !isWhole || flat.length <= nextLimit() ? "Show all" : `Show ${counted(nextLimit(), "line")}`,
          )
        : null,
      cut ? filesNode(flat.slice(-half), mode, shown, isWhole) : null,
      !cut && fetch ? between("Shortened in the middle. ") : null,
    );
    if (focused) node.querySelector(`[data-mode="${focused}"]`)?.focus({ preventScroll: true });
  };
  draw();
  drawings.set(node, draw);
  return node;
};
