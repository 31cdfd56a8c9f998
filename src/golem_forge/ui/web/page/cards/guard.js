/* What may count as an answer: a press that was meant for this button and no other.

   Threat: a card appears, or is pushed, under a click or a key that was meant for something else. So for half a second
   after a card has appeared, changed or closed, or after something else moved its answers, presses answer nothing; a
   key that was already down, and one that repeats because it is held, never do. A screen reader's press has no key
   and counts like a click.

   Threat: a blank in a word that somebody types while a button has the focus presses it. So text that is typed outside
   of a field presses nothing until half a second of silence, which every key breaks, also one that changes nothing;
   at a card the text goes to the box for messages. Where there is no such box (the inbox), the title of the card gets
   the focus: a blank after a pause finds no button. */

import { h, isTyping } from "../dom.js";

const SETTLE_MS = 500;
const LOOK_MS = 100;
const NEAR_PX = 2;

let movedAt = -Infinity;
/** Those that show whether presses count. @type {Set<(ready: boolean) => void>} */
const watching = new Set();
/** @type {ReturnType<typeof setTimeout> | undefined} */
let timer;

const tell = (ready) => watching.forEach((show) => show(ready));

/** Something moved: nothing is an answer for a moment. */
export const moved = () => {
  movedAt = performance.now();
  clearTimeout(timer);
  timer = setTimeout(() => tell(true), SETTLE_MS);
  tell(false);
};

const isSettled = () => performance.now() - movedAt >= SETTLE_MS;

/** A node that comes into view has just appeared, also when its page was left and is shown again. */
const sizes = new ResizeObserver((entries) => {
  for (const { target, contentRect } of entries) {
    const seen = contentRect.height > 0;
    if (seen && !shown.has(target)) moved();
    if (seen) shown.add(target);
    else shown.delete(target);
  }
});
/** @type {WeakSet<Element>} */
const shown = new WeakSet();
document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && moved());

/** @typedef {{focus: () => boolean, insert: (text: string) => void}} InputLine `focus` says whether it can be had */
/** @type {() => InputLine | null} */
let inputLine = () => null;
let strayAt = -Infinity;

/** Where text goes that is typed at a card. @param {() => InputLine | null} find */
export const strayTextGoesTo = (find) => {
  inputLine = find;
};

const cardOf = (target) => (target instanceof Element ? target.closest("article[data-request-id]") : null);

/** Text came while `card` had the focus. @returns {InputLine | null} where it goes, which has the focus now */
const leaveAnswers = (card) => {
  const line = inputLine();
  if (line?.focus() && !card.contains(document.activeElement)) return line;
  card.querySelector("h3")?.focus({ preventScroll: true });
  return null;
};

const stray = () => {
  strayAt = performance.now();
  moved();
};

const whenPressed = (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  const goesOn = performance.now() - strayAt < SETTLE_MS;
  const presses = event.key === "Enter" || event.key === " ";
  if (isTyping(event.target)) {
    if (!goesOn) return;
    stray();
    if (event.key === "Enter") swallow(event); // it belongs to what was typed at the card, which is kept, not sent
  } else if (presses && goesOn) {
    stray();
    swallow(event);
  } else if (event.key.length === 1 && !presses) {
    const card = cardOf(event.target);
    if (event.key !== "?" && card) leaveAnswers(card); // the key itself arrives there
    stray();
  } else if (goesOn || event.key === "Backspace" || event.key === "Delete") stray();
};

const swallow = (event) => {
  event.preventDefault();
  event.stopImmediatePropagation();
};

document.addEventListener("keydown", whenPressed, true);
document.addEventListener("paste", (event) => {
  const card = cardOf(document.activeElement);
  if (isTyping(event.target) || !card) return;
  stray();
  const text = event.clipboardData?.getData("text/plain") ?? "";
  if (text) leaveAnswers(card)?.insert(text);
});

/** @typedef {{screen: number[], content: number[]}} Place on the screen, and in what it scrolls with */
/** Where the answers of each card stood when they were last looked at. @type {Map<Element, Place | null>} */
const stood = new Map();
let looking = 0;

/** Answers stay in view while their card is scrolled: their place in the content is the end of what stands above. */
const placeOf = (node) => {
  const { left, top, height } = node.getBoundingClientRect();
  if (!height) return null;
  const above = node.previousElementSibling?.getBoundingClientRect();
  let [across, down] = above?.height ? [above.left, above.bottom] : [left, top];
  for (let around = node.parentElement; around; around = around.parentElement) {
    across += around.scrollLeft;
    down += around.scrollTop;
  }
  return { screen: [left, top], content: [across, down] };
};

const differ = (one, other) => one.some((value, at) => Math.abs(value - other[at]) > NEAR_PX);

/** Who scrolls moves a card on the screen only; what stays on the screen while all around it grows has not moved. */
const look = () => {
  for (const [node, before] of stood) {
    const now = placeOf(node);
    stood.set(node, now);
    if (before && now && differ(before.screen, now.screen) && differ(before.content, now.content)) moved();
  }
};

/** @param {Element} node @param {Element} answers where its buttons stand @param {(ready: boolean) => void} show
 * @returns {() => void} ends it */
export const guarded = (node, answers, show) => {
  watching.add(show);
  sizes.observe(node);
  stood.set(answers, null);
  looking ||= window.setInterval(look, LOOK_MS);
  show(false);
  return () => {
    watching.delete(show);
    sizes.unobserve(node);
    stood.delete(answers);
    if (stood.size) return;
    clearInterval(looking);
    looking = 0;
  };
};

/** Calls `act` for the presses that count. */
export const onPress = (button, act) => {
  /** The key that went down on this very button. */
  let down = "";
  button.addEventListener("keydown", (event) => {
    if (event.repeat) event.preventDefault();
    else down = event.key;
  });
  button.addEventListener("keyup", (event) => {
    if (event.key === " " && down !== " ") event.preventDefault();
    down = "";
  });
  button.addEventListener("blur", () => {
    down = "";
  });
  button.addEventListener("click", () => {
    look();
    if (isSettled() && button.getAttribute("aria-disabled") !== "true") act();
  });
};

/** A button whose press may be an answer. */
export const answerButton = (label, act, look = "") => {
  const button = h("button", { class: look || null }, label);
  onPress(button, act);
  return button;
};
