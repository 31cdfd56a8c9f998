/* One tool, whole: what it is and who decides about its calls; of the person's own also what waits for a yes, every file,
   every version, and how it was used. */

import { path } from "../api.js";
import { el, h, replace } from "../dom.js";
import { moment, oneLine, size, span, words } from "../format.js";
import { pretty } from "../forms/arguments.js";
import { toolForm } from "../forms/tool_form.js";
import { sourceWords } from "./manual_tools.js";
import { stateHow, switchButton, trustQuestion, versionList } from "./own_tools.js";
import { factList, loading, nothing, pill, problem, refreshed, saidPlace, section, sheet } from "./parts.js";
import { callsChart, usageBar } from "./statistics.js";
import { address } from "../router.js";
import { disclosed, linesOf, literal } from "../widgets.js";

/* Files as they are stored, line by line with their numbers. Text only: nothing of it is rendered or run. */
/** More lines than this are one block: an element a line would make the page slow. */
const MOST_LINES = 3000;
const sourceFiles = (files) => el("div.files", files.map((file, at) => fileNode(file, at === 0 || files.length <= 3)));

const fileNode = (file, open) => {
  const title = el("span.file-head",
    el("span.mono", oneLine(file.path)),
    el("span.dim.small", size(file.size)),
    file.language ? el("span.dim.small", oneLine(file.language)) : null,
    file.executable ? pill("executable") : null,
  );
  return disclosed(title,
    () =>
      typeof file.text === "string"
        ? codeNode(file.text, oneLine(file.path))
        : nothing(`No text, or too long to be shown. SHA-256 ${oneLine(file.sha256)}`),
    { open, class: "file" },
  );
};

const codeNode = (text, label) => {
  const lines = linesOf(text);
  const rows = lines.length > MOST_LINES ? text : lines.map((line) => el("span.source-line", `${line}\n`));
  return h("pre.source",
    { tabindex: "0", role: "region", "aria-label": label, dataset: { wide: String(lines.length > 999) } },
    el("code", rows),
  );
};

export const toolDetail = (ctx, name) => {
  const body = el("div.detail", loading());
  const said = saidPlace();
  const facts = refreshed(() => ctx.api.get(path`/api/sessions/${ctx.session.id}/tools/${name}`),
    (tool) => replace(body, parts(tool, ctx, said, changed)),
    (failure) => replace(body, problem(failure)),
  );
  /** What was pressed is gone with what it changed: the outcome stands at the top. */
  const changed = async () => {
    await facts.now();
    const title = node.querySelector(".sheet-title");
    title.focus();
  };
  facts.now();
  const back = h("a.back", { href: address("tools", ctx.session.id) }, "All tools");
  const node = sheet(oneLine(name), back, said, body);
  return { node, title: oneLine(name), leave: facts.leave };
};

const parts = (tool, ctx, said, changed) => {
  const { own } = tool;
  const mayRun = tool.offered && tool.mode !== "llm" && ctx.session.answerable;
  return [
    about(tool, ctx, said, changed),
    tool.problem ? el("p.problem", words(tool.problem)) : null,
    own?.trust ? section("Trust", trustQuestion(tool.name, own.trust, ctx, said, changed)) : null,
    mayRun ? section("Run it", toolForm({ ...tool, description: "" }, ctx)) : null,
    tool.fields?.length ? section("Parameters", parameters(tool.fields)) : null,
    Object.keys(tool.definition ?? {}).length
      ? disclosed("Definition and schema", () => literal(pretty(tool.definition), { label: "Definition" }))
      : null,
    own ? section("Source", sourceFiles(own.files)) : null,
    own
      ? section("What it may do",
          factList(
            Object.fromEntries(Object.entries(own.permissions).map(([what, how]) => [oneLine(what), oneLine(how)])),
          ),
        )
      : null,
    tool.versions?.length ? section("Versions", versionList(tool.name, tool.versions, ctx, said, changed)) : null,
    tool.statistics ? section("Use", use(tool.statistics, own)) : null,
  ];
};

const about = (tool, ctx, said, changed) => {
  const { own } = tool;
  return h("section.part", { "aria-label": "About" },
    el("div.row-head",
      pill(sourceWords(tool.source)),
      own ? pill(oneLine(own.state), stateHow(own.state)) : null,
      tool.offered ? null : pill("not offered in this session", "warn"),
      own ? switchButton({ name: tool.name, state: own.state }, ctx, said, changed) : null,
    ),
    tool.description ? el("p.detail-words", words(tool.description)) : null,
    own?.reason ? el("p.row-why", words(own.reason)) : null,
    factList({
      Label: tool.label === tool.name ? "" : oneLine(tool.label ?? ""),
      Category: tool.category,
      Calls: tool.approval,
      "May be called by": { llm: "workers", manual: "people", both: "workers and people" }[tool.mode],
      Server: tool.server,
      "Also called": (tool.aliases ?? []).map(oneLine).join(", "),
      Author: own?.author,
      Version: own?.version,
      Folder: own ? el("code", oneLine(own.folder)) : null,
      Starts: own?.entrypoint ? el("code", oneLine(own.entrypoint)) : null,
      Digest: own ? el("code", oneLine(own.digest)) : null,
      Tests: own?.tests?.length ? own.tests.map(oneLine).join(", ") : null,
    }),
  );
};

const parameters = (fields) =>
  el("dl.parameters",
    fields.map((field) =>
      el("div",
        el("dt",
          el("code", oneLine(field.name)),
          el("span.dim.small", ` ${oneLine(field.format ?? field.type)}`),
          field.required ? pill("required") : null,
        ),
        el("dd",
          field.description ? words(field.description) : null,
          field.options?.length > 0 &&
            el("span.dim.small", ` one of ${field.options.map((one) => oneLine(one.label ?? one.value)).join(", ")}`),
          field.default === undefined || field.default === null
            ? null
            : el("span.dim.small", ` default ${oneLine(field.default)}`),
        ),
      ),
    ),
  );

const use = (statistics, own) => [
  statistics.calls ? callsChart("Calls in all sessions", [usageBar(statistics)], ["Median", "Last used"]) : null,
  factList({
    Calls: String(statistics.calls),
    "By status": Object.entries(statistics.statuses ?? {}).map(([status, count]) => `${oneLine(status)} ${count}`)
      .join(" · "),
    "Last used": moment(statistics.lastUsed) ?? "never",
    "Median time": span(statistics.medianMs),
    "Time in all": statistics.calls ? span(statistics.totalMs) : "",
    "Time saved, estimated": span(statistics.timeSavedMs),
    Ratings: statistics.good + statistics.bad ? `${statistics.good} good · ${statistics.bad} bad` : "",
    Notes: own?.notes?.length ? el("ul", own.notes.map((note) => el("li", words(note)))) : null,
  }),
];
