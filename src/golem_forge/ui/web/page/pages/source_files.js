/* Files as they are stored, line by line with their numbers. Text only: nothing of it is rendered or run. */

import { h } from "../dom.js";
import { linesOf } from "../cards/literal.js";
import { oneLine } from "../cards/plain.js";
import { size } from "../side/words.js";
import { disclosed } from "../cards/disclosure.js";
import { nothing, pill } from "./parts.js";

/** More lines than this are one block: an element a line would make the page slow. */
const MOST_LINES = 3000;

/** @param {any[]} files */
export const sourceFiles = (files) =>
  h(
    "div",
    { class: "files" },
    files.map((file, at) => fileNode(file, at === 0 || files.length <= 3)),
  );

/** @param {any} file @param {boolean} open */
const fileNode = (file, open) => {
  const title = h(
    "span",
    { class: "file-head" },
    h("span", { class: "mono" }, oneLine(file.path)),
    h("span", { class: "dim small" }, size(file.size)),
    file.language ? h("span", { class: "dim small" }, oneLine(file.language)) : null,
    file.executable ? pill("executable") : null,
  );
  return disclosed(
    title,
    () =>
      typeof file.text === "string"
        ? codeNode(file.text, oneLine(file.path))
        : nothing(`No text, or too long to be shown. SHA-256 ${oneLine(file.sha256)}`),
    { open, class: "file" },
  );
};

/** @param {string} text @param {string} label */
const codeNode = (text, label) => {
  const lines = linesOf(text);
  const rows = lines.length > MOST_LINES ? text : lines.map((line) => h("span", { class: "source-line" }, `${line}\n`));
  return h(
    "pre",
    {
      class: "source",
      tabindex: "0",
      role: "region",
      "aria-label": label,
      dataset: { wide: String(lines.length > 999) },
    },
    h("code", null, rows),
  );
};
