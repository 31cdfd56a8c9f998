"""When a failed connection is tried again: 0.5 s doubling to 30 s, full jitter, five attempts, then a rest.

Full jitter keeps many sessions that lost the same server from coming back in the same moment. Threat: a server that
fails at once must not become a loop that starts processes; whoever is out of attempts waits for `REST`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

FIRST: Final = 0.5
CAP: Final = 30.0
ATTEMPTS: Final = 5
REST: Final = 60.0
"""After giving up, only a use after so many seconds tries again."""


def ceiling(failures: int) -> float:
    """The longest wait after so many failures in a row (from 1)."""
    return min(CAP, FIRST * 2.0 ** min(failures - 1, 16))


@dataclass(slots=True)
class Backoff:
    """The failures in a row of one server."""

    draw: Callable[[], float] = random.random
    failures: int = 0

    def failed(self) -> float | None:
        """Seconds to wait before the next attempt; None: that was the last one."""
        self.failures += 1
        if self.failures >= ATTEMPTS:
            return None
        return self.draw() * ceiling(self.failures)

    def reset(self) -> None:
        self.failures = 0
