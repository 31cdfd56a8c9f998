/* The output of a running call as it comes: the end of each stream, drawn once a frame, kept at its bottom while
   the person has not scrolled away from it. The store keeps the last 64 KiB; what was shown before and is the same
   stays untouched. */

import { h, text } from "../dom.js";
import { scrollBox } from "./scroll_box.js";

const MOST_PIECES = 200;
const NEAR = 16;

/** CR LF is only another way to end a line. @param {string} raw */
const lines = (raw) => raw.replace(/\r\n/g, "\n");

/** One stream: appends what is new, or begins anew. @param {string} name */
const streamNode = (name) => {
  const body = h("pre", { class: name === "stderr" ? "result-text stderr" : "result-text" });
  const node = h(
    "div",
    { class: "stream", hidden: true },
    name === "stderr" ? h("p", { class: "stream-name" }, "stderr") : null,
    body,
  );
  let shown = "";
  const set = (/** @type {string} */ whole) => {
    if (whole === shown) return;
    node.hidden = !whole;
    if (shown && whole.startsWith(shown) && body.childNodes.length < MOST_PIECES)
      body.append(text(whole.slice(shown.length)));
    else body.replaceChildren(text(whole));
    shown = whole;
  };
  return { node, set };
};

export const liveOutput = () => {
  const streams = { stdout: streamNode("stdout"), stderr: streamNode("stderr") };
  const node = scrollBox("Output so far", null, streams.stdout.node, streams.stderr.node);
  node.classList.add("live-output");
  node.hidden = true;
  /** @type {{stdout: string, stderr: string} | null} */
  let wanted = null;
  const draw = () => {
    if (!wanted) return;
    const { stdout, stderr } = wanted;
    wanted = null;
    node.hidden = !stdout && !stderr;
    const atEnd = node.scrollHeight - node.scrollTop - node.clientHeight < NEAR;
    streams.stdout.set(lines(stdout));
    streams.stderr.set(lines(stderr));
    if (atEnd) node.scrollTop = node.scrollHeight;
  };
  return {
    node,
    /** @param {{stdout: string, stderr: string}} output */
    update: (output) => {
      if (!output || (!output.stdout && !output.stderr && node.hidden)) return;
      if (!wanted) requestAnimationFrame(draw);
      wanted = { stdout: output.stdout ?? "", stderr: output.stderr ?? "" };
    },
  };
};
