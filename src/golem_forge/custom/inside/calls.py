"""CallDesk: one running tool calls others, and each call re-enters the one path as the tool's own.

Takes the run's ToolContext, the names under `calls` and the run's time; each call is judged, approved and recorded by
itself. Refuses, which is recorded too, a name that is not listed and more than 64 calls. RefusingDesk is what a tool
finds while its tests run: whatever it asks for is denied.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from golem_forge.config.home import ForgeHome, forge_home
from golem_forge.core.call import Caller, Outcome, ToolCall
from golem_forge.core.errors import ForgeError
from golem_forge.core.verdict import Status
from golem_forge.custom.inside.call_request import Request, answer_of, refusal
from golem_forge.custom.inside.desk import Desk
from golem_forge.sandbox.walls.levels import Level
from golem_forge.tools.context import ToolContext

if TYPE_CHECKING:
    from golem_forge.tools.tool import Tool

MOST_CALLS: Final = 64
FROM_A_TEST: Final = "tools cannot be called from a test"
Lookup = Callable[[str], "Tool | None"]
"""A tool by the name that a tool calls it by, for its parameters; None or a ForgeError: there is none."""


@dataclass(slots=True)
class _Root:
    """One secret for a session, so that the Redactor need not learn one for every run; each run's token adds to it."""

    secret: str = field(default_factory=lambda: secrets.token_hex(16))


def call_desk(
    ctx: ToolContext, lookup: Lookup, calls: tuple[str, ...], deadline: float, *, level: Level = Level.FULL
) -> CallDesk:
    """For one run that ends at `deadline` (Unix seconds), in walls of this level. Its token is a secret from now on."""
    root = ctx.parts.get(_Root).secret
    if ctx.redactor is not None and root not in ctx.redactor.secrets:
        ctx.redactor.add_secret("FORGE_CALL_TOKEN", root)
    return CallDesk(ctx, lookup, calls, deadline, root=root, level=level)


class CallDesk(Desk):
    def __init__(
        self, ctx: ToolContext, lookup: Lookup, calls: tuple[str, ...], deadline: float, *, root: str, level: Level
    ) -> None:
        super().__init__(ForgeHome(ctx.home) if ctx.home is not None else forge_home(), root, level)
        self._ctx = ctx
        self._lookup = lookup
        self._names = frozenset(calls)
        self._deadline = time.monotonic() + deadline - time.time()

    async def answer(self, request: Request, number: int) -> dict[str, Any]:
        ctx = self._ctx
        if why := self._why_not(request.name, number):
            given = {} if request.args is None else request.args
            return answer_of(await ctx.call(request.name, given, refuse=why), request, ctx.session_id)
        try:
            args = self._arguments(request)
        except ValueError as error:
            return refusal(Status.INPUT_INVALID, f"{request.name}: {error}")
        try:
            async with asyncio.timeout(max(self._deadline - time.monotonic(), 0)):
                outcome = await ctx.call(request.name, args)
        except TimeoutError:
            return refusal(Status.TIMEOUT, "the time of the calling tool is up")
        return answer_of(outcome, request, ctx.session_id)

    def _why_not(self, name: str, number: int) -> str:
        if number > MOST_CALLS:
            return f"a tool may call others at most {MOST_CALLS} times in one run"
        if name not in self._names:
            return f"this tool does not list '{name}' under `calls` in its tool.yaml"
        return ""

    def _arguments(self, request: Request) -> Any:
        """Raises ValueError, in words for whoever wrote the call."""
        if request.words is None:
            return request.args  # a text is read, and refused, by the path
        from golem_forge.tools.binding import bind_options, words_as_tokens

        try:
            tool = self._lookup(request.name)
        except ForgeError:
            tool = None
        return {} if tool is None else bind_options(tool.input_schema, words_as_tokens(request.words))


class RefusingDesk(Desk):
    def __init__(self, home: ForgeHome) -> None:
        super().__init__(home, secrets.token_hex(16), Level.FULL)

    async def answer(self, request: Request, number: int) -> dict[str, Any]:
        call = ToolCall(request.name, request.args, Caller.TOOL)
        refused = Outcome(call, request.name, Status.POLICY_DENIED, error=FROM_A_TEST)
        return answer_of(refused, request, session_id="")
