"""InterruptSignal: one switch that stops a call, a batch or a whole tree of workers at once.

`stop_on_termination` connects the operating system's termination signals of this process to an event loop;
`run_to_exit_code` runs a command whose exit code no late interrupt changes.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from golem_forge.core.lazy_module import asyncio


class InterruptSignal:
    """A flag that is set once and calls its listeners. A listener added later is called immediately."""

    __slots__ = ("_listeners", "reason")

    def __init__(self) -> None:
        self.reason: str | None = None
        self._listeners: dict[int, Callable[[str], object]] = {}

    def __bool__(self) -> bool:
        return self.reason is not None

    @property
    def aborted(self) -> bool:
        """The name that the design documents have for `bool(signal)`."""
        return self.reason is not None

    def interrupt(self, reason: str = "interrupted") -> None:
        if self.reason is None:
            self.reason = reason
            for listener in list(self._listeners.values()):
                listener(reason)

    def reset(self) -> None:
        """Makes the next run a normal one; listeners stay."""
        self.reason = None

    def listen(self, listener: Callable[[str], object]) -> Callable[[], None]:
        """Calls `listener(reason)` when the signal is given; returns a function that stops listening."""
        key = id(listener)
        self._listeners[key] = listener
        if self.reason is not None:
            listener(self.reason)

        def forget() -> None:
            self._listeners.pop(key, None)

        return forget


def create_interrupt_signal() -> InterruptSignal:
    return InterruptSignal()


def termination_signals() -> tuple[signal.Signals, ...]:
    """Returns the signals that end Forge; without SIGHUP if it is ignored, e.g. by `nohup`."""
    stops = (signal.SIGINT, signal.SIGTERM)
    return stops if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (*stops, signal.SIGHUP)


@contextlib.contextmanager
def stop_on_termination(stop: Callable[[], object]) -> Iterator[None]:
    """Runs `stop` on the loop when this process is told to end."""
    loop = asyncio.get_running_loop()
    heard = []
    for number in termination_signals():
        with contextlib.suppress(ValueError, RuntimeError, NotImplementedError):  # not the main thread
            loop.add_signal_handler(number, stop)
            heard.append(number)
    try:
        yield
    finally:
        for number in heard:
            loop.remove_signal_handler(number)


def run_to_exit_code(command: Coroutine[Any, Any, int]) -> int:
    """`asyncio.run` for the coroutine of a command. Once it has its exit code, SIGINT is ignored: an interrupt while
    the process ends changes nothing about a result that is out. `cli.main` restores it for a caller in its process."""

    async def run() -> int:
        code = await command
        try:
            # The loop would restore the default, which raises, when it is closed.
            asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        except KeyboardInterrupt:  # between the two
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        except (ValueError, RuntimeError, NotImplementedError):  # not the main thread
            pass
        return code

    return asyncio.run(run())
