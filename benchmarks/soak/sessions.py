"""What the sessions of the soak do: a program with its tools, an MCP server that dies, and a script for each session.

An effect is a line that the tool itself writes to /work/effects.txt, once each time it is run.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, Final

FORGE_YAML: Final = """\
model: scripted:script.yaml
sandbox:
  zones:
    work: {path: ./work, mode: rw}
    server: {path: ./server, mode: ro}
mcp:
  servers:
    shop:
      command: python3
      args: ["${zone:server}/shop.py"]
      zones: {work: rw, server: ro}
      network: false
      approval: {default: preApproved}
"""
WORKER: Final = """\
---
name: %s
description: Does what the script says.
sandbox: {zones: [{name: work, mode: rw}, {name: server, mode: ro}]}
toolsets: %s
---
Do it.
"""
MODULE: Final = (
    "{custom: {module: ./tools.py, tools: [effect, asked], approval: {tools: {effect: preApproved, asked: ask}}}}"
)
WORKERS: Final = {
    "plain": MODULE,
    "asks": MODULE,
    "server": "{mcp: {servers: [shop]}}",
    "walled": "{exec: {walled: preApproved}}",
}
WRITE: Final = """\
import os


def put(name):
    file = os.open("/work/effects.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, f"{name}\\n".encode())
    os.close(file)
"""
TOOLS: Final = (
    WRITE
    + '''

def effect(name: str, wait: float = 0.0) -> str:
    """One line for each time it is run."""
    import time

    put(name)
    time.sleep(wait)
    return name


def asked(name: str) -> str:
    """One line, for which somebody is asked."""
    put(name)
    return name
'''
)
MARK: Final = WRITE + "\n\nimport sys, time\n\nput(sys.argv[1])\ntime.sleep(float(sys.argv[2]))\n"
SHOP: Final = (
    WRITE
    + """

import json, sys

TOOL = {
    "name": "sell",
    "description": "Sells one thing.",
    "inputSchema": {
        "type": "object",
        "properties": {"name": {"type": "string"}, "dies": {"type": "string"}},
        "required": ["name"],
    },
}
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    given, result = message.get("params") or {}, {}
    if message["method"] == "initialize":
        about = {"name": "shop", "version": "1"}
        result = {"protocolVersion": given["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": about}
    elif message["method"] == "tools/list":
        result = {"tools": [TOOL]}
    elif message["method"] == "tools/call":
        args = given["arguments"]
        if args.get("dies") == "before":
            os._exit(1)
        put(args["name"])
        if args.get("dies") == "after":
            os._exit(1)
        result = {"content": [{"type": "text", "text": args["name"]}]}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """A session's script, and the effects it names."""

    worker: str
    turns: tuple[dict[str, Any], ...]
    names: tuple[str, ...]
    background: bool = False
    """Its calls succeed when their commands run; a command may end with its runner before it wrote its line."""


def write_script(chance: random.Random, number: int) -> Played:
    kind = chance.choices(("plain", "asks", "server", "walled", "background"), (5, 4, 2, 2, 1))[0]
    count = chance.randint(3, 8)
    names = tuple(f"s{number}-{index}" for index in range(count))
    turns = []
    for index, name in enumerate(names):
        if kind == "server":
            dies = chance.choice(("before", "after")) if chance.random() < 0.2 else ""
            turns.append([{"tool": "shop__sell", "args": {"name": name, **({"dies": dies} if dies else {})}}])
        elif kind == "walled":
            turns.append([_command(name, 0.0, 10_000)])
        elif kind == "background":
            poll = {"tool": "write_stdin", "args": {"session_id": index + 1, "yield_time_ms": 5000}}
            turns += [[_command(name, chance.uniform(0.5, 2.0), 250)], [poll]]
        else:
            tool = "asked" if kind == "asks" and chance.random() < 0.5 else "effect"
            wait = {"wait": round(chance.choice((0.0, 0.0, 0.1, 0.5)), 1)} if tool == "effect" else {}
            call = {"tool": tool, "args": {"name": name, **wait}}
            if turns and chance.random() < 0.3:
                turns[-1].append(call)
            else:
                turns.append([call])
    worker = "walled" if kind == "background" else kind
    return Played(
        worker=worker,
        turns=(*({"calls": calls} for calls in turns), {"say": "done"}),
        names=names,
        background=kind == "background",
    )


def _command(name: str, seconds: float, yield_ms: int) -> dict[str, Any]:
    command = f"python3 /server/mark.py {name} {seconds:.1f}"
    return {"tool": "exec_command", "args": {"cmd": command, "yield_time_ms": yield_ms}}
