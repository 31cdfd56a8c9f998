"""Ctrl+C twice within two seconds: once stops what runs or clears the line, the second time the person wants out."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

_WITHIN_S: Final = 2.0


class Leaving:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._running_at = self._prompt_at = float("-inf")

    def again_while_running(self) -> bool:
        before, self._running_at = self._running_at, self._clock()
        return self._running_at - before <= _WITHIN_S

    def again_at_prompt(self) -> bool:
        before, self._prompt_at = self._prompt_at, self._clock()
        return self._prompt_at - before <= _WITHIN_S

    def turn_began(self) -> None:
        """Who interrupted the turn before has not asked to leave this one."""
        self._running_at = float("-inf")

    @property
    def hint(self) -> str:
        recent = max(self._running_at, self._prompt_at)
        return "Ctrl+C again exits" if self._clock() - recent <= _WITHIN_S else ""
