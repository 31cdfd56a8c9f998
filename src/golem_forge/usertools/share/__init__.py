"""Sharing tools: where an imported tool comes from, and `tools.lock`, which records it.

What comes from elsewhere is data: it is read, bounded, checked and put in place, and no file of it is executed. An
imported tool starts as a draft that nobody trusts. `reader` reads a source, `importer` puts it in place, `export`
writes tools for others.

    ./folder   tool.tar.gz   tool.zip
    git+https://host/repo@<40 hex>#sub/dir     github:owner/repo@<40 hex>/sub/dir
    git+ssh://git@host/repo@<40 hex>#sub/dir   git@host:owner/repo@<40 hex>#sub/dir

`parse_source` refuses (SharingError) a branch, tag or short hash, which may stand for other files tomorrow, and
credentials in an address: it is written to `tools.lock` and shown. A user name is no credential of ssh.

`tools.lock` is JSON, one record a tool, sorted by name. One that cannot be read is an error and never overwritten.
Changes are made under a file lock and replace the file whole. `verify_tools` compares every record with the files that
are there and changes nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.regex import regex
from golem_forge.core.text import display_name
from golem_forge.storage.home import JSON_FILE_ERRORS, ForgeHome, locked, read_json, write_private
from golem_forge.usertools.diagnostics import SharingError, Unusable, quote_name
from golem_forge.usertools.folder import TOOLS_FOLDER, read_folder
from golem_forge.usertools.share.archive import safe_name

TRANSPORTS: Final = frozenset({"https", "ssh"})
COMMIT_ID: Final = regex(r"[0-9a-fA-F]{40}")
_GITHUB_SOURCE: Final = regex(
    r"github:([A-Za-z0-9][A-Za-z0-9-]{0,38})/([A-Za-z0-9._-]{1,100})(?:@([^/]*)(?:/(.*))?)?", re.S
)
_SOURCE_FORMS: Final = (
    "a folder, a .tar.gz, a .zip, git+https://host/repo@COMMIT#sub/dir, git@host:repo@COMMIT#sub/dir or "
    "github:owner/repo@COMMIT/sub/dir"
)
_USER_AND_HOST: Final = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}@[A-Za-z0-9][A-Za-z0-9.-]{0,252}"
_SSH_ADDRESS: Final = regex(rf"{_USER_AND_HOST}:[^-:\s][^\s]*")
"""An address as git and people write it; no part of it can be taken for an option of ssh."""
_SSH_PLACE: Final = regex(rf"(?:[A-Za-z0-9][A-Za-z0-9.-]{{0,252}}|{_USER_AND_HOST})(?::[0-9]{{1,5}})?")


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSource:
    path: Path
    below: str = ""
    """A folder inside it; empty means itself."""
    commit = ""

    @property
    def text(self) -> str:
        return os.fspath(self.path / self.below) if self.below else os.fspath(self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class GitSource:
    url: str
    commit: str
    below: str = ""

    @property
    def text(self) -> str:
        how = "git+" if "://" in self.url else ""
        return f"{how}{self.url}@{self.commit}" + (f"#{self.below}" if self.below else "")

    @property
    def by_ssh(self) -> bool:
        return not self.url.startswith(("https://", "file://"))


Source = LocalSource | GitSource


@dataclass(frozen=True, slots=True, kw_only=True)
class GitAccess:
    """How git reaches a repository."""

    environ: Mapping[str, str] = os.environ
    transports: frozenset[str] = TRANSPORTS
    """Allowed schemes of an address; tests add `file`."""


DEFAULT_GIT_ACCESS: Final = GitAccess()


def parse_source(text: str, *, transports: frozenset[str] = TRANSPORTS) -> Source:
    """`transports`: what a git address may start with besides https and ssh; tests add `file`."""
    if display_name(text) != text or not text.strip():
        raise SharingError(f"{quote_name(text)} is not a source; use {_SOURCE_FORMS}.")
    if text.startswith("github:"):
        return _parse_github(text)
    if _SSH_ADDRESS.fullmatch(text.partition("#")[0]):
        return _parse_ssh(text)
    if re.match(r"[\w.-]+@[^/]*:", text):
        raise SharingError(f"{quote_name(text)}: write it as git@host:owner/repo@COMMIT#sub/dir.")
    if text.startswith("git+"):
        return _parse_git(text[4:], transports)
    if re.match(r"[a-z][a-z0-9+.-]*://", text, re.I):
        raise SharingError(f"{quote_name(text)} is not a source that Forge imports from; use {_SOURCE_FORMS}.")
    return LocalSource(path=Path(os.path.abspath(os.path.expanduser(text))))


def check_commit(commit: str) -> str:
    """The commit id, or SharingError if it is anything less."""
    if not COMMIT_ID.fullmatch(commit):
        given = f", not {quote_name(commit)}" if commit else ""
        raise SharingError(f"pin a full commit id: 40 hexadecimal digits after '@'{given}")
    return commit.lower()


def _parse_github(text: str) -> GitSource:
    match = _GITHUB_SOURCE.fullmatch(text)
    if match is None or match[2] in (".", ".."):
        raise SharingError(f"{quote_name(text)}: write it as github:owner/repo@COMMIT/sub/dir.")
    owner, repository, commit, below = match.groups()
    url = f"https://github.com/{owner}/{repository}"
    return GitSource(url=url, commit=check_commit(commit or ""), below=_check_subfolder(below or ""))


def _parse_git(text: str, transports: frozenset[str]) -> GitSource:
    address, _, below = text.partition("#")
    url, at, commit = address.rpartition("@")
    if not at or "/" not in url.partition("://")[2]:  # no `@` after the host: there is no commit, at most a user name
        url, commit = address, ""
    try:
        parts = urlsplit(url)
    except ValueError:  # half an IPv6 address
        raise _invalid_address(text) from None
    if parts.scheme not in transports | TRANSPORTS:
        used = "git addresses start with git+https:// or git+ssh://"
        raise SharingError(f"{used}; {quote_name(parts.scheme)} is not used.")
    if parts.scheme == "ssh":
        if not _SSH_PLACE.fullmatch(parts.netloc):
            raise _invalid_address(text)
    elif "@" in parts.netloc:
        raise SharingError("Leave user names and tokens out of the address; git's credential helper knows them.")
    if (parts.scheme == "https" and not parts.hostname) or not parts.path.strip("/") or parts.query:
        raise _invalid_address(text)
    return GitSource(url=url, commit=check_commit(commit), below=_check_subfolder(below))


def _parse_ssh(text: str) -> GitSource:
    address, _, below = text.partition("#")
    url, at, commit = address.rpartition("@")
    if not at or ":" not in url:
        url, commit = address, ""
    return GitSource(url=url, commit=check_commit(commit), below=_check_subfolder(below))


def _invalid_address(text: str) -> SharingError:
    return SharingError(f"{quote_name(text)}: write it as git+https://host/repo@COMMIT#sub/dir.")


def _check_subfolder(path: str) -> str:
    path = path.strip("/")
    return safe_name(path) if path else ""


_LOCK_FILE: Final = "tools.lock"
_GUARD_FILE: Final = ".tools.lock.guard"
_MAX_LOCK_BYTES: Final = 32 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LockRecord:
    name: str
    source: str
    """Pinned, as `import` takes it; of a local source its absolute path."""
    commit: str
    """The commit; empty without git."""
    digest: str
    version: str
    time: str


def lock_path(home: ForgeHome) -> Path:
    return home.path / _LOCK_FILE


def read_lock(home: ForgeHome) -> dict[str, LockRecord]:
    """Returns the records by name; empty without a lock file. Raises SharingError."""
    try:
        found = [_parse_record(each) for each in read_json(lock_path(home), _MAX_LOCK_BYTES)["tools"]]
    except FileNotFoundError:
        return {}
    except JSON_FILE_ERRORS:
        shown = home.shown(lock_path(home))
        problem = f"{shown} cannot be read; repair or remove it (tools work without it)."
        raise SharingError(problem) from None
    return {each.name: each for each in sorted(found, key=lambda each: each.name)}


def add_record(home: ForgeHome, entry: LockRecord) -> None:
    """Adds or replaces one tool's record."""
    with _exclusive(home):
        _write_lock(home, read_lock(home) | {entry.name: entry})


def drop_record(home: ForgeHome, name: str) -> bool:
    """Forgets a tool that was removed; False if it had no record."""
    with _exclusive(home):
        present = read_lock(home)
        if present.pop(name, None) is None:
            return False
        _write_lock(home, present)
        return True


def _parse_record(value: Any) -> LockRecord:
    known = {key: value[key] for key in LockRecord.__slots__}
    if not all(isinstance(each, str) for each in known.values()):
        raise ValueError
    return LockRecord(**known)


def _write_lock(home: ForgeHome, records: dict[str, LockRecord]) -> None:
    listed = [{key: getattr(records[name], key) for key in LockRecord.__slots__} for name in sorted(records)]
    text = json.dumps({"tools": listed}, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    write_private(lock_path(home), text.encode())


@contextlib.contextmanager
def _exclusive(home: ForgeHome) -> Iterator[None]:
    """The guard is a file of its own: the lock is replaced by each change."""
    with locked(home.ensure() / _GUARD_FILE, home.shown(lock_path(home))):
        yield


MISSING: Final = "missing"
UNREADABLE: Final = "unreadable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    name: str
    expected: str
    """The digest it was imported with."""
    found: str
    """Its digest now, `missing` or `unreadable`."""

    @property
    def text(self) -> str:
        if self.found in (MISSING, UNREADABLE):
            return f"{self.name}: {self.found}; imported as {self.expected}"
        return f"{self.name}: changed since it was imported: {self.expected} is now {self.found}"


def verify_tools(home: ForgeHome) -> list[Drift]:
    found: list[Drift] = []
    for name, record in read_lock(home).items():
        present = folder_digest(home.path / TOOLS_FOLDER / os.path.basename(name))
        if present != record.digest:
            found.append(Drift(name=name, expected=record.digest, found=present))
    return found


def folder_digest(folder: Path) -> str:
    """`missing` or `unreadable` where there is none."""
    if not folder.is_dir():
        return MISSING
    try:
        return read_folder(folder).digest
    except Unusable:
        return UNREADABLE
