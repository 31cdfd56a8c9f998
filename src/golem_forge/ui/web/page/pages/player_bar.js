/* The buttons of a replay: play and pause, one event on or back, to the moment before or after, speed, and a number to go to. */

import { h, replace, svg } from "../dom.js";

/** @type {Record<string, number>} */
export const SPEEDS = { "1×": 1, "2×": 2, "8×": 8, max: Infinity };

const SHAPES = {
  play: "M8 5.5v13l10.5-6.5z",
  pause: "M8 5.5h3v13H8z M13.5 5.5h3v13h-3z",
  back: "M17 6v12l-8-6z M6.5 6h2v12h-2z",
  on: "M7 6v12l8-6z M15.5 6h2v12h-2z",
  markBack: "M18 6v12l-6-6z M12 6v12l-6-6z",
  markOn: "M6 6v12l6-6z M12 6v12l6-6z",
};

/** @param {keyof typeof SHAPES} name */
const shape = (name) =>
  svg(
    "svg",
    { class: "icon player-icon", viewBox: "0 0 24 24", "aria-hidden": "true", focusable: "false" },
    svg("path", { d: SHAPES[name] }),
  );

/** @param {{toggle: () => void, step: (by: number) => void, jump: (seq: number) => void, mark: (direction: 1 | -1) => void, speed: () => void}} on */
export const playerBar = (on) => {
  const press = (
    /** @type {keyof typeof SHAPES} */ name,
    /** @type {string} */ words,
    /** @type {() => void} */ click,
  ) => h("button", { type: "button", class: "quiet", "aria-label": words, title: words, on: { click } }, shape(name));
  const play = h("button", { type: "button", class: "primary player-play", on: { click: on.toggle } });
  const speed = /** @type {HTMLSelectElement} */ (
    h(
      "select",
      { id: "replay-speed" },
      Object.keys(SPEEDS).map((name) => h("option", { value: name }, name)),
    )
  );
  const number = /** @type {HTMLInputElement} */ (
    h("input", {
      type: "number",
      id: "replay-event",
      class: "player-number",
      min: "1",
      value: "1",
      inputmode: "numeric",
    })
  );
  const total = h("span", { class: "dim small" });
  const clock = h("span", { class: "player-clock mono small" });
  speed.addEventListener("change", on.speed);
  number.addEventListener("change", () => on.jump(Number(number.value)));
  const node = h(
    "div",
    { class: "player-bar" },
    h(
      "div",
      { class: "player-buttons" },
      press("markBack", "To the moment before", () => on.mark(-1)),
      press("back", "One event back", () => on.step(-1)),
      play,
      press("on", "One event on", () => on.step(1)),
      press("markOn", "To the next moment", () => on.mark(1)),
    ),
    clock,
    h("div", { class: "player-place" }, h("label", { for: "replay-event", class: "small" }, "Event"), number, total),
    h("div", { class: "player-speed" }, h("label", { for: "replay-speed", class: "small" }, "Speed"), speed),
  );
  return {
    node,
    clock,
    speed: () => speed.value,
    /** @param {number} last */
    begin: (last) => {
      number.max = String(last);
      replace(total, `of ${last.toLocaleString("en")}`);
    },
    /** @param {{seq: number, last: number, playing: boolean}} now */
    at: ({ seq, last, playing }) => {
      if (document.activeElement !== number || playing) number.value = String(seq);
      const words = playing ? "Pause" : seq >= last ? "Play again" : "Play";
      if (play.dataset.words === words) return;
      play.dataset.words = words;
      replace(play, shape(playing ? "pause" : "play"), words);
    },
  };
};
