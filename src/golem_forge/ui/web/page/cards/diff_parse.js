/* A unified diff as rows: what each line is, its number before and after, and which file it belongs to.

   Every line of the text becomes a row or a file's title; nothing is dropped, also of text that is no diff at all.
   Threat: a removed line `-- a/x` must not pass for the heading of another file, so a hunk is as long as it says it
   is. A line of a hunk begins with a blank, `+` or `-`: what begins with `@`, `#` or `…` there was put in by who
   shortened the text, and from then on lines have no number and nothing is a heading until the next hunk. Where it was
   cut by characters, what follows is the end of some line: whatever it begins with was put there to look like a mark. */

/**
 * @typedef {{kind: "add" | "del" | "same" | "hunk" | "note" | "warn", text: string, old: number | null, now: number |
 *   null}} Row
 */
/** @typedef {{title: string, state: string, added: number, removed: number, rows: Row[]}} DiffFile */

const HUNK = /^@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@/;
const CUT_ANYWHERE = /^… [\d,]+ characters …$/; // as `showing/bounds.py` writes it
const NOWHERE = "/dev/null";

/** @param {string} mark */
const isMarker = (mark) => mark === "#" || mark === "…";

/** @param {string} head `--- a/zone/file` @param {string} root */
const pathOf = (head, root) => {
  const name = head.slice(4);
  return /^[ab]\//.test(name) ? root + name.slice(2) : name;
};

/** @param {string} before @param {string} after @param {string} root @returns {DiffFile} */
const fileOf = (before, after, root) => {
  const [was, is] = [pathOf(before, root), pathOf(after, root)];
  const file = (/** @type {string} */ title, /** @type {string} */ state) => ({
    title,
    state,
    added: 0,
    removed: 0,
    rows: [],
  });
  if (was === NOWHERE) return file(is, "new file");
  if (is === NOWHERE) return file(was, "deleted");
  return was === is ? file(is, "") : file(is, `moved from ${was}`);
};

/**
 * @param {string} unified
 * @param {string} [root] before the names of files: `/` for those in zones
 * @returns {DiffFile[]}
 */
export const parseDiff = (unified, root = "/") => {
  const lines = unified.split("\n");
  if (lines.at(-1) === "") lines.pop();
  /** @type {DiffFile[]} */
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

/**
 * What differs between two lines, by words: `[from, endOfOld, endOfNow]`; null where little is alike.
 * @param {string} old @param {string} now
 */
export const changedPart = (old, now) => {
  if (old.length > 2000 || now.length > 2000) return null;
  const [one, other] = [tokens(old), tokens(now)];
  const shortest = Math.min(one.length, other.length);
  let head = 0;
  while (head < shortest && one[head] === other[head]) head += 1;
  let tail = 0;
  while (tail < shortest - head && one[one.length - 1 - tail] === other[other.length - 1 - tail]) tail += 1;
  const before = length(one.slice(0, head));
  const after = length(one.slice(one.length - tail));
  const alike = one
    .slice(0, head)
    .concat(one.slice(one.length - tail))
    .join("")
    .trim().length;
  if (alike * 3 < Math.max(old.length, now.length)) return null;
  return [before, old.length - after, now.length - after];
};

/** @param {string} text @returns {string[]} */
const tokens = (text) => text.match(/[\p{L}\p{N}_]+|\s+|[^]/gu) ?? [];
/** @param {string[]} parts */
const length = (parts) => parts.reduce((sum, part) => sum + part.length, 0);
