"""Sources: where something to import lies, as a person writes it.

    ./folder   tool.tar.gz   tool.zip
    git+https://host/repo@<40 hex>#sub/dir     github:owner/repo@<40 hex>/sub/dir

Gives a LocalSource or a GitSource. Refuses (SharingError) a branch, tag or short hash: those may stand for other files
tomorrow, a commit id cannot. Refuses credentials in an address too: it is written to `tools.lock` and shown.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from golem_forge.custom.sharing.bundle import plain_name
from golem_forge.custom.sharing.refusal import SharingError, quoted
from golem_forge.sandbox.tree import shown_name

HTTPS: Final = frozenset({"https"})
COMMIT: Final = re.compile(r"[0-9a-fA-F]{40}")
_GITHUB: Final = re.compile(
    r"github:([A-Za-z0-9][A-Za-z0-9-]{0,38})/([A-Za-z0-9._-]{1,100})(?:@([^/]*)(?:/(.*))?)?", re.S
)
_FORMS: Final = "a folder, a .tar.gz, a .zip, git+https://host/repo@COMMIT#sub/dir or github:owner/repo@COMMIT/sub/dir"


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSource:
    path: Path
    below: str = ""
    """A folder inside it; empty: itself."""

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
        return f"git+{self.url}@{self.commit}" + (f"#{self.below}" if self.below else "")


Source = LocalSource | GitSource


def parse_source(text: str, *, transports: frozenset[str] = HTTPS) -> Source:
    """`transports`: what a git address may start with besides https; tests add `file`."""
    if shown_name(text) != text or not text.strip():
        raise SharingError(f"{quoted(text)} is no source; use {_FORMS}.")
    if text.startswith("github:"):
        return _github(text)
    if text.startswith("git+"):
        return _git(text[4:], transports)
    if re.match(r"[a-z][a-z0-9+.-]*://", text, re.I):
        raise SharingError(f"{quoted(text)} is no source Forge imports from; use {_FORMS}.")
    return LocalSource(path=Path(os.path.abspath(os.path.expanduser(text))))


def pinned(commit: str) -> str:
    """The commit id, or SharingError if it is anything less."""
    if not COMMIT.fullmatch(commit):
        given = f", not {quoted(commit)}" if commit else ""
        raise SharingError(f"pin a full commit id: 40 hexadecimal digits after '@'{given}")
    return commit.lower()


def _github(text: str) -> GitSource:
    match = _GITHUB.fullmatch(text)
    if match is None or match[2] in (".", ".."):
        raise SharingError(f"{quoted(text)}: write it as github:owner/repo@COMMIT/sub/dir.")
    owner, repository, commit, below = match.groups()
    url = f"https://github.com/{owner}/{repository}"
    return GitSource(url=url, commit=pinned(commit or ""), below=_below(below or ""))


def _git(text: str, transports: frozenset[str]) -> GitSource:
    address, _, below = text.partition("#")
    url, at, commit = address.rpartition("@")
    if not at or "/" not in url.partition("://")[2]:  # no `@` after the host: there is no commit, at most a user name
        url, commit = address, ""
    try:
        parts = urlsplit(url)
    except ValueError:  # half an IPv6 address
        raise _unusable(text) from None
    if parts.scheme not in transports | HTTPS:
        raise SharingError(f"git addresses start with git+https://; {quoted(parts.scheme)} is not used.")
    if "@" in parts.netloc:
        raise SharingError("Leave user names and tokens out of the address; git's credential helper knows them.")
    if (parts.scheme == "https" and not parts.hostname) or not parts.path.strip("/") or parts.query:
        raise _unusable(text)
    return GitSource(url=url, commit=pinned(commit), below=_below(below))


def _unusable(text: str) -> SharingError:
    return SharingError(f"{quoted(text)}: write it as git+https://host/repo@COMMIT#sub/dir.")


def _below(path: str) -> str:
    path = path.strip("/")
    return plain_name(path) if path else ""
