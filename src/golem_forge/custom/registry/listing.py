"""The names below FORGE_HOME/tools that may be tools, in order, and whether that list still holds.

Plain files and hidden names are none; of more than 20,000 folders the first by name count. The directory's own times
tell when a name came or went, so an unchanged listing is not read again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from golem_forge.sandbox.tree import Mark, mark_of, unsettled

MOST_TOOLS: Final = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    tools: str
    names: tuple[str, ...] = ()
    """Folders, and links: those that lead to a folder are diagnosed."""
    beyond: tuple[str, ...] = ()
    """Folders past the limit."""
    alike: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """Lower-case name → the names it stands for, where there are several."""
    mark: Mark | None = None
    """None: the directory changes or cannot be read; list it again."""
    problem: str = ""

    @property
    def holds(self) -> bool:
        try:
            return self.mark is not None and mark_of(os.stat(self.tools)) == self.mark
        except OSError:
            return False

    def with_name(self, name: str) -> Listing:
        """The same with a folder that came after the list was made; it is listed anew at the next occasion."""
        return _listing(self.tools, {*self.names, *self.beyond, name}, None)


def list_folders(tools: str) -> Listing:
    started = time.time_ns()
    try:
        mark = mark_of(os.stat(tools))
        with os.scandir(tools) as listing:
            found = {each.name for each in listing if not each.name.startswith(".") and _may_be_folder(each)}
    except OSError as error:
        return Listing(tools=tools, problem=os.strerror(error.errno or 0))
    return _listing(tools, found, None if unsettled((mark,), since=started) else mark)


def _listing(tools: str, found: set[str], mark: Mark | None) -> Listing:
    names = sorted(found)
    spellings: dict[str, list[str]] = {}
    for name in names:
        spellings.setdefault(name.lower(), []).append(name)
    return Listing(
        tools=tools,
        names=tuple(names[:MOST_TOOLS]),
        beyond=tuple(names[MOST_TOOLS:]),
        alike=MappingProxyType({lower: tuple(alike) for lower, alike in spellings.items() if len(alike) > 1}),
        mark=mark,
    )


def _may_be_folder(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir(follow_symlinks=False) or entry.is_symlink()
