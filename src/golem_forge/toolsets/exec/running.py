"""Running commands: the first wait of exec_command, and what is reported of a session from then on.

A call that is cancelled while it first waits takes its whole tree with it, and still says what came out of it. A
session that outlived its call is ended by its own time limit, by a signal, or with the Forge session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from golem_forge.core.finished import Finished
from golem_forge.core.result import ToolResult
from golem_forge.core.verdict import Status
from golem_forge.sandbox.walls.denials import blocked_line
from golem_forge.tools.context import ToolContext
from golem_forge.tools.live_output import shown_live
from golem_forge.tools.threads import run_in_thread
from golem_forge.toolsets.exec.bounding import Bounded, Keep, Part, bounded
from golem_forge.toolsets.exec.hints import network_hint
from golem_forge.toolsets.exec.text import ended_well, standing_of, whole_text

if TYPE_CHECKING:
    from golem_forge.sandbox.walls.walled_child import WalledChild
    from golem_forge.toolsets.exec.sessions import ExecSessions, Running, Started

BYTES_PER_TOKEN: Final = 4


async def first_wait(
    sessions: ExecSessions,
    start: Callable[[], Awaitable[WalledChild]],
    kind: Started,
    args: dict[str, Any],
    ctx: ToolContext,
) -> Finished:
    running = await sessions.start(start, kind)
    try:
        async with shown_live(ctx, {"stdout": running.child.output}):
            await running.settle(args["yield_time_ms"] / 1000)
    except asyncio.CancelledError:
        await running.end()
        if not ctx.cancel:  # the caller itself is gone: nobody is left to read it
            running.walled.tell_unread()
            raise
    return await report(sessions, running, args["max_output_tokens"], ctx)


async def report(
    sessions: ExecSessions, running: Running, tokens: int, ctx: ToolContext, notes: Iterable[str] = ()
) -> Finished:
    """What is new since the last report, and how the process stands."""
    ending = running.ending
    if ending is None:
        sessions.number(running)
    output = running.child.output
    new = Part(output, running.delivered, output.size)
    lines = list(notes)
    if ending is not None and ending.code == "WALLS_CHANGED":
        new = Part(output, output.size, output.size)
        lines.append("Its output is withheld: for a moment it could read what was to stay hidden.")
    shown = await bound_off_loop(new, tokens * BYTES_PER_TOKEN, keeper(ctx))
    running.delivered = new.end
    standing = standing_of(ending, session=running.number, timeout_s=running.timeout_s)
    value: dict[str, Any] = {"kind": "exec.result"}
    finished = Finished(result=ToolResult(value, ""), status=standing.status, code=standing.code, bounded=True)
    if ending is None:
        value["session_id"] = running.number
    else:
        value |= {"signal": ending.signal} if ending.signal else {"exit_code": ending.exit_code}
        lines += network_hint(running)
        after = running.walled.aftermath()
        finished.denials = after.denials
        finished.protected_created, finished.leftovers = after.protected_created, after.leftovers
        if after.denials:
            value["denials"] = list(after.denials)
            if standing.status is Status.EXECUTION_FAILED and not ended_well(ending) and not standing.code:
                finished.status = Status.SANDBOX_DENIED
                lines.append(blocked_line(after.denials))
    if finished.status is not Status.SUCCESS:
        finished.error = lines[-1] if finished.status is Status.SANDBOX_DENIED else standing.line
    value |= {"wall_s": round(running.seconds, 3), "bytes": new.size, "output": shown.text}
    if shown.handle:
        value["handle"] = finished.output_handle = shown.handle
    finished.result.text = whole_text(running.seconds, standing, new.size, shown.text, *lines)
    return finished


def keeper(ctx: ToolContext) -> Keep:
    """Where whole outputs go; nowhere for an embedder without an output store."""
    outputs = ctx.outputs
    return (lambda pieces: outputs.keep_pieces(pieces, ctx.worker)) if outputs is not None else lambda _: ""


async def bound_off_loop(text: Part, limit: int, keep: Keep) -> Bounded:
    """What must be kept on disk is written in a thread: it may be 64 MiB."""
    if text.size <= limit:
        return bounded(text, limit, keep)
    return await run_in_thread(lambda: bounded(text, limit, keep))
