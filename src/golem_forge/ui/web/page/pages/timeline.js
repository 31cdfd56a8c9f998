/* The timeline of a replay: a slider over the numbers of the events, with marks where something was said, called, asked or
   went wrong. Marks of a long session share a column; the worst of them is the one that is seen. */

import { h, replace, svg } from "../dom.js";

const COLUMNS = 240;
const HEIGHT = 22;
const ORDER = ["call", "said", "question", "error"];
const WORDS = { said: "said by a person", call: "call", question: "asked", error: "error" };

/** @param {(seq: number) => void} moved */
export const timeline = (moved) => {
  const slider = /** @type {HTMLInputElement} */ (
    h("input", {
      type: "range",
      class: "timeline-slider",
      min: "0",
      max: "0",
      value: "0",
      step: "1",
      "aria-label": "Position in the session",
    })
  );
  const picture = svg("svg", {
    class: "timeline-marks",
    viewBox: `0 0 ${COLUMNS} ${HEIGHT}`,
    preserveAspectRatio: "none",
    "aria-hidden": "true",
  });
  const legend = h(
    "p",
    { class: "timeline-legend dim small", "aria-hidden": "true" },
    ORDER.toReversed().map((kind) => h("span", { dataset: { kind } }, WORDS[/** @type {keyof typeof WORDS} */ (kind)])),
  );
  const node = h("div", { class: "timeline" }, picture, slider, legend);
  /** @type {import("./recording.js").Mark[]} */
  const marks = [];
  let last = 0;
  slider.addEventListener("input", () => moved(Number(slider.value)));

  const drawMarks = () => {
    /** @type {Map<number, string>} */
    const columns = new Map();
    for (const { seq, kind } of marks) {
      const at = Math.min(COLUMNS - 1, Math.floor(((seq - 0.5) / Math.max(last, 1)) * COLUMNS));
      if (ORDER.indexOf(kind) > ORDER.indexOf(columns.get(at) ?? "")) columns.set(at, kind);
    }
    replace(
      picture,
      [...columns].map(([at, kind]) => markNode(at, kind)),
    );
  };
  return {
    node,
    /** @param {number} seq */
    begin: (seq) => {
      last = seq;
      slider.max = String(seq);
    },
    /** @param {import("./recording.js").Mark[]} more */
    add: (more) => {
      marks.push(...more);
      drawMarks();
    },
    /** @param {number} seq @param {string} words */
    at: (seq, words) => {
      slider.value = String(seq);
      slider.setAttribute("aria-valuetext", words);
    },
    /** The next mark in a direction; null: there is none. @param {number} seq @param {1 | -1} direction */
    beside: (seq, direction) => {
      const beyond = marks.filter((mark) => (direction > 0 ? mark.seq > seq : mark.seq < seq)).map((mark) => mark.seq);
      if (!beyond.length) return null;
      return direction > 0 ? Math.min(...beyond) : Math.max(...beyond);
    },
  };
};

/** @param {number} at @param {string} kind */
const markNode = (at, kind) => {
  const height = kind === "error" || kind === "question" ? HEIGHT : kind === "said" ? HEIGHT * 0.7 : HEIGHT * 0.4;
  return svg("rect", { class: `mark-${kind}`, x: at, y: HEIGHT - height, width: 0.8, height });
};
