/* The team: its people, the projects and who has which role in them, what starts by the clock, the rules that admins
   made for all sessions, and what was refused. An admin of all projects adds and removes people, an admin of a project
   gives roles in it and sets its quotas and secrets (project_settings.js); everybody sees schedules and rules, and an
   operator removes their own schedules. A new token is shown once. */

import { el, h, replace } from "../dom.js";
import { inZone, moment, oneLine, shortProse } from "../format.js";
import {
  actButton, confirmed, dataTable, lineForm, loading, nothing, problem, redraw, refreshed, saidPlace, section, sheet,
  statusPill,
} from "./parts.js";
import { projectSettings } from "./project_settings.js";
import { address } from "../router.js";
import { copyButton } from "../widgets.js";

const ROLES = {
  viewer: "sees sessions and their questions",
  operator: "also starts sessions, answers, writes to them and stops them",
  admin: "also manages people and rules",
};
const LOOK_MS = 5000;
const at = (seconds) => moment(new Date(seconds * 1000).toISOString());

/** What an admin hands to a new person. */
const welcome = ({ name, token }) =>
  el("div.new-token",
    el("p", `Give ${oneLine(name)} the token or the link. This page shows them only now.`),
    el("p", el("code.person-token", token), copyButton("Copy token", () => token)),
    el("p", "The link logs them in: ", copyButton("Copy link", () => `${location.origin}/#code=${encodeURIComponent(token)}`)),
  );

const newPerson = (ctx, changed) => {
  const name = h("input.field-input", { id: "person-name", autocomplete: "off", spellcheck: "false", required: true });
  const role = h("select.field-input", { id: "person-role", "aria-describedby": "person-roles" },
    Object.keys(ROLES).map((one) => h("option", { value: one }, one)),
  );
  const act = async () => {
    const made = await ctx.api.post("/api/team/people", { name: name.value.trim(), role: role.value });
    name.value = "";
    changed();
    return welcome(made);
  };
  return lineForm("New person", { Name: name, Role: role }, "Add", act, "They could not be added.",
    h("p.dim.small", { id: "person-roles" }, Object.entries(ROLES).map(([one, may]) => `A${one === "viewer" ? "" : "n"} ${one} ${may}. `).join("")),
  );
};

const peopleTable = (rows, ctx, remove) =>
  dataTable("People", ["Name", "Role", "Since", "Token expires", ""], rows.map((one) => ({
    cells: [
      el("strong", oneLine(one.name)),
      one.role,
      at(one.created),
      one.issuer ? el("span.dim", "signs in") : one.expires ? at(one.expires) : "never",
      one.name === ctx.me.person ? el("span.dim", "you") : remove(one.name, `Remove ${oneLine(one.name)}`),
    ],
  })));

/** @param {(one: {project: any, who: string}, name: string) => any} remove the button that takes a role back, for whoever may */
const projectTable = (rows, roleIn, remove) =>
  dataTable("Projects", ["Project", "You are", "Who has a role in it"], rows.map((one) => ({
    cells: [
      el("strong", oneLine(one.name)),
      roleIn(one.id),
      roleIn(one.id) !== "admin"
        ? el("span.dim", "its admins see that")
        : Object.keys(one.roles).length
          ? h("ul.project-roles", { role: "list" }, Object.entries(one.roles).map(([who, role]) => el("li", `${oneLine(who)}: ${role} `, remove({ project: one, who }, `Take the role of ${oneLine(who)} in ${oneLine(one.name)} back`))))
          : el("span.dim", "nobody besides those who have one in all projects"),
    ],
  })));

const newRole = (ctx, managed, changed) => {
  const project = h("select.field-input", { id: "role-project" }, managed.map((one) => h("option", { value: one.name }, oneLine(one.name))));
  const who = h("input.field-input", { id: "role-who", autocomplete: "off", spellcheck: "false", required: true, placeholder: "name or @group" });
  const role = h("select.field-input", { id: "role-role" }, Object.keys(ROLES).map((one) => h("option", { value: one }, one)));
  const act = async () => {
    const given = { project: project.value, subject: who.value.trim(), role: role.value };
    await ctx.api.post("/api/team/projects/roles", given);
    who.value = "";
    changed();
    return el("p", `${oneLine(given.subject)} is ${given.role} in ${oneLine(given.project)}.`);
  };
  return lineForm("New role in a project", { "Person or @group": who, "In project": project, Is: role }, "Give role", act, "The role could not be given.");
};

/** @param {any[]} rows @param {(row: any) => any} remove the button, for whoever may */
const scheduleTable = (rows, remove) =>
  dataTable("Schedules", ["Name", "When", "Next", "Last session", "Made by", ""], rows.map((one) => ({
    cells: [
      [el("strong", oneLine(one.name)), el("span.schedule-line.dim", shortProse(one.title, 80))],
      el("code.schedule-cron", oneLine(one.cron)),
      nextTime(one),
      [lastSession(one), one.note ? el("span.schedule-line.dim", oneLine(one.note)) : null],
      oneLine(one.person || "nobody known"),
      remove(one),
    ],
  })));

/** In its own zone, as `forge schedule list` tells it. */
const nextTime = ({ next_tick: tick, timezone }) => {
  const own = inZone(tick, timezone);
  return [own ?? inZone(tick, "UTC"), el("span.schedule-line.dim", own ? oneLine(timezone) : "UTC")];
};

const lastSession = ({ last_session: id, last_state: state }) => {
  if (!id) return el("span.dim", "none yet");
  const name = el("code", oneLine(id).slice(0, 12));
  return state ? [h("a", { href: address("chat", id) }, name), " ", statusPill(state)] : [name, " ", el("span.dim", "deleted")];
};

const ruleTable = (rows, remove) =>
  dataTable("Rules", ["Rule", "Made by", "Since", ...(remove ? [""] : [])], rows.map((one) => ({
    cells: [
      el("span.rule-what", oneLine(one.what)),
      oneLine(one.person || "nobody known"),
      at(one.created),
      ...(remove ? [remove(one, `Remove ${oneLine(one.what)}`)] : []),
    ],
  })));

const refusalTable = (rows) =>
  dataTable("Refusals", ["Who", "Tried to", "What", "Where", "When"], rows.map((one) => ({
    cells: [el("strong", oneLine(one.person || "nobody known")), oneLine(one.action), oneLine(one.what), oneLine(one.door), at(one.at)],
  })));

export const page = (ctx) => {
  const isAdmin = ctx.me.role === "admin";
  const ofAll = ctx.me.allProjects === "admin"; // people and refusals are for them alone
  const order = ["none", ...Object.keys(ROLES)];
  const roleIn = (id) => [ctx.me.allProjects, ctx.me.projects[id] ?? "none"].sort((a, b) => order.indexOf(b) - order.indexOf(a))[0];
  const said = saidPlace();
  const people = el("div");
  const state = el("div", loading());
  const projects = el("div");
  const roleForm = el("div");
  const schedules = el("div");
  const rules = el("div");
  const refused = el("div");
  const remove = (words, title, act) => (one, name) =>
    actButton("Remove…", async () => {
      if (!(await confirmed({ title, words: el("p", words(one)), yes: "Remove" }))) return null;
      await act(one);
      facts.now();
      return "It is removed.";
    }, { look: "danger", name, said });
  const removePerson = remove(
    (name) => `The token of ${oneLine(name)} stops working at once, also in pages that are open.`,
    "Remove this person?",
    (name) => ctx.api.del(ctx.api.path`/api/team/people/${name}`),
  );
  const removeRule = remove(
    (one) => `${oneLine(one.what)}: from now on Forge asks again.`,
    "Remove this rule?",
    (one) => ctx.api.del(ctx.api.path`/api/team/rules/${one.id}`),
  );
  const removeSchedule = remove(
    (one) => `${oneLine(one.name)} starts no more sessions. Sessions that run go on.`,
    "Remove this schedule?",
    (one) => ctx.api.del(ctx.api.path`/api/team/schedules/${one.name}`),
  );
  const removeRole = remove(
    ({ project, who }) => `${oneLine(who)} has no role of their own in ${oneLine(project.name)} from then on; pages that show it close.`,
    "Take this role back?",
    ({ project, who }) => ctx.api.post("/api/team/projects/roles", { project: project.name, subject: who, role: "none" }),
  );
  const settings = isAdmin ? projectSettings(ctx, ofAll, remove, () => facts.now()) : null;
  const isOwn = (one) => ctx.me.role === "operator" && one.person === ctx.me.person && Boolean(one.by_role);
  const load = () =>
    Promise.all(["rules", "schedules", "runners", "projects", ...(ofAll ? ["people", "refusals"] : []), ...(settings?.paths ?? [])].map((one) => ctx.api.get(`/api/team/${one}`)));
  const facts = refreshed(load,
    ([ruled, timed, runners, owned, ...rest]) => {
      replace(state);
      const managed = owned.rows.filter((one) => roleIn(one.id) === "admin");
      redraw(roleForm, managed.map((one) => one.name), () => (managed.length ? newRole(ctx, managed, () => facts.now()) : null));
      redraw(projects, owned.rows, () =>
        owned.rows.length ? projectTable(owned.rows, roleIn, removeRole) : nothing("No project yet. One is there after its first session."),
      );
      const isIdle = !runners.rows.length;
      redraw(schedules, [timed.rows, isIdle], () =>
        timed.rows.length
          ? [
              isIdle ? el("p.problem", "No runner runs now, so nothing starts. ", el("code", "forge runner"), " starts one.") : null,
              scheduleTable(timed.rows, (one) =>
                isAdmin || isOwn(one) ? removeSchedule(one, `Remove ${oneLine(one.name)}`) : null,
              ),
            ]
          : el("p.nothing", "No schedule yet. ", el("code", "forge schedule add CRON TASK…"), " adds one: a runner then starts sessions by the clock."),
      );
      redraw(rules, ruled.rows, () =>
        ruled.rows.length
          ? ruleTable(ruled.rows, isAdmin ? removeRule : null)
          : nothing("No rule yet. An admin who answers “always” on a card makes one; it counts in all sessions."),
      );
      settings?.draw(managed, rest.slice(ofAll ? 2 : 0));
      if (!ofAll) return;
      const [known, tried] = rest;
      redraw(people, known.rows, () => peopleTable(known.rows, ctx, removePerson));
      redraw(refused, tried.rows, () => (tried.rows.length ? refusalTable(tried.rows) : nothing("Nothing was refused.")));
    },
    (failure) => replace(state, problem(failure)),
  );
  facts.now();
  const timer = window.setInterval(() => document.hidden || facts.soon(), LOOK_MS);
  return {
    node: sheet("Team", null,
      ofAll
        ? section("People", newPerson(ctx, () => facts.now()), people)
        : isAdmin
          ? el("p.dim", "You are an admin of some projects: you give roles in them, and set their quotas and secrets. An admin of all projects adds and removes people.")
          : el("p.dim", `You are ${ctx.me.role === "viewer" ? "a viewer" : "an operator"} here. An admin adds and removes people and rules.`),
      said,
      state,
      section("Projects", roleForm, projects),
      settings?.sections,
      section("Schedules", schedules),
      section("Rules for all sessions", rules),
      ofAll ? section("Refused", refused) : null,
    ),
    title: "Team",
    leave: () => {
      clearInterval(timer);
      facts.leave();
    },
  };
};
