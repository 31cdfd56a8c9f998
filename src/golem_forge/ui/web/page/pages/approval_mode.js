/* The approval mode of this session: each with what it means. Chosen first, then applied by a press of its own, because the
   arrow keys of a list of choices choose as they move; what asks nobody any more is asked about once. */

import { h } from "../dom.js";
import { path } from "../api.js";
import { oneLine, words } from "../cards/plain.js";
import { actButton, confirmed, saidPlace } from "./acting.js";
import { pill } from "./parts.js";

/** @param {any} now what `settings` answered @param {any} ctx @param {() => void} changed */
export const approvalMode = (now, ctx, changed) => {
  const said = saidPlace();
  let chosen = now.approvalMode;
  const apply = async () => {
    if (chosen === now.approvalMode) return `The mode is ${chosen} already.`;
    if (
      chosen === "approve_all" &&
      !(await confirmed({
        title: "Run everything without asking?",
        words: h("p", null, "For the rest of this session nobody is asked any more. What is blocked stays blocked."),
        yes: "Approve all",
      }))
    )
      return null;
    await ctx.api.patch(path`/api/sessions/${ctx.session.id}/settings`, { approvalMode: chosen });
    ctx.announce(`The approval mode is ${chosen} now.`);
    changed();
    return `The approval mode is ${chosen} now.`;
  };
  const choice = (/** @type {any} */ one) => {
    const input = /** @type {HTMLInputElement} */ (
      h("input", { type: "radio", name: "approval-mode", value: one.mode, checked: one.mode === now.approvalMode })
    );
    input.addEventListener("change", () => (chosen = one.mode));
    return h(
      "label",
      { class: "mode" },
      input,
      h(
        "span",
        null,
        h("strong", { class: "mono" }, oneLine(one.mode)),
        one.mode === now.approvalMode ? pill("now", "ok") : null,
        h("span", { class: "mode-words" }, words(one.meaning)),
      ),
    );
  };
  return h(
    "div",
    { class: "modes-part" },
    h(
      "fieldset",
      { class: "modes" },
      h("legend", { class: "unseen" }, "Approval mode for the rest of this session"),
      (now.modes ?? []).map(choice),
    ),
    h("div", { class: "buttons" }, actButton("Use this mode", apply, { said })),
    said,
  );
};
