"""Runs sync functions off the event loop, in counted daemon threads that can be abandoned.

A thread cannot be killed: when its caller gives up, the call gets its Outcome and the thread is left to finish alone,
outside the pool, without keeping the process alive. Code that must be killable runs in a process.
"""

from __future__ import annotations

import contextlib
import contextvars
import os
import queue
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from golem_forge.core.errors import ForgeError

if TYPE_CHECKING:
    import asyncio

P = ParamSpec("P")
T = TypeVar("T")
MAX_IDLE: Final = 8
MAX_THREADS: Final = 256


class TooManyThreads(RuntimeError):
    """Every thread is busy, or was abandoned by a call that timed out and never returned."""

    stated_name = "TooManyThreads"


class _ToolThread:
    """One daemon thread with a mailbox of its own; parks itself in the pool between jobs."""

    __slots__ = ("_mailbox",)

    def __init__(self) -> None:
        self._mailbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        threading.Thread(target=self._serve, name="forge-tool", daemon=True).start()

    def give(self, job: Callable[[], None]) -> None:
        self._mailbox.put(job)

    def _serve(self) -> None:
        global _alive
        while True:
            self._mailbox.get()()
            with _lock:
                if len(_idle) >= MAX_IDLE:
                    _alive -= 1
                    return
                _idle.append(self)


_lock = threading.Lock()
_idle: list[_ToolThread] = []
_alive = 0


def _forget_threads() -> None:
    """A forked child has none of its parent's threads, whatever the lists say."""
    global _lock, _alive
    _lock = threading.Lock()
    _idle.clear()
    _alive = 0


os.register_at_fork(after_in_child=_forget_threads)


def _take_thread() -> _ToolThread:
    global _alive
    with _lock:
        if _idle:
            return _idle.pop()
        if _alive >= MAX_THREADS:
            raise TooManyThreads(f"{MAX_THREADS} tool threads are busy or stuck; no further sync tool can start")
        _alive += 1
    return _ToolThread()


def run_in_thread(function: Callable[P, T], *args: P.args, **named: P.kwargs) -> asyncio.Future[T]:
    """Calls `function` on a thread; the future can be cancelled at any time, which abandons the thread."""
    from asyncio import get_running_loop

    loop = get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def settle(value: Any, error: BaseException | None) -> None:
        if not future.done():
            if error is None:
                future.set_result(value)
            elif isinstance(error, (StopIteration, GeneratorExit)):  # inside a coroutine these mean something else
                future.set_exception(RuntimeError(f"{type(error).__name__}: {error}"))
            else:
                future.set_exception(error)

    def job() -> None:
        value: Any = None
        failure: BaseException | None = None
        try:
            value = context.run(function, *args, **named)
        except ForgeError as error:
            # An orderly refusal: nobody needs to see where it came from, and its frames hold open directories.
            failure = error.with_traceback(None)
        except BaseException as error:
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, value, failure)
        # The failure's traceback holds this frame; without this they would hold each other, and every handle the
        # failed function had open, until the garbage collector comes by.
        del value, failure

    _take_thread().give(job)
    return future
