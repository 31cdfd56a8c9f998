"""Reading, listing, describing and deleting a judged Target.

Everything works on the handles the target holds, so no name is looked up again except, for a delete, the entry's own
in its own directory. Refuses what is too large or of the wrong kind; gives no text of the operating system.
"""

from __future__ import annotations

import os
import stat as st
from dataclasses import dataclass
from typing import Final

from golem_forge.core.effects import Verb
from golem_forge.sandbox.errors import (
    from_os_error,
    is_a_directory,
    not_a_directory,
    path_changed,
    permission_denied,
    too_large,
)
from golem_forge.sandbox.target import Kind, Target

READ_LIMIT: Final = 64 * 1024 * 1024
LISTING_LIMIT: Final = 10_000
_CHUNK: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Entry:
    name: str
    """As it can be shown: bytes that are no printable text are written `\\xNN`."""
    kind: Kind
    addressable: bool = True
    """False: the name holds control characters or is not UTF-8; tools cannot open it."""


@dataclass(frozen=True, slots=True)
class Info:
    kind: Kind
    size: int
    modified: float
    """Seconds since the epoch, UTC."""
    mode: int
    """Permission bits."""


def read_bytes(target: Target, limit: int = READ_LIMIT) -> bytes:
    """The whole content; TOO_LARGE if it is, or grows, over the limit."""
    target.must_be_file()
    entry = target.entry or target.content()
    assert entry is not None
    if target.unreadable:
        raise permission_denied(target.virtual)
    try:
        size = os.fstat(entry.fd).st_size
        chunks: list[bytes] = []
        done = 0
        while size <= limit and (chunk := os.pread(entry.fd, min(_CHUNK, limit + 1 - done), done)):
            chunks.append(chunk)
            done += len(chunk)
            size = max(size, done)
    except OSError as error:
        raise from_os_error(error, target.virtual) from None
    if size > limit:
        raise too_large(target.virtual, size, limit, "Search it with grep_files, or read a smaller file.")
    return b"".join(chunks)


def list_dir(target: Target, limit: int = LISTING_LIMIT) -> list[Entry]:
    """One level, sorted by name; `/` lists the zones."""
    if target.zone is None:
        return [Entry(name, Kind.DIRECTORY) for name in sorted(target.zones)]
    target.must_exist()
    if target.kind is not Kind.DIRECTORY:
        raise not_a_directory(target.virtual)
    assert target.entry is not None
    if target.unreadable:
        raise permission_denied(target.virtual)
    try:
        with os.scandir(target.entry.fd) as found:
            entries: list[Entry] = []
            for entry in found:
                if target.zone.hides(entry):
                    continue
                if len(entries) == limit:
                    count = limit + 1 + sum(1 for _ in found)
                    raise too_large(target.virtual, count, limit, "Name a directory below it.", unit="entries")
                entries.append(_entry(entry))
    except OSError as error:
        raise from_os_error(error, target.virtual) from None
    return sorted(entries, key=lambda entry: entry.name)


def stat(target: Target) -> Info:
    """What is there now, by the handle that was judged."""
    if target.zone is None:
        return Info(Kind.DIRECTORY, 0, 0.0, 0o555)
    target.must_exist()
    assert target.entry is not None
    assert target.kind is not None
    try:
        info = os.fstat(target.entry.fd)
    except OSError as error:
        raise from_os_error(error, target.virtual) from None
    return Info(target.kind, info.st_size, info.st_mtime, st.S_IMODE(info.st_mode))


def delete(target: Target) -> None:
    """Remove the judged entry (a file, or a link itself) from its judged directory."""
    if target.access is not Verb.DELETE:
        raise ValueError("this target was not judged for delete")
    directory = target.parent  # held: a call that gives up meanwhile closes the target under us
    target.must_be_in_place()
    if directory is None:
        raise path_changed(target.virtual)
    try:
        os.unlink(target.name, dir_fd=directory.fd)
    except IsADirectoryError:
        raise is_a_directory(target.virtual) from None
    except OSError as error:
        raise from_os_error(error, target.virtual) from None


def printable_name(name: str) -> str:
    """A name from disk as text without control characters, and without bytes that are not UTF-8."""
    return "".join(char if _is_text(char) else _escaped(char) for char in name)


def _is_text(char: str) -> bool:
    return not (char < " " or "\x7f" <= char <= "\x9f" or "\ud800" <= char <= "\udfff")


def _escaped(char: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in os.fsencode(char))


def _entry(entry: os.DirEntry[str]) -> Entry:
    if entry.is_symlink():
        kind = Kind.LINK
    elif entry.is_dir(follow_symlinks=False):
        kind = Kind.DIRECTORY
    else:
        kind = Kind.FILE if entry.is_file(follow_symlinks=False) else Kind.OTHER
    name = printable_name(entry.name)
    return Entry(name, kind, name == entry.name)
