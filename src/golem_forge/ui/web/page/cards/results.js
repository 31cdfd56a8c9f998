/* The body of a result by its form, made of what the server prepared in `view`, and the notes that hold besides it.

   Everything is text, but `view.html`, which our server made and cleaned. A form this page does not know is shown
   as a tree of the value, so that nothing disappears. */

import { h, trusted } from "../dom.js";
import { diffView } from "./diff.js";
import { oneLine, words } from "./plain.js";
import { scrollBox } from "./scroll_box.js";
import { treeNode } from "./tree.js";
import { storedOutput, wholeResult } from "./whole_result.js";

/** @typedef {{event: any, view?: any}} Shown */

const PICTURE = /^data:image\/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]*$/;
const NUMBER = /^-?\d[\d,.]*$/;
const MOST_DIFF_ROWS = 400;

/** @param {any} view @param {string} label */
const textBody = (view, label) =>
  scrollBox(label, view.maxHeight, h("pre", { class: "result-text" }, words(view.text ?? "")));

/** @param {any} view */
const codeBody = (view) => {
  const shown = view.html ? trusted(view.html) : h("pre", { class: "result-text" }, words(view.text ?? ""));
  return scrollBox(
    view.language ? `Code, ${words(view.language)}` : "Code",
    view.maxHeight,
    h("div", { class: "code result-code" }, shown),
  );
};

/** @param {any} cell */
const cellText = (cell) => (cell === null || cell === undefined ? "" : words(cell));

/** @param {any} view */
const tableBody = (view) => {
  /** @type {any[]} */
  const columns = view.columns ?? [];
  const cells = (/** @type {any} */ row) => (Array.isArray(row) ? row : columns.map((name) => row?.[name]));
  return scrollBox(
    "Table",
    view.maxHeight,
    h(
      "table",
      { class: "result-table" },
      h(
        "thead",
        null,
        h(
          "tr",
          null,
          columns.map((name) => h("th", { scope: "col" }, cellText(name))),
        ),
      ),
      h(
        "tbody",
        null,
        (view.rows ?? []).map((/** @type {any} */ row) =>
          h(
            "tr",
            null,
            cells(row).map((/** @type {any} */ cell) =>
              h("td", { class: NUMBER.test(cellText(cell)) ? "number" : null }, cellText(cell)),
            ),
          ),
        ),
      ),
    ),
    view.count > (view.rows ?? []).length
      ? h("p", { class: "dim" }, `... and ${(view.count - view.rows.length).toLocaleString("en")} more`)
      : null,
  );
};

/** @param {any} file */
const fileName = (file) =>
  file !== null && typeof file === "object" ? (file.path ?? file.name ?? oneLine(file)) : file;

/** @param {any} view */
const filesBody = (view) => {
  const files = view.files ?? [];
  const more = Number(view.count ?? files.length) - files.length;
  return scrollBox(
    "Files",
    view.maxHeight,
    h(
      "ul",
      { class: "result-files" },
      files.map((/** @type {any} */ file) => h("li", null, oneLine(fileName(file)))),
      more > 0 ? h("li", { class: "dim" }, `... and ${more.toLocaleString("en")} more`) : null,
    ),
  );
};

/** @param {any} view */
const imageBody = (view) =>
  PICTURE.test(view.src ?? "")
    ? h("img", {
        class: "result-image",
        src: view.src,
        alt: words(view.summary || view.alt || "Picture made by the tool"),
      })
    : h("p", { class: "dim" }, words(view.text || "A picture that this page does not show."));

/** @param {any} view */
const outputBody = (view) =>
  scrollBox(
    "Output",
    view.maxHeight,
    (view.parts ?? []).map((/** @type {any} */ part) => [
      part.stream === "stderr" ? h("p", { class: "stream-name" }, "stderr") : null,
      h("pre", { class: part.stream === "stderr" ? "result-text stderr" : "result-text" }, words(part.text ?? "")),
    ]),
  );

/** @type {Record<string, (view: any, shown: Shown, ctx: any) => Node | null>} */
const FORMS = {
  text: (view) => (view.text ? textBody(view, "Result") : null),
  markdown: (view) =>
    scrollBox(
      "Result",
      view.maxHeight,
      h("div", { class: "markdown" }, view.html ? trusted(view.html) : words(view.text ?? "")),
    ),
  code: codeBody,
  diff: (view, _, ctx) =>
    view.diff
      ? diffView(view.diff, ctx, { most: MOST_DIFF_ROWS, counts: view.cut ? [view.added, view.removed] : undefined })
      : null,
  files: filesBody,
  table: tableBody,
  tree: (view) => scrollBox("Data", view.maxHeight, treeNode(view.data)),
  image: imageBody,
  output: (view) => (view.parts?.some((/** @type {any} */ part) => part.text) ? outputBody(view) : null),
  hidden: () => null,
};

/** What holds for the call besides its value. @param {Shown} shown @param {any} ctx */
const notes = ({ event, view }, ctx) => {
  const { truncated, outputHandle } = event.data;
  const said = (view?.notes ?? []).map((/** @type {any} */ note) => h("li", null, oneLine(note)));
  return [
    said.length ? h("ul", { class: "result-notes" }, said) : null,
    truncated && outputHandle && ctx?.session ? storedOutput(words(outputHandle), ctx) : null,
  ];
};

/** What the command left that the person's own programs would run or obey; null: nothing. @param {Shown} shown */
export const leftoversNode = ({ view }) => {
  /** @type {{severity: string, text: string}[]} */
  const left = view?.leftovers ?? [];
  if (!left.length) return null;
  return h(
    "ul",
    { class: "result-leftovers", "aria-label": "Left behind" },
    left.map(({ severity, text }) => h("li", { "data-severity": words(severity) }, oneLine(text))),
  );
};

/** @param {Shown} shown a `toolResult` @param {any} ctx @returns {HTMLElement} */
export const resultNode = (shown, ctx) => {
  const view = shown.view ?? {};
  const make = Object.hasOwn(FORMS, view.form)
    ? FORMS[view.form]
    : (/** @type {any} */ one) =>
        one.data === undefined && shown.event.data.value == null ? null : treeNode(one.data ?? shown.event.data.value);
  return h(
    "div",
    { class: `result result-of-${Object.hasOwn(FORMS, view.form) ? view.form : "tree"}` },
    make(view, shown, ctx),
    view.cut
      ? h(
          "div",
          { class: "result-cut" },
          h("span", { class: "dim" }, "display cut"),
          ctx?.session ? wholeResult(shown, ctx) : null,
        )
      : null,
    notes(shown, ctx),
  );
};

/** How much there is to read, roughly in lines. @param {any} view */
export const linesIn = (view) => {
  const lines = (/** @type {any} */ text) =>
    typeof text === "string" && text ? Math.max(text.split("\n").length, text.length / 100) : 0;
  if (!view) return 0;
  if (view.form === "table") return view.rows?.length ?? 0;
  if (view.form === "files") return view.files?.length ?? 0;
  if (view.form === "tree") return lines(JSON.stringify(view.data, null, 1));
  if (view.form === "output")
    return (view.parts ?? []).reduce((/** @type {number} */ sum, /** @type {any} */ part) => sum + lines(part.text), 0);
  return lines(view.diff ?? view.text ?? view.html);
};

/** The one line that says how a call went: `✓ tool - summary` without its mark and name. @param {Shown} shown */
export const resultWords = ({ event, view }) => {
  const { status, error } = event.data;
  if (view?.summary) return oneLine(view.summary);
  if (status !== "success") return error ? `${oneLine(status)}: ${oneLine(error)}` : oneLine(status);
  return view?.kind ? `(${oneLine(view.kind)})` : "";
};
