"""ProgramCallServer: the socket of one running program (`run_code`). What it may call is what its worker's model may.

Each request is a call on the one path, with the program's own call as its parent. Refused, and recorded: more than
`max_calls`, and a name that only Forge itself calls (`client:…`). Modes, blocks and zones are the path's business: a
manual tool is not found and a blocked one is denied, whoever names it. A person who ends the turn at one of its
questions ends the program (`stopped`). It counts what was called, and keeps the last value given to `answer`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from golem_forge.core.decisions import Status
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.orchestrator.outputs import VALUE_LIMIT
from golem_forge.sandbox.walls.model import Level
from golem_forge.storage.private_file import create_private
from golem_forge.tools.catalog import is_reserved
from golem_forge.tools.context import ToolContext
from golem_forge.tools.tool import Tool
from golem_forge.usertools.code_toolset import RUN_CODE
from golem_forge.usertools.run.call_server import (
    CallRequest,
    LookupRequest,
    SessionCallServer,
    refusal_answer,
)

PROGRAM_FILE: Final = "program.py"
NO_ANSWER: Final = object()
_MOST_COUNTED: Final = 100
_DENIALS: Final = frozenset({Status.APPROVAL_DENIED, Status.POLICY_DENIED, Status.SANDBOX_DENIED})


@dataclass(slots=True)
class CallCount:
    """Of one tool."""

    calls: int = 0
    failed: int = 0
    denied: int = 0
    """Of those that failed."""


class ProgramCallServer(SessionCallServer):
    def __init__(self, ctx: ToolContext, code: str, max_calls: int) -> None:
        super().__init__(ctx, Level.FULL, max_calls)
        self.counts: dict[str, CallCount] = {}
        """By tool, in the order of their first calls."""
        self.given: Any = NO_ANSWER
        self.stopped = asyncio.Event()
        """A person ended the turn."""
        self._code = code

    def prepare(self, directory: Path) -> None:
        with create_private(directory / PROGRAM_FILE) as file:
            file.write(self._code.encode("utf-8", "surrogatepass"))

    def visible_tools(self) -> Mapping[str, Tool]:
        return {name: tool for name, tool in super().visible_tools().items() if name != RUN_CODE}

    async def find_tool(self, name: str) -> Tool | None:
        return None if is_reserved(name) or name == RUN_CODE else await self.ctx.find(name)

    def search_tools(self, query: str, limit: int) -> Sequence[Tool]:
        offered = self.ctx.offered
        found = offered.search_tools(query, limit + 1) if offered is not None else ()
        return [tool for tool in found if tool.name != RUN_CODE][:limit]

    async def look_up(self, request: LookupRequest) -> dict[str, Any]:
        if request.op != "answer":
            return await super().look_up(request)
        if request.size > VALUE_LIMIT:
            why = f"an answer has at most {VALUE_LIMIT // 1024} KiB; print what is longer"
            return refusal_answer(Status.INPUT_INVALID, why)
        self.given = request.said.get("answer")
        return {"status": Status.SUCCESS.value}

    async def answer(self, request: CallRequest, number: int) -> dict[str, Any]:
        why = ""
        if number > self.most_calls:
            why = f"a program may make at most {self.most_calls} calls"
        elif is_reserved(request.name):
            why = f"'{request.name}' is no tool"
        try:
            args = await self.arguments(request)
        except ValueError as error:
            return refusal_answer(Status.INPUT_INVALID, f"{request.name}: {error}")
        outcome = await self.ctx.call(request.name, args, refuse=why, whole=request.wants_value)
        self._count(outcome.tool, outcome.status)
        if outcome.stop_turn:
            self.stopped.set()
        return await self.answer_of(outcome, request)

    def _count(self, tool: str, status: Status) -> None:
        known = tool if tool in self.counts or len(self.counts) < _MOST_COUNTED else "others"
        count = self.counts.setdefault(known, CallCount())
        count.calls += 1
        if status is not Status.SUCCESS:
            count.failed += 1
            count.denied += status in _DENIALS
