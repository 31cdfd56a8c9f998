"""How work with git on the host ends where it cannot go on: in words for the caller, and at once when the call is
cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

from golem_forge.core.decisions import Status
from golem_forge.core.errors import ToolFailed
from golem_forge.sandbox.git.command import GitStopped
from golem_forge.sandbox.git.remotes import RemoteRefused
from golem_forge.tools.threads import run_in_thread

_T = TypeVar("_T")


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    """What cannot be done fails the call, in its own words."""
    try:
        yield
    except RemoteRefused as error:
        raise ToolFailed(str(error), code="REMOTE_REFUSED") from None
    except GitStopped:
        raise ToolFailed("It was interrupted.", status=Status.INTERRUPTED) from None
    except OSError as error:
        raise ToolFailed(f"The repository cannot be read ({os.strerror(error.errno or 0)}).") from None


async def stoppable(work: Callable[[Callable[[], bool]], _T]) -> _T:
    """`work(stopped)` in a thread, which is told to end when the call is cancelled."""
    stop = threading.Event()

    def guarded() -> _T:
        with refusals():
            return work(stop.is_set)

    try:
        return await run_in_thread(guarded)
    except asyncio.CancelledError:
        stop.set()
        raise
