"""What all looks together come to: tools by name, diagnoses, and what is new since the state before.

A name belongs to one tool: of folders equal ignoring case the first in code-point order has it. A folder that is no
tool takes no name from another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from golem_forge.custom.diagnostic import Code, Diagnostic
from golem_forge.custom.entry import Entry
from golem_forge.custom.registry.listing import MOST_TOOLS, Listing
from golem_forge.custom.registry.scan import Look
from golem_forge.sandbox.tree import shown_name

_MOST_NAMED: Final = 1_000
"""Of the folders past the limit; each says how many there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    entries: Mapping[str, Entry]
    diagnostics: tuple[Diagnostic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Names, in order."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    diagnosed: tuple[str, ...] = ()
    """Folders whose diagnosis came, went or reads differently now."""


def state_of(looks: Mapping[str, Look], listing: Listing) -> State:
    entries: dict[str, Entry] = {}
    diagnostics: list[Diagnostic] = []
    owners: dict[str, str] = {}
    for name in sorted(looks):
        outcome = looks[name].outcome
        if isinstance(outcome, Entry):
            if (owner := owners.setdefault(name.lower(), name)) == name:
                entries[name] = outcome
            else:
                diagnostics.append(name_conflict(name, owner))
        elif outcome is not None:
            diagnostics.append(outcome)
    diagnostics += _too_many(listing.beyond)
    if listing.problem:
        diagnostics.append(
            Diagnostic(tool="", code=Code.UNREADABLE, message=f"the tools folder: cannot be read ({listing.problem})")
        )
    return State(entries=MappingProxyType(entries), diagnostics=tuple(sorted(diagnostics, key=lambda each: each.tool)))


def name_conflict(name: str, owner: str) -> Diagnostic:
    message = f"the folders '{owner}' and '{name}' differ only in case, and '{owner}' comes first; rename one of them"
    return Diagnostic(tool=name, code=Code.NAME_CONFLICT, message=message)


def changes_between(before: State, after: State) -> Changes | None:
    """None if there are none."""
    old, new = before.entries, after.entries
    told, tells = _by_tool(before), _by_tool(after)
    changes = Changes(
        added=tuple(name for name in new if name not in old),
        changed=tuple(name for name in new if name in old and new[name] is not old[name] and new[name] != old[name]),
        removed=tuple(name for name in old if name not in new),
        diagnosed=tuple(name for name in sorted(told.keys() | tells.keys()) if told.get(name) != tells.get(name)),
    )
    return None if changes == Changes() else changes


def _too_many(beyond: tuple[str, ...]) -> list[Diagnostic]:
    message = f"there are more than {MOST_TOOLS:,} folders; the last {len(beyond):,} by name are not loaded"
    return [
        Diagnostic(tool=shown_name(name), code=Code.TOO_MANY_TOOLS, message=message) for name in beyond[:_MOST_NAMED]
    ]


def _by_tool(state: State) -> dict[str, Diagnostic]:
    return {each.tool: each for each in state.diagnostics}
