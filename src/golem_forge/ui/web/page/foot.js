/* The line below everything, as the terminal has it: approval mode, context, cost, walls. */

import { h, replace } from "./dom.js";
import { cost, percent } from "./side/words.js";

/** @param {HTMLElement} place @param {import("./open_session.js").OpenSession} open */
export const drawFoot = (place, open) => {
  const { session, context, usage, walls } = open.store.standing;
  const spent = usage?.session?.cost;
  const words = [
    session ? `approval ${open.budget.mode || session.approvalMode}` : "",
    context?.tokenLimit ? `context ${percent(context.tokensUsed, context.tokenLimit)}` : "",
    typeof spent === "number" ? cost(spent) : "",
    walls ? `walls ${walls.level}` : "",
  ].filter(Boolean);
  if (place.dataset.words === words.join()) return;
  place.dataset.words = words.join();
  replace(place, ...words.map((one) => h("span", null, one)));
};
