/* A notification of the browser that an answer is awaited: only if the person allowed it, only while nobody looks.

   Threat: a notification is shown on locked screens and kept by other programs, so it never says what is asked. */

const WORDS = "Forge waits for an answer";

/** "default", "granted", "denied", or "unsupported". */
export const permission = () => ("Notification" in window ? Notification.permission : "unsupported");

/** Asks the person; only from a click of theirs. @returns {Promise<string>} */
export const askPermission = async () => ("Notification" in window ? Notification.requestPermission() : "unsupported");

/** @param {boolean} wanted `ui.web.notify` of the server */
export const notifyWaiting = (wanted) => {
  if (!wanted || !document.hidden || permission() !== "granted") return;
  try {
    const shown = new Notification(WORDS, { tag: "forge-waits" });
    shown.onclick = () => {
      window.focus();
      shown.close();
    };
  } catch {
    /* some browsers only allow them from a worker: the title still counts */
  }
};
