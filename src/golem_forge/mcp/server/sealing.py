"""Seals: the state that a client carries between two requests of one call, so that it can neither make nor bend it.

Takes who asks and what for; gives an opaque text that is good for exactly that, for ten minutes and once. The key is
random and lives as long as this process. What a seal stands for stays on our side: the text only names it. A text that
was never sealed here, or was changed since, is refused with `NotSealed`, as the protocol wants it.

Threat: a client that answers for another call, for another client, twice, or after the person has long gone.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from typing import Final, Generic, TypeVar

T = TypeVar("T")
VALID_SECONDS: Final = 600.0
MOST_OPEN: Final = 32
_KEY: Final = secrets.token_bytes(32)


class NotSealed(ValueError):
    """Nobody here gave this out."""


class Seals(Generic[T]):
    """What one client may go on with. `dropped` is told what made room for newer ones."""

    def __init__(self, dropped: Callable[[T], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._open: dict[str, tuple[str, float, T]] = {}
        self._dropped = dropped
        self._clock = clock

    def __len__(self) -> int:
        return len(self._open)

    def seal(self, bound_to: str, kept: T) -> str:
        """`bound_to`: the call, spelled so that another call is spelled otherwise."""
        self._forget_late()
        while len(self._open) >= MOST_OPEN:
            self._dropped(self._open.pop(next(iter(self._open)))[2])
        nonce, until = secrets.token_hex(16), self._clock() + VALID_SECONDS
        self._open[nonce] = (bound_to, until, kept)
        return f"{nonce}.{_mac(nonce)}"

    def open(self, text: str, bound_to: str) -> T | None:
        """What was kept, once; None for a seal of another call or client, a late or a used one, and then nothing is
        used up. Raises NotSealed."""
        self._forget_late()
        nonce, _, mac = text.partition(".")
        if not hmac.compare_digest(_bytes(mac), _bytes(_mac(nonce))):
            raise NotSealed
        found = self._open.get(nonce)
        if found is None or found[0] != bound_to:
            return None
        del self._open[nonce]
        return found[2]

    def take_all(self) -> list[T]:
        """Everything that was still open, which nobody can open any more."""
        taken, self._open = self._open, {}
        return [kept for _, _, kept in taken.values()]

    def _forget_late(self) -> None:
        now = self._clock()
        for nonce in [nonce for nonce, (_, until, _) in self._open.items() if until <= now]:
            self._dropped(self._open.pop(nonce)[2])


def _mac(nonce: str) -> str:
    return hmac.new(_KEY, _bytes(nonce), hashlib.sha256).hexdigest()


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
