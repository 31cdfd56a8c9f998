/* One tool, whole: what it is and who decides about its calls; of the person's own also what waits for a yes, every file,
   every version, and how it was used. */

import { h, replace } from "../dom.js";
import { path } from "../api.js";
import { disclosed } from "../cards/disclosure.js";
import { literal } from "../cards/literal.js";
import { oneLine, words } from "../cards/plain.js";
import { pretty } from "../forms/exact_json.js";
import { toolForm } from "../forms/tool_form.js";
import { address } from "../router.js";
import { saidPlace } from "./acting.js";
import { callsChart } from "./chart.js";
import { sourceWords } from "./manual_tools.js";
import { moment, span } from "./moments.js";
import { stateHow, switchButton } from "./own_tools.js";
import { factList, loading, pill, problem, section, sheet } from "./parts.js";
import { refreshed } from "./refreshing.js";
import { sourceFiles } from "./source_files.js";
import { usageBar } from "./statistics.js";
import { trustQuestion } from "./trust.js";
import { versionList } from "./versions.js";

/** @param {any} ctx @param {string} name */
export const toolDetail = (ctx, name) => {
  const body = h("div", { class: "detail" }, loading());
  const said = saidPlace();
  const facts = refreshed(
    () => ctx.api.get(path`/api/sessions/${ctx.session.id}/tools/${name}`),
    (tool) => replace(body, parts(tool, ctx, said, changed)),
    (failure) => replace(body, problem(failure)),
  );
  /** What was pressed is gone with what it changed: the outcome stands at the top. */
  const changed = async () => {
    await facts.now();
    const title = /** @type {HTMLElement} */ (node.querySelector(".sheet-title"));
    title.focus();
  };
  facts.now();
  const back = h("a", { class: "back", href: address("tools", ctx.session.id) }, "All tools");
  const node = sheet(oneLine(name), back, said, body);
  return { node, title: oneLine(name), leave: facts.leave };
};

/** @param {any} tool @param {any} ctx @param {HTMLElement} said @param {() => void} changed */
const parts = (tool, ctx, said, changed) => {
  const { own } = tool;
  const mayRun = tool.offered && tool.mode !== "llm" && ctx.session.answerable;
  return [
    about(tool, ctx, said, changed),
    tool.problem ? h("p", { class: "problem" }, words(tool.problem)) : null,
    own?.trust ? section("Trust", trustQuestion(tool.name, own.trust, ctx, said, changed)) : null,
    mayRun ? section("Run it", toolForm({ ...tool, description: "" }, ctx)) : null,
    tool.fields?.length ? section("Parameters", parameters(tool.fields)) : null,
    Object.keys(tool.definition ?? {}).length
      ? disclosed("Definition and schema", () => literal(pretty(tool.definition), { label: "Definition" }))
      : null,
    own ? section("Source", sourceFiles(own.files)) : null,
    own
      ? section(
          "What it may do",
          factList(
            Object.fromEntries(Object.entries(own.permissions).map(([what, how]) => [oneLine(what), oneLine(how)])),
          ),
        )
      : null,
    tool.versions?.length ? section("Versions", versionList(tool.name, tool.versions, ctx, said, changed)) : null,
    tool.statistics ? section("Use", use(tool.statistics, own)) : null,
  ];
};

/** @param {any} tool @param {any} ctx @param {HTMLElement} said @param {() => void} changed */
const about = (tool, ctx, said, changed) => {
  const { own } = tool;
  return h(
    "section",
    { class: "part", "aria-label": "About" },
    h(
      "div",
      { class: "row-head" },
      pill(sourceWords(tool.source)),
      own ? pill(oneLine(own.state), stateHow(own.state)) : null,
      tool.offered ? null : pill("not offered in this session", "warn"),
      own ? switchButton({ name: tool.name, state: own.state }, ctx, said, changed) : null,
    ),
    tool.description ? h("p", { class: "detail-words" }, words(tool.description)) : null,
    own?.reason ? h("p", { class: "row-why" }, words(own.reason)) : null,
    factList({
      Label: tool.label === tool.name ? "" : oneLine(tool.label ?? ""),
      Category: tool.category,
      Calls: tool.approval,
      "May be called by": { llm: "workers", manual: "people", both: "workers and people" }[
        /** @type {string} */ (tool.mode)
      ],
      Server: tool.server,
      "Also called": (tool.aliases ?? []).map(oneLine).join(", "),
      Author: own?.author,
      Version: own?.version,
      Folder: own ? h("code", null, oneLine(own.folder)) : null,
      Starts: own?.entrypoint ? h("code", null, oneLine(own.entrypoint)) : null,
      Digest: own ? h("code", null, oneLine(own.digest)) : null,
      Tests: own?.tests?.length ? own.tests.map(oneLine).join(", ") : null,
    }),
  );
};

/** @param {any[]} fields */
const parameters = (fields) =>
  h(
    "dl",
    { class: "parameters" },
    fields.map((field) =>
      h(
        "div",
        null,
        h(
          "dt",
          null,
          h("code", null, oneLine(field.name)),
          h("span", { class: "dim small" }, ` ${oneLine(field.format ?? field.type)}`),
          field.required ? pill("required") : null,
        ),
        h(
          "dd",
          null,
          field.description ? words(field.description) : null,
          field.options?.length
            ? h(
                "span",
                { class: "dim small" },
                ` one of ${field.options.map((/** @type {any} */ one) => oneLine(one.label ?? one.value)).join(", ")}`,
              )
            : null,
          field.default === undefined || field.default === null
            ? null
            : h("span", { class: "dim small" }, ` default ${oneLine(field.default)}`),
        ),
      ),
    ),
  );

/** @param {any} statistics @param {any} own */
const use = (statistics, own) => [
  statistics.calls ? callsChart("Calls in all sessions", [usageBar(statistics)], ["Median", "Last used"]) : null,
  factList({
    Calls: String(statistics.calls),
    "By status": Object.entries(statistics.statuses ?? {})
      .map(([status, count]) => `${oneLine(status)} ${count}`)
      .join(" · "),
    "Last used": moment(statistics.lastUsed) ?? "never",
    "Median time": span(statistics.medianMs),
    "Time in all": statistics.calls ? span(statistics.totalMs) : "",
    "Time saved, estimated": span(statistics.timeSavedMs),
    Ratings: statistics.good + statistics.bad ? `${statistics.good} good · ${statistics.bad} bad` : "",
    Notes: own?.notes?.length
      ? h(
          "ul",
          null,
          own.notes.map((/** @type {string} */ note) => h("li", null, words(note))),
        )
      : null,
  }),
];
