// The TypeScript SDKs do what their orders say: `@modelcontextprotocol/sdk` (v1) speaks the handshake era,
// `@modelcontextprotocol/client` (v2) 2026-07-28. Found through NODE_PATH; see clients/orders.md for what goes in and out.
"use strict";

function parts(era) {
  if (era === "legacy") {
    const { ElicitRequestSchema } = require("@modelcontextprotocol/sdk/types.js");
    return {
      Client: require("@modelcontextprotocol/sdk/client/index.js").Client,
      Transport: require("@modelcontextprotocol/sdk/client/streamableHttp.js").StreamableHTTPClientTransport,
      elicitation: ElicitRequestSchema,
      options: {},
      call: (client, params, how) => client.callTool(params, undefined, how),
    };
  }
  const modern = require("@modelcontextprotocol/client");
  return {
    Client: modern.Client,
    Transport: modern.StreamableHTTPClientTransport,
    elicitation: "elicitation/create",
    options: { versionNegotiation: { mode: { pin: "2026-07-28" } } },
    call: (client, params, how) => client.callTool(params, how),
  };
}

async function called(from, client, [name, args, cancelWhenThere]) {
  const progress = [];
  const how = { onprogress: (told) => progress.push(told.message ?? String(told.progress)) };
  let cancelled;
  if (cancelWhenThere !== undefined) {
    const stop = new AbortController();
    how.signal = stop.signal;
    const looking = setInterval(() => {
      if (!require("node:fs").existsSync(cancelWhenThere)) return;
      clearInterval(looking);
      cancelled = Date.now();
      stop.abort("enough");
    }, 20);
  }
  try {
    const result = await from.call(client, { name, arguments: args }, how);
    const text = result.content.filter((block) => block.type === "text").map((block) => block.text);
    return { isError: Boolean(result.isError), text: text.join("\n"), progress };
  } catch (error) {
    return { error: String(error.message), code: error.code, progress, cancelled: cancelled !== undefined };
  }
}

async function followed(orders) {
  const from = parts(orders.era);
  const asked = [];
  const capabilities = orders.answer ? { elicitation: { form: {} } } : {};
  const client = new from.Client({ name: "typescript", version: "0" }, { capabilities, ...from.options });
  if (orders.answer) {
    client.setRequestHandler(from.elicitation, async (request) => {
      asked.push(request.params.message);
      return orders.answer;
    });
  }
  const requestInit = { headers: { Authorization: `Bearer ${orders.token}` } };
  const transport = new from.Transport(new URL(orders.url), { requestInit });
  await client.connect(transport);
  const tools = (await client.listTools()).tools.map((tool) => tool.name);
  const results = [];
  for (const call of orders.calls) results.push(await called(from, client, call));
  const version = transport.protocolVersion;
  if (transport.sessionId) await transport.terminateSession();
  await client.close();
  return { version, tools, results, asked };
}

(async () => {
  const seen = [];
  for (const orders of JSON.parse(require("node:fs").readFileSync(0, "utf8"))) seen.push(await followed(orders));
  process.stdout.write(JSON.stringify(seen) + "\n");
  process.exit(0);
})();
