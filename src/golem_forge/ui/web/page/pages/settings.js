/* Settings: what is allowed and by which rule, the approval mode, how a call would be judged, what the session has used, where
   every value of its configuration comes from; and what this browser remembers for itself.

   Of a session that does not run here the rules of the person are shown, and this page's own settings. */

import { path } from "../api.js";
import { forgetDrafts } from "../chat/composer.js";
import { el, h, replace } from "../dom.js";
import { LEVELS } from "../fold/items.js";
import { cost, modeWords, oneLine, texts, wholeNumber, words } from "../format.js";
import { askPermission, permission } from "../notifications.js";
import {
  actButton, confirmed, dataTable, factList, fits, loading, nothing, pill, problem, redraw, refreshed, saidPlace,
  searchBox, section, sheet,
} from "./parts.js";
import { explainPart, rulesPart } from "./rules.js";
import { setTheme, theme, THEMES } from "../theme.js";
import { meter } from "../widgets.js";

/* The approval mode of this session: each with what it means. Chosen first, then applied by a press of its own, because the
   arrow keys of a list of choices choose as they move; what asks nobody any more is asked about once. */
/** @param {any} now what `settings` answered @param {() => void} changed */
const approvalMode = (now, ctx, changed) => {
  const said = saidPlace();
  let chosen = now.approvalMode;
  const apply = async () => {
    if (chosen === now.approvalMode) return `${modeWords(chosen)}: that is the mode already.`;
    if (
      chosen === "approve_all" &&
      !(await confirmed({
        title: "Run everything without asking?",
        words: el("p", "Forge does not ask any more in this session. What is blocked stays blocked."),
        yes: "Approve all",
      }))
    )
      return null;
    await ctx.api.patch(path`/api/sessions/${ctx.session.id}/settings`, { approvalMode: chosen });
    const told = `From now on: ${modeWords(chosen).toLowerCase()}.`;
    ctx.announce(told);
    changed();
    return told;
  };
  const choice = (one) => {
    const checked = one.mode === now.approvalMode;
    const input = h("input", { type: "radio", name: "approval-mode", value: one.mode, checked });
    input.addEventListener("change", () => (chosen = one.mode));
    return el("label.mode",
      input,
      el("span",
        el("strong", modeWords(one.mode)),
        " ",
        el("code.dim.small", oneLine(one.mode)),
        checked ? pill("now", "ok") : null,
        el("span.mode-words", words(one.meaning)),
      ),
    );
  };
  return el("div.modes-part",
    el("fieldset.modes",
      el("legend.unseen", "Approval mode for the rest of this session"),
      (now.modes ?? []).map(choice),
    ),
    el("div.buttons", actButton("Use this mode", apply, { said })),
    said,
  );
};

/* Every value of the configuration that is in force, and where it comes from. Values are as the server redacted them. */
const configTable = (config) => {
  const place = el("div");
  let query = "";
  let changed = false;
  const draw = () => {
    const rows = config.filter(
      (row) => fits(query, row.key, row.value, row.origin) && (!changed || row.origin !== "default"),
    );
    replace(place,
      rows.length
        ? dataTable("Configuration in force",
            ["Key", "Value", "Origin"],
            rows.map((row) => ({
              dataset: { default: String(row.origin === "default") },
              cells: [
                el("code", oneLine(row.key)),
                el("code.config-value", words(row.value)),
                el("span.small.dim", oneLine(row.origin)),
              ],
            })),
          )
        : nothing("No value fits."),
    );
  };
  const only = h("input", { type: "checkbox" });
  only.addEventListener("change", () => {
    changed = only.checked;
    draw();
  });
  draw();
  const search = searchBox("Search the configuration", (typed) => {
    query = typed;
    draw();
  });
  return el("div.config",
    el("div.config-head", search, el("label.check.small.dim", only, "Only values that are not defaults")),
    place,
  );
};

/* What a session has used of what it may use, and what it stands in: zones, walls, its program. */
/** @param {any} now what `settings` answered */
const usage = (now) => {
  const { usage: used, context, budget } = now;
  const limited = (budget ?? []).filter((one) => typeof one.allowed === "number");
  const free = (budget ?? []).filter((one) => typeof one.allowed !== "number");
  // A budget counts an unknown price as nothing; a person must not read that as free.
  const soFar = (one) => (one.unit === "USD" ? cost(used.cost, used.prices) : amount(one.used, one.unit));
  return el("div.use",
    factList({
      Cost: cost(used.cost, used.prices) + (used.prices?.startsWith("as of") ? ` (${oneLine(used.prices)})` : ""),
      Requests: wholeNumber(used.requests),
      "Tokens in": wholeNumber(used.input) + (used.cached ? ` (${wholeNumber(used.cached)} cached)` : ""),
      "Tokens out": wholeNumber(used.output),
      Waiting: now.pending ? `${now.pending} for an answer` : "",
    }),
    el("div.meters",
      context.limit ? limitMeter("Context", context.used, context.limit, "tokens") : null,
      limited.map((one) => limitMeter(one.limit, one.used, one.allowed, one.unit)),
    ),
    free.length > 0 &&
      el("p.dim.small",
        `Without a limit: ${free.map((one) => `${oneLine(one.limit)} (${soFar(one)} so far)`).join(", ")}`,
      ),
  );
};

const amount = (value, unit) => (unit === "USD" ? cost(value) : `${wholeNumber(value)} ${oneLine(unit)}`);

const limitMeter = (name, used, allowed, unit) =>
  meter(
    oneLine(name),
    used,
    allowed,
    `${amount(used, unit)} of ${amount(allowed, unit)}`,
    el("span.mono.small", oneLine(name)),
  );

const surroundings = (now) => {
  const { walls } = now;
  const none = walls && ["none", "off"].includes(walls.level);
  return [
    factList({
      Program: [
        el("code", oneLine(now.program)),
        " ",
        now.trusted ? pill("trusted", "ok") : pill("not trusted", "warn"),
      ],
      "Ignored": texts(now.unused).join(", "),
      Worker: oneLine(now.worker),
      Model: oneLine(now.model) || "none",
      Workers: (now.workers ?? []).length > 1 ? now.workers.map(oneLine).join(", ") : "",
      Zones: now.zones?.length
        ? now.zones.map((zone) => el("span.zone-chip", el("code", `/${oneLine(zone.name)}`), ` ${oneLine(zone.mode)} `))
        : "none",
      Walls: walls ? pill(oneLine(walls.level), none ? "fail" : "ok") : "not needed yet",
      Without: walls ? texts(walls.missing).join(", ") : "",
      Because: walls?.cause ? words(walls.cause) : "",
      "To mend": walls?.fix ? words(walls.fix) : "",
    }),
  ];
};

/* What this browser keeps for itself: theme, how much of a run is shown, notifications; and signing it out. */
const LEVEL_WORDS = {
  quiet: "quiet: answers and errors",
  summary: "summary: and what failed or ended",
  normal: "normal: and calls, plans, notices",
  debug: "debug: and the events behind them",
};
const THEME_WORDS = { auto: "like the system", light: "light", dark: "dark" };
const PERMISSION = {
  granted: "Allowed. A notification says only that Forge waits for an answer, never what it asks.",
  denied: "The browser does not allow them for this page; its own settings can change that.",
  unsupported: "This browser has none.",
};

const thisBrowser = (ctx) => {
  const said = saidPlace();
  const leave = async () => {
    if (
      !(await confirmed({
        title: "Sign this browser out?",
        words: el("p", "The page needs a new link then: type /web in the session, or press Enter where forge web runs."),
        yes: "Sign out",
      }))
    )
      return null;
    await ctx.api.post("/api/logout");
    forgetDrafts();
    location.reload();
    return null;
  };
  return el("div.here",
    choice("Theme", [...THEMES].map((name) => [name, THEME_WORDS[name]]), theme(), (name) => setTheme(name)),
    choice(
      "Trace level of this page",
      LEVELS.map((name) => [name, LEVEL_WORDS[name]]),
      ctx.settings.level,
      (name) => ctx.settings.setLevel(name),
    ),
    notifications(ctx),
    el("div", actButton("Sign this browser out…", leave, { said }), said),
  );
};

const choice = (label, options, now, chosen) => {
  const id = `here-${label.replace(/\W+/g, "-").toLowerCase()}`;
  const select = h("select.field-input", { id },
    options.map(([value, words]) => h("option", { value, selected: value === now }, words)),
  );
  select.addEventListener("change", () => chosen(select.value));
  return el("div.field", h("label.field-label", { for: id }, label), select);
};

const notifications = (ctx) => {
  const place = el("div.field");
  const draw = () => {
    const state = permission();
    const ask = h("button", { on: { click: async () => (await askPermission(), draw()) } }, "Allow notifications…");
    replace(place,
      el("p.field-label", "Notifications"),
      state === "default" ? el("div.buttons", ask) : el("p.field-words", PERMISSION[state] ?? ""),
      ctx.me?.notify
        ? null
        : el("p.field-words",
            "The server sends none: ",
            el("code", "ui.web.notify: true"),
            " in forge.yaml turns them on.",
          ),
    );
  };
  draw();
  return place;
};

export const page = (ctx) => {
  const places = { mode: place(), usage: place(), around: place(), config: place() };
  const state = el("div.said");
  const rules = rulesPart(ctx);
  const mode = section("Approval mode", places.mode);
  const live = [
    section("Use and budget", places.usage),
    section("Zones and walls", places.around),
    section("Configuration", places.config),
  ];

  const facts = refreshed(() => ctx.api.get(path`/api/sessions/${ctx.session.id}/settings`),
    (now) => {
      replace(state);
      redraw(places.mode, [now.approvalMode, now.modes], () => approvalMode(now, ctx, () => facts.now()));
      redraw(places.usage, [now.usage, now.budget, now.context, now.pending], () => usage(now));
      redraw(
        places.around,
        [now.zones, now.walls, now.program, now.trusted, now.unused, now.workers, now.worker, now.model],
        () => surroundings(now),
      );
      redraw(places.config, now.config, () => configTable(now.config));
    },
    (failure) => {
      const elsewhere = failure.status === 409;
      for (const part of [mode, ...live]) part.hidden = true;
      replace(state, elsewhere ? el("p.notice-line", failure.problem) : problem(failure));
    },
  );
  facts.now();
  return {
    node: sheet("Settings",
      null,
      state,
      section("Rules and approvals", rules.node),
      mode,
      section("Explain a call", explainPart(ctx)),
      section("This browser", thisBrowser(ctx)),
      live,
    ),
    title: "Settings",
    update: (change) => {
      if (change.what === "question") rules.soon();
      if (change.what === "standing" || change.what === "question" || change.what === "caughtUp") facts.soon();
      if (change.what === "item" && ctx.store.items.get(change.key)?.kind === "status") rules.soon();
    },
    leave: () => {
      facts.leave();
      rules.leave();
    },
  };
};

const place = () => el("div", loading());
