"""Following a command that outlived its call: a person's one-shot call sees it to its end.

Takes the outcome that named a session, gives the outcome of its end. What comes out meanwhile is shown as it comes.
The command's own time limit holds; an interruption of the session ends the command, and that is its outcome then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from golem_forge.core.call import Caller, Outcome

if TYPE_CHECKING:
    from golem_forge.toolsets.exec.sessions import Running
    from golem_forge.workers.session import Session

_LOOK_EVERY_S: Final = 0.2
"""How soon an interruption is noticed while nothing comes out."""


async def followed(session: Session, first: Outcome, show: Callable[[str], None] | None) -> Outcome:
    """`show` is given the output as it comes; without it, the outcome has all of it."""
    from golem_forge.toolsets.exec.sessions import ExecSessions

    assert first.result is not None
    number: int = first.result.value["session_id"]
    running = session.path.parts.get(ExecSessions).find(number, session.path.worker)
    if running is None:
        return first
    await _until_it_ends(session, running, show)
    if show is None:
        running.delivered = 0  # the last report has the whole output, and says so in one piece
    tokens = (first.args or {}).get("max_output_tokens", 10_000)
    asked = {"session_id": number, "yield_time_ms": 0, "max_output_tokens": tokens}
    last = await session.call("write_stdin", asked, caller=Caller.HUMAN)
    if not last.executed:  # a rule or mode does not let it be read; how it ended is known all the same
        last = _ended(running, last)
    return replace(
        last,
        call=first.call,
        tool=first.tool,
        args=first.args,
        decision=first.decision,
        notes=first.notes if show is None else (),
        duration_ms=running.seconds * 1e3,
    )


def last_lines(outcome: Outcome) -> str:
    """How it ended, without the output that was shown already."""
    text = outcome.result.text if outcome.result and outcome.result.text else ""
    kept: list[str] = []
    for line in text.splitlines():
        if line.startswith("Output ("):
            break
        kept.append(line)
    return "\n".join(kept)


async def _until_it_ends(session: Session, running: Running, show: Callable[[str], None] | None) -> None:
    output = running.child.output
    while True:
        ended = running.ending is not None
        if show is not None and output.size > running.delivered:
            for piece in output.pieces(running.delivered):
                show(piece.decode("utf-8", "replace"))
                running.delivered += len(piece)
        if ended:
            return
        if session.path.signal:
            await running.end()
            session.reset()
        elif show is None or output.complete:
            await running.settle(_LOOK_EVERY_S)
        else:
            await output.more(running.delivered, _LOOK_EVERY_S)


def _ended(running: Running, unread: Outcome) -> Outcome:
    from golem_forge.toolsets.exec.text import standing_of

    standing = standing_of(running.ending, session=running.number, timeout_s=running.timeout_s)
    error = "" if standing.status.value == "success" else standing.line
    return replace(unread, status=standing.status, code=standing.code, error=error, result=None)
