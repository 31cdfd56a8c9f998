"""Ending: how a process tree ended, as the outer program's exit status and Forge's own decisions tell it.

Takes a wait status; gives exit code or signal. bwrap and the launcher report a command's death by signal n as exit
code 128+n, which is turned back for the usual fatal signals only: any other such code is the program's own.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from typing import Final

TIMEOUT: Final = "TIMEOUT"
MEMORY_LIMIT: Final = "MEMORY_LIMIT"
PROCESS_LIMIT: Final = "PROCESS_LIMIT"
CPU_LIMIT: Final = "CPU_LIMIT"
OUTPUT_LIMIT: Final = "OUTPUT_LIMIT"
WALLS_CHANGED: Final = "WALLS_CHANGED"
"""Something that walls masked or kept read-only was replaced from outside."""
ENDED: Final = "ENDED"
"""Somebody asked for the end: cancel, session end, a signal tool."""
REASONS: Final = {
    MEMORY_LIMIT: "its memory reached the limit sandbox.limits.memory",
    PROCESS_LIMIT: "its number of processes reached the limit sandbox.limits.processes",
    CPU_LIMIT: "its processor time reached the limit sandbox.limits.cpu_s",
    OUTPUT_LIMIT: "its output reached the limit sandbox.limits.output",
    WALLS_CHANGED: "a guarded file was replaced from outside while it ran",
}
"""Why limits or walls ended it, in words."""

_USUAL = frozenset(
    {
        signal.SIGHUP,
        signal.SIGINT,
        signal.SIGQUIT,
        signal.SIGILL,
        signal.SIGTRAP,
        signal.SIGABRT,
        signal.SIGBUS,
        signal.SIGFPE,
        signal.SIGKILL,
        signal.SIGUSR1,
        signal.SIGSEGV,
        signal.SIGUSR2,
        signal.SIGPIPE,
        signal.SIGALRM,
        signal.SIGTERM,
        signal.SIGXCPU,
        signal.SIGXFSZ,
        signal.SIGSYS,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    exit_code: int | None = None
    """None: ended by a signal, or nobody could tell."""
    signal: int | None = None
    code: str = ""
    """Why Forge ended it; empty: it ended by itself."""
    seconds: float = 0.0
    """From the command's start until nobody of its tree was left."""


def ending_of(status: int | None, *, code: str, seconds: float, cpu_spent: bool) -> Ending:
    """`status` as `waitpid` gives it, None if somebody else took it; `cpu_spent`: a process was seen to have used up
    its CPU time, which is the only trace of the hard limit's KILL."""
    if status is None:
        return Ending(code=code, seconds=seconds)
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status) - 128
    if not os.WIFSIGNALED(status) and number not in _USUAL:
        return Ending(exit_code=os.WEXITSTATUS(status), code=code, seconds=seconds)
    if not code and (number == signal.SIGXCPU or (number == signal.SIGKILL and cpu_spent)):
        code = CPU_LIMIT
    return Ending(signal=number, code=code, seconds=seconds)
