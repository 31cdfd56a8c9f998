"""The signals that ask this process to end, and how whatever serves on a loop hears them."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator


def ending_signals() -> tuple[signal.Signals, ...]:
    """Without SIGHUP where somebody (`nohup`) said that it shall outlive its terminal."""
    stops = (signal.SIGINT, signal.SIGTERM)
    return stops if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (*stops, signal.SIGHUP)


@contextlib.contextmanager
def until_signalled(stop: Callable[[], object]) -> Iterator[None]:
    """Runs `stop` on the loop when this process is told to end."""
    import asyncio  # a command that serves nothing does without

    loop = asyncio.get_running_loop()
    heard = []
    for number in ending_signals():
        with contextlib.suppress(ValueError, RuntimeError, NotImplementedError):  # not the main thread
            loop.add_signal_handler(number, stop)
            heard.append(number)
    try:
        yield
    finally:
        for number in heard:
            loop.remove_signal_handler(number)
