"""HeldBack: what a walk through a zone may not look into, because reading it would need a question of its own.

Takes the path that was named and judged, and the rules about paths; answers for everything below it. Held back are
secrets and what a read rule of `ask` or `blocked` speaks of. What the call itself named was asked for, so neither its
own secrecy nor a rule that matched it counts again below it; a rule that speaks only of something deeper still does.
"""

from __future__ import annotations

from collections.abc import Sequence

from golem_forge.core.effects import Mark
from golem_forge.sandbox import protected
from golem_forge.sandbox.target import Target
from golem_forge.sandbox.walls.masking import is_masked
from golem_forge.sandbox.walls.settings import PathRule
from golem_forge.sandbox.zones import Zone


class HeldBack:
    """For one zone, below the named target (or below the whole zone, where `/` was named)."""

    def __init__(self, named: Target, zone: Zone, rules: Sequence[PathRule]) -> None:
        self._zone = zone
        self._start = len(named.parts)
        self._secrets_count = Mark.SECRET_PATH not in named.marks
        answered = set(_spellings(zone, named.parts)) if named.zone else set()
        self._rules = tuple(rule for rule in rules if not any(map(rule.matches, answered)))
        self._known: dict[tuple[str, ...], bool] = {}

    def __call__(self, parts: tuple[str, ...]) -> bool:
        """Whether the path, or a directory between it and the named one, is held back."""
        if len(parts) <= self._start:
            return False
        directory = parts[:-1]
        if directory not in self._known:
            self._known[directory] = self(directory)
        return self._known[directory] or self._itself(parts)

    def _itself(self, parts: tuple[str, ...]) -> bool:
        secret = self._secrets_count and protected.is_secret_name(self._zone.real(parts))
        if not secret and not self._rules:
            return False
        outer, *inner = _spellings(self._zone, parts)
        # A worker whose zone begins deeper cannot rename its way around a rule that asks or blocks.
        return is_masked(outer, secret=secret, rules=self._rules) or any(
            is_masked(name, secret=False, rules=self._rules) for name in inner
        )


def named_is_masked(named: Target, rules: Sequence[PathRule]) -> bool:
    """Whether walls would hide the very path that this call was allowed to read."""
    if named.zone is None:
        return False
    outer = _spellings(named.zone, named.parts)[0]
    return is_masked(outer, secret=Mark.SECRET_PATH in named.marks, rules=rules)


def _spellings(zone: Zone, parts: Sequence[str]) -> list[str]:
    """The path as the program names it and, where this worker's zone begins deeper, as the worker does."""
    outer = zone.virtual((*zone.subpath, *parts))
    return [outer, zone.virtual(parts)] if zone.subpath else [outer]
