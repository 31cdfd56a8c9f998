/* At the level `debug`: the events behind an item, fetched whole when somebody opens them. */

import { h, replace, text } from "../dom.js";

/** @param {any} item @param {any} ctx */
export const rawEvents = (item, ctx) => {
  let now = item;
  const shown = h("pre", { class: "raw", tabindex: "0" });
  const title = h("summary", null, "events");
  const load = async () => {
    /** @type {string[]} */
    const events = [];
    for (const seq of now.seqs) {
      const answer = await ctx.api
        .get(ctx.api.path`/api/sessions/${ctx.session.id}/events/${seq}`)
        .catch((/** @type {any} */ failure) => failure.problem);
      events.push(typeof answer === "string" ? answer : JSON.stringify(answer.event ?? answer, null, 2));
    }
    replace(shown, text(events.join("\n")));
  };
  const node = h(
    "details",
    { class: "raw-events", on: { toggle: () => node.hasAttribute("open") && load() } },
    title,
    shown,
  );
  return {
    node,
    /** @param {any} changed */
    update: (changed) => {
      now = changed;
    },
  };
};
