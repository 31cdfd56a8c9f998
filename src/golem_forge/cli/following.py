"""Following a command that outlived its call: a person's one-shot call sees it to its end.

Takes the outcome that named a session, gives the outcome of its end. The output is asked for with `write_stdin`, on
the one path like everybody's: judged, redacted, bounded and recorded. The command's own time limit holds; an
interruption of the session ends the command, and that is its outcome then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from golem_forge.config.modes import ApprovalMode
from golem_forge.core.call import Caller, Outcome
from golem_forge.core.decision import AnsweredBy

if TYPE_CHECKING:
    from golem_forge.toolsets.exec.sessions import Running
    from golem_forge.workers.session import Session

_SOONEST_MS: Final = 200
_LATEST_MS: Final = 2_000
"""While nothing comes out it is asked for ever more seldom, up to this."""
_PATIENT_MS: Final = 300_000
"""Where each reading asks a person, or where only the end is wanted."""
_MOST_TOKENS: Final = 50_000
_LOOK_EVERY_S: Final = 0.2
"""How soon an interruption is noticed while a command runs that must not be read."""


async def followed(session: Session, first: Outcome, show: Callable[[str], None] | None) -> Outcome:
    """`show` is given the output as it comes; without it, the outcome has all of it."""
    from golem_forge.toolsets.exec.sessions import ExecSessions

    assert first.result is not None
    number: int = first.result.value["session_id"]
    running = session.path.parts.get(ExecSessions).find(number, session.path.worker)
    if running is None:
        return first
    tokens = (first.args or {}).get("max_output_tokens", 10_000) if show is None else _MOST_TOKENS
    last = await _read_to_the_end(session, running, tokens, show)
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


async def _read_to_the_end(
    session: Session, running: Running, tokens: int, show: Callable[[str], None] | None
) -> Outcome:
    patient = show is None or session.path.judge.mode is ApprovalMode.STRICT
    wait = _PATIENT_MS if patient else _SOONEST_MS
    while True:
        if show is None:
            running.delivered = 0  # the last report has the whole output, and says so in one piece
        asked = {"session_id": running.number, "yield_time_ms": wait, "max_output_tokens": tokens}
        report = await session.call("write_stdin", asked, caller=Caller.HUMAN)
        said: dict[str, Any] = report.result.value if report.executed and report.result is not None else {}
        if show is not None:
            show(said.get("output", ""))
        if session.path.signal:
            await running.end()
            session.reset()
            continue
        if not report.executed:  # a rule or mode does not let it be read; how it ended is known all the same
            await _until_it_ends(session, running)
            return _ended(running, report)
        if "session_id" not in said:
            return report
        if report.decision is not None and report.decision.answered_by is AnsweredBy.PERSON:
            patient = True
        wait = _PATIENT_MS if patient else _SOONEST_MS if said.get("bytes") else min(2 * wait, _LATEST_MS)


async def _until_it_ends(session: Session, running: Running) -> None:
    while running.ending is None:
        await running.settle(_LOOK_EVERY_S)
        if session.path.signal:
            await running.end()
            session.reset()


def _ended(running: Running, unread: Outcome) -> Outcome:
    from golem_forge.toolsets.exec.text import standing_of

    standing = standing_of(running.ending, session=running.number, timeout_s=running.timeout_s)
    error = "" if standing.status.value == "success" else standing.line
    after = running.walled.aftermath()
    return replace(
        unread,
        status=standing.status,
        code=standing.code,
        error=error,
        result=None,
        denials=after.denials,
        protected_created=after.protected_created,
        leftovers=after.leftovers,
    )
