"""What became of a tool's tests, in words: one line a case, values as JSON strings, long ones cut around the first
difference. Threat: what a tool printed goes to a person's terminal and to a model, so it is bounded and cannot steer
either.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from golem_forge.core.visible import visible

SHOWN: Final = 240
"""Characters of a value that are shown whole."""
_BEFORE: Final = 60
_LONGEST_NAME: Final = 100
_MOST_PROBLEMS: Final = 8
_LONGEST_LINE: Final = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    name: str
    ok: bool
    duration_ms: int
    problems: tuple[str, ...] = ()
    stdout: str | None = None
    """What it printed, if it is text and all of it was kept; None otherwise, or if nothing was run."""
    as_expected: bool = False
    """It ended by itself, with the exit code that was expected: what it printed can become the expectation."""

    @property
    def line(self) -> str:
        """`ok greets (12 ms)` or `FAIL greets: …`."""
        if self.ok:
            return f"ok {self.name} ({self.duration_ms} ms)"
        shown = self.problems[:_MOST_PROBLEMS]
        if left := len(self.problems) - len(shown):
            shown = (*shown, f"and {left} more")
        return shortened(f"FAIL {self.name}: {'; '.join(shown)}", _LONGEST_LINE)


def failure_text(tool: str, results: Sequence[CaseResult]) -> str:
    """Of a tool of which at least one case failed."""
    failed = sum(1 for one in results if not one.ok)
    return "\n".join(
        (f"custom tool '{tool}' failed its tests: {failed} of {len(results)}", *(one.line for one in results))
    )


def case_name(name: str, index: int) -> str:
    """`index` counts from 0, people from 1."""
    return shortened(on_one_line(name), _LONGEST_NAME) if name.strip() else f"test {index + 1}"


def quoted(text: str) -> str:
    """A text as a JSON string on one line, its beginning if it is long."""
    return _quoted(text[:SHOWN]) + (f"… ({len(text)} characters)" if len(text) > SHOWN else "")


def expected_got(expected: str, got: str) -> str:
    """`expected "a", got "b"`: two texts that differ."""
    if len(expected) <= SHOWN and len(got) <= SHOWN:
        return f"expected {_quoted(expected)}, got {_quoted(got)}"
    at = first_difference(expected, got)
    return (
        f"expected {_around(expected, at)}, got {_around(got, at)} (first difference at character {at + 1}; "
        f"{len(expected)} and {len(got)} characters)"
    )


def compact(value: Any) -> str:
    """A JSON value on one line, its beginning if it is long."""
    return shortened(on_one_line(json.dumps(value, ensure_ascii=False, separators=(",", ":"))), SHOWN)


def text_of(data: bytes) -> str:
    """Bytes that are no UTF-8 are shown as escapes."""
    return data.decode("utf-8", "backslashreplace")


def first_difference(one: str, other: str) -> int:
    low, high = 0, min(len(one), len(other))
    while low < high:  # by halves: whole slices are compared at once
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def on_one_line(text: str) -> str:
    return visible(text).replace("\n", "\\n").replace("\t", "\\t")


def shortened(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _around(text: str, at: int) -> str:
    start = max(0, at - _BEFORE)
    end = start + SHOWN
    return f"{'…' if start else ''}{_quoted(text[start:end])}{'…' if end < len(text) else ''}"


def _quoted(text: str) -> str:
    return visible(json.dumps(text, ensure_ascii=False))
