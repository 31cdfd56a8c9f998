// The TypeScript SDK's client does what its orders say: argv[2] is the SDK's file, argv[3] JSON
// {command, args, cwd, steps}. A step is {prompt, cancelAt?}, {load: true} or {mode}. Prints JSON {answers, updates, asked}.
import { spawn } from "node:child_process";
import { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";

const acp = await import(pathToFileURL(process.argv[2]).href);
const orders = JSON.parse(process.argv[3]);
const agent = spawn(orders.command, orders.args, { cwd: orders.cwd, stdio: ["pipe", "pipe", "inherit"] });
const updates = [];
const asked = [];
let waiting = () => {};

const client = acp
  .client({ name: "typescript" })
  .onNotification(acp.methods.client.session.update, ({ params }) => {
    updates.push(params.update);
    waiting(params.update);
  })
  .onRequest(acp.methods.client.session.requestPermission, ({ params }) => {
    asked.push(params);
    const option = params.options.find((each) => each.kind === "allow_once");
    return { outcome: { outcome: "selected", optionId: option.optionId } };
  });
const stream = acp.ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout));
const connection = client.connect(stream).agent;
const of = acp.methods.agent;
const hello = await connection.request(of.initialize, {
  protocolVersion: acp.PROTOCOL_VERSION,
  clientInfo: { name: "typescript", version: "2" },
  clientCapabilities: { fs: { readTextFile: false, writeTextFile: false } },
});
const session = await connection.request(of.session.new, { cwd: orders.cwd, mcpServers: [] });
const sessionId = session.sessionId;
const answers = [];
for (const step of orders.steps) {
  if (step.load) {
    await connection.request(of.session.close, { sessionId });
    const before = updates.length;
    await connection.request(of.session.load, { sessionId, cwd: orders.cwd, mcpServers: [] });
    answers.push({ replayed: updates.slice(before) });
  } else if (step.mode) {
    await connection.request(of.session.setMode, { sessionId, modeId: step.mode });
    answers.push({ mode: step.mode });
  } else {
    if (step.cancelAt)
      waiting = (update) => {
        if (update.sessionUpdate !== step.cancelAt) return;
        waiting = () => {};
        connection.notify(of.session.cancel, { sessionId });
      };
    const prompt = [{ type: "text", text: step.prompt }];
    answers.push(await connection.request(of.session.prompt, { sessionId, prompt }));
  }
}
agent.stdin.end();
const code = await new Promise((resolve) => agent.on("exit", resolve));
console.log(JSON.stringify({ hello, session, answers, updates, asked, code }));
