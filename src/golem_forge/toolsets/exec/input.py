"""Planning and doing write_stdin: finds the session, judges the line, and only then delivers the characters.

Reading, a signal, and Ctrl-C or Ctrl-D alone run unasked. Everything else asks, unless the person allowed input to this
session; a line with danger, or one whose content is not known for sure, asks in any case.
"""

from __future__ import annotations

import signal
from functools import partial
from typing import Any, Final

from golem_forge.core.effects import AtMost, Effect, Mark, Verb
from golem_forge.core.errors import ToolFailed
from golem_forge.core.finished import Finished
from golem_forge.core.verdict import Verdict
from golem_forge.policy.facts import CommandFacts
from golem_forge.policy.shell import find_dangers
from golem_forge.policy.world import SandboxWorld
from golem_forge.sandbox.protected import is_secret_name
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.tools.context import ToolContext
from golem_forge.tools.live_output import shown_live
from golem_forge.tools.plan import Plan
from golem_forge.toolsets.exec.ground import NOWHERE
from golem_forge.toolsets.exec.pending import INTERRUPTS, MOST_PENDING, Judged
from golem_forge.toolsets.exec.running import report
from golem_forge.toolsets.exec.sessions import ExecSessions, Running

_SIGNALS: Final = {"INT": signal.SIGINT, "TERM": signal.SIGTERM, "KILL": signal.SIGKILL}
_YIELD_TYPED: Final = 250
_MOST_YIELD_TYPED: Final = 30_000
_YIELD_READING: Final = 5_000
_IGNORED: Final = "The session has ended; the characters were ignored."


def plan_input(args: dict[str, Any], ctx: ToolContext) -> Plan:
    sessions = ctx.parts.get(ExecSessions)
    number, chars = args["session_id"], args["chars"]
    running = sessions.find(number, ctx.owner)
    if running is None:
        raise ToolFailed(f"Session {number} not found.", code="NO_SESSION")
    if chars and running.ending is None and not running.tty:
        raise ToolFailed(f"Session {number} has no terminal; start it with tty=true.", code="NO_TERMINAL")
    run = partial(_type, sessions, running, args, ctx)
    identity: dict[str, Any] = {"session_id": number, "chars": chars, "signal": args["signal"]}
    if not chars or chars in INTERRUPTS or running.ending is not None:
        return Plan(run=run, effects=(_unasked(number, args),), fingerprint_args=identity)
    judged = running.input.with_new(chars)
    run = partial(_type, sessions, running, args, ctx, judged.line)
    if len(judged.line) > MOST_PENDING:
        raise ToolFailed(f"The line is longer than {MOST_PENDING} characters; submit it with a newline first.")
    return Plan(
        run=run,
        effects=(_line_effect(number, judged, no_walls=running.no_walls),),
        command=CommandFacts(
            text="\n".join(reading.replace("\r", "\n") for reading in judged.readings),
            parsed=None,  # whatever reads this need not be a shell: no rule that allows a command speaks of it
            world=SandboxWorld(ctx.sandbox or Sandbox(has_block=False)),
            cwd=ctx.workspace or NOWHERE,
        ),
        payload=judged.line,
        fingerprint_args={**identity, "line": judged.line},
    )


def _unasked(number: int, args: dict[str, Any]) -> Effect:
    sends = args["signal"] or {"\x03": "Ctrl-C", "\x04": "Ctrl-D"}.get(args["chars"], "")
    target = f"{sends} to session {number}" if sends else f"read session {number}"
    said_by = "reading a session, signals, Ctrl-C and Ctrl-D need no approval"
    return Effect(verb=Verb.EXEC, target=target, said=Verdict.PRE_APPROVED, said_by=said_by, at_most=AtMost.READS)


def _line_effect(number: int, judged: Judged, *, no_walls: bool) -> Effect:
    """One for the whole line: what it is to the program that reads it, nobody here knows."""
    texts = [reading.replace("\r", "\n") for reading in judged.readings]
    dangers = dict.fromkeys(found.id for text in texts for found in find_dangers(text, is_secret=is_secret_name))
    marks = ((Mark.OPAQUE, judged.opaque), (Mark.DANGER, bool(dangers)), (Mark.NO_WALLS, no_walls))
    return Effect(
        verb=Verb.EXEC,
        target=judged.line,
        real=f"session {number}: {judged.line}",
        marks=tuple(mark for mark, holds in marks if holds),
        dangers=tuple(dangers),
        grant=f"input to session {number}",
    )


async def _type(
    sessions: ExecSessions, running: Running, args: dict[str, Any], ctx: ToolContext, line: str | None = None
) -> Finished:
    """`line`: what was judged; None where nothing had to be."""
    chars = args["chars"]
    notes: list[str] = []
    if running.ending is not None:
        notes += [_IGNORED] if chars else []
    else:
        if line is not None and running.input.with_new(chars).line != line:
            raise ToolFailed(f"Other input reached session {running.number} first; nothing was typed.")
        if chars:
            await running.child.write(chars.encode())
            running.input.delivered(chars)
        if args["signal"]:
            running.child.signal(_SIGNALS[args["signal"]])
        async with shown_live(ctx, {"stdout": running.child.output}, after=running.delivered):
            await running.settle(_seconds(args))
    return await report(sessions, running, args["max_output_tokens"], ctx, notes)


def _seconds(args: dict[str, Any]) -> float:
    asked = args["yield_time_ms"]
    if args["chars"]:
        return (_YIELD_TYPED if asked is None else min(asked, _MOST_YIELD_TYPED)) / 1000
    return (_YIELD_READING if asked is None else asked) / 1000
