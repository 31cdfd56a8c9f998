"""Sources of shared tools opened for reading: a folder, an archive, one commit of a git repository, or a collection.

`open_source` takes a Source; gives a SourceReader for as long as the context lasts. Refuses links on the way to a
folder, and what is neither a folder nor an archive. Nothing is written but a private folder that git fetches into.

`fetch_commit` takes an address and a commit id; its GitCommit gives the files below one of the commit's folders, or a
single file. Refuses links, submodules, and an object that is not that commit. There is never a work tree: no checkout,
so no filter, no hook, no LFS, no submodule; contents come from `cat-file`, which executes nothing that a repository
brings along.

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
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, Protocol

from golem_forge.core.decisions import Status
from golem_forge.core.errors import ForgeError
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.regex import regex
from golem_forge.core.text import escape_control_chars, nearest_remark
from golem_forge.sandbox.git import command
from golem_forge.sandbox.git.host_repository import failure_hint
from golem_forge.sandbox.host import safe_path
from golem_forge.storage.home import ForgeHome
from golem_forge.usertools.diagnostics import DiagnosticCode, SharingError, Unusable, name_problem, quote_name
from golem_forge.usertools.folder import FolderFiles, read_folder, staging_folder
from golem_forge.usertools.share import COMMIT_ID, DEFAULT_GIT_ACCESS, GitAccess, GitSource, Source, parse_source
from golem_forge.usertools.share.archive import (
    ARCHIVE_SUFFIXES,
    Bundle,
    check_names,
    link_refused,
    read_archive,
    safe_name,
    too_large,
)

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
    """Raised if a git command gives more output than allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GitCommand:
    """Runs git on the host as the person, because it needs the network: with their proxies and credential helpers, over
    ssh with their ssh and its agent, in a private repository where nothing is configured that could start another
    program. What failed or took too long is a SharingError with git's own words, escaped and cut.

    Threats: an address that makes git start a program (only named transports are allowed, and no part of one is an
    option), a prompt that waits for ever, a repository or a tree without end (time, file size and output are bounded,
    and the whole process group ends with us).
    """

    folder: Path
    access: GitAccess
    seconds: float = GIT_SECONDS
    by_ssh: bool = False
    """Whether it uses the person's own ssh, config and agent, which never prompt here."""

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


class SourceReader(Protocol):
    def files(self, below: str) -> FolderFiles:
        """Returns all files below a folder (empty: the top), with paths relative to it."""
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
        with fetch_commit(source, home, access) as commit:
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
    """The listed tools, by name."""
    problems: tuple[str, ...] = ()
    """Problems of entries that were left out."""


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
