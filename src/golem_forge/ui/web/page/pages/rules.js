/* Rules and approvals: what is allowed, where that stands and when it was last used; taking a permission back.

   What somebody wrote by hand is pointed to. After a removal the next such call asks again. */

import { path } from "../api.js";
import { decisionList } from "../cards/tool_card.js";
import { el, h, replace } from "../dom.js";
import { moment, objects, oneLine, words } from "../format.js";
import { formFor } from "../forms/form.js";
import {
  actButton, confirmed, dataTable, loading, markWrong, nothing, pill, problem, problemWords, redraw, refreshed,
  saidPlace,
} from "./parts.js";

const VERDICTS = { preApproved: ["allows", "ok"], ask: ["asks", "warn"], blocked: ["blocks", "fail"] };

const verdictPill = (verdict) => {
  const [said, how] = VERDICTS[verdict] ?? [oneLine(verdict), ""];
  return pill(said, how);
};

export const rulesPart = (ctx) => {
  const said = saidPlace();
  const [notices, approvals, rules] = [el("div"), el("div"), el("div", loading())];
  const node = h("div.rules", { tabindex: "-1", role: "group", "aria-label": "Rules and approvals" },
    said,
    notices,
    approvals,
    rules,
  );

  const taken =
    (id, what, verb, where) =>
    async () => {
      const sure = await confirmed({
        title: `${verb} this?`,
        words: [el("p.confirm-what.mono", what), el("p", where), el("p.dim", "The next such call asks again.")],
        yes: verb,
      });
      if (!sure) return null;
      const answer = await ctx.api.del(path`/api/sessions/${ctx.session.id}/rules/${id}`);
      await facts.now();
      node.focus({ preventScroll: true }); // the button that was pressed is gone
      ctx.announce(String(answer.text));
      return String(answer.text);
    };
  const facts = refreshed(() => ctx.api.get(path`/api/sessions/${ctx.session.id}/rules`),
    (now) => {
      redraw(notices, now.notices, () =>
        now.notices.map((line) => h("p.notice-line", { dataset: { how: "warn" } }, line)),
      );
      redraw(approvals, now.approvals, () => approvalTable(now.approvals, taken, said));
      redraw(rules, now.rules, () => ruleTables(now.rules, taken, said));
    },
    (failure) => replace(rules, problem(failure)),
  );
  facts.now();
  return { node, soon: facts.soon, leave: facts.leave };
};

const approvalTable = (approvals, taken, said) => {
  if (!approvals.length) return null;
  const rows = approvals.map((one) => {
    const what = words(one.what);
    const act = actButton("Revoke", taken(one.id, what, "Revoke", "It holds for the rest of this session."), {
      name: `Revoke ${oneLine(one.what)}`,
      said,
      look: "danger",
    });
    return {
      cells: [
        el("span.rule-what", what),
        one.worker ? oneLine(one.worker) : "this exact call",
        el("code.rule-id", oneLine(one.id)),
        act,
      ],
    };
  });
  return [
    el("h4.group-title", "Approved for this session", el("span.count", rows.length)),
    dataTable("Approvals of this session", ["What", "For", "Id", ""], rows),
  ];
};

/** The person's own, then those that Forge brings. */
const ruleTables = (rules, taken, said) => {
  const own = rules.filter((rule) => rule.origin !== "builtin");
  const builtIn = rules.filter((rule) => rule.origin === "builtin");
  return [
    el("h4.group-title", "Rules", el("span.count", own.length)),
    own.length
      ? ruleTable("Rules", own, taken, said)
      : nothing("No rule yet. “Approve and remember” on a card makes one."),
    builtIn.length
      ? el("details.fold",
          el("summary", `Built in (${builtIn.length})`),
          ruleTable("Built-in rules", builtIn, taken, said),
        )
      : null,
  ];
};

const ruleTable = (label, rules, taken, said) =>
  dataTable(label,
    ["Rule", "Verdict", "Kept in", "Scope", "Last used", ""],
    rules.map((rule) => {
      const what = words(rule.what);
      const place = `It is kept in ${oneLine(rule.keptIn)}.`;
      return {
        dataset: { inactive: String(Boolean(rule.inactive)) },
        cells: [
          [
            el("span.rule-what", what),
            el("span.rule-more",
              el("code.rule-id", oneLine(rule.id)),
              rule.reason ? el("span.dim", words(rule.reason)) : null,
            ),
            rule.inactive ? el("span.rule-inactive", `Inactive: ${words(rule.inactive)}`) : null,
          ],
          verdictPill(rule.verdict),
          el("span.mono.small", oneLine(rule.keptIn)),
          oneLine(rule.scope),
          rule.lastUsed
            ? [moment(rule.lastUsed), rule.hits > 1 ? el("span.dim.small", ` ${rule.hits}×`) : null]
            : el("span.dim", "never"),
          rule.revocable
            ? actButton("Remove", taken(rule.id, what, "Remove", place), {
                name: `Remove ${oneLine(rule.id)}`,
                said,
                look: "danger",
              })
            : null,
        ],
      };
    }),
  );

/* How a call would be judged: a tool with its form, or the text of a command. Nothing is run, asked or recorded. */
export const explainPart = (ctx) => {
  const answer = h("div.explained", { "aria-live": "polite" });
  const parts = { tool: toolQuestion(ctx, (body) => ask(body)), command: commandQuestion((body) => ask(body)) };
  const place = el("div", parts.tool);
  const ask = async (body) => {
    replace(answer, el("p.dim", "One moment…"));
    try {
      replace(answer, explanation(await ctx.api.post(path`/api/sessions/${ctx.session.id}/rules/explain`, body)));
    } catch (failure) {
      replace(answer, problem(failure, "Forge could not judge it."));
    }
  };
  const choose = (/** @type {keyof typeof parts} */ which) => () => {
    replace(place, parts[which]);
    replace(answer);
    for (const one of group.children)
      one.setAttribute("aria-pressed", String(one.dataset.which === which));
  };
  const press = (/** @type {keyof typeof parts} */ which, label) =>
    h("button", { dataset: { which }, "aria-pressed": String(which === "tool"), on: { click: choose(which) } }, label);
  const group = h("div.switch", { role: "group", "aria-label": "What to explain" },
    press("tool", "A tool call"),
    press("command", "A command"),
  );
  return el("div.explain",
    el("p.dim.small", "Shows what Forge would do with a call, and which rule decides. Nothing runs."),
    group,
    place,
    answer,
  );
};

const commandQuestion = (ask) => {
  const input = h("textarea.field-input.field-literal", { rows: "2", id: "explain-command", spellcheck: "false" });
  const submit = (event) => {
    event.preventDefault();
    if (input.value.trim()) ask({ command: input.value });
  };
  return h("form.explain-form", { on: { submit } },
    h("label.field-label", { for: "explain-command" }, "Command"),
    input,
    el("div.buttons", h("button", { type: "submit" }, "Explain")),
  );
};

/** A name, then the form of that tool. @param {(body: any) => void} ask */
const toolQuestion = (ctx, ask) => {
  const names = new Set((ctx.store.standing.tools ?? []).map((tool) => tool.name));
  for (const item of ctx.store.items.values()) if (item.kind === "call") names.add(item.name);
  const input = h("input.field-input.field-literal", {
    id: "explain-tool",
    list: "explain-tools",
    autocomplete: "off",
    spellcheck: "false",
    "aria-describedby": "explain-tool-error",
  });
  const error = h("p.field-error", { id: "explain-tool-error", hidden: true });
  const fields = el("div.explain-fields");
  let chosen = null;

  const wrong = (text) => markWrong(input, error, text);
  const choose = async () => {
    const name = input.value.trim();
    if (!name || chosen?.name === name) return;
    chosen = null;
    try {
      const tool = await ctx.api.get(path`/api/sessions/${ctx.session.id}/tools/${name}`);
      if (input.value.trim() !== name) return;
      chosen = { name, form: formFor(tool.fields ?? []) };
      wrong("");
      replace(fields, chosen.form.node);
    } catch (failure) {
      wrong(problemWords(failure));
      replace(fields);
    }
  };
  const submit = async (event) => {
    event.preventDefault();
    await choose();
    const args = chosen?.form.values();
    if (chosen && args) ask({ tool: chosen.name, args });
    else if (!chosen) input.focus();
  };
  input.addEventListener("change", choose);
  return h("form.explain-form", { novalidate: true, on: { submit } },
    h("label.field-label", { for: "explain-tool" }, "Tool"),
    input,
    h("datalist", { id: "explain-tools" }, [...names].sort().map((name) => h("option", { value: name }))),
    error,
    fields,
    el("div.buttons", h("button", { type: "submit" }, "Explain")),
  );
};

/** @param {any} said an Explanation */
const explanation = (said) => {
  if (!said.verdict) return el("p.problem", words(said.error || "There is nothing to judge."));
  const effects = objects(said.effects);
  return el("div.consent",
    el("p.explained-head", verdictPill(said.verdict), el("strong", oneLine(said.then))),
    effects.length
      ? dataTable("What it touches",
          ["Effect", "Verdict", "Risk", "Notes"],
          effects.map((one) => ({
            cells: [el("code", oneLine(one.effect)), verdictPill(one.verdict), oneLine(one.risk), oneLine(one.notes)],
          })),
        )
      : el("p.dim.small", said.effects === null ? "The tool does not say what it touches." : "It touches nothing."),
    said.decision ? decisionList(said.decision) : null,
    (said.notices ?? []).map((line) => el("p.dim.small", line)),
  );
};
