/* Why a call ran or did not: its Decision in a few lines, folded away. */

import { h } from "../dom.js";
import { disclosed } from "./disclosure.js";
import { objects, oneLine, texts } from "./plain.js";

/** `rule r-12: reads only (forge.yaml:7)` @param {any} by */
export const sourceWords = (by) => {
  const label = `${oneLine(by.source ?? "")} ${oneLine(by.id ?? "")}`.trim();
  const place = by.file ? ` (${oneLine(by.file)}${by.line ? `:${oneLine(by.line)}` : ""})` : "";
  return `${label}${by.reason ? `: ${oneLine(by.reason)}` : ""}${place}`;
};

/** @param {any} said @returns {[string, string][]} */
const rows = (said) => {
  /** @type {[string, any][]} */
  const all = [
    ["verdict", said.verdict],
    ["decided by", said.decidedBy ? sourceWords(said.decidedBy) : ""],
    ["answered by", said.answeredBy && said.answeredBy !== "nobody" ? said.answeredBy : ""],
    ["risk", [said.risk, ...texts(said.riskReasons)].filter(Boolean).join(" · ")],
    ["remembered", said.remembered],
    [
      "",
      [said.cached ? "an earlier answer was used" : "", said.edited ? "with changed arguments" : ""]
        .filter(Boolean)
        .join(" · "),
    ],
    ["message", said.message],
    ["fingerprint", said.fingerprint],
  ];
  return all.filter(([, value]) => value).map(([name, value]) => [name, oneLine(value)]);
};

/** @param {any} said @returns {HTMLElement} */
export const decisionList = (said) => {
  const voices = objects(said.sources).length > 1 ? objects(said.sources) : [];
  return h(
    "dl",
    { class: "facts" },
    rows(said).map(([name, value]) =>
      h("div", null, h("dt", null, name || "also"), h("dd", { class: name === "fingerprint" ? "mono" : null }, value)),
    ),
    voices.length
      ? h(
          "div",
          null,
          h("dt", null, "voices"),
          h(
            "dd",
            null,
            h(
              "ul",
              null,
              voices.map((one) => h("li", null, `${oneLine(one.verdict)}: ${sourceWords(one)}`)),
            ),
          ),
        )
      : null,
  );
};

const TITLES = { preApproved: "Why it ran without asking", blocked: "Why it was blocked" };

/** @param {any} said a Decision @param {{open: boolean}} about */
export const decisionNode = (said, { open }) => {
  const ran = TITLES[/** @type {keyof typeof TITLES} */ (said.verdict)] ?? "Why it was asked, and the answer";
  return disclosed(ran, () => decisionList(said), { open, class: "small" });
};
