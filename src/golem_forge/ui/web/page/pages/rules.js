/* Rules and approvals: what is allowed, where that stands and when it was last used; taking a permission back.

   What somebody wrote by hand is pointed to. After a removal the next such call asks again. */

import { h, replace } from "../dom.js";
import { path } from "../api.js";
import { oneLine, words } from "../cards/plain.js";
import { actButton, confirmed, saidPlace } from "./acting.js";
import { moment } from "./moments.js";
import { dataTable, loading, nothing, pill, problem, redraw } from "./parts.js";
import { refreshed } from "./refreshing.js";

const VERDICTS = { preApproved: ["allows", "ok"], ask: ["asks", "warn"], blocked: ["blocks", "fail"] };

/** @param {string} verdict */
export const verdictPill = (verdict) => {
  const [said, how] = VERDICTS[/** @type {keyof typeof VERDICTS} */ (verdict)] ?? [oneLine(verdict), ""];
  return pill(said, how);
};

/** @param {any} ctx */
export const rulesPart = (ctx) => {
  const said = saidPlace();
  const [notices, approvals, rules] = [h("div", null), h("div", null), h("div", null, loading())];
  const node = h(
    "div",
    { class: "rules", tabindex: "-1", role: "group", "aria-label": "Rules and approvals" },
    said,
    notices,
    approvals,
    rules,
  );

  const taken =
    (/** @type {string} */ id, /** @type {string} */ what, /** @type {string} */ verb, /** @type {string} */ where) =>
    async () => {
      const sure = await confirmed({
        title: `${verb} this?`,
        words: [
          h("p", { class: "confirm-what mono" }, what),
          h("p", null, where),
          h("p", { class: "dim" }, "The next such call asks again."),
        ],
        yes: verb,
      });
      if (!sure) return null;
      const answer = await ctx.api.del(path`/api/sessions/${ctx.session.id}/rules/${id}`);
      await facts.now();
      node.focus({ preventScroll: true }); // the button that was pressed is gone
      ctx.announce(String(answer.text));
      return String(answer.text);
    };
  const facts = refreshed(
    () => ctx.api.get(path`/api/sessions/${ctx.session.id}/rules`),
    (now) => {
      redraw(notices, now.notices, () =>
        now.notices.map((/** @type {string} */ line) =>
          h("p", { class: "notice-line", dataset: { how: "warn" } }, line),
        ),
      );
      redraw(approvals, now.approvals, () => approvalTable(now.approvals, taken, said));
      redraw(rules, now.rules, () => ruleTables(now.rules, taken, said));
    },
    (failure) => replace(rules, problem(failure)),
  );
  facts.now();
  return { node, soon: facts.soon, leave: facts.leave };
};

/** @typedef {(id: string, what: string, verb: string, where: string) => () => Promise<string | null>} Taken */

/** @param {any[]} approvals @param {Taken} taken @param {HTMLElement} said */
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
        h("span", { class: "rule-what" }, what),
        one.worker ? oneLine(one.worker) : "this exact call",
        h("code", { class: "rule-id" }, oneLine(one.id)),
        act,
      ],
    };
  });
  return [
    h("h4", { class: "group-title" }, "Approved for this session", h("span", { class: "count" }, rows.length)),
    dataTable("Approvals of this session", ["What", "For", "Id", ""], rows),
  ];
};

/** The person's own, then those that Forge brings. @param {any[]} rules @param {Taken} taken @param {HTMLElement} said */
const ruleTables = (rules, taken, said) => {
  const own = rules.filter((rule) => rule.origin !== "builtin");
  const builtIn = rules.filter((rule) => rule.origin === "builtin");
  return [
    h("h4", { class: "group-title" }, "Rules", h("span", { class: "count" }, own.length)),
    own.length
      ? ruleTable("Rules", own, taken, said)
      : nothing("No rule yet. “Approve and remember” on a card makes one."),
    builtIn.length
      ? h(
          "details",
          { class: "fold" },
          h("summary", null, `Built in (${builtIn.length})`),
          ruleTable("Built-in rules", builtIn, taken, said),
        )
      : null,
  ];
};

/** @param {string} label @param {any[]} rules @param {Taken} taken @param {HTMLElement} said */
const ruleTable = (label, rules, taken, said) =>
  dataTable(
    label,
    ["Rule", "Verdict", "Kept in", "Scope", "Last used", ""],
    rules.map((rule) => {
      const what = words(rule.what);
      const place = `It is kept in ${oneLine(rule.keptIn)}.`;
      return {
        dataset: { inactive: String(Boolean(rule.inactive)) },
        cells: [
          [
            h("span", { class: "rule-what" }, what),
            h(
              "span",
              { class: "rule-more" },
              h("code", { class: "rule-id" }, oneLine(rule.id)),
              rule.reason ? h("span", { class: "dim" }, words(rule.reason)) : null,
            ),
            rule.inactive ? h("span", { class: "rule-inactive" }, `Inactive: ${words(rule.inactive)}`) : null,
          ],
          verdictPill(rule.verdict),
          h("span", { class: "mono small" }, oneLine(rule.keptIn)),
          oneLine(rule.scope),
          rule.lastUsed
            ? [moment(rule.lastUsed), rule.hits > 1 ? h("span", { class: "dim small" }, ` ${rule.hits}×`) : null]
            : h("span", { class: "dim" }, "never"),
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
