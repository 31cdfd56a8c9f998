"""Leftover: something a command left in a zone that the person's own programs would run or obey.

Found by `sandbox` when a command has ended, carried by the Outcome to the model, the journal and every UI. It is one
line of text on every door; the words never contain a host path.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from golem_forge.core.visible import visible

LEFTOVERS: Final = "leftovers"
"""The code of a `status` event that tells of a command which no call reports on."""
MOST_LINES: Final = 20
_LONGEST_LINE: Final = 2000


class Severity(StrEnum):
    NOTE = "note"
    """Ordinary work, listed because git does not show it: packages installed into `.venv`."""
    WARNING = "warning"
    """Look at it before you run something in this directory."""
    CRITICAL = "critical"
    """Somebody tried to make your programs run code. Forge undid what it could, and the text says what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    kind: str
    """`nested_repository`, `hidden_code`, `obeyed_name`, `git_head`, `git_refs`, `git_index`, `git_sequencer`, …"""
    severity: Severity
    text: str
    """One line for a person and for the model, with virtual paths."""
    paths: tuple[str, ...] = ()
    """The virtual paths it is about; at most 20."""

    def to_wire(self) -> dict[str, Any]:
        return {"kind": self.kind, "severity": self.severity.value, "text": self.text, "paths": list(self.paths)}

    @classmethod
    def from_wire(cls, said: Mapping[str, Any]) -> Leftover:
        """Takes any mapping: a severity that is not known is a warning."""
        severity, paths = said.get("severity"), said.get("paths")
        return cls(
            kind=str(said.get("kind", "")),
            severity=next((one for one in Severity if one == severity), Severity.WARNING),
            text=str(said.get("text", "")),
            paths=tuple(map(str, paths)) if isinstance(paths, (list, tuple)) else (),
        )


@dataclass(frozen=True, slots=True)
class LeftoverLine:
    severity: Severity
    text: str


def leftover_lines(created: Iterable[str], leftovers: Iterable[Leftover]) -> list[LeftoverLine]:
    """What every door shows: the gravest first, at most 20 lines and one that counts the rest. `created`: protected
    names that did not exist before.

    Threat: these texts hold file names that a command chose. Each stays one line without control characters, so that no
    name can look like a line of Forge's own. And a command chooses how many there are: each kind of each severity has
    its first line before any has its second, so that many of one kind push no other out of sight.
    """
    rank = list(Severity)
    turns: Counter[tuple[Severity, str]] = Counter()
    lines: list[tuple[int, LeftoverLine]] = []

    def add(severity: Severity, kind: str, text: str) -> None:
        lines.append((turns[severity, kind], LeftoverLine(severity, text)))
        turns[severity, kind] += 1

    for path in created:
        add(Severity.WARNING, "protected_created", f"Protected file created: {_one_line(path)}")
    for one in leftovers:
        add(one.severity, one.kind, f"Left behind ({one.severity}): {_one_line(one.text)}")
    lines.sort(key=lambda each: -rank.index(each[1].severity))
    shown = sorted(range(len(lines)), key=lambda index: (lines[index][0], index))[:MOST_LINES]
    found = [lines[index][1] for index in sorted(shown)]
    if rest := [lines[index][1] for index in sorted(set(range(len(lines))).difference(shown))]:
        found.append(LeftoverLine(rest[0].severity, f"and {len(rest)} more"))
    return found


def _one_line(text: str) -> str:
    text = visible(text).replace("\n", "\\n").replace("\t", "\\t")
    return text if len(text) <= _LONGEST_LINE else text[: _LONGEST_LINE - 1] + "…"
