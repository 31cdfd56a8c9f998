/* Settings: what is allowed and by which rule, the approval mode, how a call would be judged, what the session has used, where
   every value of its configuration comes from; and what this browser remembers for itself.

   Of a session that does not run here the rules of the person are shown, and this page's own settings. */

import { h, replace } from "../dom.js";
import { path } from "../api.js";
import { approvalMode } from "./approval_mode.js";
import { configTable } from "./config_table.js";
import { explainPart } from "./explain.js";
import { loading, problem, redraw, section, sheet } from "./parts.js";
import { refreshed } from "./refreshing.js";
import { rulesPart } from "./rules.js";
import { surroundings, usage } from "./session_facts.js";
import { thisBrowser } from "./this_browser.js";

/** @param {any} ctx */
export const page = (ctx) => {
  const places = { mode: place(), usage: place(), around: place(), config: place() };
  const state = h("div", { class: "said" });
  const rules = rulesPart(ctx);
  const mode = section("Approval mode", places.mode);
  const live = [
    section("Use and budget", places.usage),
    section("Zones and walls", places.around),
    section("Configuration", places.config),
  ];

  const facts = refreshed(
    () => ctx.api.get(path`/api/sessions/${ctx.session.id}/settings`),
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
      replace(state, elsewhere ? h("p", { class: "notice-line" }, failure.problem) : problem(failure));
    },
  );
  facts.now();
  return {
    node: sheet(
      "Settings",
      null,
      state,
      section("Rules and approvals", rules.node),
      mode,
      section("Explain a call", explainPart(ctx)),
      section("This browser", thisBrowser(ctx)),
      live,
    ),
    title: "Settings",
    /** @param {any} change */
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

const place = () => h("div", null, loading());
