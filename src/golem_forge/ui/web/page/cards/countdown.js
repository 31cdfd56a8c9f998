/* How long there is to answer, once a second; it ends by itself when it is no longer on the page. */

import { h, say } from "../dom.js";

/** @param {number} seconds */
const clock = (seconds) =>
  seconds >= 60 ? `${Math.floor(seconds / 60)} min ${String(seconds % 60).padStart(2, "0")} s` : `${seconds} s`;

/** @param {string} until ISO 8601 */
export const countdown = (until) => {
  const end = Date.parse(until);
  const node = h("time", { datetime: until });
  let seen = false;
  const tick = () => {
    const left = Math.max(Math.ceil((end - Date.now()) / 1000), 0);
    say(node, Number.isNaN(end) ? `at ${until}` : left ? `in ${clock(left)}` : "now");
    seen ||= node.isConnected;
    if (left && (node.isConnected || !seen)) setTimeout(tick, 1000);
  };
  tick();
  return node;
};
