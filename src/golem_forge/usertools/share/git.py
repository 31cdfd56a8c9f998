"""One commit of a git repository, fetched by its id and read as objects.

Takes an address and a commit id; gives the files below one of its folders, or a single file. Refuses links,
submodules, and an object that is not that commit. There is never a work tree: no checkout, so no filter, no hook, no
LFS, no submodule; contents come from `cat-file`, which executes nothing that a repository brings along.

git needs the network, so it runs on the host as the person, with their proxies and credential helpers, over ssh with
their ssh and its agent, in a private repository where nothing is configured that could start another program. What
failed or took too long is a SharingError with git's own words, escaped and cut. Threats: an address that makes git
start a program (only named transports are allowed, and no part of one is an option), a prompt that waits for ever, a
repository or a tree without end (time, file size and output are bounded, and the whole process group ends with us).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.sandbox.git import command
from golem_forge.sandbox.git.host_repository import failure_hint
from golem_forge.sandbox.host import safe_path
from golem_forge.storage.home import ForgeHome
from golem_forge.usertools.diagnostics import SharingError, quote_name
from golem_forge.usertools.folder import FolderFiles, staging_folder
from golem_forge.usertools.share import COMMIT_ID, DEFAULT_GIT_ACCESS, GitAccess, GitSource
from golem_forge.usertools.share.archive import Bundle, link_refused, safe_name, too_large

_LISTING_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class _Blob:
    name: str
    id: str
    size: int
    executable: bool


class GitCommit:
    """The fetched commit; its objects are gone when `fetch_commit` is left."""

    def __init__(self, git: GitCommand, commit: str) -> None:
        self._git = git
        self._commit = commit

    def files(self, below: str) -> FolderFiles:
        bundle = Bundle()
        blobs = self._blobs(below)
        for blob in blobs:
            bundle.expect(blob.size)
        for blob, content in zip(blobs, self._contents(blobs), strict=True):
            bundle.add(blob.name, content, executable=blob.executable)
        return bundle.files()

    def file(self, name: str, limit: int) -> bytes | None:
        """A single file; None if there is none of that name."""
        if self._kind(name) != "blob":
            return None
        listed = self._git.output(["ls-tree", "-z", "-l", self._commit, "--", name], _LISTING_BYTES)
        blobs = _parse_tree(listed)
        if len(blobs) != 1 or blobs[0].size > limit:
            raise SharingError(f"{quote_name(name)} is larger than {limit >> 10} KiB.")
        return self._contents(blobs)[0]

    def _blobs(self, below: str) -> list[_Blob]:
        if below and self._kind(below) != "tree":
            raise SharingError(f"There is no folder {quote_name(below)} in that commit.")
        try:
            listed = self._git.output(["ls-tree", "-r", "-z", "-l", f"{self._commit}:{below}"], _LISTING_BYTES)
        except GitOutputTooLarge:
            raise too_large("a folder with too many files") from None
        return _parse_tree(listed)

    def _kind(self, name: str) -> str:
        try:
            found = self._git.output(["cat-file", "-t", f"{self._commit}:{name}"], 100)
        except SharingError:
            return ""
        return found.decode("ascii", "replace").strip()

    def _contents(self, blobs: list[_Blob]) -> list[bytes]:
        asked = "".join(f"{blob.id}\n" for blob in blobs).encode()
        most = sum(blob.size + 100 for blob in blobs)
        given = self._git.output(["cat-file", "--batch"], most, stdin=asked)
        found: list[bytes] = []
        at = 0
        for blob in blobs:
            header = f"{blob.id} blob {blob.size}\n".encode()
            start = at + len(header)
            at = start + blob.size + 1
            if given[start - len(header) : start] != header or len(given) < at:
                raise SharingError(f"git did not give {quote_name(blob.name)}; nothing was imported.")
            found.append(given[start : at - 1])
        return found


@contextlib.contextmanager
def fetch_commit(source: GitSource, home: ForgeHome, access: GitAccess = DEFAULT_GIT_ACCESS) -> Iterator[GitCommit]:
    with _private_repository(home, access, by_ssh=source.by_ssh) as git:
        git.output(["fetch", *_FETCH_FLAGS, "--depth=1", "--", source.url, source.commit], _LISTING_BYTES)
        kind = git.output(["cat-file", "-t", source.commit], 100).strip()
        given = git.output(["rev-parse", "--verify", "FETCH_HEAD"], 200).strip()
        if given != source.commit.encode() or kind != b"commit":
            raise SharingError(f"{source.commit} is not a commit of that repository; nothing was imported.")
        yield GitCommit(git, source.commit)


def newest_commit(url: str, home: ForgeHome, access: GitAccess = DEFAULT_GIT_ACCESS) -> str:
    """The commit that the repository's default branch stands at now."""
    with _private_repository(home, access, by_ssh=GitSource(url=url, commit="").by_ssh) as git:
        line = git.output(["ls-remote", "--quiet", "--", url, "HEAD"], _LISTING_BYTES).decode("ascii", "replace")
    commit = line.partition("\t")[0]
    if not COMMIT_ID.fullmatch(commit):
        raise SharingError("That repository has no default branch; name the commit: forge tools update NAME @COMMIT")
    return commit


_FETCH_FLAGS: Final = ("--quiet", "--no-tags", "--no-recurse-submodules")


@contextlib.contextmanager
def _private_repository(home: ForgeHome, access: GitAccess, *, by_ssh: bool) -> Iterator[GitCommand]:
    with staging_folder(home) as folder:
        git = GitCommand(folder=folder, access=access, by_ssh=by_ssh)
        git.output(["init", "--quiet", "--bare", "--template=", "."], _LISTING_BYTES)
        yield git


def _parse_tree(listed: bytes) -> list[_Blob]:
    found: list[_Blob] = []
    for line in listed.split(b"\0"):
        if not line:
            continue
        facts, _, raw = line.partition(b"\t")
        mode, kind, object_id, size = facts.decode("ascii").split()
        name = safe_name(raw.decode("utf-8", "surrogateescape"))
        if mode == "120000":
            raise link_refused(name)
        if mode == "160000":
            raise SharingError(f"{quote_name(name)} is a submodule; an import may not contain submodules.")
        if kind != "blob":
            raise SharingError(f"{quote_name(name)} is not a file; nothing was imported.")
        found.append(_Blob(name, object_id, int(size), mode == "100755"))
    return found


GIT_SECONDS: Final = 120.0
_SETTINGS: Final = (*command.QUIET_SETTINGS, "core.sshCommand=false")


class GitOutputTooLarge(SharingError):
    """More output than the command may give."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GitCommand:
    folder: Path
    access: GitAccess
    seconds: float = GIT_SECONDS
    by_ssh: bool = False
    """With the person's own ssh, its config and agent, which never ask anything here."""

    def output(self, arguments: Sequence[str], limit: int, *, stdin: bytes = b"") -> bytes:
        own = command.QUIET_SETTINGS if self.by_ssh else _SETTINGS
        settings = [word for setting in own for word in ("-c", setting)]
        limits = command.GitLimits(seconds=self.seconds, output=limit)
        try:
            ran = command.run_git(
                [*settings, *arguments], folder=self.folder, environ=self._environment(), limits=limits, stdin=stdin
            )
        except command.GitMissing:
            raise SharingError("git was not found on this machine; import a folder or an archive instead.") from None
        except command.GitOutputLimit:
            raise GitOutputTooLarge("git sent more data than a tool may have; nothing was imported.") from None
        except command.GitTimeout:
            raise SharingError(f"git did not finish within {self.seconds:g} seconds; nothing was imported.") from None
        if ran.code != 0:
            hint = failure_hint(ran.errors) if self.by_ssh else ""
            raise SharingError(f"git could not do that: {ran.errors or f'exit code {ran.code}'}{hint and f' {hint}'}")
        return ran.output

    def _environment(self) -> dict[str, str]:
        environ = self.access.environ
        names = (*command.NETWORK_VARIABLES, *(command.CREDENTIAL_VARIABLES if self.by_ssh else ()))
        kept = {name: environ[name] for name in names if name in environ}
        return {
            **kept,
            **command.QUIET_ENVIRONMENT,
            "SSH_ASKPASS_REQUIRE": "never",
            "PATH": safe_path(environ.get("PATH", "")),  # credential helpers are looked up there
            "GIT_DIR": os.fspath(self.folder),
            "GIT_ALLOW_PROTOCOL": ":".join(sorted(self.access.transports)),
        }
