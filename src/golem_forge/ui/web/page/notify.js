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

/**
 * @param {boolean} wanted `ui.web.notify` of the server
 * @param {() => void} go to what is asked: somebody pressed the notification
 */
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
