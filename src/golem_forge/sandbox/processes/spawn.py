"""spawn: starts one program in a session of its own, with exactly the descriptors it is given.

Takes number in the child → descriptor of ours; gives the pid, or raises OSError. Uses posix_spawn, which neither
copies Forge's memory nor runs Python in the child. Threat: a descriptor of Forge's that reaches the child. Python's
own are closed by exec; those that another library made inheritable are closed by name.
"""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Mapping
from typing import Final

_ABOVE_ALL_TARGETS: Final = 100
"""Copies are made here first, so that giving one descriptor its number never overwrites another."""
_DEFAULT_SIGNALS: Final = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
"""Python ignores PIPE and XFSZ; a child must not inherit that."""


def spawn(argv: tuple[str, ...], env: Mapping[str, str], descriptors: Mapping[int, int]) -> int:
    """Call it on the loop's thread only: bwrap dies with the thread that started it."""
    copies: list[int] = []
    actions: list[tuple[int, int] | tuple[int, int, int]] = []
    above = max(_ABOVE_ALL_TARGETS, *descriptors) + 1
    try:
        for number, descriptor in descriptors.items():
            copies.append(fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, above))
            actions.append((os.POSIX_SPAWN_DUP2, copies[-1], number))
        actions += [(os.POSIX_SPAWN_CLOSE, each) for each in _inheritable() if each not in descriptors]
        return os.posix_spawn(
            argv[0], argv, env, file_actions=actions, setsid=True, setsigmask=(), setsigdef=_DEFAULT_SIGNALS
        )
    finally:
        for copy in copies:
            os.close(copy)


def _inheritable() -> list[int]:
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.get_inheritable(int(name)):
                found.append(int(name))
        except OSError:  # the one the listing itself used
            continue
    return found
