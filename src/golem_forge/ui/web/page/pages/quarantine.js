/* Tools that nobody can call because something is wrong with them, each with its source and the reason. */

import { h, replace } from "../dom.js";
import { oneLine, words } from "../cards/plain.js";
import { sourceWords } from "./manual_tools.js";
import { fits, pill } from "./parts.js";

export const quarantineList = () => {
  const node = h("ul", { class: "rows", role: "list" });
  /** @type {any[]} */
  let all = [];
  let query = "";
  const found = () => all.filter((one) => fits(query, one.name, one.source, one.reason));
  const arrange = () =>
    replace(
      node,
      found().map((one) =>
        h(
          "li",
          { class: "row-card", dataset: { how: "fail" } },
          h(
            "p",
            { class: "row-head" },
            h("code", { class: "row-name" }, oneLine(one.name)),
            pill("quarantined", "fail"),
            pill(sourceWords(one.source)),
          ),
          h("p", { class: "row-why" }, words(one.reason)),
        ),
      ),
    );
  return {
    node,
    draw: (/** @type {any[]} */ quarantined) => {
      all = quarantined;
      arrange();
    },
    filter: (/** @type {string} */ typed) => {
      query = typed;
      arrange();
    },
    shown: () => found().length,
  };
};
