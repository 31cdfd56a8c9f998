"""Steps: a model's successful calls as mining compares them. Which tool, which arguments, and a mark for each value.

A mark tells whether two values are equal and of what type they are, and nothing else: what is kept of the journals
between sessions holds no argument of anybody.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from golem_forge.core.canonical import digest

HIDDEN: Final = "x"
"""The mark of a value that was taken out of the journal, as a whole or in part: equal to nothing, never shown."""
ABSENT: Final = "z"
"""Of null."""
TYPES: Final = {"s": "string", "i": "integer", "n": "number", "b": "boolean", "a": "array", "o": "object"}
"""First letter of a mark → type; of an array the second letter is the type of its items."""
_OTHER: Final = "o"
_DIGITS: Final = 16
_MOST_ARGUMENTS: Final = 32
_LONGEST_NAME: Final = 128
_DEEPEST: Final = 50
_TAKEN_OUT: Final = re.compile(
    r"\[(?:redacted \d+ chars sha256:[0-9a-f]{8}|secret [^\]]*|unreadable \d+ chars [^\]]*|nested too deep)\]"
)
"""Whatever redaction puts in the place of what it takes out (`events.redaction`, `events.raw_args`)."""

Shape = tuple[str, ...]
"""A tool and its arguments, sorted: what must be equal for two calls to be the same step."""


@dataclass(frozen=True, slots=True)
class Step:
    shape: Shape
    marks: tuple[str, ...]
    """One for each argument, in the order of the shape."""
    at: str
    ms: float
    call: str

    @property
    def tool(self) -> str:
        return self.shape[0]

    def to_json(self) -> list[Any]:
        return [list(self.shape), list(self.marks), self.at, self.ms, self.call]


Segment = tuple[Step, ...]
"""Steps that followed each other in one turn, with nothing between them."""


def step(tool: str, args: Mapping[str, Any], at: str, ms: float, call: str) -> Step | None:
    """None for a call that is too odd to be one of a sequence."""
    names = sorted(args)
    if len(names) > _MOST_ARGUMENTS or any(not name or len(name) > _LONGEST_NAME for name in (tool, *names)):
        return None
    return Step((tool, *names), tuple(mark(args[name]) for name in names), at, ms, call)


def step_from_json(kept: Any) -> Step:
    """The reverse of `to_json`; ValueError or TypeError for anything else."""
    shape, marks, at, ms, call = kept
    found = Step(tuple(map(str, shape)), tuple(map(str, marks)), str(at), float(ms), str(call))
    if not found.shape or len(found.shape) != len(found.marks) + 1 or not all(found.marks):
        raise ValueError("not a step")
    return found


def mark(value: Any) -> str:
    if value is None:
        return ABSENT
    if taken_out(value):
        return HIDDEN
    try:
        return f"{_kind(value)}:{digest(value)[:_DIGITS]}"
    except (ValueError, RecursionError):  # no JSON, so it cannot be compared
        return HIDDEN


def taken_out(value: Any, depth: int = _DEEPEST) -> bool:
    """Whether redaction stood in for any part of it; what is nested too deep to tell counts as that."""
    if isinstance(value, str):
        return "[" in value and _TAKEN_OUT.search(value) is not None
    if isinstance(value, Mapping):
        return depth == 0 or any(taken_out(part, depth - 1) for pair in value.items() for part in pair)
    if isinstance(value, (list, tuple)):
        return depth == 0 or any(taken_out(part, depth - 1) for part in value)
    return False


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "b"
    if isinstance(value, str):
        return "s"
    if isinstance(value, int):
        return "i"
    if isinstance(value, float):
        return "n"
    if isinstance(value, list):
        kinds = {_kind(item) for item in value} or {"s"}
        return f"a{kinds.pop()}" if len(kinds) == 1 and kinds <= {"s", "i", "n", "b"} else _OTHER
    return _OTHER
