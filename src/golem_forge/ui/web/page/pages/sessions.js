/* Sessions: those of this home, newest first, with a search over what a person remembers of one. Opening, going on with one,
   replaying one; starting a new one where this server may.

   A session of another process is only to be looked at, and says so. */

import { h, replace } from "../dom.js";
import { counted, oneLine } from "../cards/plain.js";
import { address } from "../router.js";
import { actButton, confirmed, saidPlace } from "./acting.js";
import { moment } from "./moments.js";
import { newSession } from "./new_session.js";
import { loading, nothing, pill, problem, redraw, searchBox, sheet } from "./parts.js";
import { refreshed } from "./refreshing.js";

const PAGE = 50;
const MOST = 200;
const LOOK_MS = 5000;
const STATES = { live: ["runs here", "ok"], elsewhere: ["runs elsewhere · read-only", "info"], closed: ["closed", ""] };

/** @param {any} ctx */
export const page = (ctx) => {
  const me = ctx.me ?? {};
  const said = saidPlace();
  const list = h("ul", { class: "rows sessions", role: "list", "aria-label": "Sessions" });
  const state = h("div", null, loading());
  const foot = h("div", { class: "more" });
  const asked = { query: "", everything: false, limit: PAGE };
  const form = me.mayStart ? newSession(ctx) : null;

  const facts = refreshed(
    () =>
      ctx.api.get(
        `/api/sessions?${new URLSearchParams({ query: asked.query, everything: String(asked.everything), limit: String(asked.limit) })}`,
      ),
    ({ sessions, more }) => {
      redraw(list, sessions, () => sessions.map((/** @type {any} */ one) => row(one, ctx, said, () => facts.now())));
      replace(state, sessions.length ? null : nothing(asked.query ? "No session fits." : "There is no session yet."));
      replace(
        foot,
        more && asked.limit < MOST
          ? h("button", { type: "button", on: { click: further } }, "Show more")
          : more
            ? nothing("There are more; search for them.")
            : null,
      );
    },
    (failure) => replace(state, problem(failure)),
  );
  const further = () => {
    asked.limit = Math.min(asked.limit * 2, MOST);
    facts.now();
  };
  const search = searchBox("Search words, worker, directory", (query) => {
    asked.query = query;
    facts.soon();
  });
  const everything = /** @type {HTMLInputElement} */ (h("input", { type: "checkbox" }));
  everything.addEventListener("change", () => {
    asked.everything = everything.checked;
    facts.now();
  });
  if (!me.current) form?.open();
  facts.now();
  const timer = window.setInterval(() => document.hidden || facts.soon(), LOOK_MS);
  return {
    node: sheet(
      "Sessions",
      h("div", { class: "sheet-acts" }, search, form?.button),
      form?.region,
      me.mayStart
        ? null
        : h(
            "p",
            { class: "dim small notice-line" },
            "This page belongs to one session. ",
            h("code", null, "forge web"),
            " serves a page that starts and resumes others.",
          ),
      h("label", { class: "check small dim" }, everything, "Also those in which no model was asked"),
      said,
      state,
      list,
      foot,
    ),
    title: "Sessions",
    leave: () => {
      clearInterval(timer);
      facts.leave();
    },
  };
};

/** @param {any} session @param {any} ctx @param {HTMLElement} said @param {() => void} changed */
const row = (session, ctx, said, changed) => {
  const [words, how] = STATES[/** @type {keyof typeof STATES} */ (session.state)] ?? [oneLine(session.state), ""];
  const here = session.id === ctx.session.id;
  const title = oneLine(session.input) || "Nothing was said yet";
  return h(
    "li",
    { class: "row-card session", dataset: { how, here: String(here) } },
    h(
      "div",
      { class: "row-head" },
      h(
        "a",
        { class: "row-name session-title", href: address("chat", session.id), "aria-current": here ? "true" : null },
        title,
      ),
      h("span", { class: "session-when dim small" }, moment(session.updated)),
    ),
    h(
      "div",
      { class: "session-facts" },
      pill(words, how),
      session.state === "closed" && !session.finished ? pill("broke off", "warn") : null,
      fact("Worker", session.worker),
      fact("Model", session.model),
      fact("Directory", session.directory, "mono"),
      session.calls ? h("span", null, counted(session.calls, "call")) : null,
    ),
    h(
      "div",
      { class: "row-foot" },
      h("code", { class: "dim small session-id", title: `began ${session.created}` }, oneLine(session.id)),
      h("span", { class: "row-acts" }, acts(session, title, ctx, said, changed)),
    ),
  );
};

/** @param {string} name @param {any} value @param {string} [look] */
const fact = (name, value, look = "") =>
  value
    ? h("span", { class: `session-fact ${look}`.trim() }, h("span", { class: "unseen" }, `${name}: `), oneLine(value))
    : null;

/** @param {any} session @param {string} title @param {any} ctx @param {HTMLElement} said @param {() => void} changed */
const acts = (session, title, ctx, said, changed) => {
  const resume = async () => {
    const { id } = await ctx.api.post("/api/sessions", { resume: session.id });
    ctx.go(address("chat", id));
  };
  const end = async () => {
    const sure = await confirmed({
      title: "End this session?",
      words: h("p", null, `“${title.slice(0, 200)}” ends in an orderly way; it can be resumed.`),
      yes: "End",
    });
    if (!sure) return null;
    await ctx.api.post(ctx.api.path`/api/sessions/${session.id}/end`);
    changed();
    return "The session ends.";
  };
  return [
    h("a", { class: "button", href: address("replay", session.id), "aria-label": `Replay: ${title}` }, "Replay"),
    ctx.me?.mayStart && session.state === "closed"
      ? actButton("Resume", resume, { name: `Resume: ${title}`, busy: "Starting…", said })
      : null,
    ctx.me?.mayStart && session.state === "live" ? actButton("End…", end, { name: `End: ${title}`, said }) : null,
  ];
};
