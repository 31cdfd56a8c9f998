"""Live output: what a running child writes, shown to the UIs while a call waits for it, as `toolOutput` events.

Takes the captures a child writes to, which hold text with secrets already taken out. What comes close together is one
event; of a flood the latest 16 KiB are shown and the rest counted. A child that is quick shows nothing: its result says
it all. Where something was shown, all of it was by the time the wait is over.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from time import monotonic
from typing import TYPE_CHECKING, Final

from golem_forge.sandbox.process.monitor import ENDED, TIMEOUT
from golem_forge.tools.context import ToolContext

if TYPE_CHECKING:
    from golem_forge.sandbox.process.launch import Capture
    from golem_forge.sandbox.process.monitor import ExitStatus
    from golem_forge.sandbox.walls.walls import WalledChild

_DELAY_S: Final = 0.2
_INTERVAL_S: Final = 0.05
_MAX_DELTA_BYTES: Final = 16_384
_WAIT_S: Final = 3600.0
_SHORTEST_WAIT_S: Final = 0.05


@contextlib.asynccontextmanager
async def show_live_output(ctx: ToolContext, streams: Mapping[str, Capture], after: int = 0) -> AsyncIterator[None]:
    """`streams`: `stdout` and `stderr`, or `stdout` alone for both. `after`: bytes that were shown before."""
    followed = [_FollowedStream(ctx, name, capture, after) for name, capture in streams.items()]
    tasks = [asyncio.get_running_loop().create_task(each.follow()) for each in followed]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        for each in followed:
            each.finish()


async def wait_to_end(walled: WalledChild, ctx: ToolContext, seconds: float) -> ExitStatus:
    """Shows the output of a child while it runs; its streams must be apart. Ends it after `seconds` and when the call
    is cancelled; the time of questions that a program's calls ask does not count. Raises CancelledError only where the
    caller itself is gone: nobody is left to read the output."""
    child, program = walled.child, ctx.program
    assert child.errors is not None
    began, asked = monotonic(), program.asked_s if program is not None else 0.0
    left = seconds
    try:
        async with show_live_output(ctx, {"stdout": child.output, "stderr": child.errors}):
            while left > 0:
                if (ending := await child.wait(max(left, _SHORTEST_WAIT_S))) is not None:
                    return ending
                left = seconds - (monotonic() - began) + (program.asked_s - asked if program is not None else 0.0)
            return await child.end(TIMEOUT)
    except asyncio.CancelledError:
        ending = await child.end(ENDED)
        if not ctx.cancel:
            walled.report_unread()
            raise
        return ending


class _FollowedStream:
    def __init__(self, ctx: ToolContext, stream: str, capture: Capture, at: int) -> None:
        self._ctx = ctx
        self._stream = stream
        self._capture = capture
        self._at = at
        self._began = False

    async def follow(self) -> None:
        await asyncio.sleep(_DELAY_S)
        while await self._capture.more(self._at, _WAIT_S) or not self._capture.complete:
            self._show()
            await asyncio.sleep(_INTERVAL_S)

    def finish(self) -> None:
        if self._began:
            self._show()

    def _show(self) -> None:
        end = self._capture.size
        if end <= self._at:
            return
        start = max(self._at, end - _MAX_DELTA_BYTES)
        text = self._capture.read(start, end).decode("utf-8", "replace")
        if start > self._at:
            text = f"… {start - self._at} bytes …\n{text}"
        self._at, self._began = end, True
        self._ctx.show("toolOutput", {"toolCallId": self._ctx.call_id, "stream": self._stream, "delta": text})
