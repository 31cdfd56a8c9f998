/* Telling people who cannot see the page what happens: two live regions, polite for messages, assertive for questions.

   The regions stand in index.html from the start, because a region that appears together with its words is not read.
   What follows quickly is joined, and never more than a few hundred characters: a screen reader reads it to the end. */

import { visibleProse } from "./visible.js";

const MOST = 400;
const GATHER_MS = 150;
const CLEAR_MS = 8000;

/** @type {Record<string, string[]>} */
const waiting = { polite: [], assertive: [] };
/** @type {Record<string, number>} */
const timers = { polite: 0, assertive: 0 };

/** @param {string} text @param {"polite" | "assertive"} [how] */
export const announce = (text, how = "polite") => {
  if (!text.trim()) return;
  waiting[how].push(text);
  clearTimeout(timers[how]);
  timers[how] = window.setTimeout(() => speak(how), GATHER_MS);
};

/** @param {"polite" | "assertive"} how */
const speak = (how) => {
  const region = document.getElementById(`live-${how}`);
  const words = waiting[how].splice(0).join(". ");
  if (!region) return;
  region.textContent = visibleProse(words.length > MOST ? `${words.slice(0, MOST)}…` : words);
  timers[how] = window.setTimeout(() => {
    region.textContent = "";
  }, CLEAR_MS);
};
