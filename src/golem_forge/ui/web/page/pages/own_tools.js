/* The person's own tools: the state of each folder, why it is not offered if it is not, and what can be done about it.

   Trusting is done where every line can be read: the tool's own page. Here is only the way there. */

import { path } from "../api.js";
import { diffView } from "../cards/diff.js";
import { el, h, replace } from "../dom.js";
import { moment, oneLine, words } from "../format.js";
import { actButton, confirmed, nothing, pill, redraw, saidPlace, searchable } from "./parts.js";
import { address } from "../router.js";
import { disclosure, linesOf } from "../widgets.js";

const HOW = { active: "ok", retired: "", unusable: "fail" };

export const stateHow = (state) => HOW[state] ?? "warn";

const toolAct = (ctx, name, verb, body) =>
  ctx.api.post(`${path`/api/sessions/${ctx.session.id}/tools/${name}`}/${verb}`, body);

export const ownTools = (ctx, changed) => {
  const said = saidPlace();
  const list = h("ul.rows", { role: "list" });
  const part = searchable(el("div", said, list),
    (tool) => [tool.name, tool.state, tool.reason, tool.description, tool.author, tool.category],
    () => redraw(list, part.found(), () => part.found().map((tool) => row(tool, ctx, said, changed))),
  );
  return part;
};

const row = (tool, ctx, said, changed) => {
  const name = oneLine(tool.name);
  const where = address("tools", ctx.session.id, tool.name);
  const waits = !["active", "retired", "unusable"].includes(tool.state);
  return h("li.row-card", { dataset: { how: stateHow(tool.state) } },
    el("div.row-head",
      h("a.row-name.mono", { href: where }, name),
      pill(oneLine(tool.state), stateHow(tool.state)),
      tool.version ? el("span.dim.small", `v${oneLine(tool.version)}`) : null,
      tool.agentMade ? pill("made by a model") : null,
      tool.imported ? pill("imported") : null,
    ),
    tool.description ? el("p.row-words", oneLine(tool.description)) : null,
    tool.reason ? el("p.row-why", words(tool.reason)) : null,
    el("div.row-foot",
      tool.author ? el("span.dim.small", oneLine(tool.author)) : null,
      el("span.row-acts",
        waits ? h("a.button", { href: `${where}/trust`, "aria-label": `Review ${name}` }, "Review…") : null,
        switchButton(tool, ctx, said, changed),
      ),
    ),
  );
};

/** Off, or on again. */
export const switchButton = (tool, ctx, said, changed) => {
  const name = oneLine(tool.name);
  if (tool.state === "retired")
    return actButton("Restore", async () => done(await toolAct(ctx, tool.name, "restore"), changed), {
      name: `Restore ${name}`,
      said,
    });
  if (tool.state !== "active") return null;
  const retire = async () => {
    const sure = await confirmed({
      title: `Retire ${name}?`,
      words: el("p", "Nobody can call it any more. Its folder and your trust stay."),
      yes: "Retire",
    });
    return sure ? done(await toolAct(ctx, tool.name, "retire"), changed) : null;
  };
  return actButton("Retire…", retire, { name: `Retire ${name}…`, said });
};

const done = (answer, changed) => {
  changed();
  return String(answer?.text ?? "Done.");
};

/* What a yes to a tool of one's own is given to: every line of it, what it may do, what its build would fetch; and the yes.

   Threat: a folder that changes while it is read. The yes names the digest of what stands here and is refused for another. */
/** More lines than this are one block: an element a line would make the page slow. */
const MOST_LINES = 5000;

/** Nothing is folded away of what is trusted. */
const everyLine = (text, label) => {
  const lines = linesOf(text);
  return h("pre.literal", { role: "group", "aria-label": label },
    lines.length > MOST_LINES ? text : lines.map((line) => el("span.literal-line", `${line}\n`)),
  );
};

export const trustQuestion = (name, trust, ctx, said, changed) => {
  const shown = oneLine(name);
  const answered = (verb, body) => async () => {
    const answer = await toolAct(ctx, name, verb, body);
    changed();
    ctx.announce(String(answer.text));
    return String(answer.text);
  };
  return el("div.consent",
    el("p.consent-title", "Your yes counts for exactly these files. Read them: the tool will run on this machine."),
    (trust.warnings ?? []).map((line) => el("p.fact-warn", `! ${line}`)),
    trust.buildHosts?.length > 0 &&
      el("p.fact-warn", `! The build downloads from ${trust.buildHosts.map(oneLine).join(", ")}`),
    everyLine(words(trust.text), `What ${shown} is`),
    trust.diff ? diffView(words(trust.diff)) : el("p.dim.small", "Source shows every file of it."),
    el("p.dim.small", "Digest ", el("code.digest", oneLine(trust.digest))),
    trust.problem ? el("p.problem", words(trust.problem)) : null,
    el("div.buttons",
      actButton("Do not trust", answered("deny", { digest: trust.digest }), {
        look: "danger",
        name: `Do not trust ${shown}`,
        said,
      }),
      trust.problem
        ? null
        : actButton("Trust and activate",
            answered("activate", { digest: trust.digest, buildHosts: trust.buildHosts ?? [] }),
            { look: "primary", name: `Trust and activate ${shown}`, busy: "Building and testing…", said },
          ),
    ),
  );
};

/* The versions a tool has had: what changed from one to another, and going back to one. What is there now stays a version. */
const SHORT = 12;
const short = (digest) => oneLine(digest).replace(/^sha256:/, "").slice(0, SHORT);

/** @param {string} name @param {any[]} versions newest first @param {HTMLElement} said @param {() => void} changed */
export const versionList = (name, versions, ctx, said, changed) =>
  h("ol.rows", { role: "list", reversed: true },
    versions.map((version, at) => versionRow(name, version, versions[at + 1], ctx, said, changed)),
  );

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
      words: [
        el("p", "Forge keeps the current files as a version; you can go back to them."),
        version.trusted ? null : el("p", "Nobody trusted this version: the tool is off until you activate it."),
      ],
      yes: "Go back",
      look: "primary",
    });
    if (!sure) return null;
    const answer = await toolAct(ctx, name, "undo", { version: version.digest });
    changed();
    return String(answer.text);
  };
  return el("li.row-card",
    el("div.row-head",
      el("code.row-name", digest),
      version.current ? pill("current", "ok") : null,
      version.trusted ? pill("trusted", "ok") : pill("not trusted", "warn"),
      el("span.dim.small", moment(version.at)),
      el("span.dim.small", oneLine(version.author)),
      version.restored ? el("span.dim.small", `restored ${version.restored}×`) : null,
    ),
    compare ? [compare.button, compare.region] : el("p.dim.small", "The first known version."),
    version.current
      ? null
      : el("div.row-foot",
          el("span.row-acts", actButton("Go back to it…", back, { name: `Go back to version ${digest}…`, said })),
        ),
  );
};

const difference = async (name, before, after, ctx) => {
  const place = el("div.difference");
  const found = await ctx.api.get(
    `${path`/api/sessions/${ctx.session.id}/tools/${name}/difference`}?${new URLSearchParams({ before, after })}`,
  );
  replace(place,
    (found.warnings ?? []).map((line) => el("p.fact-warn", `! ${line}`)),
    found.reach?.length > 0 &&
      [el("p.fact-name", "What it may do:"), el("ul.reach", found.reach.map((line) => el("li.mono.small", line)))],
    found.changes ? diffView(words(found.changes)) : nothing("No file differs."),
  );
  return place;
};
