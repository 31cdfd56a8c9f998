/* Tools: what a person can run, as forms; their own tools and the servers with their states; statistics. With a name in the
   address (`…/tools/<name>`) that tool, whole.

   One list, one search over all of it. A form that is open stays as it is when the list changes. */

import { path } from "../api.js";
import { el, h, replace } from "../dom.js";
import { manualTools, quarantineList } from "./manual_tools.js";
import { ownTools } from "./own_tools.js";
import { loading, problem, refreshed, searchBox, section, sheet } from "./parts.js";
import { serverList } from "./servers.js";
import { statisticsPart } from "./statistics.js";
import { toolDetail } from "./tool_detail.js";

const ASKS = new Set(["tools", "servers"]);

export const page = (ctx, params) => (params[0] ? toolDetail(ctx, params[0]) : everyTool(ctx));

const everyTool = (ctx) => {
  const parts = {
    run: manualTools(ctx),
    own: ownTools(ctx, () => facts.now()),
    servers: serverList(ctx, () => facts.now()),
    aside: quarantineList(),
  };
  const sections = {
    run: section("Run a tool", parts.run.node),
    own: section("User tools", parts.own.node),
    servers: section("MCP servers", parts.servers.node),
    aside: section("Kept out", parts.aside.node),
  };
  const counted = statisticsPart(ctx);
  const statistics = section("Statistics", counted.node);
  const state = el("div.said", loading());
  const jumps = h("nav.jumps", { "aria-label": "On this page" });
  const search = searchBox("Search tools and servers", (query) => {
    for (const part of Object.values(parts)) part.filter(query);
    statistics.hidden = query !== "";
    arrange();
    ctx.announce(`${Object.values(parts).reduce((sum, part) => sum + part.shown(), 0)} found`);
  });

  /** A part with nothing in it is not there, but for the first: it says that there is nothing. */
  const arrange = () => {
    for (const [name, part] of Object.entries(parts))
      sections[name].hidden = part.shown() === 0 && (name !== "run" || search.value !== "");
    const links = Object.entries(sections).filter(([, node]) => !node.hidden);
    replace(jumps,
      links.map(([name, node]) => jump(node, parts[name].shown())),
      statistics.hidden ? null : jump(statistics, null),
    );
  };
  const facts = refreshed(() => ctx.api.get(path`/api/sessions/${ctx.session.id}/tools`),
    (answer) => {
      replace(state, (answer.problems ?? []).map((words) => el("p.problem", words)));
      parts.run.draw(answer.tools ?? []);
      parts.own.draw(answer.userTools ?? []);
      parts.servers.draw(answer.servers ?? []);
      parts.aside.draw(answer.quarantined ?? []);
      arrange();
    },
    (failure) => replace(state, problem(failure)),
  );
  arrange();
  facts.now();
  return {
    node: sheet("Tools", el("div.sheet-acts", search), jumps, state, Object.values(sections), statistics),
    title: "Tools",
    update: (change) => {
      if (change.what === "standing" && ASKS.has(change.part)) facts.soon();
      if (change.what !== "item") return;
      const item = ctx.store.items.get(change.key);
      if (change.fresh && item?.type === "catalogChanged") facts.soon();
      else if (item?.kind === "call" && item.result) counted.draw();
    },
    leave: facts.leave,
  };
};

/** A button, because a link would be another address. */
const jump = (node, count) => {
  const heading = node.querySelector(".part-title");
  const go = () => {
    node.scrollIntoView({ block: "start" });
    heading.focus({ preventScroll: true });
  };
  return h("button.jump", { on: { click: go } }, heading.textContent, count === null ? null : el("span.count", count));
};
