/* Sessions: those of this home, newest first, with a search over what a person remembers of one. Opening, going on with
   one, replaying, naming, exporting or deleting one; starting a new one where this server may.

   A session of another process is only to be looked at, and says so. */

import { exampleRows } from "../chat/empty.js";
import { el, h, replace } from "../dom.js";
import { cost, counted, modeWords, moment, oneLine } from "../format.js";
import {
  actButton, confirmed, loading, markWrong, nothing, pill, problem, problemWords, redraw, refreshed, saidPlace,
  searchBox, sheet, statusPill,
} from "./parts.js";
import { address } from "../router.js";
import { disclosure } from "../widgets.js";

/* A new session: where, with which worker and model, and the first thing to say. Everything may be left as the directory's
   own configuration has it. What is wrong stands at its field. */
const MODES = [
  ["", "as configured"],
  ...["interactive", "contained", "plan", "strict", "auto_deny", "approve_all"].map((mode) => [mode, modeWords(mode)]),
];
let fieldCount = 0;

const newSession = (ctx) => {
  const form = sessionForm(ctx);
  const { button, region, set } = disclosure("New session", () => form.node, { class: "new-session-button" });
  button.addEventListener("click", () => region.hidden || form.focus());
  return { button, region, open: () => set(true) };
};

const sessionForm = (ctx) => {
  const input = field("First message",
    h("textarea.field-input", { rows: "3", name: "input" }),
    ctx.me?.team
      ? "What is to be done? A runner of the team takes it."
      : "What do you want to do? You can also leave this empty and talk later.",
  );
  const line = (name, placeholder, look = "") =>
    h(`input.field-input${look}`, { name, placeholder, spellcheck: "false", autocomplete: "off" });
  const directory = field("Directory",
    line("directory", ctx.me?.directory ?? "", ".field-literal"),
    ctx.me?.team
      ? "A directory below the one that this server offers. Empty: that one."
      : "Where the worker works. Empty: the directory in which this server was started.",
  );
  const worker = field("Worker", line("worker", "the program's own"), "A name, or a .worker file.");
  const model = field("Model", line("model", "as configured"), "provider:model");
  const approval = field("Approval",
    h("select.field-input", { name: "approval" }, MODES.filter(([value]) => !ctx.me?.team || value !== "approve_all").map(([value, words]) => h("option", { value }, words))),
    "",
  );
  const fields = { input, directory, worker, model, approval };
  const said = el("div.said");
  const start = h("button.primary", { type: "submit" }, "Start");
  let sending = false;

  const send = async () => {
    if (sending) return;
    sending = true;
    start.setAttribute("aria-disabled", "true");
    replace(start, "Starting…");
    replace(said);
    for (const one of Object.values(fields)) one.wrong("");
    try {
      const wish = Object.fromEntries(
        Object.entries(fields).map(([name, one]) => [name, one.control.value]).filter(([, value]) => value !== ""),
      );
      const { id } = await ctx.api.post("/api/sessions", wish);
      ctx.go(address("chat", id));
    } catch (failure) {
      const wrong = Object.entries(failure?.fields ?? {}).filter(([name]) => Object.hasOwn(fields, name));
      for (const [name, words] of wrong) fields[name].wrong(String(words));
      replace(said, h("p.problem", { role: "alert" }, problemWords(failure, "It could not be started.")));
      if (wrong.some(([name]) => name !== "input")) options.set(true);
      if (wrong.length) fields[wrong[0][0]].control.focus();
    }
    sending = false;
    start.removeAttribute("aria-disabled");
    replace(start, "Start");
  };
  const place = el("span.new-session-where");
  const showPlace = () => replace(place,
    el("code", directory.control.value || (ctx.me?.directory ?? "")), " · ",
    model.control.value || ctx.me?.model || (ctx.me?.team ? "model as configured" : "no model yet"), " · ",
    approval.control.value ? modeWords(approval.control.value) : "approval as configured",
  );
  const options = disclosure(place, () =>
    el("div.new-session-more", directory.node, worker.node, model.node, approval.node),
  { name: "Directory, worker, model, approval: " });
  for (const one of [directory, model, approval]) one.control.addEventListener("input", showPlace);
  showPlace();
  input.control.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing || !input.control.value.trim()) return;
    event.preventDefault();
    send();
  });
  const submit = (event) => {
    event.preventDefault();
    send();
  };
  const write = (text) => {
    input.control.value = text;
    input.control.focus();
  };
  const node = h("form.new-session", { novalidate: true, "aria-label": "New session", on: { submit } },
    input.node,
    h("ul.examples", { role: "list", "aria-label": "Examples" }, exampleRows(write)),
    el("div.buttons", start, options.button),
    options.region,
    said,
  );
  return { node, focus: () => input.control.focus() };
};

const field = (label, control, hint) => {
  const id = `new-${++fieldCount}`;
  const error = h("p.field-error", { id: `${id}-error`, hidden: true });
  control.id = id;
  control.setAttribute("aria-describedby", [hint ? `${id}-hint` : "", `${id}-error`].filter(Boolean).join(" "));
  const node = el("div.field",
    h("label.field-label", { for: id }, label),
    hint ? h("p.field-words", { id: `${id}-hint` }, hint) : null,
    control,
    error,
  );
  return { node, control: control, wrong: (words) => markWrong(control, error, words) };
};

const PAGE = 50;
const MOST = 200;
const LOOK_MS = 5000;
const STATES = { live: ["runs here", "ok"], elsewhere: ["runs elsewhere · read-only", "info"], closed: ["closed", ""] };

export const page = (ctx) => {
  const me = ctx.me ?? {};
  const said = saidPlace();
  const list = h("ul.rows.sessions", { role: "list", "aria-label": "Sessions" });
  const state = el("div", loading());
  const foot = el("div.more");
  /** @type {Record<string, any>} */
  const asked = { query: "", limit: PAGE, ...(me.team ? { person: "", status: "", project: "" } : { everything: false }) };
  const form = me.mayStart ? newSession(ctx) : null;

  const facts = refreshed(() => ctx.api.get(`/api/sessions?${new URLSearchParams(asked)}`),
    ({ sessions, more, people, projects }) => {
      filters?.draw(people, projects);
      redraw(list, sessions, () => sessions.map((one) => row(one, ctx, said, () => facts.now())));
      replace(state, sessions.length ? null : nothing(isNarrowed() ? "No session fits." : "There is no session yet."));
      search.hidden = !sessions.length && !isNarrowed(); // nothing to search: only the form is there
      if (me.team && !sessions.length && !isNarrowed()) form?.open();
      replace(foot,
        more && asked.limit < MOST
          ? h("button", { on: { click: further } }, "Show more")
          : more ? nothing("There are more; search for them.") : null,
      );
    },
    (failure) => replace(state, problem(failure)),
  );
  const isNarrowed = () => Boolean(asked.query || asked.person || asked.status || asked.project);
  const filters = me.team ? teamFilters(me, (chosen) => {
    Object.assign(asked, chosen);
    facts.now();
  }) : null;
  const further = () => {
    asked.limit = Math.min(asked.limit * 2, MOST);
    facts.now();
  };
  const search = searchBox(me.team ? "Search words, worker, person" : "Search words, worker, directory", (query) => {
    asked.query = query;
    facts.soon();
  });
  const everything = h("input", { type: "checkbox" });
  everything.addEventListener("change", () => {
    asked.everything = everything.checked;
    facts.now();
  });
  if (!me.current && !ctx.session.id && !me.team) form?.open();
  facts.now();
  const timer = window.setInterval(() => document.hidden || facts.soon(), LOOK_MS);
  return {
    node: sheet("Sessions",
      el("div.sheet-acts", filters?.node, search, form?.button),
      form?.region,
      me.mayStart
        ? null
        : me.team ? el("p.dim", "You are a viewer: you see all sessions. Operators and admins start them.")
        : el("p.dim.small.notice-line",
            "This page belongs to one session. ",
            el("code", "forge web"),
            " serves a page that starts and resumes others.",
          ),
      said,
      state,
      list,
      foot,
      me.team ? null : el("label.check.small.dim", everything, "Also sessions without a request to a model"),
    ),
    title: "Sessions",
    leave: () => {
      clearInterval(timer);
      facts.leave();
    },
  };
};

const TEAM_STATES = [
  ["", "All states"],
  ["queued,running,waiting", "Not ended"],
  ...["queued", "running", "waiting", "finished", "failed", "stopped"].map((one) => [one, one]),
];

/** Whose sessions, of which project, and in which state.
 * @param {(chosen: {person?: string, status?: string, project?: string}) => void} choose */
const teamFilters = (me, choose) => {
  const person = h("select.field-input", { "aria-label": "Started by" });
  const status = h("select.field-input", { "aria-label": "State" },
    TEAM_STATES.map(([value, words]) => h("option", { value }, words)),
  );
  const project = h("select.field-input", { "aria-label": "Project", hidden: true });
  project.addEventListener("change", () => choose({ project: project.value }));
  person.addEventListener("change", () => choose({ person: person.value }));
  status.addEventListener("change", () => choose({ status: status.value }));
  const draw = (people, projects) => {
    const offered = [["", "All projects"], ...projects.map((one) => [one, oneLine(one)])];
    const chosen = project.value;
    redraw(project, offered, () => offered.map(([one, words]) => h("option", { value: one }, words)));
    project.value = chosen;
    project.hidden = projects.length < 2;
    const others = people.filter((one) => one !== me.person);
    const wanted = [["", "Everybody"], [me.person, "Started by you"], ...others.map((one) => [one, oneLine(one)])];
    const { value } = person;
    if (value && !wanted.some(([one]) => one === value)) wanted.push([value, oneLine(value)]);
    redraw(person, wanted, () => wanted.map(([one, words]) => h("option", { value: one }, words)));
    person.value = value;
  };
  draw([], []);
  return { node: [project, person, status], draw };
};

const row = (session, ctx, said, changed) => {
  const [words, how] = STATES[session.state] ?? [oneLine(session.state), ""];
  const here = session.id === ctx.session.id;
  const title = oneLine(session.title || session.input) || "Nothing was said yet";
  return h("li.row-card.session", { dataset: { how, here: String(here) } },
    el("div.row-head",
      h("a.row-name.session-title", { href: address("chat", session.id), "aria-current": here ? "true" : null }, title),
      el("span.session-when.dim.small", moment(session.updated)),
    ),
    el("div.session-facts",
      session.status ? statusPill(session.status) : pill(words, how),
      session.project ? el("span", oneLine(session.project)) : null,
      session.person ? el("span", `started by ${oneLine(session.person)}`) : null,
      session.answeredBy?.length ? el("span", `answered by ${session.answeredBy.map(oneLine).join(", ")}`) : null,
      session.waitsFor ? el("span", `waits for ${oneLine(session.waitsFor)}`) : null,
      session.error ? h("span.problem", oneLine(session.error)) : null,
      session.state === "closed" && !session.finished && !session.status ? pill("broke off", "warn") : null,
      fact("Worker", session.worker),
      session.calls ? el("span", counted(session.calls, "call")) : null,
      typeof session.cost === "number"
        ? el("span", cost(session.cost, session.prices))
        : session.calls ? el("span", "cost unknown") : null,
      fact("Model", session.model, "is-cut"),
      fact("Directory", session.directory, "is-cut mono"),
    ),
    (session.notices ?? []).map((line) => h("p.notice-line.small", { dataset: { how: "warn" } }, oneLine(line))),
    el("div.row-foot",
      el("span.row-acts", acts(session, title, ctx, said, changed)),
      ctx.me?.team ? null : more(session, title, ctx, said, changed),
    ),
  );
};

/** The sessions whose other actions are unfolded: a list that is drawn anew leaves them so. @type {Set<string>} */
const unfolded = new Set();

/** What one does seldom: name, export, delete; and the id, for a command. */
const more = (session, title, ctx, said, changed) => {
  const where = ctx.api.path`/api/sessions/${session.id}`;
  const rename = async () => {
    const enter = (event) => event.key === "Enter" && box.closest("dialog")?.close("yes");
    const about = { value: session.title ?? "", maxlength: "200", "aria-label": "Title", on: { keydown: enter } };
    const box = h("input.field-input", about);
    if (!(await confirmed({ title: "Rename this session", words: box, yes: "Rename", look: "primary" }))) return null;
    await ctx.api.patch(where, { title: box.value.trim() });
    changed();
    return "The session has another title.";
  };
  const remove = async () => {
    const all = "its record, its attachments and its stored outputs are deleted for good.";
    const words = el("p", `“${title.slice(0, 200)}”: ${all}`);
    if (!(await confirmed({ title: "Delete this session?", words, yes: "Delete" }))) return null;
    if (ctx.session.id === session.id) ctx.disconnect(); // else it is looked for again, and not found
    await ctx.api.del(where);
    changed();
    return "The session is deleted.";
  };
  const save = (format, label) =>
    h("a.button",
      { href: `${where}/export?format=${format}`, download: true, "aria-label": `${label}: ${title}` },
      label,
    );
  const buttons = () =>
    el("span.row-acts",
      actButton("Rename…", rename, { name: `Rename: ${title}`, said }),
      save("markdown", "Export as Markdown"),
      save("json", "Export as JSON"),
      session.state === "closed"
        ? actButton("Delete…", remove, { look: "danger", name: `Delete: ${title}`, said })
        : null,
    );
  const id = () => el("p.dim.small", "Id ", el("code.session-id", oneLine(session.id)), `, began ${session.created}`);
  const { button, region, isOpen } = disclosure("More", () => el("div.session-more", buttons(), id()),
    { open: unfolded.has(session.id), class: "small", name: `${title}: ` },
  );
  button.addEventListener("click", () => unfolded[isOpen() ? "add" : "delete"](session.id));
  return el("div.session-more-pair", button, region);
};

const fact = (name, value, look = "") =>
  value
    ? h("span", { class: `session-fact ${look}`.trim() }, el("span.unseen", `${name}: `), el("span", oneLine(value)))
    : null;

const acts = (session, title, ctx, said, changed) => {
  const resume = async () => {
    const { id } = await ctx.api.post("/api/sessions", { resume: session.id });
    ctx.go(address("chat", id));
  };
  const end = async () => {
    const sure = await confirmed({
      title: "End this session?",
      words: el("p", `“${title.slice(0, 200)}” ends${ctx.me?.team ? "." : "; you can resume it later."}`),
      yes: "End",
    });
    if (!sure) return null;
    await ctx.api.post(ctx.api.path`/api/sessions/${session.id}/end`);
    changed();
    return "The session ends.";
  };
  return [
    h("a.button", { href: address("replay", session.id), "aria-label": `Replay: ${title}` }, "Replay"),
    ctx.me?.mayStart && !ctx.me.team && session.state === "closed"
      ? actButton("Resume", resume, { name: `Resume: ${title}`, busy: "Starting…", said })
      : null,
    ctx.me?.mayStart && session.state === "live" ? actButton("End…", end, { name: `End: ${title}`, said }) : null,
  ];
};
