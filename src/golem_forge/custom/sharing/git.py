"""One commit of a git repository, fetched by its id and read as objects.

Takes an address and a commit id; gives the files below one of its folders, or a single file. Refuses links, submodules,
and an object that is not that commit. There is never a work tree: no checkout, so no filter, no hook, no LFS, no
submodule; contents come from `cat-file`, which executes nothing that a repository brings along.

git needs the network, so it runs on the host as the person, with their proxies and credential helpers. Threats: an
address that makes git start a program (only named transports are allowed), a prompt that waits for ever, a repository
or a tree without end (time, file size and output are bounded, and the whole process group ends with us).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from golem_forge.config.home import ForgeHome
from golem_forge.custom.diagnostic import Code, Unusable
from golem_forge.custom.registry.folder import FolderFiles
from golem_forge.custom.sharing.bundle import Bundle, plain_name, too_large
from golem_forge.custom.sharing.git_process import Git, TooMuch
from golem_forge.custom.sharing.refusal import SharingError, quoted
from golem_forge.custom.sharing.sources import COMMIT, HTTPS, GitSource
from golem_forge.custom.sharing.staging import private_folder

_LISTING_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class _Blob:
    name: str
    id: str
    size: int
    executable: bool


class Commit:
    """The fetched commit; its objects are gone when `fetched` is left."""

    def __init__(self, git: Git, commit: str) -> None:
        self._git = git
        self._commit = commit

    def files(self, below: str) -> FolderFiles:
        bundle = Bundle()
        blobs = self._blobs(below)
        for blob in blobs:
            bundle.expect(blob.size)
        for blob, content in zip(blobs, self._contents(blobs), strict=True):
            bundle.add(blob.name, content, executable=blob.executable)
        return bundle.whole()

    def one(self, name: str, limit: int) -> bytes | None:
        """A single file; None if there is none of that name."""
        if self._kind(name) != "blob":
            return None
        listed = self._git.output(["ls-tree", "-z", "-l", self._commit, "--", name], _LISTING_BYTES)
        blobs = _parsed(listed)
        if len(blobs) != 1 or blobs[0].size > limit:
            raise SharingError(f"{quoted(name)} is larger than {limit >> 10} KiB.")
        return self._contents(blobs)[0]

    def _blobs(self, below: str) -> list[_Blob]:
        if below and self._kind(below) != "tree":
            raise SharingError(f"There is no folder {quoted(below)} in that commit.")
        try:
            listed = self._git.output(["ls-tree", "-r", "-z", "-l", f"{self._commit}:{below}"], _LISTING_BYTES)
        except TooMuch:
            raise too_large("a folder with too many files") from None
        return _parsed(listed)

    def _kind(self, name: str) -> str:
        try:
            return (
                self._git.output(["cat-file", "-t", f"{self._commit}:{name}"], 100).decode("ascii", "replace").strip()
            )
        except SharingError:
            return ""

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
                raise SharingError(f"git did not give {quoted(blob.name)}; nothing was taken over.")
            found.append(given[start : at - 1])
        return found


@contextlib.contextmanager
def fetched(
    source: GitSource, *, home: ForgeHome, environ: Mapping[str, str], transports: frozenset[str] = HTTPS
) -> Iterator[Commit]:
    with _repository(home, environ, transports) as git:
        git.output(["fetch", *_QUIET, "--depth=1", "--", source.url, source.commit], _LISTING_BYTES)
        kind = git.output(["cat-file", "-t", source.commit], 100).strip()
        given = git.output(["rev-parse", "--verify", "FETCH_HEAD"], 200).strip()
        if given != source.commit.encode() or kind != b"commit":
            raise SharingError(f"{source.commit} is not a commit of that repository; nothing was taken over.")
        yield Commit(git, source.commit)


def newest(url: str, *, home: ForgeHome, environ: Mapping[str, str], transports: frozenset[str] = HTTPS) -> str:
    """The commit that the repository's default branch stands at now."""
    with _repository(home, environ, transports) as git:
        line = git.output(["ls-remote", "--quiet", "--", url, "HEAD"], _LISTING_BYTES).decode("ascii", "replace")
    commit = line.partition("\t")[0]
    if not COMMIT.fullmatch(commit):
        raise SharingError("That repository has no default branch; name the commit: forge tools update NAME @COMMIT")
    return commit


_QUIET: Final = ("--quiet", "--no-tags", "--no-recurse-submodules")


@contextlib.contextmanager
def _repository(home: ForgeHome, environ: Mapping[str, str], transports: frozenset[str]) -> Iterator[Git]:
    with private_folder(home) as folder:
        git = Git(folder=folder, environ=environ, transports=transports)
        git.output(["init", "--quiet", "--bare", "--template=", "."], _LISTING_BYTES)
        yield git


def _parsed(listed: bytes) -> list[_Blob]:
    found: list[_Blob] = []
    for line in listed.split(b"\0"):
        if not line:
            continue
        facts, _, raw = line.partition(b"\t")
        mode, kind, object_id, size = facts.decode("ascii").split()
        name = plain_name(raw.decode("utf-8", "surrogateescape"))
        if mode == "120000":
            raise Unusable(Code.SYMLINK, f"{quoted(name)} is a link; an import may not contain links")
        if mode == "160000":
            raise SharingError(f"{quoted(name)} is a submodule; an import may not contain submodules.")
        if kind != "blob":
            raise SharingError(f"{quoted(name)} is no file; nothing was taken over.")
        found.append(_Blob(name, object_id, int(size), mode == "100755"))
    return found
