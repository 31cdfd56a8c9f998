"""History: the versions a tool has had, listed, brought back and pruned. Also of a tool whose folder is gone.

`undo` writes the version one step back, or a named one, into FORGE_HOME/tools/<name>, whole or not at all;
`remove_tool` takes the folder away. What either replaces becomes a version first: its bytes are in the content store
before the folder moves. Bytes that cannot be a version (a link inside, too large, written at that moment) and a
repository are moved to FORGE_HOME/state/set-aside instead of being deleted. `tools.lock` follows: it forgets a removed
tool and records again the source of files that return. Raises HistoryError for names and versions that are not there,
with what to do next.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from golem_forge.core.decisions import Status
from golem_forge.core.errors import ForgeError
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.text import escape_control_chars
from golem_forge.events.serialization import iso_now
from golem_forge.storage.content_store import ContentStore
from golem_forge.storage.home import ForgeHome
from golem_forge.usertools import folder as staging
from golem_forge.usertools import share
from golem_forge.usertools.diagnostics import SharingError, Unusable
from golem_forge.usertools.folder import FolderFiles, read_folder
from golem_forge.usertools.manifest import MANIFEST_FILE
from golem_forge.usertools.manifest.tool_yaml import read_manifest
from golem_forge.usertools.share import parse_source
from golem_forge.usertools.store import ToolStore
from golem_forge.usertools.store.queries import Author, AuthorKind, VersionRecord

MOST_VERSIONS: Final = 50
_SHORTEST_PREFIX: Final = 6
_SET_ASIDE: Final = ("state", "set-aside")

VersionFiles = Callable[[str], FolderFiles | None]
"""The files of any version still in the store: `Registry.version_files`."""


class HistoryError(ForgeError):
    def __init__(self, message: str, *, status: Status = Status.EXECUTION_FAILED) -> None:
        super().__init__(message, status=status, code="HISTORY")


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionChange:
    digest: str
    """The digest of the version that was restored or removed; empty if its bytes could not be a version."""
    set_aside: Path | None = None
    """The new path of the replaced folder, if it could not be kept as a version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionLogEntry:
    """One version: every digest is one, however often its bytes came back."""

    digest: str
    at: str
    """When these bytes last became the tool's."""
    first_at: str
    author: Author
    restored: int
    """How often they came back, by undo or by hand."""
    trusted: bool
    current: bool
    version: str = ""
    """The version in its tool.yaml; empty if unreadable."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"author": self.author.to_json()}


def version_log(
    store: ToolStore, name: str, current: str = "", version_of: Callable[[str], str] = lambda digest: ""
) -> tuple[VersionLogEntry, ...]:
    """Newest first. `current`: the digest of the folder as it is, empty if it is gone; `version_of`: gives the version
    in the tool.yaml of a digest."""
    by_digest: dict[str, list[VersionRecord]] = {}
    for version in store.versions(name):
        by_digest.setdefault(version.digest, []).append(version)
    trusted = store.all_trusted(name)
    return tuple(
        VersionLogEntry(
            digest=digest,
            at=times[0].at,
            first_at=times[-1].at,
            author=times[-1].author,
            restored=len(times) - 1,
            trusted=digest in trusted,
            current=digest == current,
            version=version_of(digest),
        )
        for digest, times in by_digest.items()
    )


def find_version(store: ToolStore, name: str, wanted: str) -> VersionRecord:
    """The version whose digest is `wanted` or starts with it."""
    return _match_digest(name, store.versions(name), wanted)


def undo(
    *,
    home: ForgeHome,
    store: ToolStore,
    name: str,
    wanted: str = "",
    files_of: VersionFiles,
    agreed: Callable[[str, str], bool] = lambda current, digest: True,
) -> VersionChange:
    """`wanted`: a digest or its first 6 hex digits or more; empty: one step back, and another one each time. Undo is
    itself a version. `agreed`: asked, with the digests of what is there and of what would come back, before anything
    changes."""
    live = _tool_folder(home, name)
    current = _save_current(home, store, name, live)
    version, files = _choose_version(name, store.versions(name), current, wanted, files_of)
    if files.digest == current:
        return VersionChange(digest=current)
    if not agreed(current, files.digest):
        raise HistoryError(f"tool '{name}' was not changed.", status=Status.APPROVAL_DENIED)
    aside = _install_files(home, name, files, replacing=current)
    for digest in (version.digest, files.digest):  # two where an earlier Forge counted what is no part of a tool now
        store.record_version(name, digest, version.author)
    _record_origin(home, name, version, files)
    return VersionChange(digest=files.digest, set_aside=aside)


def remove_tool(*, home: ForgeHome, store: ToolStore, name: str) -> VersionChange:
    """The folder goes; `undo` brings it back. Trust in its exact bytes stays with them."""
    live = _tool_folder(home, name)
    if not os.path.lexists(live):
        raise _tool_not_found(name)
    current = _save_current(home, store, name, live)
    with staging.staging_folder(home) as room:
        try:
            os.rename(live, room / name)
        except OSError as error:
            raise HistoryError(f"tool '{name}' could not be removed: {error.strerror}.") from None
        aside = _set_aside_unless_saved(home, room / name, current)
    store.forget(name)
    with contextlib.suppress(SharingError):  # a lock that cannot be read is left to whoever asks for it
        share.drop_record(home, name)
    return VersionChange(digest=current, set_aside=aside)


def prune_versions(
    store: ToolStore, name: str, remove_snapshot: Callable[[str], object], *, keep: int = MOST_VERSIONS
) -> int:
    """Forgets all but the last `keep` versions and the trusted ones; gives how many.

    Snapshots that nothing else names go first: after a crash in between the rows are still there to try again.
    """
    rows, orphaned = store.prunable_versions(name, keep)
    if not rows:
        return 0
    for digest in orphaned:
        try:
            remove_snapshot(digest)
        except OSError:
            return 0
    store.drop_versions(name, rows)
    return len(rows)


def _tool_folder(home: ForgeHome, name: str) -> Path:
    if not name or "/" in name or "\0" in name or name.startswith("."):
        raise _tool_not_found(name)
    return home.ensure(staging.TOOLS_FOLDER) / name


def _tool_not_found(name: str) -> HistoryError:
    shown = escape_control_chars(name[:100])
    return HistoryError(f"custom tool '{shown}' not found; `forge tools list` shows all.", status=Status.TOOL_NOT_FOUND)


def _save_current(home: ForgeHome, store: ToolStore, name: str, live: Path) -> str:
    """The digest of the folder, which is a version from here on; empty if it is gone or cannot be one."""
    try:
        found = read_folder(live)
    except Unusable:
        return ""
    if not found.files:
        return ""
    try:
        ContentStore(home).put(found.files, executable=found.executable)
    except OSError as error:
        raise HistoryError(f"tool '{name}' was not changed: its files cannot be stored: {error.strerror}.") from None
    store.record_version(name, found.digest)
    if not any(version.digest == found.digest for version in store.versions(name)):
        raise HistoryError(f"tool '{name}' was not changed, because the record of its versions cannot be written.")
    return found.digest


def _choose_version(
    name: str, versions: Sequence[VersionRecord], current: str, wanted: str, files_of: VersionFiles
) -> tuple[VersionRecord, FolderFiles]:
    """The version that is meant, with its files as a folder has them now."""
    if not versions:
        raise _tool_not_found(name)
    if wanted:
        version = _match_digest(name, versions, wanted)
        return version, _kept_files(name, version, files_of)
    for version in reversed(_line_to_present(versions)):
        # Two versions of an earlier Forge may differ only in what is no part of a tool now: that is no step.
        if version.digest != current and (files := _kept_files(name, version, files_of)).digest != current:
            return version, files
    others = any(version.digest != current for version in versions)
    how = f" `forge tools log {name}` lists the others; `forge tools undo {name} DIGEST` goes to one of them."
    raise HistoryError(f"tool '{name}' has no earlier version.{how if others else ''}")


def _kept_files(name: str, version: VersionRecord, files_of: VersionFiles) -> FolderFiles:
    files = files_of(version.digest)
    if files is None or files.digest != version.digest:
        raise HistoryError(
            f"the files of version {short_digest(version.digest)} of tool '{name}' are no longer kept; "
            f"`forge tools log {name}` lists the versions."
        )
    return files.without_ignored()


def _line_to_present(versions: Sequence[VersionRecord]) -> list[VersionRecord]:
    """The versions that led to the present one, oldest first. Bytes that came back, by undo or by hand, take back
    whatever was between: so a second undo is a second step, not the first one undone."""
    line: list[VersionRecord] = []
    for version in reversed(versions):
        at = next((index for index, each in enumerate(line) if each.digest == version.digest), None)
        if at is None:
            line.append(version)
        else:
            del line[at + 1 :]
    return line


def _match_digest(name: str, versions: Sequence[VersionRecord], wanted: str) -> VersionRecord:
    digits = wanted.lower().removeprefix("sha256:")
    if len(digits) < _SHORTEST_PREFIX or set(digits) - set("0123456789abcdef"):
        raise HistoryError(
            f"'{escape_control_chars(wanted[:100])}' is not a version: give at least {_SHORTEST_PREFIX} hex "
            "digits of its digest.",
            status=Status.INPUT_INVALID,
        )
    found = {each.digest: each for each in versions if each.digest.removeprefix("sha256:").startswith(digits)}
    if len(found) == 1:
        return next(iter(found.values()))
    if found:
        several = ", ".join(short_digest(digest, len(digits) + 6) for digest in found)
        raise HistoryError(f"several versions of tool '{name}' start with it: {several}.", status=Status.INPUT_INVALID)
    raise HistoryError(
        f"tool '{name}' has no version {short_digest(digits)}; `forge tools log {name}` lists them.",
        status=Status.INPUT_INVALID,
    )


def _install_files(home: ForgeHome, name: str, files: FolderFiles, *, replacing: str) -> Path | None:
    """The files under the tool's name; gives where the replaced folder is, if its bytes are no version."""
    try:
        with staging.stage_tool(home, name, files) as folder:
            if not os.path.lexists(home.path / staging.TOOLS_FOLDER / name):
                staging.install(home, name, folder)
                return None
            staging.exchange(home, name, folder)
            return _set_aside_unless_saved(home, folder, replacing)
    except (SharingError, OSError) as error:
        why = error.message if isinstance(error, SharingError) else f"{error.strerror}."
        raise HistoryError(f"tool '{name}' was not brought back: {why}") from None


def _set_aside_unless_saved(home: ForgeHome, folder: Path, digest: str) -> Path | None:
    """Moves the folder to a place where nothing deletes it. Returns None if it is exactly the stored version without a
    repository.

    It is read again under its new name, because somebody may have written to it until the last moment.
    """
    with contextlib.suppress(Unusable):
        if digest and read_folder(folder).digest == digest and not staging.has_repository(folder):
            return None
    with contextlib.suppress(OSError):
        os.rmdir(folder)  # an empty folder is nothing to keep
        return None
    aside = home.ensure(*_SET_ASIDE) / f"{folder.name}-{os.urandom(4).hex()}"
    os.rename(folder, aside)
    return aside


def _record_origin(home: ForgeHome, name: str, version: VersionRecord, files: FolderFiles) -> None:
    """`tools.lock` says where the tool's files come from, so it follows files that came by import when they return."""
    if version.author.kind is not AuthorKind.IMPORT or not version.author.source:
        return
    with contextlib.suppress(SharingError, Unusable):
        place = parse_source(version.author.source)
        share.add_record(
            home,
            share.LockRecord(
                name=name,
                source=place.text,
                commit=place.commit,
                digest=files.digest,
                version=read_manifest(files.files.get(MANIFEST_FILE, b""), folder=name).version,
                time=iso_now(),
            ),
        )


def short_digest(digest: str, length: int = 12) -> str:
    return digest.removeprefix("sha256:")[:length]
