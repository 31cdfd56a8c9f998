"""What a caller reads of a command: how long it ran, how it stands, and its output.

Takes how a process ended (or that it did not) and gives the lines and the status. Threat: a limit or a refusal of the
walls that read like an ordinary failure would be repeated by a model for ever, so each says what it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from golem_forge.core.verdict import Status

if TYPE_CHECKING:
    from golem_forge.sandbox.processes.ending import Ending

LIMITS: Final = {
    "MEMORY_LIMIT": "its memory reached the limit sandbox.limits.memory",
    "PROCESS_LIMIT": "its number of processes reached the limit sandbox.limits.processes",
    "CPU_LIMIT": "its processor time reached the limit sandbox.limits.cpu_s",
    "OUTPUT_LIMIT": "its output reached the limit sandbox.limits.output",
    "WALLS_CHANGED": "a guarded file was replaced from outside while the command ran",
}
"""Code of an ending by limits or walls → why, in words."""
TIMED_OUT: Final = "TIMEOUT"
ENDED: Final = "ENDED"


@dataclass(frozen=True, slots=True)
class Standing:
    """How a process stands, in one line, and what that makes of the call."""

    line: str
    status: Status = Status.SUCCESS
    code: str = ""


def standing_of(ending: Ending | None, *, session: int, timeout_s: float) -> Standing:
    if ending is None:
        return Standing(f"Running: session {session}")
    if ending.code == TIMED_OUT:
        return Standing(f"Timed out {after(ending, timeout_s)}", Status.TIMEOUT, TIMED_OUT)
    if ending.code in LIMITS:
        return Standing(limit_line(ending.code), Status.EXECUTION_FAILED, ending.code)
    line = f"Ended by signal: {signal_name(ending.signal)}" if ending.signal else f"Exited: code {ending.exit_code}"
    if ending.signal is None and ending.exit_code is None:
        line = "Ended: how is not known"
    if ending.code == ENDED:
        return Standing(line, Status.INTERRUPTED)
    return Standing(line, Status.SUCCESS if ended_well(ending) else Status.EXECUTION_FAILED)


def ended_well(ending: Ending) -> bool:
    return ending.exit_code == 0 and not ending.code


def after(ending: Ending, timeout_s: float) -> str:
    """`after 1 s`: the call's own limit, or what a shorter one in the settings left it."""
    return f"after {timeout_s if ending.seconds >= timeout_s else round(ending.seconds, 1):g} s"


def limit_line(code: str) -> str:
    return f"Ended: {LIMITS[code]}"


def signal_name(number: int) -> str:
    """`SIGKILL (9)`; a real-time signal has only its number."""
    import signal

    try:
        return f"{signal.Signals(number).name} ({number})"
    except ValueError:
        return f"signal {number}"


def whole_text(seconds: float, standing: Standing, size: int, output: str, *more: str) -> str:
    """`more`: lines for the caller between how it stands and its output."""
    lines = [f"Wall time: {seconds:.3f} s", standing.line, *more, f"Output ({size} bytes):"]
    return "\n".join([*lines, output] if output else lines)
