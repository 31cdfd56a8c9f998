/* Moments and spans in words. A moment nobody can read is shown as it came. */

import { h } from "../dom.js";

const MINUTE = 60;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** `3 min ago`, with the exact moment behind it. @param {string | null | undefined} ts */
export const moment = (ts) => {
  if (!ts) return null;
  const when = new Date(ts);
  if (Number.isNaN(when.getTime())) return ts;
  return h("time", { datetime: ts, title: when.toLocaleString() }, ago(when));
};

/** @param {Date} when @param {Date} [now] */
export const ago = (when, now = new Date()) => {
  const seconds = (now.getTime() - when.getTime()) / 1000;
  if (seconds < 0) return when.toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
  if (seconds < MINUTE) return "just now";
  if (seconds < HOUR) return `${Math.floor(seconds / MINUTE)} min ago`;
  if (seconds < DAY) return `${Math.floor(seconds / HOUR)} h ago`;
  if (seconds < 7 * DAY) return `${Math.floor(seconds / DAY)} d ago`;
  return when.toLocaleDateString([], { dateStyle: "medium" });
};

/** `850 ms`, `12.3 s`, `4 min 5 s`. @param {number | null | undefined} ms */
export const span = (ms) => {
  if (typeof ms !== "number" || !Number.isFinite(ms)) return "";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < MINUTE) return `${seconds.toFixed(1)} s`;
  if (seconds < HOUR) return `${Math.floor(seconds / MINUTE)} min ${Math.round(seconds % MINUTE)} s`;
  return `${Math.floor(seconds / HOUR)} h ${Math.floor((seconds % HOUR) / MINUTE)} min`;
};

/** `1:02:03` since a beginning. @param {number} ms */
export const elapsed = (ms) => {
  const whole = Math.max(0, Math.floor(ms / 1000));
  const [hours, minutes, seconds] = [Math.floor(whole / HOUR), Math.floor((whole % HOUR) / MINUTE), whole % MINUTE];
  const two = (/** @type {number} */ part) => String(part).padStart(2, "0");
  return hours ? `${hours}:${two(minutes)}:${two(seconds)}` : `${minutes}:${two(seconds)}`;
};
