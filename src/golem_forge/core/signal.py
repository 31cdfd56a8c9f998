"""InterruptSignal: one switch that stops a call, a batch or a whole tree of workers at once."""

from __future__ import annotations

from collections.abc import Callable


class InterruptSignal:
    """Set once, seen by everyone who listens. A listener added after the signal was given is told at once."""

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
