/* The body of a result by its form, made of what the server prepared in `view`, and the notes that hold besides it.

   Everything is text, but `view.html`, which our server made and cleaned. A form this page does not know is shown
   as a tree of the value, so that nothing disappears. */

import { path } from "../api.js";
import { diffView } from "./diff.js";
import { el, h, replace, text as textNode, trusted } from "../dom.js";
import { counted, oneLine, wholeNumber, words } from "../format.js";
import { pretty } from "../forms/arguments.js";
import { disclosed, scrollBox } from "../widgets.js";

/* Structured data that opens level by level. A level is built when it is first opened, and of many members only the
   first are shown until somebody asks for more. */
const AT_ONCE = 100;
const OPEN_UP_TO = 20;

const isBranch = (value) =>
  value !== null && typeof value === "object" && !JSON.isRawJSON?.(value) && Object.keys(value).length > 0;

const leaf = (value) => {
  if (typeof value === "string") return el("span.tree-text", JSON.stringify(value));
  if (value !== null && typeof value === "object" && !JSON.isRawJSON?.(value))
    return el("span.tree-none", Array.isArray(value) ? "[]" : "{}");
  return el("span.tree-value", JSON.stringify(value) ?? "");
};

const sizeOf = (value) =>
  Array.isArray(value) ? counted(value.length, "item") : counted(Object.keys(value).length, "member");

const member = (name, value, depth) => {
  const key = el("span.tree-key", name);
  if (!isBranch(value)) return el("li.tree-leaf", key, el("span.tree-colon", ": "), leaf(value));
  const open = depth < 1 && Object.keys(value).length <= OPEN_UP_TO;
  const details = el("details", el("summary", key, el("span.tree-size", ` ${sizeOf(value)}`)));
  const build = () => details.childElementCount === 1 && details.append(branch(value, depth + 1));
  details.addEventListener("toggle", build);
  if (open) {
    build();
    details.setAttribute("open", "");
  }
  return el("li.tree-branch", details);
};

const branch = (value, depth) => {
  const entries = Object.entries(value);
  const list = el("ul.tree");
  const more = (from) => {
    for (const [name, one] of entries.slice(from, from + AT_ONCE)) list.append(member(name, one, depth));
    const left = entries.length - from - AT_ONCE;
    if (left <= 0) return;
    const row = el("li",
      h("button.link", { on: { click: () => (row.remove(), more(from + AT_ONCE)) } },
        `${counted(left, "more", "more")} …`,
      ),
    );
    list.append(row);
  };
  more(0);
  return list;
};

const treeNode = (data) => (isBranch(data) ? branch(data, 0) : el("p.tree", leaf(data)));

/* What is not all on the page: the whole event behind `display cut`, and the stored output behind its handle.

   Asked for only when somebody presses the button. Much text is shown up to a bound and can be saved as a file. */
const MOST_SHOWN = 500_000;
const MOST_LINES = 30;
const SMALL = { class: "small" };
const PAGE_LINES = 1000;
/** More pages than this replace each other. */
const MOST_PAGES = 10;

/** @param {string} text @param {string} name of the file @param {string} label */
const muchText = (text, name, label) => {
  const shown =
    text.length > MOST_SHOWN
      ? [
          text.slice(0, MOST_SHOWN / 2),
          `\n… ${counted(text.length - MOST_SHOWN, "character")} between …\n`,
          text.slice(-MOST_SHOWN / 2),
        ]
      : [text];
  const save = h("button.link", { on: { click: () => saveAs(text, name) } }, "Save as a file");
  return [
    scrollBox(label, MOST_LINES, el("pre.result-text", shown.join(""))),
    el("p.dim", `${counted(text.length, "character")} · `, save),
  ];
};

const saveAs = (text, name) => {
  const url = URL.createObjectURL(new Blob([text], { type: "text/plain;charset=utf-8" }));
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
};

/** What there is to read in a value: its text, or all of it. */
const readable = (value) => {
  const content = value?.content ?? value?.data ?? value?.output ?? value?.text;
  return typeof content === "string" ? content : typeof value === "string" ? value : pretty(value);
};

const wholeResult = (shown, ctx) =>
  disclosed("Show the whole result",
    async () => {
      const { seq } = shown.event;
      const answer = await ctx.api.get(path`/api/sessions/${ctx.session.id}/events/${seq}`);
      const data = answer?.event?.data ?? answer?.data ?? {};
      return muchText(readable(data.value ?? data.error ?? ""), `result-${seq}.txt`, "Whole result");
    },
    SMALL,
  );

/** Page after page, as `/output` shows it. */
const storedOutput = (handle, ctx) =>
  disclosed("Show the stored output",
    async () => {
      const text = el("pre.result-text");
      const foot = el("p.dim");
      const more = async (start) => {
        const page = await ctx.api.get(
          `${path`/api/sessions/${ctx.session.id}/outputs/${handle}`}?start=${start}&end=${start + PAGE_LINES - 1}`,
        );
        const shown = text.childNodes.length;
        if (shown < MOST_PAGES) text.append(textNode(`${shown ? "\n" : ""}${page.text}`));
        else replace(text, page.text);
        const next = h("button.link",
          {
            on: {
              click: () =>
                more(page.next).catch((error) => replace(foot, error?.problem ?? "This could not be loaded.")),
            },
          },
          "Next lines",
        );
        replace(foot, counted(page.total, "line"), page.next === null ? null : [" · ", next]);
      };
      await more(1);
      return [scrollBox("Stored output", MOST_LINES, text), foot];
    },
    SMALL,
  );

/** @typedef {{event: any, view?: any}} Shown */

const PICTURE = /^data:image\/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]*$/;
const NUMBER = /^-?\d[\d,.]*$/;
const MOST_DIFF_ROWS = 400;
const PUBLISHED = /^http:\/\/127\.(?!0\.)\d{1,3}\.\d{1,3}\.\d{1,3}:\d{1,5}\/$/;

const textBody = (view, label) => scrollBox(label, view.maxHeight, el("pre.result-text", words(view.text ?? "")));

const codeBody = (view) => {
  const shown = el("pre.result-text", view.html ? trusted(view.html) : words(view.text ?? ""));
  return scrollBox(view.language ? `Code, ${words(view.language)}` : "Code", view.maxHeight, shown);
};

const cellText = (cell) => (cell === null || cell === undefined ? "" : words(cell));

const tableBody = (view) => {
  const columns = view.columns ?? [];
  const cells = (row) => (Array.isArray(row) ? row : columns.map((name) => row?.[name]));
  return scrollBox(
    "Table",
    view.maxHeight,
    el("table.result-table",
      el("thead", el("tr", columns.map((name) => h("th", { scope: "col" }, cellText(name))))),
      el("tbody",
        (view.rows ?? []).map((row) =>
          el("tr",
            cells(row).map((cell) => h("td", { class: NUMBER.test(cellText(cell)) ? "number" : null }, cellText(cell))),
          ),
        ),
      ),
    ),
    view.count > (view.rows ?? []).length
      ? el("p.dim", `... and ${(view.count - view.rows.length).toLocaleString("en")} more`)
      : null,
  );
};

const fileName = (file) => file !== null && typeof file === "object" ? (file.path ?? file.name ?? oneLine(file)) : file;

const filesBody = (view) => {
  const files = view.files ?? [];
  const more = Number(view.count ?? files.length) - files.length;
  return scrollBox(
    "Files",
    view.maxHeight,
    el("ul.result-files",
      files.map((file) => el("li", oneLine(fileName(file)))),
      more > 0 ? el("li.dim", `... and ${more.toLocaleString("en")} more`) : null,
    ),
  );
};

const imageBody = (view) =>
  PICTURE.test(view.src ?? "")
    ? h("img.result-image", { src: view.src, alt: words(view.summary || view.alt || "Picture made by the tool") })
    : el("p.dim", words(view.text || "A picture that this page does not show."));

const outputBody = (view) =>
  scrollBox(
    "Output",
    view.maxHeight,
    (view.parts ?? []).map((part) => [
      ["stderr", "answer", "note"].includes(part.stream) ? el("p.stream-name", part.stream) : null,
      h("pre", { class: part.stream === "stderr" ? "result-text stderr" : "result-text" }, words(part.text ?? "")),
    ]),
  );

/** A published port: a link that opens in a window of its own, never inside this page. */
const linkBody = (view) => el("div.result-link", portLink(view.url ?? ""), el("p.dim", words(view.text ?? "")));

/** @param {string} url */
export const portLink = (url) =>
  PUBLISHED.test(url)
    ? h("a", { href: url, target: "_blank", rel: "noopener noreferrer" }, url)
    : el("code", words(url));

/** @type {Record<string, (view: any, shown: Shown, ctx: any) => Node | null>} */
const FORMS = {
  text: (view) => (view.text ? textBody(view, "Result") : null),
  markdown: (view) =>
    scrollBox("Result", view.maxHeight, el("div.markdown", view.html ? trusted(view.html) : words(view.text ?? ""))),
  code: codeBody,
  diff: (view) =>
    view.diff
      ? diffView(view.diff, { most: MOST_DIFF_ROWS, counts: view.cut ? [view.added, view.removed] : undefined })
      : null,
  files: filesBody,
  table: tableBody,
  tree: (view) => scrollBox("Data", view.maxHeight, treeNode(view.data)),
  image: imageBody,
  link: linkBody,
  output: (view) => (view.parts?.some((part) => part.text) ? outputBody(view) : null),
  hidden: () => null,
};

const SHOWN_PICTURES = /^image\/(png|jpeg|gif|webp)$/;

/** The pictures of a result, from where they are kept. */
const pictures = (event, ctx) =>
  (ctx?.session && Array.isArray(event.data.media) ? event.data.media : [])
    .filter((part) => SHOWN_PICTURES.test(words(part?.mediaType)))
    .map((part) => {
      const image = h("img.result-image", { alt: `Picture, ${wholeNumber(part.size)} bytes` });
      const where = path`/api/sessions/${ctx.session.id}/pictures/${words(part.handle)}`;
      ctx.api.get(where).then(
        (found) => image.setAttribute("src", `data:${part.mediaType};base64,${found.data}`),
        () => image.replaceWith(el("p.dim", "A picture that is no longer kept.")),
      );
      return image;
    });

/** What holds for the call besides its value. @param {Shown} shown */
const notes = ({ event, view }, ctx) => {
  const { truncated, outputHandle } = event.data;
  const said = (view?.notes ?? []).map((note) => el("li", oneLine(note)));
  return [
    pictures(event, ctx),
    said.length ? el("ul.result-notes", said) : null,
    truncated && outputHandle && ctx?.session ? storedOutput(words(outputHandle), ctx) : null,
  ];
};

/** What the command left that the person's own programs would run or obey; null: nothing. */
export const leftoversNode = ({ view }) => {
  const left = view?.leftovers ?? [];
  if (!left.length) return null;
  return h("ul.result-leftovers", { "aria-label": "Left behind" },
    left.map(({ severity, text }) => h("li", { "data-severity": words(severity) }, oneLine(text))),
  );
};

/** @param {Shown} shown a `toolResult` @returns {HTMLElement} */
export const resultNode = (shown, ctx) => {
  const view = shown.view ?? {};
  const make = Object.hasOwn(FORMS, view.form)
    ? FORMS[view.form]
    : (one) =>
        one.data === undefined && shown.event.data.value == null ? null : treeNode(one.data ?? shown.event.data.value);
  return h("div", { class: `result result-of-${Object.hasOwn(FORMS, view.form) ? view.form : "tree"}` },
    make(view, shown, ctx),
    view.cut
      ? el("div.result-cut", el("span.dim", "display cut"), ctx?.session ? wholeResult(shown, ctx) : null)
      : null,
    notes(shown, ctx),
  );
};

/** How much there is to read, roughly in lines. */
export const linesIn = (view) => {
  const lines = (text) => typeof text === "string" && text ? Math.max(text.split("\n").length, text.length / 100) : 0;
  if (!view) return 0;
  if (view.form === "table") return view.rows?.length ?? 0;
  if (view.form === "files") return view.files?.length ?? 0;
  if (view.form === "tree") return lines(JSON.stringify(view.data, null, 1));
  if (view.form === "output") return (view.parts ?? []).reduce((sum, part) => sum + lines(part.text), 0);
  return lines(view.diff ?? view.text ?? view.html);
};

/** The one line that says how a call went: `✓ tool - summary` without its mark and name. */
export const resultWords = ({ event, view }) => {
  const { status, error } = event.data;
  if (view?.summary) return oneLine(view.summary);
  if (status !== "success") return error ? `${oneLine(status)}: ${oneLine(error)}` : oneLine(status);
  return view?.kind ? `(${oneLine(view.kind)})` : "";
};
