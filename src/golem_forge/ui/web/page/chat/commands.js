/* The words behind a `/`: Forge's own commands, then the tools a person may run. The runtime reads the line; this only
   tells commands from text and knows what to offer. A test holds the names against the runtime's own. */

export const COMMANDS = /** @type {const} */ ([
  ["help", "these commands, or one command or tool"],
  ["tools", "the tools you can run"],
  ["tool", "run a tool by its name"],
  ["t", "the same, shorter"],
  ["model", "show or switch the model"],
  ["clear", "empty the history"],
  ["status", "worker, model, context, cost, what waits"],
  ["config", "the configuration in force and where it comes from"],
  ["rules", "what is remembered and the rules; take one back"],
  ["why", "what was decided about the last call, or another"],
  ["sessions", "recorded sessions"],
  ["plan", "the plan of the work"],
  ["output", "an output that was too long to show"],
  ["rate", "say how good one of your own tools is"],
  ["trace", "how much this page shows: quiet, summary, normal, debug"],
  ["mcp", "servers and their state"],
  ["web", "this session in a browser"],
  ["exit", "end the session"],
]);
const OWN = new Set(COMMANDS.map(([name]) => /** @type {string} */ (name)));

/** `/` and a name. A name has no second `/`: `/workspace/notes.txt` is a path in a sentence. @param {string} line */
export const isCommand = (line) => {
  const name = /^\/(\S+)/.exec(line)?.[1];
  return name !== undefined && !name.includes("/");
};

/** How a tool is typed; one that is called like a command only behind `/tool`. @param {string} tool */
export const slash = (tool) => (OWN.has(tool.toLowerCase()) ? `/tool ${tool}` : `/${tool}`);
