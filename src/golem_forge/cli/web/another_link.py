"""Enter, on the terminal where nothing but a page shows the sessions, prints another link.

Without it, whoever comes after five minutes, or with a second browser, would have to end the server and what it runs.
Only a terminal that is in front is read: a job in the background that reads is stopped by the system.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from typing import Final

_MOST: Final = 4096


def on_enter(show: Callable[[], None]) -> bool:
    """Calls `show` for each line typed, as long as the loop runs. False: there is no terminal to read from."""
    if sys.stdin is None or not sys.stdin.isatty():
        return False
    loop, terminal = asyncio.get_running_loop(), sys.stdin.fileno()

    def typed() -> None:
        if _in_front(terminal) and _read(terminal):
            show()
        else:  # Ctrl-D, a closed window, or another program's keys: it would be called again and again
            loop.remove_reader(terminal)

    loop.add_reader(terminal, typed)
    return True


def _in_front(terminal: int) -> bool:
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:  # not the terminal of this session: nobody is stopped for reading it
        return True


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, _MOST)
    except OSError:
        return b""
