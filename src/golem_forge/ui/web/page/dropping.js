/* Files that are dragged onto the page: the conversation takes them, nothing else does.

   Threat: a file that is dropped beside the box would be opened in place of the page, with its drafts and open
   cards. So a drop of files is never left to the browser. */

/** @param {DragEvent} event */
const hasFiles = (event) => event.dataTransfer?.types.includes("Files") === true;

/** Whatever else is dropped (text into a field) is the browser's as ever. */
export const keepFromDrops = () => {
  window.addEventListener("dragover", (event) => {
    if (!hasFiles(event) || event.defaultPrevented) return;
    event.preventDefault();
    /** @type {DataTransfer} */ (event.dataTransfer).dropEffect = "none";
  });
  window.addEventListener("drop", (event) => {
    if (hasFiles(event)) event.preventDefault();
  });
};

/**
 * @param {HTMLElement} zone
 * @param {{takes: () => boolean, over: (isOver: boolean) => void, take: (files: File[]) => void}} on
 */
export const dropZone = (zone, on) => {
  zone.addEventListener("dragover", (event) => {
    if (!hasFiles(event) || !on.takes()) return;
    event.preventDefault();
    on.over(true);
  });
  zone.addEventListener("dragleave", (event) => {
    if (!(event.relatedTarget instanceof Node && zone.contains(event.relatedTarget))) on.over(false);
  });
  zone.addEventListener("drop", (event) => {
    on.over(false);
    if (hasFiles(event) && on.takes()) on.take([...(event.dataTransfer?.files ?? [])]);
  });
};
