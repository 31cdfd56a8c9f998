/* A diff on the page: several files, each can be folded; inline or side by side, as the person last chose.

   Bounded: more than `most` rows are shown as their beginning and their end, with the number between and a button
   for all, or for 5,000 more where a page could not bear all. Narrow windows are always inline. `whole` fetches the
   text where the server has shortened it; until then nobody knows how many lines there are. */

import { h, replace } from "../dom.js";
import { parseDiff } from "./diff_parse.js";
import { diffTable } from "./diff_rows.js";
import { counted } from "./plain.js";
import { remember, remembered } from "./remembered.js";

const MODES = ["inline", "side"];
const MOST_ROWS = 5000;
const WIDE = matchMedia("(min-width: 60rem)");

/** Every diff can be drawn anew: the choice holds for all of them. @type {WeakMap<Node, () => void>} */
const drawings = new WeakMap();
const redrawAll = () => document.querySelectorAll(".diff").forEach((node) => drawings.get(node)?.());
WIDE.addEventListener("change", redrawAll);

const chosenMode = () => remembered("diff", MODES, "inline");

/** @param {string} mode @param {string} words */
const switchButton = (mode, words) =>
  h(
    "button",
    {
      type: "button",
      "aria-pressed": String(chosenMode() === mode),
      dataset: { mode },
      on: {
        click: () => {
          remember("diff", mode);
          redrawAll();
        },
      },
    },
    words,
  );

/** A negative count is one that nobody knows. @param {number} added @param {number} removed */
const amounts = (added, removed) =>
  h(
    "span",
    { class: "diff-amounts" },
    h("span", { class: "diff-plus" }, `+${added < 0 ? "?" : added}`),
    " ",
    h("span", { class: "diff-minus" }, `−${removed < 0 ? "?" : removed}`),
  );

/**
 * @param {import("./diff_parse.js").DiffFile} file @param {import("./diff_parse.js").Row[]} rows @param {string} mode
 * @param {string} more @param {boolean} isWhole
 */
const fileNode = (file, rows, mode, more, isWhole) => {
  const table = diffTable(rows, /** @type {"inline" | "side"} */ (mode), file.title);
  if (!file.title) return h("div", { class: "diff-file" }, table);
  const state = [file.state, more].filter(Boolean).join(", ");
  return h(
    "details",
    { class: "diff-file", open: true },
    h(
      "summary",
      null,
      h("span", { class: "diff-path" }, file.title),
      state ? h("span", { class: "diff-state" }, state) : null,
      isWhole ? amounts(file.added, file.removed) : null,
    ),
    table,
  );
};

/**
 * The rows of consecutive files, each under its title.
 * @param {{file: any, row: any}[]} flat @param {string} mode @param {Set<any>} shown
 * @param {boolean} isWhole whether what there is to count is all there is
 */
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

/**
 * @param {string} unified
 * @param {any} ctx
 * @param {{most?: number, whole?: (() => Promise<string>) | null, counts?: number[], root?: string}} [about]
 *   `most`: rows before it is cut in the middle; `counts`: added and removed lines, where the text is not all;
 *   `root`: before the names of files, `/` for those in zones
 * @returns {HTMLElement}
 */
export const diffView = (unified, ctx, { most = MOST_ROWS, whole = null, counts, root = "/" } = {}) => {
  let files = parseDiff(String(unified ?? ""), root);
  let limit = most;
  let fetch = whole;
  const node = h("div", { class: "diff" });

  const showAll = async () => {
    try {
      if (fetch) files = parseDiff(await fetch(), root);
      fetch = null;
      limit = nextLimit();
      draw();
      /** @type {HTMLElement | null} */ (node.querySelector("button"))?.focus({ preventScroll: true });
    } catch (error) {
      node.append(
        h(
          "p",
          { class: "problem", role: "alert" },
          /** @type {any} */ (error)?.problem ?? "The whole diff could not be loaded.",
        ),
      );
    }
  };
  const nextLimit = () => (limit < MOST_ROWS ? MOST_ROWS : limit + MOST_ROWS);
  const between = (/** @type {string} */ words, button = "Show all") =>
    h(
      "p",
      { class: "diff-between" },
      words,
      h("button", { type: "button", class: "link", on: { click: showAll } }, button),
    );

  const draw = () => {
    const active = /** @type {HTMLElement | null} */ (document.activeElement);
    const focused = node.contains(active) ? active?.dataset.mode : undefined;
    const mode = WIDE.matches ? chosenMode() : "inline";
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
    replace(
      node,
      h(
        "div",
        { class: "diff-bar" },
        h(
          "span",
          { class: "diff-total" },
          files.length > 1 ? `${counted(files.length, "file")} ` : null,
          files.length === 1 && files[0].title && isWhole ? null : amounts(total[0], total[1]),
        ),
        WIDE.matches
          ? h(
              "div",
              { class: "switch", role: "group", "aria-label": "How changes are shown" },
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
    if (focused)
      /** @type {HTMLElement | null} */ (node.querySelector(`[data-mode="${focused}"]`))?.focus({
        preventScroll: true,
      });
  };
  draw();
  drawings.set(node, draw);
  return node;
};
