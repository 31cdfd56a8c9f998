"""ToolContext: what a running tool is given. Everything it may reach is here; nothing is global."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from golem_forge.core.call import Caller, Outcome
from golem_forge.core.signal import InterruptSignal
from golem_forge.sandbox.sandbox import Sandbox

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

Progress = Callable[[float, float | None, str], None]
"""(progress, total or None, message)"""
NestedCall = Callable[[str, dict[str, Any]], Awaitable[Outcome]]
"""(tool name, arguments): re-enters the one path as caller `tool`."""


class KeptText(Protocol):
    """An output too long for its caller, whole on disk."""

    @property
    def path(self) -> Path: ...


class OutputLookup(Protocol):
    """Where kept outputs are found by handle; `orchestrator.outputs.OutputStore` is one."""

    def find(self, handle: str, worker: str, *, any_session: bool = False) -> KeptText | None: ...


def _nobody_listens(progress: float, total: float | None, message: str) -> None:
    return None


async def _awaited(call: Awaitable[Outcome]) -> Outcome:
    return await call


async def _no_calls(name: str, args: dict[str, Any]) -> Outcome:
    raise RuntimeError("this context cannot call other tools")


@dataclass(slots=True, kw_only=True)
class ToolContext:
    call_id: str = ""
    session_id: str = ""
    worker: str = "main"
    """Worker names from the root, `main/coder`."""
    caller: Caller = Caller.LLM
    sandbox: Sandbox | None = None
    outputs: OutputLookup | None = None
    """The whole of what was too long to be shown, by handle."""
    cancel: InterruptSignal = field(default_factory=InterruptSignal)
    progress: Progress = _nobody_listens
    call: NestedCall = _no_calls
    loop: AbstractEventLoop | None = None

    @property
    def workspace(self) -> str:
        """The virtual path that relative paths start from; empty without file access."""
        zone = self.sandbox.default_zone if self.sandbox else None
        return f"/{zone}" if zone else ""

    def call_blocking(self, name: str, args: dict[str, Any]) -> Outcome:
        """`call` for a sync tool, which runs in a thread of its own and may wait there."""
        from asyncio import _get_running_loop, run_coroutine_threadsafe

        if self.loop is None:
            raise RuntimeError("this context cannot call other tools")
        if _get_running_loop() is not None:
            raise RuntimeError("call_blocking would stop the event loop for good: `await ctx.call(…)` instead")
        return run_coroutine_threadsafe(_awaited(self.call(name, args)), self.loop).result()

    def report_progress(self, progress: float, total: float | None = None, message: str = "") -> None:
        """Tells the UIs how far the tool is, and resets the call's idle timeout."""
        self.progress(progress, total, message)
