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

const speak = (how) => {
  const region = document.getElementById(`live-${how}`);
  const words = waiting[how].splice(0).join(". ");
  if (!region) return;
  region.textContent = visibleProse(words.length > MOST ? `${words.slice(0, MOST)}…` : words);
  timers[how] = window.setTimeout(() => {
    region.textContent = "";
  }, CLEAR_MS);
};

/* A notification of the browser that an answer is awaited: only if the person allowed it, only while nobody looks.
   It goes away when somebody does, and when nothing is awaited any more.

   Threat: a notification is shown on locked screens and kept by other programs, so it never says what is asked. */
const WORDS = "Forge waits for an answer";

/** @type {Notification | null} */
let shown = null;

/** "default", "granted", "denied", or "unsupported". */
export const permission = () => ("Notification" in window ? Notification.permission : "unsupported");

/** Asks the person; only from a click of theirs. @returns {Promise<string>} */
export const askPermission = async () => ("Notification" in window ? Notification.requestPermission() : "unsupported");

/** @param {boolean} wanted `ui.web.notify` of the server
 * @param {() => void} go to what is asked: somebody pressed the notification */
export const notifyWaiting = (wanted, go) => {
  if (!wanted || (!document.hidden && document.hasFocus()) || permission() !== "granted") return;
  try {
    shown = new Notification(WORDS, { tag: "forge-waits" });
    shown.onclick = () => {
      window.focus();
      notifyNoMore();
      go();
    };
  } catch {
    /* some browsers only allow them from a worker: the title still counts */
  }
};

/** It is answered, or seen. */
export const notifyNoMore = () => {
  shown?.close();
  shown = null;
};

window.addEventListener("focus", notifyNoMore);
document.addEventListener("visibilitychange", () => document.hidden || notifyNoMore());
