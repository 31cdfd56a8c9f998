/* What is not all on the page: the whole event behind `display cut`, and the stored output behind its handle.

   Asked for only when somebody presses the button. Much text is shown up to a bound and can be saved as a file. */

import { path } from "../api.js";
import { h, replace, text as textNode } from "../dom.js";
import { pretty } from "../forms/exact_json.js";
import { disclosed } from "./disclosure.js";
import { counted } from "./plain.js";
import { scrollBox } from "./scroll_box.js";

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
  const save = h(
    "button",
    { type: "button", class: "link", on: { click: () => saveAs(text, name) } },
    "Save as a file",
  );
  return [
    scrollBox(label, MOST_LINES, h("pre", { class: "result-text" }, shown.join(""))),
    h("p", { class: "dim" }, `${counted(text.length, "character")} · `, save),
  ];
};

/** @param {string} text @param {string} name */
const saveAs = (text, name) => {
  const url = URL.createObjectURL(new Blob([text], { type: "text/plain;charset=utf-8" }));
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
};

/** What there is to read in a value: its text, or all of it. @param {any} value */
const readable = (value) => {
  const content = value?.content ?? value?.data ?? value?.output ?? value?.text;
  return typeof content === "string" ? content : typeof value === "string" ? value : pretty(value);
};

/** @param {import("../fold.js").Shown} shown @param {any} ctx */
export const wholeResult = (shown, ctx) =>
  disclosed(
    "Show the whole result",
    async () => {
      const { seq } = shown.event;
      const answer = await ctx.api.get(path`/api/sessions/${ctx.session.id}/events/${seq}`);
      const data = answer?.event?.data ?? answer?.data ?? {};
      return muchText(readable(data.value ?? data.error ?? ""), `result-${seq}.txt`, "Whole result");
    },
    SMALL,
  );

/** Page after page, as `/output` shows it. @param {string} handle @param {any} ctx */
export const storedOutput = (handle, ctx) =>
  disclosed(
    "Show the stored output",
    async () => {
      const text = h("pre", { class: "result-text" });
      const foot = h("p", { class: "dim" });
      const more = async (/** @type {number} */ start) => {
        const page = await ctx.api.get(
          `${path`/api/sessions/${ctx.session.id}/outputs/${handle}`}?start=${start}&end=${start + PAGE_LINES - 1}`,
        );
        const shown = text.childNodes.length;
        if (shown < MOST_PAGES) text.append(textNode(`${shown ? "\n" : ""}${page.text}`));
        else replace(text, page.text);
        const next = h(
          "button",
          {
            type: "button",
            class: "link",
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
