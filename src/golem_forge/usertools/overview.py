"""What is shown of user tools: details of one, usage of all, versions, the diff between two, and going back.

The data behind `forge tools show | stats | diff | log | undo` and the tools page. Versions work also for a tool whose
folder is gone or no longer a tool. Nothing runs; only `undo_version` changes anything. Both sides of a diff may be a
stranger's: every line is safe to print, and what it cannot show is a warning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from golem_forge.core.errors import ForgeError
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.usertools.diagnostics import Unusable, name_problem
from golem_forge.usertools.expectations import case_name
from golem_forge.usertools.folder import FolderFiles, ToolEntry, read_folder
from golem_forge.usertools.manifest import MANIFEST_FILE, ToolManifest
from golem_forge.usertools.manifest.schema import MAX_MANIFEST_BYTES
from golem_forge.usertools.manifest.tool_yaml import read_manifest
from golem_forge.usertools.store.history import VersionChange, VersionLogEntry, find_version, undo, version_log
from golem_forge.usertools.store.history import short_digest as short_digest
from golem_forge.usertools.store.statistics import ToolStats, ToolTotals, tool_statistics, total_statistics
from golem_forge.usertools.trust import tool_status, tool_statuses
from golem_forge.usertools.trust_card import CardFiles, compare_permissions, permissions, version_manifest
from golem_forge.usertools.workshop import Workshop


def tool_details(workshop: Workshop, entry: ToolEntry) -> dict[str, Any]:
    """Returns the data of `forge tools show` and of the tools page."""
    status, manifest = tool_status(workshop, entry), entry.manifest
    return {
        "folder": workshop.display_folder(entry.name),
        "version": manifest.version,
        "state": status.state.value,
        "skipped": status.why.to_json() if status.why is not None else None,
        "digest": entry.digest,
        "entrypoint": manifest.entrypoint,
        "provenance": workshop.store.provenance(entry.name).to_json(),
        "author": workshop.store.provenance(entry.name).describe(),
        "permissions": {each.label: each.words for each in permissions(manifest)},
        "tests": [case_name(case.name, index) for index, case in enumerate(manifest.tests)],
        "ratings": workshop.store.ratings(entry.name).to_json(),
    }


def usage_overview(workshop: Workshop) -> tuple[ToolTotals, tuple[ToolStats, ...]]:
    """Returns the statistics of every tool that exists or was ever used, by name."""
    entries = workshop.registry.entries
    states = {name: str(status.state) for name, status in tool_statuses(workshop, entries.values()).items()}
    used = {each.name for each in tool_statistics(workshop.store)}
    every = tool_statistics(workshop.store, used | set(entries)) if used or entries else ()
    return total_statistics(workshop.store, states), every


_NO_FILES: Final = FolderFiles({}, frozenset())


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionPair:
    old: FolderFiles
    new: FolderFiles
    before: str
    """The digest of the old one; empty: nothing, no version was ever trusted."""
    after: str
    """The digest of the new one; empty: the folder as it is now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionDiff:
    access: tuple[str, ...]
    """Version and permissions, as far as they differ; without a readable version before, all there are."""
    changes: str
    """Every file that differs, as a unified diff."""
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoResult:
    before: str
    """The digest that was there; empty if that was no version."""
    change: VersionChange


def tool_folder(workshop: Workshop, name: str) -> Path:
    return workshop.home.path / "tools" / name


def is_known_tool(workshop: Workshop, name: str) -> bool:
    """A folder that is broken is as much worth a look at its past as one that is gone."""
    return not name_problem(name) and (tool_folder(workshop, name).is_dir() or bool(workshop.store.versions(name)))


def folder_digest(workshop: Workshop, name: str) -> str:
    """Returns the digest of the present folder; empty if it is gone or unreadable."""
    try:
        return read_folder(tool_folder(workshop, name)).digest
    except Unusable:
        return ""


def list_versions(workshop: Workshop, name: str) -> tuple[VersionLogEntry, ...]:
    """Returns the versions of a tool, newest first."""

    def version_of(digest: str) -> str:
        data = workshop.registry.peek(digest, MANIFEST_FILE, MAX_MANIFEST_BYTES)
        try:
            return read_manifest(data, folder=name).version if data else ""
        except Unusable:
            return ""

    return version_log(workshop.store, name, folder_digest(workshop, name), version_of)


def compare_versions(workshop: Workshop, name: str, digests: Sequence[str]) -> VersionPair:
    """Selects two versions. No digest: the last trusted one and the folder; one: that and the folder; two: the older
    one first. The first digits of a digest are enough. Raises ForgeError.
    """
    wanted = [find_version(workshop.store, name, each).digest for each in digests]
    if len(wanted) == 2:
        new = _version_files(workshop, name, wanted[1])
    elif tool_folder(workshop, name).exists():
        new = read_folder(tool_folder(workshop, name))
    else:
        raise ForgeError(
            f"the folder of '{name}' is gone; compare two versions of `forge tools log {name}`, or bring it back "
            f"with `forge tools undo {name}`."
        )
    first = wanted[0] if wanted else workshop.store.last_trusted(name)
    old = _version_files(workshop, name, first) if first else _NO_FILES
    return VersionPair(old=old, new=new, before=first, after=wanted[1] if len(wanted) == 2 else "")


def diff_versions(name: str, old: FolderFiles, new: FolderFiles) -> VersionDiff:
    before, after = version_manifest(name, old), version_manifest(name, new)
    entrypoint = after.entrypoint if after else before.entrypoint if before else ""
    shown = CardFiles(new, entrypoint, old)
    changes, access = shown.changes(), tuple(_permission_changes(before, after))
    return VersionDiff(access=access, changes=changes, warnings=tuple(shown.warnings))


def undo_version(
    workshop: Workshop, name: str, wanted: str = "", agreed: Callable[[str, str], bool] = lambda current, digest: True
) -> UndoResult:
    """One step back, or to the named version; what is there now stays a version. `agreed`: see `history.undo`. Raises
    ForgeError, OSError."""
    before = folder_digest(workshop, name)
    change = undo(
        home=workshop.home,
        store=workshop.store,
        name=name,
        wanted=wanted,
        files_of=workshop.registry.version_files,
        agreed=agreed,
    )
    if change.digest != before:
        workshop.registry.refresh()
    return UndoResult(before=before, change=change)


def _version_files(workshop: Workshop, name: str, digest: str) -> FolderFiles:
    files = workshop.registry.version_files(digest)
    if files is None:
        raise ForgeError(
            f"the files of version {short_digest(digest)} are no longer kept; `forge tools log {name}` lists "
            "the versions."
        )
    return files


def _permission_changes(before: ToolManifest | None, after: ToolManifest | None) -> list[str]:
    if after is None:
        return []
    if before is None:
        return [f"version: {after.version}", *compare_permissions(None, permissions(after))[0]]
    lines, changed = compare_permissions(permissions(before), permissions(after))
    differing = [line for line in lines if line.partition(":")[0] in changed]
    same = before.version == after.version
    return [*([] if same else [f"version: {before.version} -> {after.version}"]), *differing]
