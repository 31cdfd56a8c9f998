"""What every check of the danger list is given, and what it gives back."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

from .lenient import FoundCommand
from .roots import joined
from .scope import Span

_SHOWN = 120


@dataclass(frozen=True, slots=True)
class Danger:
    """`id` is of the danger list or of a builtin rule; `detail` is the command that caused it, cut short."""

    id: str
    detail: str


@dataclass(slots=True)
class Context:
    """The command under check among all others. `here` is the directory that `cd`s before it lead to, `inside` the
    one that its own wrappers (`env -C`) go to from there."""

    is_secret: Callable[[str], bool]
    sources: list[int]  # commands that download or decode, by index
    here: str = ""
    inside: str = ""

    def has_source(self, span: Span) -> bool:
        return bisect_left(self.sources, span[1]) > bisect_left(self.sources, span[0])

    def seen_from_here(self, path: str) -> str:
        return joined(joined(path, self.inside), self.here)


def shown(command: FoundCommand) -> str:
    assigned = [f"{name}={value}" for name, value in command.assignments]
    redirected = [f"{redirect.operator}{redirect.target}" for redirect in command.redirects]
    text = " ".join([*assigned, *command.words[:40], *redirected])
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
