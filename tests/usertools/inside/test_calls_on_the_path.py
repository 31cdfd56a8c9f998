"""A desk on the real path of a real session: what a tool calls is a call of its own, under its parent."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from golem_forge.agent.session import Session, open_session
from golem_forge.core.decisions import Status
from golem_forge.events.model import ToolStarted
from golem_forge.storage.home import ForgeHome
from golem_forge.tools.context import ToolContext
from golem_forge.tools.factory import tool
from golem_forge.tools.tool import Tool
from golem_forge.usertools.run.call_server import ToolCallServer


def _caller(name: str, target: str, *calls: str, args_json: str = "") -> Tool:
    """A tool whose process runs `forge call TARGET --n=…` and says how that ended."""

    async def run(n: int, *, ctx: ToolContext) -> str:
        """Calls another."""
        async with ToolCallServer(ctx, SESSIONS[-1].catalog.get, calls, time.time() + 20) as desk:
            folder, place = desk.shown[1].host, desk.shown[0].host
            child = await asyncio.create_subprocess_exec(
                f"{folder}/forge",
                *("call", target, *(["--args-json", args_json] if args_json else [f"--n={n}"])),
                env={**desk.env, "FORGE_SOCKET": f"{place}/socket"},
                stdout=-1,
                stderr=asyncio.subprocess.STDOUT,
            )
            output, _ = await child.communicate()
        return f"{name} > {output.decode().strip()} [{child.returncode}]"

    run.__name__ = name
    return tool(needs_approval=False)(run)


@tool(needs_approval=False)
def leaf(n: int) -> str:
    """Ends here."""
    return f"leaf {n}"


RAW = [
    _caller("good", "leaf", "leaf", args_json='{"n": 7}'),
    _caller("wrong", "leaf", "leaf", args_json='{"n": "seven"}'),
    _caller("broken", "leaf", "leaf", args_json='{"n": '),
]
SESSIONS: list[Session] = []


@pytest.fixture
async def session(tmp_path: Path) -> AsyncIterator[Session]:
    project = tmp_path / "project"
    project.mkdir()
    chain = [_caller(f"t{number}", f"t{number + 1}", f"t{number + 1}") for number in range(1, 6)]
    tools = [
        leaf,
        _caller("a", "leaf", "leaf"),
        _caller("undeclared", "leaf"),
        *chain,
        *RAW,
        _caller("t6", "leaf", "leaf"),
    ]
    async with open_session(project, tools=tools, home=ForgeHome(tmp_path / "home")) as opened:
        SESSIONS.append(opened)
        yield opened
        SESSIONS.pop()


async def test_the_called_tool_carries_its_callers_call(session: Session) -> None:
    seen: list[Any] = []
    session.bus.on("*", seen.append)
    outcome = await session.call("a", {"n": 1})
    assert outcome.text == "a > leaf 1 [0]"
    started = {event.data.tool_name: event.data for event in seen if isinstance(event.data, ToolStarted)}
    assert started["leaf"].parent_call_id == outcome.call.id
    assert started["leaf"].caller == "tool"
    assert started["a"].parent_call_id is None


async def test_what_is_not_declared_is_denied(session: Session) -> None:
    outcome = await session.call("undeclared", {"n": 1})
    assert outcome.status is Status.SUCCESS
    why = "this tool does not list 'leaf' under `calls` in its tool.yaml"
    assert outcome.text == f"undeclared > forge: policy_denied: {why} [3]"


async def test_the_sixth_of_a_chain_is_refused_and_the_others_are_intact(session: Session) -> None:
    outcome = await session.call("t1", {"n": 1})
    assert outcome.ok
    assert outcome.text.startswith("t1 > t2 > t3 > t4 > t5 > forge: policy_denied: Tools may call each other at most 5")
    assert outcome.text.endswith("[3] [0] [0] [0] [0]")


@pytest.mark.parametrize(("name", "code"), [("good", 0), ("wrong", 2), ("broken", 2)])
async def test_arguments_as_json_are_the_paths_to_judge(session: Session, name: str, code: int) -> None:
    outcome = await session.call(name, {"n": 1})
    assert outcome.text.endswith(f"[{code}]")
    assert ("input_invalid" in outcome.text) == (code == 2)
