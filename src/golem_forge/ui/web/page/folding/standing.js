/* What still holds, whatever has scrolled away: the session, its plan, workers, usage, context, tools, servers,
   walls. */

import { bounded, list, number, words } from "./item.js";

const MOST_WORKERS = 500;
const MOST_SERVERS = 200;

export const emptyStanding = () => ({
  /** @type {any} the latest `sessionStarted` */
  session: null,
  /** @type {Map<string, any>} worker → the latest `planUpdated` */
  plans: new Map(),
  /** @type {any} the plan that changed last */
  plan: null,
  /** @type {Map<string, any>} worker → the latest `workerUpdate` */
  workers: new Map(),
  /** @type {any} the latest `usageUpdated` */
  usage: null,
  /** @type {Map<string, any>} worker → the sums of its branch */
  usageByWorker: new Map(),
  /** @type {any} */
  context: null,
  /** @type {any[]} the manual tools */
  tools: [],
  /** @type {Map<string, any>} */
  servers: new Map(),
  /** @type {any} */
  walls: null,
  /** @type {any} the `sessionEnd`, until the session starts again */
  ended: null,
});

/**
 * @param {string} part
 * @param {(standing: any, data: any, event: any) => void} put
 * @returns {import("../fold.js").Step}
 */
const keeps = (part, put) => (state, shown, changes) => {
  put(state.standing, shown.event.data, shown.event);
  changes.push({ what: "standing", part });
};

/** @type {Record<string, import("../fold.js").Step>} */
export const STANDING = {
  sessionStarted: keeps("session", (standing, data, event) => {
    standing.session = { ...data, ts: event.ts };
    standing.ended = null;
  }),
  planUpdated: keeps("plan", (standing, data, event) => {
    const plan = { explanation: data.explanation ?? null, plan: list(data.plan), worker: words(event.workerId) };
    standing.plan = plan;
    standing.plans.delete(plan.worker);
    standing.plans.set(plan.worker, plan);
    bounded(standing.plans, MOST_WORKERS);
  }),
  workerUpdate: keeps("workers", (standing, data) => {
    const known = standing.workers.get(data.workerId);
    standing.workers.set(data.workerId, { ...known, ...data, depth: number(data.depth) });
    bounded(standing.workers, MOST_WORKERS);
  }),
  usageUpdated: keeps("usage", (standing, data) => {
    standing.usage = data;
    standing.usageByWorker.set(data.workerId, data.worker ?? data);
    bounded(standing.usageByWorker, MOST_WORKERS);
  }),
  contextUsage: keeps("context", (standing, data, event) => {
    // The meter is the conversation's own; a worker below has another context.
    if (!(standing.workers.get(event.workerId)?.depth > 0)) standing.context = data;
  }),
  manualToolsAvailable: keeps("tools", (standing, data) => {
    standing.tools = list(data.tools).filter((tool) => tool && typeof tool === "object");
  }),
  mcpStatus: keeps("servers", (standing, data) => {
    standing.servers.set(data.server, data);
    bounded(standing.servers, MOST_SERVERS);
  }),
  wallsReport: keeps("walls", (standing, data) => {
    standing.walls = data;
  }),
  sessionEnd: keeps("ended", (standing, data) => {
    standing.ended = data;
    for (const [id, one] of standing.workers)
      if (one.status === "running" || one.status === "pending") standing.workers.set(id, { ...one, status: "ended" });
  }),
};
