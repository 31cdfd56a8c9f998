"""Folders: all files of one tool folder as bytes, and the digest that names exactly these.

`read_folder` takes a path and gives FolderFiles. Refuses (Unusable): `symlink` for any link, device, pipe or socket at
any depth, `too_large` for more than 200 files or 50 MiB, `unreadable` for what cannot be read or whose name cannot be
shown. Texts name files relative to the folder, never the host's paths.

Threat: whoever wrote the folder may be an enemy who goes on writing while it is read. What is hashed, shown and
stored are the bytes held here; the folder is not asked twice.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Final

from golem_forge.custom.diagnostic import Code, Unusable
from golem_forge.custom.entry import FileFact
from golem_forge.sandbox.store import content_facts, facts_digest
from golem_forge.sandbox.tree import Fault, Limits, Mark, Tree, TreeError, read_tree, shown_name, unsettled

LIMITS: Final = Limits(files=200, total_bytes=50 << 20)

_CODES: Final = {
    Fault.SPECIAL: Code.SYMLINK,
    Fault.LIMIT: Code.TOO_LARGE,
    Fault.UNREADABLE: Code.UNREADABLE,
}


@dataclass(frozen=True)
class FolderFiles:
    files: Mapping[str, bytes]
    """By relative name, with `/`."""
    executable: frozenset[str]
    folders: frozenset[str] = field(default=frozenset(), compare=False)
    """Empty ones too; they are no part of the digest."""

    @cached_property
    def facts(self) -> tuple[FileFact, ...]:
        return tuple(FileFact(*fact) for fact in content_facts(self.files, self.executable))

    @cached_property
    def digest(self) -> str:
        """`sha256:` over the sorted list of (relative path, exec bit, size, SHA-256)."""
        return digest_of(self.facts)


class Lasts(StrEnum):
    """How long what was read can be taken for what is there."""

    WHILE_MARKED = "while every mark is the same"
    MOMENT = "changed in the tick it was read in: a later change may bear the same marks"
    NOT = "could not be read, and may become readable without a new mark (a group, a mount)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What became of one try to read a folder, and how a later look notices that it would come out differently."""

    found: FolderFiles | Unusable
    marks: Mapping[str, Mark]
    """Of each folder and file that was looked at; the folder itself is the empty name."""
    lasts: Lasts


def digest_of(facts: tuple[FileFact, ...]) -> str:
    return facts_digest((fact.path, fact.executable, fact.size, fact.sha256) for fact in facts)


def read_folder(path: Path) -> FolderFiles:
    found = try_folder(path).found
    if isinstance(found, Unusable):
        raise found
    return found


def try_folder(path: Path) -> Reading:
    started = time.time_ns()
    try:
        tree = read_tree(path, LIMITS)
    except TreeError as error:
        problem = Unusable(_CODES[error.fault], error.message)
        lasting = error.fault is not Fault.UNREADABLE and error.marks
        lasts = lasts_since(error.marks.values(), started) if lasting else Lasts.NOT
        return Reading(found=problem, marks=error.marks, lasts=lasts)
    return Reading(found=_named_plainly(tree), marks=tree.marks, lasts=lasts_since(tree.marks.values(), started))


def lasts_since(marks: Iterable[Mark], started: int) -> Lasts:
    return Lasts.MOMENT if unsettled(marks, since=started) else Lasts.WHILE_MARKED


def _named_plainly(tree: Tree) -> FolderFiles | Unusable:
    for name in (*sorted(tree.folders), *tree.files):
        if name != (shown := shown_name(name)):
            return Unusable(Code.UNREADABLE, f"{shown}: the name has characters that cannot be shown; rename it")
    return FolderFiles(tree.files, frozenset(tree.executable), frozenset(tree.folders))
