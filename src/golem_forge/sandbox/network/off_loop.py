"""Waits for a blocking system call without stopping the event loop, in a daemon thread that can be left behind.

The loop's own executor is not used: its threads are waited for at exit, and a name server that never answers would
keep the whole process alive. The number of threads is bounded; one too many is refused with TooBusy.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

T = TypeVar("T")
MAX_THREADS: Final = 64
_slots = threading.BoundedSemaphore(MAX_THREADS)


class TooBusy(OSError):
    """Every thread waits for a call that has not come back yet."""

    stated_name = "TooBusy"


async def off_the_loop(function: Callable[[], T]) -> T:
    """Cancelling abandons the thread; its result is then dropped."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    if not _slots.acquire(blocking=False):
        raise TooBusy(f"{MAX_THREADS} lookups are waiting already")

    def settle(value: Any, error: BaseException | None) -> None:
        if future.done():
            with contextlib.suppress(AttributeError):  # a socket that nobody waits for any more
                value.close()
        elif error is None:
            future.set_result(value)
        else:
            future.set_exception(error)

    def work() -> None:
        value: Any = None
        failure: BaseException | None = None
        try:
            value = function()
        except BaseException as error:
            failure = error
        finally:
            _slots.release()
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, value, failure)

    try:
        threading.Thread(target=work, name="forge-network", daemon=True).start()
    except RuntimeError:
        _slots.release()
        raise TooBusy("the system allows no further thread") from None
    return await future
