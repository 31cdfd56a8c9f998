"""Every caller × every source of tools: a `before_call` hook sees each call, none goes around it (hooks.md §3, 4)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.acceptance.mcp_bench import McpBench
from tests.acceptance.mcp_serving import activate, served_program, user_tool
from tests.acceptance.user_tools import yaml_of
from tests.agent.conftest import Script, calls
from tests.deadlines import PATIENCE

from golem_forge.agent.runtime import WorkerRuntime
from golem_forge.agent.session import entry_session
from golem_forge.cli.mcp.serve import serve_session
from golem_forge.core.calls import Caller
from golem_forge.core.ids import new_id
from golem_forge.core.signals import InterruptSignal
from golem_forge.mcp.server.host import ClientFacts

SOURCES: dict[str, tuple[str, dict[str, Any]]] = {
    "native, which plans": ("read_file", {"path": "/workspace/hello.txt"}),
    "native, decided at once": ("update_plan", {"plan": [{"step": "look", "status": "pending"}]}),
    "native command": ("exec_command", {"cmd": "true"}),
    "module": ("double", {"x": 2}),
    "user tool": ("greet", {"who": "you"}),
    "user tool by name": ("run_custom_tool", {"tool_name": "greet", "arguments": {"who": "you"}}),
    "MCP server": ("echo__echo", {"text": "hi"}),
    "worker": ("helper", {"input": "go"}),
}
WORKER = """\
---
name: main
description: Serves.
toolsets:
  filesystem: {}
  exec: {}
  plan: {}
  code: {}
  user_tools: {approval: {default: preApproved}}
  custom:
    module: ./tools.py
    tools: [double, relay]
    approval: {default: preApproved}
  mcp: {servers: [echo]}
  workers: {allow: [helper.worker, deputy.worker], approval: {default: preApproved}}
sandbox:
  zones:
    - {name: workspace, mode: rw}
---
"""
CARRY = """\
for word; do
  case $word in --tool=*) tool=${word#--tool=} ;; --args=*) args=${word#--args=} ;; esac
done
forge call "$tool" --args-json "$args" 2>&1
echo "[$?]"
"""
"""A user tool that calls another tool."""
PROGRAM = """\
import json
from forge_tools import ToolError, call
for name, args in json.loads({wanted!r}):
    try:
        call(name, **args)
        print(json.dumps(["ran", name]))
    except ToolError as error:
        print(json.dumps([error.status, error.text]))
"""
TOOLS = '''\
from golem_forge import ToolContext


def double(x: int) -> int:
    """Twice as much."""
    return 2 * x


async def relay(name: str, args: dict, *, ctx: ToolContext) -> str:
    """Calls another tool."""
    outcome = await ctx.call(name, args)
    return f"{outcome.status} {outcome.text}"
'''
SEES = r"""#!/bin/sh
told=$(cat)
value() { rest=${told#*\"$1\": \"}; printf %s "${rest%%\"*}"; }
case $(value tool) in relay | run_code | carry | deputy) exit 0 ;; esac
echo "seen $(value requested) of $(value caller)" >&2
exit 2
"""


@pytest.fixture
def program(mcp_bench: McpBench, monkeypatch: pytest.MonkeyPatch) -> McpBench:
    bench = mcp_bench
    monkeypatch.setenv("FORGE_HOME", os.fspath(bench.home.path))
    served_program(bench, worker=WORKER, tools=TOOLS)
    (bench.workspace / "helper.worker").write_text("---\nname: helper\ndescription: Helps.\n---\nHelp.\n")
    second = WORKER.replace("name: main", "name: deputy").replace(", deputy.worker", "")
    (bench.workspace / "deputy.worker").write_text(second)
    bench.trust()
    user_tool(bench, "greet")
    activate(bench, "greet")
    carry = bench.home.path / "tools/carry"
    carry.mkdir()
    manifest = {"name": "carry", "description": "Calls another tool.", "version": "1.0.0", "entrypoint": "carry.sh"}
    texts = [{"name": name, "type": "string", "description": name} for name in ("tool", "args")]
    named = sorted({name for name, _ in SOURCES.values()})
    (carry / "tool.yaml").write_text(yaml_of({**manifest, "parameters": texts, "calls": named}))
    (carry / "carry.sh").write_text(CARRY)
    activate(bench, "carry")
    check = bench.root / "check"
    check.write_text(SEES)
    check.chmod(0o755)
    bench.home.config.write_text(json.dumps({"hooks": [{"on": "before_call", "run": str(check), "timeout_s": 60}]}))
    return bench


Wanted = Sequence[tuple[str, dict[str, Any]]]
Told = list[tuple[str, str]]
"""(status, text) of each call"""
Doors = dict[str, Callable[[Wanted], Awaitable[Told]]]
"""Caller → how it makes calls, in one session of its kind."""


@contextlib.asynccontextmanager
async def of_a_runtime(program: McpBench) -> AsyncIterator[Doors]:
    script = Script([])
    made = WorkerRuntime("main.worker", directory=program.workspace, model=script.model, approval_mode="approve_all")

    async def model(wanted: Wanted) -> Told:
        script._turns += [calls(*wanted), "done"]
        await made.turn("go")
        return script.results()

    async def deputy(wanted: Wanted) -> Told:
        """A worker that another worker's model started."""
        script._turns += [calls(("deputy", {"input": "go"})), calls(*wanted), "done", "done"]
        await made.turn("go")
        return script.results(-2)

    async def call(name: str, args: dict[str, Any]) -> tuple[str, str]:
        ended: asyncio.Future[tuple[str, str]] = asyncio.get_running_loop().create_future()
        call_id = new_id()

        def look(event: Any) -> None:
            wire = event.wire
            if wire["toolCallId"] == call_id and not ended.done():
                ended.set_result((wire["status"], wire.get("error", "")))

        forget = made.bus.on("toolResult", look)
        made.bus.emit("manualToolInvoke", {"toolName": name, "args": args, "requestId": call_id})
        try:
            return await asyncio.wait_for(ended, PATIENCE)
        finally:
            forget()

    async def person(wanted: Wanted) -> Told:
        return [await call(name, args) for name, args in wanted]

    async with made:
        yield {"model": model, "deputy": deputy, "person": person}


@contextlib.asynccontextmanager
async def of_a_session(program: McpBench) -> AsyncIterator[Doors]:
    async with entry_session(program.workspace, approval="approve_all") as session:
        await session.look()

        async def python(wanted: Wanted) -> Told:
            outcomes = [await session.call(name, args) for name, args in wanted]
            return [(outcome.status.value, outcome.text) for outcome in outcomes]

        async def another_tool(wanted: Wanted) -> Told:
            told = []
            for status, text in await python([("relay", {"name": name, "args": args}) for name, args in wanted]):
                assert status == "success", text
                inner, _, said = text.partition(" ")
                told.append((inner.rpartition(".")[2].lower(), said))
            return told

        async def program_code(wanted: Wanted) -> Told:
            """One program that makes all calls."""
            [(status, text)] = await python([("run_code", {"code": PROGRAM.format(wanted=json.dumps(wanted))})])
            assert status == "success", text
            lines = (json.loads(line) for line in text.splitlines() if line.startswith('["'))
            return [(inner, said) for inner, said in lines]

        async def own_tool(wanted: Wanted) -> Told:
            told = []
            carried = [("carry", {"tool": name, "args": json.dumps(args)}) for name, args in wanted]
            for status, text in await python(carried):
                assert status == "success", text
                told.append(("policy_denied" if text.rstrip().endswith("[3]") else "ran", text))
            return told

        yield {"python": python, "another_tool": another_tool, "program_code": program_code, "own_tool": own_tool}


@contextlib.asynccontextmanager
async def of_a_server(program: McpBench) -> AsyncIterator[Doors]:
    async with serve_session(program.workspace, approval="approve_all") as host:
        await host.gathered()
        guest = host.admit(ClientFacts())

        async def call(name: str, args: dict[str, Any]) -> tuple[str, str]:
            outcome = await guest.call(
                name, args, call_id=new_id(), cancel=InterruptSignal(), progress=lambda done, of, text: None
            )
            return outcome.status.value, outcome.text

        async def mcp_client(wanted: Wanted) -> Told:
            return [await call(name, args) for name, args in wanted]

        yield {"mcp_client": mcp_client}


FOR_MODELS = {"module", "worker"}
"""What no person calls by hand: its mode is `llm`."""
CALLERS = {
    "model": Caller.LLM,
    "person": Caller.HUMAN,
    "python": Caller.LLM,
    "another_tool": Caller.TOOL,
    "program_code": Caller.TOOL,
    "own_tool": Caller.TOOL,
    "deputy": Caller.LLM,
    "mcp_client": Caller.MCP,
}


async def test_a_hook_sees_the_calls_of_every_source(program: McpBench, is_long: bool) -> None:
    """Every pair with `--long`; else half of them, as the white fields of a chessboard."""
    tried, missed = set(), []
    for open_doors in (of_a_runtime, of_a_session, of_a_server):
        async with open_doors(program) as doors:
            for caller, make in doors.items():
                row = list(CALLERS).index(caller)
                wanted = {
                    source: call
                    for column, (source, call) in enumerate(SOURCES.items())
                    if (is_long or (row + column) % 2) and (caller != "person" or source not in FOR_MODELS)
                }
                told = await make(list(wanted.values()))
                tried.add(caller)
                missed += [
                    (caller, source, status, text)
                    for (source, (name, _)), (status, text) in zip(wanted.items(), told, strict=True)
                    if status != "policy_denied" or f"seen {name} of {CALLERS[caller].value}" not in text
                ]
    assert (tried, missed) == (set(CALLERS), [])
    assert not (Path(program.workspace) / "notes").exists()
