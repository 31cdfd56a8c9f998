"""`/plan`, `/output HANDLE [RANGE]`, `/trace LEVEL`: looking at what there is."""

from __future__ import annotations

import re
from typing import Final

from golem_forge.core.call import Caller, ToolCall
from golem_forge.core.nearest import nearest
from golem_forge.toolsets.plan import Plans
from golem_forge.workers.slash.host import Invocation
from golem_forge.workers.slash.tokens import CommandError

TRACE_LEVELS: Final = ("quiet", "summary", "normal", "debug")
_MARKS: Final = {"completed": "[x]", "in_progress": "[>]", "pending": "[ ]"}
_RANGE: Final = re.compile(r"(?P<first>[1-9][0-9]{0,9})(?:-(?P<last>[1-9][0-9]{0,9}))?")
_MOST_LINES: Final = 2000


async def plan(call: Invocation) -> str:
    path = call.host.path
    steps = path.parts.get(Plans).of(path.worker)
    if not steps:
        return "There is no plan."
    return "\n".join(f"{_MARKS[step['status']]} {step['step']}" for step in steps)


async def output(call: Invocation) -> str:
    """By `read_output`, as every reader of outputs: down the one path."""
    if not 1 <= len(call.args) <= 2:
        raise CommandError("/output HANDLE [FIRST-LAST], for example /output out_0123456789ab 100-180")
    args: dict[str, object] = {"handle": call.args[0]}
    if len(call.args) == 2:
        args |= _lines(call.args[1])
    outcome = await call.host.path.call(ToolCall("read_output", args, Caller.HUMAN))
    if not outcome.ok:
        raise CommandError(outcome.error)
    return ""  # its result was shown as every result is


def _lines(typed: str) -> dict[str, object]:
    match = _RANGE.fullmatch(typed)
    if match is None:
        raise CommandError(f"'{typed}' is no range of lines; write 100 or 100-180")
    first = int(match["first"])
    if match["last"] is None:
        return {"offset": first}
    count = int(match["last"]) - first + 1
    if not 1 <= count <= _MOST_LINES:
        raise CommandError(f"'{typed}': a range has 1 to {_MOST_LINES} lines")
    return {"offset": first, "limit": count}


async def trace(call: Invocation) -> str:
    """How much is drawn is each UI's own business: it hears the same command and changes its level by it."""
    if len(call.args) != 1:
        raise CommandError(f"/trace LEVEL, one of {', '.join(TRACE_LEVELS)}")
    level = call.args[0].lower()
    if level not in TRACE_LEVELS:
        close = nearest(level, TRACE_LEVELS)
        hint = f" (did you mean '{close}'?)" if close else ""
        raise CommandError(f"'{call.args[0]}' is no level{hint}: {', '.join(TRACE_LEVELS)}")
    return f"Trace level: {level}"
