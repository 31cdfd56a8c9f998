/* What admins set on the team's page: the quotas of a day, the secrets of a project, and groups of people. A secret is
   sealed in the browser and never comes back; the page shows names alone. */

import { el, h } from "../dom.js";
import { moment, oneLine } from "../format.js";
import { canSeal, keyFingerprint, seal } from "../sealing.js";
import { dataTable, lineForm, nothing, redraw, section } from "./parts.js";

const ALL = "*";
const NO_LIMIT = -1;
const WHO = { "": "everybody together", "*": "each person" };
const ONE = "one person";

const options = (pairs) => pairs.map(([value, words]) => h("option", { value }, words));
const projectChoice = (id, managed) =>
  h("select.field-input", { id }, options(managed.map((one) => [one.name, oneLine(one.name)])));
const textInput = (id, about = {}) =>
  h("input.field-input", { id, autocomplete: "off", spellcheck: "false", required: true, ...about });

const limits = (cost, sessions) =>
  [cost >= 0 ? `$${cost.toFixed(2)}` : "", sessions >= 0 ? `${sessions} sessions` : ""].filter(Boolean).join(", ");

const quotaForm = (ctx, managed, ofAll, changed) => {
  const project = projectChoice("quota-project", managed);
  if (ofAll) project.append(...options([[ALL, "all projects together"]]));
  const who = h("select.field-input", { id: "quota-who" }, options([...Object.entries(WHO), [ONE, ONE]]));
  const name = textInput("quota-name", { disabled: true });
  who.addEventListener("change", () => { name.disabled = who.value !== ONE; });
  const cost = h("input.field-input", { id: "quota-cost", type: "number", min: "0", step: "0.01", placeholder: "no limit" });
  const sessions = h("input.field-input", { id: "quota-sessions", type: "number", min: "0", step: "1", placeholder: "no limit" });
  const limit = (input) => (input.value === "" ? NO_LIMIT : Number(input.value));
  const act = async () => {
    if (!cost.value && !sessions.value) throw { problem: "Type dollars, sessions or both; the button Remove takes a quota away." };
    const given = { project: project.value, person: who.value === ONE ? name.value.trim() : who.value, cost: limit(cost), sessions: limit(sessions) };
    await ctx.api.post("/api/team/quotas", given);
    changed();
    return el("p", `${quotaName(given)}: ${limits(given.cost, given.sessions)} a day.`);
  };
  const fields = { "Quota of": project, "For": who, "Person": name, "Dollars a day": cost, "Sessions a day": sessions };
  return lineForm("Quota of a day", fields, "Set quota", act, "The quota could not be set.");
};

const quotaName = ({ project, person }) =>
  `${project === ALL ? "all projects" : oneLine(project)}, ${WHO[person] ?? oneLine(person)}`;

const quotaTable = (rows, remove) =>
  dataTable("Quotas", ["Project", "For", "A day (UTC)", "Used today", ""], rows.map((one) => ({
    cells: [
      el("strong", one.project === ALL ? "all projects" : oneLine(one.project)),
      WHO[one.person] ?? oneLine(one.person),
      limits(one.cost, one.sessions),
      one.person === ALL ? el("span.dim", "each their own") : limits(one.used_cost, one.used_sessions),
      remove(one, `Remove the quota of ${quotaName(one)}`),
    ],
  })));

const secretForm = (ctx, managed, changed) => {
  const project = projectChoice("secret-project", managed);
  const name = textInput("secret-name", { pattern: "[A-Za-z_][A-Za-z0-9_]{0,99}", title: "letters, digits and _" });
  const value = textInput("secret-value", { type: "password", autocomplete: "new-password" });
  const act = async () => {
    const to = await ctx.api.get(ctx.api.path`/api/team/projects/${project.value}/secrets-key`);
    if (!(await canSeal())) {
      throw { problem: "This browser cannot seal a secret. Use a newer one by HTTPS, or `forge secrets set NAME --project P`." };
    }
    const sealed = await seal(value.value, to, name.value);
    await ctx.api.post("/api/team/secrets", { project: project.value, name: name.value, sealed });
    value.value = "";
    changed();
    return el("p", `${name.value} of ${oneLine(project.value)} is set, sealed for the runners' key `, el("code", await keyFingerprint(to.key)), ".");
  };
  const fields = { "Secret of": project, "Name of the secret": name, "Value": value };
  return lineForm("Secret of a project", fields, "Set secret", act, "The secret could not be set.",
    el("p.dim.small", "This browser seals the value to the runners' key: neither this page nor the database can open it. " +
      "Whoever may start sessions in the project can in effect read it."));
};

const secretTable = (rows, remove) =>
  dataTable("Secrets", ["Project", "Name", "Set by", "When", ""], rows.map((one) => ({
    cells: [
      el("strong", oneLine(one.project)),
      el("code", oneLine(one.name)),
      oneLine(one.person),
      moment(new Date(one.created * 1000).toISOString()),
      remove(one, `Remove the secret ${oneLine(one.name)} of ${oneLine(one.project)}`),
    ],
  })));

const groupForm = (ctx, changed) => {
  const person = textInput("group-person");
  const group = textInput("group-name");
  const act = async () => {
    const given = { group: group.value.trim().replace(/^@/, ""), person: person.value.trim(), member: true };
    await ctx.api.post("/api/team/groups", given);
    person.value = "";
    changed();
    return el("p", `${oneLine(given.person)} is in @${oneLine(given.group)}.`);
  };
  return lineForm("New member of a group", { "Member": person, "Group": group }, "Put into group", act, "They could not be put into the group.");
};

const groupTable = (rows, remove) =>
  dataTable("Groups", ["Group", "People"], rows.map((one) => ({
    cells: [
      el("strong", `@${oneLine(one.name)}`),
      h("ul.project-roles", { role: "list" }, one.people.map((person) =>
        el("li", `${oneLine(person)} `, remove({ group: one.name, person }, `Take ${oneLine(person)} out of @${oneLine(one.name)}`)))),
    ],
  })));

/** The sections for admins. `draw` takes the answers of `paths`, in their order.
 * @param {boolean} ofAll whether the person is an admin of all projects
 * @param {(words: (one: any) => string, title: string, act: (one: any) => Promise<any>) => any} removal makes the maker of a button
 * @param {() => void} changed */
export const projectSettings = (ctx, ofAll, removal, changed) => {
  const quotas = el("div");
  const secrets = el("div");
  const groups = el("div");
  const forms = el("div");
  const secretForms = el("div");
  const removeQuota = removal(
    (one) => `${quotaName(one)}: from now on nothing is refused for it.`,
    "Remove this quota?",
    ({ project, person }) => ctx.api.post("/api/team/quotas", { project, person }),
  );
  const removeSecret = removal(
    (one) => `Sessions of ${oneLine(one.project)} that begin or wake from now on do not have ${oneLine(one.name)}. Nobody can bring its value back.`,
    "Remove this secret?",
    (one) => ctx.api.del(ctx.api.path`/api/team/projects/${one.project}/secrets/${one.name}`),
  );
  const leaveGroup = removal(
    (one) => `${oneLine(one.person)} loses the roles that @${oneLine(one.group)} has; pages that show them close.`,
    "Take this person out of the group?",
    (one) => ctx.api.post("/api/team/groups", { ...one, member: false }),
  );
  return {
    paths: ["quotas", "secrets", ...(ofAll ? ["groups"] : [])],
    draw: (managed, answers) => {
      const [spent, sealed, grouped] = answers;
      const names = managed.map((one) => one.name);
      redraw(forms, names, () => quotaForm(ctx, managed, ofAll, changed));
      redraw(secretForms, names, () => (managed.length ? secretForm(ctx, managed, changed) : null));
      redraw(quotas, spent.rows, () => (spent.rows.length ? quotaTable(spent.rows, removeQuota) : nothing("No quota: nothing bounds what a day costs.")));
      redraw(secrets, sealed.rows, () => (sealed.rows.length ? secretTable(sealed.rows, removeSecret) : nothing("No secret yet.")));
      if (ofAll) redraw(groups, grouped.rows, () => (grouped.rows.length ? groupTable(grouped.rows, leaveGroup) : nothing("No group yet.")));
    },
    sections: [
      ofAll ? section("Groups", groupForm(ctx, changed), groups) : null,
      section("Quotas", forms, quotas),
      section("Secrets", secretForms, secrets),
    ],
  };
};
