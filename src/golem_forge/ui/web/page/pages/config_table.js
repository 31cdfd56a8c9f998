/* Every value of the configuration that is in force, and where it comes from. Values are as the server redacted them. */

import { h, replace } from "../dom.js";
import { oneLine, words } from "../cards/plain.js";
import { dataTable, fits, nothing, searchBox } from "./parts.js";

/** @param {any[]} config */
export const configTable = (config) => {
  const place = h("div", null);
  let query = "";
  let changed = false;
  const draw = () => {
    const rows = config.filter(
      (row) => fits(query, row.key, row.value, row.origin) && (!changed || row.origin !== "default"),
    );
    replace(
      place,
      rows.length
        ? dataTable(
            "Configuration in force",
            ["Key", "Value", "Origin"],
            rows.map((row) => ({
              dataset: { default: String(row.origin === "default") },
              cells: [
                h("code", null, oneLine(row.key)),
                h("code", { class: "config-value" }, words(row.value)),
                h("span", { class: "small dim" }, oneLine(row.origin)),
              ],
            })),
          )
        : nothing("No value fits."),
    );
  };
  const only = /** @type {HTMLInputElement} */ (h("input", { type: "checkbox" }));
  only.addEventListener("change", () => {
    changed = only.checked;
    draw();
  });
  draw();
  const search = searchBox("Search the configuration", (typed) => {
    query = typed;
    draw();
  });
  return h(
    "div",
    { class: "config" },
    h(
      "div",
      { class: "config-head" },
      search,
      h("label", { class: "check small dim" }, only, "Only what is not a default"),
    ),
    place,
  );
};
