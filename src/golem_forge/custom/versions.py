"""The versions of one tool: what there is now, what differs between two, and going back. The data behind
`forge tools diff | log | undo` and the history on the tools page.

Also of a tool whose folder is gone or no longer a tool. Nothing runs; only `undone` changes anything. Both sides of a
difference may be a stranger's: every line is safe to show, and what it does not tell is a warning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from golem_forge.core.errors import ForgeError
from golem_forge.custom.book.history import Change, LogRow, log_rows, undo, version_named
from golem_forge.custom.diagnostic import Unusable
from golem_forge.custom.names import name_problem
from golem_forge.custom.registry.folder import FolderFiles, read_folder

if TYPE_CHECKING:
    from golem_forge.custom.manifest import Manifest
    from golem_forge.custom.workshop import Workshop

_DIGITS_SHOWN: Final = 12
_NOTHING: Final = FolderFiles({}, frozenset())


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Two versions of one tool."""

    old: FolderFiles
    new: FolderFiles
    before: str
    """The digest of the old one; empty: nothing, no version was ever trusted."""
    after: str
    """The digest of the new one; empty: the folder as it is now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    reach: tuple[str, ...]
    """Version and permissions, as far as they differ; without a readable version before, all there are."""
    changes: str
    """Every file that differs, as a unified diff."""
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Undone:
    before: str
    """The digest that was there; empty if that was no version."""
    change: Change


def folder_of(shop: Workshop, name: str) -> Path:
    return shop.home.path / "tools" / name


def is_known(shop: Workshop, name: str) -> bool:
    """A folder that is broken is as much worth a look at its past as one that is gone."""
    return not name_problem(name) and (folder_of(shop, name).is_dir() or bool(shop.book.versions(name)))


def digest_now(shop: Workshop, name: str) -> str:
    """Of the folder as it is; empty if it is gone or cannot be read."""
    try:
        return read_folder(folder_of(shop, name)).digest
    except Unusable:
        return ""


def versions(shop: Workshop, name: str) -> tuple[LogRow, ...]:
    """Newest first."""
    return log_rows(shop.book, name, digest_now(shop, name))


def compare(shop: Workshop, name: str, digests: Sequence[str]) -> Compared:
    """No digest: what was trusted last with the folder; one: that with the folder; two: the older one first. The first
    digits of a digest are enough. Raises ForgeError."""
    wanted = [version_named(shop.book, name, each).digest for each in digests]
    if len(wanted) == 2:
        new = _version_files(shop, name, wanted[1])
    elif folder_of(shop, name).exists():
        new = read_folder(folder_of(shop, name))
    else:
        raise ForgeError(
            f"the folder of '{name}' is gone; compare two versions of `forge tools log {name}`, or bring it back "
            f"with `forge tools undo {name}`."
        )
    first = wanted[0] if wanted else shop.book.last_trusted(name)
    old = _version_files(shop, name, first) if first else _NOTHING
    return Compared(old=old, new=new, before=first, after=wanted[1] if len(wanted) == 2 else "")


def difference(name: str, old: FolderFiles, new: FolderFiles) -> Difference:
    from golem_forge.custom.trust.card_files import CardFiles

    before, after = _manifest(name, old), _manifest(name, new)
    entrypoint = after.entrypoint if after else before.entrypoint if before else ""
    shown = CardFiles(new, entrypoint, old)
    changes = shown.changes()
    return Difference(reach=tuple(_reach(before, after)), changes=changes, warnings=tuple(shown.warnings))


def undone(shop: Workshop, name: str, wanted: str = "") -> Undone:
    """Back to the version before, or the named one; what is there now stays a version. Raises ForgeError, OSError."""
    before = digest_now(shop, name)
    change = undo(home=shop.home, book=shop.book, name=name, wanted=wanted, files_of=shop.registry.old_files)
    if change.digest != before:
        shop.registry.refresh()
    return Undone(before=before, change=change)


def short(digest: str) -> str:
    return digest.removeprefix("sha256:")[:_DIGITS_SHOWN]


def _version_files(shop: Workshop, name: str, digest: str) -> FolderFiles:
    files = shop.registry.old_files(digest)
    if files is None:
        raise ForgeError(
            f"the files of version {short(digest)} are no longer kept; `forge tools log {name}` lists the versions."
        )
    return files


def _reach(before: Manifest | None, after: Manifest | None) -> list[str]:
    from golem_forge.custom.trust.permissions import compared, permissions

    if after is None:
        return []
    if before is None:
        return [f"version: {after.version}", *compared(None, permissions(after))[0]]
    lines, changed = compared(permissions(before), permissions(after))
    differing = [line for line in lines if line.partition(":")[0] in changed]
    same = before.version == after.version
    return [*([] if same else [f"version: {before.version} -> {after.version}"]), *differing]


def _manifest(name: str, files: FolderFiles) -> Manifest | None:
    from golem_forge.custom.manifest import MANIFEST
    from golem_forge.custom.manifest.reading import read_manifest

    try:
        return read_manifest(files.files[MANIFEST], folder=name) if MANIFEST in files.files else None
    except Unusable:
        return None
