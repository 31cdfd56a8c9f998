/* Values, numbers and times as text, in the words of the terminal. Nothing here throws. */

import { h } from "./dom.js";

/** A string as it is, anything else as JSON with blanks. */
export const words = (value) => (typeof value === "string" ? value : value === undefined ? "" : compact(value));

/** As Python writes it: a blank after each comma and colon. */
const compact = (value) => {
  if (Array.isArray(value)) return `[${value.map(compact).join(", ")}]`;
  if (value !== null && typeof value === "object" && !JSON.isRawJSON?.(value))
    return `{${Object.entries(value).map(([name, one]) => `${JSON.stringify(name)}: ${compact(one)}`).join(", ")}}`;
  return JSON.stringify(value) ?? "";
};

export const oneLine = (value) => words(value).replace(/[\n\t]/g, " ");

/** The texts of a list. */
export const texts = (value) => (Array.isArray(value) ? value.map(words) : []);

/** The objects of a list. */
export const objects = (value) =>
  Array.isArray(value) ? value.filter((one) => one !== null && typeof one === "object" && !Array.isArray(one)) : [];

/** A whole finite number, 0 for anything else. */
export const count = (value) => (typeof value === "number" && Number.isFinite(value) ? Math.trunc(value) : 0);

/** At most `limit` characters, the last of them `…` where something was left out. */
export const shortened = (text, limit) => {
  const characters = [...text.slice(0, limit * 2 + 2)];
  return characters.length <= limit ? text : `${characters.slice(0, limit - 1).join("")}…`;
};

/** The same for prose on one line, cut behind a word; one that is longer than half of what fits is cut itself. */
export const shortProse = (text, limit) => {
  const line = oneLine(text);
  if (line.length <= limit) return line;
  const end = line.slice(0, limit).lastIndexOf(" ");
  return end < limit / 2 ? shortened(line, limit) : `${line.slice(0, end).replace(/[ ,;:]+$/, "")}…`;
};

export const counted = (amount, one, many = `${one}s`) => `${amount.toLocaleString("en")} ${amount === 1 ? one : many}`;

const MODES = {
  interactive: "Asks before changes",
  contained: "Works on its own inside",
  plan: "Reads and proposes",
  strict: "Asks before everything",
  auto_deny: "Denies what would ask",
  approve_all: "Asks nothing",
};

/** An approval mode in words. */
export const modeWords = (mode) => MODES[mode] ?? `approval ${oneLine(mode)}`;

/** `$0.0123`, `local` where the models ran on this machine, or that nobody knows. */
export const cost = (dollars, prices = "") => {
  if (typeof dollars !== "number" || !Number.isFinite(dollars)) return "unknown";
  if (prices === "local" && dollars === 0) return "local";
  return `$${dollars.toFixed(dollars >= 10 || dollars === 0 ? 2 : 4)}`;
};

export const wholeNumber = (count) =>
  typeof count === "number" && Number.isFinite(count) ? Math.round(count).toLocaleString("en-US") : "0";

export const percent = (part, whole) => `${whole > 0 ? Math.round((100 * part) / whole) : 0} %`;

/** `1,234 in (200 cached) · 56 out · $0.0123`, or `cost unknown`. */
export const usage = (used) => {
  const known = cost(used?.cost, used?.prices);
  const price = known === "unknown" ? "cost unknown" : known;
  const cached = used?.cached ? ` (${wholeNumber(used.cached)} cached)` : "";
  return `${wholeNumber(used?.input)} in${cached} · ${wholeNumber(used?.output)} out · ${price}`;
};

/** Made once: to make one takes longer than to draw what it stands in. */
const DAYTIME = new Intl.DateTimeFormat([], { hour: "2-digit", minute: "2-digit" });

/** The time of day of an event. */
export const clock = (ts) => {
  const when = new Date(ts);
  return Number.isNaN(when.getTime()) ? "" : DAYTIME.format(when);
};

export const size = (bytes) => {
  if (bytes < 1024) return `${bytes} B`;
  return bytes < 1024 * 1024 ? `${(bytes / 1024).toFixed(1)} KB` : `${(bytes / 1024 / 1024).toFixed(1)} MB`;
};

const MINUTE = 60;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** `3 min ago`, with the exact moment behind it; one that cannot be read as it came. */
export const moment = (ts) => {
  if (!ts) return null;
  const when = new Date(ts);
  if (Number.isNaN(when.getTime())) return ts;
  return h("time", { datetime: ts, title: when.toLocaleString() }, ago(when));
};

export const ago = (when, now = new Date()) => {
  const seconds = (now.getTime() - when.getTime()) / 1000;
  if (seconds < 0) return when.toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
  if (seconds < MINUTE) return "just now";
  if (seconds < HOUR) return `${Math.floor(seconds / MINUTE)} min ago`;
  if (seconds < DAY) return `${Math.floor(seconds / HOUR)} h ago`;
  if (seconds < 7 * DAY) return `${Math.floor(seconds / DAY)} d ago`;
  return when.toLocaleDateString([], { dateStyle: "medium" });
};

/** `2026-03-01 07:30` in a time zone, with the same moment here behind it; null where the browser does not know the zone.
 * @param {number} seconds since 1970 @param {string} timeZone */
export const inZone = (seconds, timeZone) => {
  try {
    const when = new Date(seconds * 1000);
    const shown = new Intl.DateTimeFormat("sv-SE", { timeZone, dateStyle: "short", timeStyle: "short" }).format(when);
    return h("time", { datetime: when.toISOString(), title: `${when.toLocaleString()} on this machine` }, shown);
  } catch {
    return null;
  }
};

/** `850 ms`, `12.3 s`, `4 min 5 s`. */
export const span = (ms) => {
  if (typeof ms !== "number" || !Number.isFinite(ms)) return "";
  if (ms < 999.5) return `${Math.round(ms)} ms`;
  if (ms < 59_950) return `${(ms / 1000).toFixed(1)} s`;
  const seconds = Math.round(ms / 1000);
  if (seconds < HOUR) return `${Math.floor(seconds / MINUTE)} min ${seconds % MINUTE} s`;
  return `${Math.floor(seconds / HOUR)} h ${Math.floor((seconds % HOUR) / MINUTE)} min`;
};

/** `1:02:03` since a beginning. */
export const elapsed = (ms) => {
  const whole = Math.max(0, Math.floor(ms / 1000));
  const [hours, minutes, seconds] = [Math.floor(whole / HOUR), Math.floor((whole % HOUR) / MINUTE), whole % MINUTE];
  const two = (part) => String(part).padStart(2, "0");
  return hours ? `${hours}:${two(minutes)}:${two(seconds)}` : `${minutes}:${two(seconds)}`;
};
