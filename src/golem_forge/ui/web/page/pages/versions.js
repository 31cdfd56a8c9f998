/* The versions a tool has had: what changed from one to another, and going back to one. What is there now stays a version. */

import { h, replace } from "../dom.js";
import { path } from "../api.js";
import { diffView } from "../cards/diff.js";
import { disclosure } from "../cards/disclosure.js";
import { oneLine, words } from "../cards/plain.js";
import { actButton, confirmed } from "./acting.js";
import { moment } from "./moments.js";
import { toolAct } from "./own_tools.js";
import { nothing, pill } from "./parts.js";

const SHORT = 12;

/** @param {string} digest */
const short = (digest) =>
  oneLine(digest)
    .replace(/^sha256:/, "")
    .slice(0, SHORT);

/** @param {string} name @param {any[]} versions newest first @param {any} ctx @param {HTMLElement} said @param {() => void} changed */
export const versionList = (name, versions, ctx, said, changed) =>
  h(
    "ol",
    { class: "rows", role: "list", reversed: true },
    versions.map((version, at) => versionRow(name, version, versions[at + 1], ctx, said, changed)),
  );

/** @param {string} name @param {any} version @param {any} before @param {any} ctx @param {HTMLElement} said @param {() => void} changed */
const versionRow = (name, version, before, ctx, said, changed) => {
  const digest = short(version.digest);
  const compare = before
    ? disclosure(`Changes since ${short(before.digest)}`, () => difference(name, before.digest, version.digest, ctx), {
        class: "small",
      })
    : null;
  const back = async () => {
    const sure = await confirmed({
      title: `Go back to version ${digest}?`,
      words: h("p", null, "What is there now stays a version; you can go forward again."),
      yes: "Go back",
      look: "primary",
    });
    if (!sure) return null;
    const answer = await toolAct(ctx, name, "undo", { version: version.digest });
    changed();
    return String(answer.text);
  };
  return h(
    "li",
    { class: "row-card" },
    h(
      "div",
      { class: "row-head" },
      h("code", { class: "row-name" }, digest),
      version.current ? pill("current", "ok") : null,
      version.trusted ? pill("trusted", "ok") : pill("not trusted", "warn"),
      h("span", { class: "dim small" }, moment(version.at)),
      h("span", { class: "dim small" }, oneLine(version.author)),
      version.restored ? h("span", { class: "dim small" }, `restored ${version.restored}×`) : null,
    ),
    compare ? [compare.button, compare.region] : h("p", { class: "dim small" }, "The first that is known."),
    version.current
      ? null
      : h(
          "div",
          { class: "row-foot" },
          h(
            "span",
            { class: "row-acts" },
            actButton("Go back to it…", back, { name: `Go back to version ${digest}…`, said }),
          ),
        ),
  );
};

/** @param {string} name @param {string} before @param {string} after @param {any} ctx */
const difference = async (name, before, after, ctx) => {
  const place = h("div", { class: "difference" });
  const found = await ctx.api.get(
    `${path`/api/sessions/${ctx.session.id}/tools/${name}/difference`}?${new URLSearchParams({ before, after })}`,
  );
  replace(
    place,
    (found.warnings ?? []).map((/** @type {string} */ line) => h("p", { class: "fact-warn" }, `! ${line}`)),
    found.reach?.length
      ? [
          h("p", { class: "fact-name" }, "What it may do:"),
          h(
            "ul",
            { class: "reach" },
            found.reach.map((/** @type {string} */ line) => h("li", { class: "mono small" }, line)),
          ),
        ]
      : null,
    found.changes ? diffView(words(found.changes), ctx) : nothing("No file differs."),
  );
  return place;
};
