"""A source opened for reading (folder, archive or git commit), and collections of tools.

`open_source` takes a Source; gives a SourceReader for as long as the context lasts. Refuses links on the way to a
folder, and what is neither a folder nor an archive. Nothing is written but a private folder that git fetches into.

A collection is a repository or folder with `forge-tools.json`:

    {"tools": [{"name", "description", "version", "path", "digest"}, …]}

Nothing in the list is trusted: an invalid entry is left out and reported, texts are escaped, and a digest is only ever
a reason to refuse.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, Protocol

from golem_forge.core.decisions import Status
from golem_forge.core.errors import ForgeError
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.regex import regex
from golem_forge.core.text import escape_control_chars, nearest_remark
from golem_forge.storage.home import ForgeHome
from golem_forge.usertools.diagnostics import DiagnosticCode, SharingError, Unusable, name_problem, quote_name
from golem_forge.usertools.folder import FolderFiles, read_folder
from golem_forge.usertools.share import DEFAULT_GIT_ACCESS, GitAccess, GitSource, Source, git, parse_source
from golem_forge.usertools.share.archive import ARCHIVE_SUFFIXES, check_names, read_archive, safe_name


class SourceReader(Protocol):
    def files(self, below: str) -> FolderFiles:
        """All files below a folder (empty: the top), named from there."""
        ...

    def file(self, name: str, limit: int) -> bytes | None:
        """A single file of at most `limit` bytes; None if there is none."""
        ...


class FolderSourceReader:
    def __init__(self, path: Path) -> None:
        self._path = path

    def files(self, below: str) -> FolderFiles:
        found = read_folder(self._inside(below))
        check_names(found.files)
        return found

    def file(self, name: str, limit: int) -> bytes | None:
        try:
            handle = os.open(self._path / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError:
            raise Unusable(DiagnosticCode.SYMLINK, f"{quote_name(name)} cannot be read as a regular file") from None
        with open(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise Unusable(DiagnosticCode.SYMLINK, f"{quote_name(name)} is not a regular file")
            content = file.read(limit + 1)
        if len(content) > limit:
            raise SharingError(f"{quote_name(name)} is larger than {limit >> 10} KiB.")
        return content

    def _inside(self, below: str) -> Path:
        path = self._path
        for part in below.split("/") if below else ():
            path = path / part
            if not path.is_dir() or path.is_symlink():
                raise SharingError(f"There is no folder {quote_name(below)} in it.")
        return path


class ArchiveSourceReader:
    """An archive, whole in memory; the single top folder that most archives have is left away."""

    def __init__(self, files: FolderFiles) -> None:
        self._files = strip_top_folder(files)

    def files(self, below: str) -> FolderFiles:
        found = files_below(self._files, below) if below else self._files
        if not found.files:
            raise SharingError(f"There is no folder {quote_name(below)} in it." if below else "The archive is empty.")
        return found

    def file(self, name: str, limit: int) -> bytes | None:
        content = self._files.files.get(name)
        if content is not None and len(content) > limit:
            raise SharingError(f"{quote_name(name)} is larger than {limit >> 10} KiB.")
        return content


def files_below(files: FolderFiles, folder: str) -> FolderFiles:
    """The files below one folder, named from there."""
    start = f"{folder}/"
    inside = {name.removeprefix(start): content for name, content in files.files.items() if name.startswith(start)}
    marked = frozenset(name.removeprefix(start) for name in files.executable if name.startswith(start))
    return FolderFiles(inside, marked)


def strip_top_folder(files: FolderFiles) -> FolderFiles:
    """A folder that holds nothing but one folder stands for that one."""
    tops = {name.partition("/")[0] for name in files.files}
    single = len(tops) == 1 and all("/" in name for name in files.files)
    return files_below(files, tops.pop()) if single else files


@contextlib.contextmanager
def open_source(source: Source, home: ForgeHome, access: GitAccess = DEFAULT_GIT_ACCESS) -> Iterator[SourceReader]:
    if isinstance(source, GitSource):
        with git.fetch_commit(source, home, access) as commit:
            yield commit
        return
    path = Path(os.path.realpath(source.path))
    if path.is_dir():
        yield FolderSourceReader(path)
    elif path.name.lower().endswith(ARCHIVE_SUFFIXES):
        yield ArchiveSourceReader(read_archive(path))
    else:
        found = "is not a folder, a .tar.gz or a .zip" if path.exists() else "does not exist"
        raise SharingError(f"{quote_name(source.path.name)} {found}.")


INDEX_FILE: Final = "forge-tools.json"
MAX_INDEX_BYTES: Final = 4 << 20
MAX_ENTRIES: Final = 10_000
_MAX_PROBLEMS: Final = 20
_DIGEST: Final = regex(r"sha256:[0-9a-f]{64}")
_LONGEST_FIELDS: Final = {"name": 64, "description": 1024, "version": 64, "path": 1024, "digest": 80}


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionEntry:
    name: str
    description: str
    version: str
    path: str
    digest: str = ""

    def to_json(self) -> dict[str, str]:
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionListing:
    rows: tuple[CollectionEntry, ...]
    """By name."""
    problems: tuple[str, ...] = ()
    """Of entries that were left out."""


def browse_collection(
    source: str, query: str = "", *, home: ForgeHome, access: GitAccess = DEFAULT_GIT_ACCESS
) -> CollectionListing:
    """The tools whose name or description has every word of `query`."""
    place = parse_source(source, transports=access.transports)
    with open_source(place, home, access) as origin:
        listing = read_index(origin, place.below)
    words = query.casefold().split()
    rows = (row for row in listing.rows if all(word in f"{row.name} {row.description}".casefold() for word in words))
    return CollectionListing(rows=tuple(rows), problems=listing.problems)


def find_entry(listing: CollectionListing, name: str) -> CollectionEntry:
    for row in listing.rows:
        if row.name == name:
            return row
    hint = nearest_remark(name, [row.name for row in listing.rows])
    raise SharingError(f"The collection has no tool {quote_name(name)}{hint}.", status=Status.TOOL_NOT_FOUND)


def read_index(origin: SourceReader, below: str = "") -> CollectionListing:
    data = origin.file(f"{below}/{INDEX_FILE}" if below else INDEX_FILE, MAX_INDEX_BYTES)
    if data is None:
        raise SharingError(f"There is no {INDEX_FILE} in it, so it is not a collection.")
    try:
        listed = json.loads(data)["tools"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise SharingError(f'{INDEX_FILE} is not JSON of the form {{"tools": [...]}}.') from None
    if not isinstance(listed, list) or len(listed) > MAX_ENTRIES:
        raise SharingError(f"{INDEX_FILE}: tools: must be a list of at most {MAX_ENTRIES}.")
    rows: dict[str, CollectionEntry] = {}
    problems: list[str] = []
    for at, value in enumerate(listed):
        try:
            row = _parse_entry(value)
            if row.name in rows:
                raise SharingError(f"name: {quote_name(row.name)} is listed twice")
            rows[row.name] = row
        except ForgeError as error:
            problems.append(f"{INDEX_FILE}: tools[{at}]: {error.message}")
    return CollectionListing(rows=tuple(rows[name] for name in sorted(rows)), problems=tuple(problems[:_MAX_PROBLEMS]))


def _parse_entry(value: Any) -> CollectionEntry:
    if not isinstance(value, dict):
        raise SharingError("must be an object")
    texts: dict[str, str] = {}
    for key, longest in _LONGEST_FIELDS.items():
        text = value.get(key, "" if key == "digest" else None)
        if not isinstance(text, str) or len(text) > longest or (not text and key != "digest"):
            raise SharingError(f"{key}: must be text of at most {longest} characters")
        texts[key] = text
    if problem := name_problem(texts["name"]):
        raise SharingError(problem)
    if texts["digest"] and not _DIGEST.fullmatch(texts["digest"]):
        raise SharingError("digest: must be sha256: and 64 hexadecimal digits")
    return CollectionEntry(
        name=texts["name"],
        description=escape_control_chars(" ".join(texts["description"].split())),
        version=escape_control_chars(" ".join(texts["version"].split())),
        path=safe_name(texts["path"].rstrip("/")),
        digest=texts["digest"],
    )
