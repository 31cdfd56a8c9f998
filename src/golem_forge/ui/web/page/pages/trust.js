/* What a yes to a tool of one's own is given to: every line of it, what it may do, what its build would fetch; and the yes.

   Threat: a folder that changes while it is read. The yes names the digest of what stands here and is refused for another. */

import { h } from "../dom.js";
import { diffView } from "../cards/diff.js";
import { linesOf } from "../cards/literal.js";
import { oneLine, words } from "../cards/plain.js";
import { actButton } from "./acting.js";
import { toolAct } from "./own_tools.js";

/** More lines than this are one block: an element a line would make the page slow. */
const MOST_LINES = 5000;

/** Nothing is folded away of what is trusted. @param {string} text @param {string} label */
const everyLine = (text, label) => {
  const lines = linesOf(text);
  return h(
    "pre",
    { class: "literal", role: "group", "aria-label": label },
    lines.length > MOST_LINES ? text : lines.map((line) => h("span", { class: "literal-line" }, `${line}\n`)),
  );
};

/** @param {string} name @param {any} trust @param {any} ctx @param {HTMLElement} said @param {() => void} changed */
export const trustQuestion = (name, trust, ctx, said, changed) => {
  const shown = oneLine(name);
  const answered = (/** @type {string} */ verb, /** @type {any} */ body) => async () => {
    const answer = await toolAct(ctx, name, verb, body);
    changed();
    ctx.announce(String(answer.text));
    return String(answer.text);
  };
  return h(
    "div",
    { class: "consent" },
    h(
      "p",
      { class: "consent-title" },
      "A yes is given to exactly these bytes. Read them: it will run on this machine.",
    ),
    (trust.warnings ?? []).map((/** @type {string} */ line) => h("p", { class: "fact-warn" }, `! ${line}`)),
    trust.buildHosts?.length
      ? h(
          "p",
          { class: "fact-warn" },
          `! While it is built it fetches from ${trust.buildHosts.map(oneLine).join(", ")}`,
        )
      : null,
    everyLine(words(trust.text), `What ${shown} is`),
    trust.diff
      ? diffView(words(trust.diff), ctx)
      : h("p", { class: "dim small" }, "Every file of it stands under Source."),
    h("p", { class: "dim small" }, "Digest ", h("code", { class: "digest" }, oneLine(trust.digest))),
    trust.problem ? h("p", { class: "problem" }, words(trust.problem)) : null,
    h(
      "div",
      { class: "buttons" },
      actButton("Do not trust", answered("deny", { digest: trust.digest }), {
        look: "danger",
        name: `Do not trust ${shown}`,
        said,
      }),
      trust.problem
        ? null
        : actButton(
            "Trust and activate",
            answered("activate", { digest: trust.digest, buildHosts: trust.buildHosts ?? [] }),
            { look: "primary", name: `Trust and activate ${shown}`, busy: "Building and testing…", said },
          ),
    ),
  );
};
