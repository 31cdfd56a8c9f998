"""What a person may set about walls, checked and resolved, and what rules say about paths inside them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from golem_forge.config.wall_settings import WallSettings
from golem_forge.core.effects import Verb
from golem_forge.core.verdict import Verdict

__all__ = ["PathRule", "WallSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PathRule:
    """A `path` rule as far as walls care: one that tightens, or one that accepts secrets."""

    matches: Callable[[str], bool]
    """Whether a virtual path (as the program names it) is meant."""
    literal: str
    """The virtual path that stands for all it matches (`/zone/a`, or `/zone/dir` for `/zone/dir/**`); empty if only a
    scan can find what it matches."""
    verdict: Verdict
    access: frozenset[Verb]
    accepts_secret: bool = False
    """A preApproved rule of the person's own that accepts `secret_path`: what it matches is not masked."""
