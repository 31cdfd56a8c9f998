"""Git's index, read by Forge itself: which files git tracks, and what a command told git to overlook.

`read_index` understands versions 2, 3 and 4 with SHA-1 and SHA-256 and raises ValueError for anything else.
`compare_indexes` reports what a command hid; `plain_index` returns content that can be taken over. TrackedFiles
applies them to the git directory of a zone. Threat: `git status` believes the index. An entry with the times and
size of a changed file but the object of the old one makes git call that file clean; flags make git skip it; forged
caches at the end hide staged changes and new files.

An entry that claims to be clean (its file has the entry's size and time of modification, so git does not open it)
is reported if the file's content is not what the entry names (as it is, with LF line ends, or as a git-lfs
pointer), unless an attribute that the command did not change gives the file to a configured filter, to `ident` or
to another encoding. Where git itself looks again (the file is as young as the index) nothing is reported. Times of
status change and inodes do not count: a user may have set `core.trustctime` or `core.checkStat`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
import struct
from collections.abc import Callable, Collection, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from golem_forge.core.calls import Leftover, Severity
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.regex import regex
from golem_forge.core.text import escape_control_chars
from golem_forge.sandbox.git.directory import GitDir, Stamp
from golem_forge.sandbox.git.formats import GitSetting, read_config
from golem_forge.sandbox.handles import CONTENT, ENTRY, Handle, Parts, read_regular
from golem_forge.sandbox.protected import GIT_FILE
from golem_forge.sandbox.zones import Zone

LARGEST_INDEX: Final = 256 * 1024 * 1024
SHA1_SIZE: Final = 20
SHA256_SIZE: Final = 32
_HASHES: Final[Mapping[int, Callable[..., hashlib._Hash]]] = {SHA1_SIZE: hashlib.sha1, SHA256_SIZE: hashlib.sha256}
_HEADER: Final = struct.Struct(">4sII")
_STAT: Final = struct.Struct(">10I")
_STAT_SIZE: Final = 40
_U16: Final = struct.Struct(">H")
_U32: Final = struct.Struct(">I")
_ASSUME_VALID: Final = 0x8000
_EXTENDED: Final = 0x4000
_STAGE: Final = 0x3000
_NAME_MASK: Final = 0x0FFF
_SKIP_WORKTREE: Final = 0x4000
_INTENT_TO_ADD: Final = 0x2000
GITLINK: Final = 0o160000
_DIRECTORY: Final = 0o040000
_LINK: Final = 0o120000
_DISTRUSTED: Final = bytes(_STAT_SIZE - 16)
"""Times, device and inode of zero: no file has them, so git reads the file. Its mode comes after."""
_FORGEABLE: Final = {b"UNTR": "a cache of untracked files", b"FSMN": "a list of files that need no look"}

_MOST_FILES: Final = 2_000
"""About 0.2 s. Of what is not compared, git reads the files itself."""
_MOST_BYTES: Final = 256 * 1024 * 1024
_MOST_NAMED: Final = 8
_MOST_PATHS: Final = 20
_ATTRIBUTES: Final = ".gitattributes"
_LARGEST_ATTRIBUTES: Final = 256 * 1024
_POINTER: Final = "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize {}\n"


class IndexEntry(NamedTuple):
    path: bytes
    stat: bytes
    """As it stands in the file: ctime, mtime (each seconds and nanoseconds), device, inode, mode, uid, gid, size."""
    object_id: bytes
    flags: int
    extended: int

    @property
    def fields(self) -> tuple[int, ...]:
        return _STAT.unpack(self.stat)

    @property
    def mode(self) -> int:
        return self.fields[6]

    @property
    def size(self) -> int:
        return self.fields[9]

    @property
    def mtime(self) -> tuple[int, int]:
        return self.fields[2], self.fields[3]

    @property
    def ctime(self) -> tuple[int, int]:
        return self.fields[0], self.fields[1]

    @property
    def inode(self) -> int:
        return self.fields[5]

    @property
    def stage(self) -> int:
        return (self.flags >> 12) & 3

    @property
    def assume_valid(self) -> bool:
        return bool(self.flags & _ASSUME_VALID)

    @property
    def skip_worktree(self) -> bool:
        return bool(self.extended & _SKIP_WORKTREE)

    @property
    def intent_to_add(self) -> bool:
        return bool(self.extended & _INTENT_TO_ADD)

    @property
    def overlooked(self) -> bool:
        return self.assume_valid or self.skip_worktree


@dataclass(frozen=True, slots=True)
class IndexFile:
    version: int
    entries: tuple[IndexEntry, ...]
    hash_size: int
    extensions: tuple[bytes, ...] = ()
    """Their signatures, in order."""
    mtime: int = 0
    """Of the file, in seconds, as git will see it; 0: later than that of every entry."""

    @property
    def split(self) -> bool:
        """Most entries are in another file."""
        return b"link" in self.extensions

    @property
    def sparse(self) -> bool:
        """Some entries are whole directories."""
        return b"sdir" in self.extensions

    def gitlinks(self) -> tuple[Parts, ...]:
        """Directories that git enters as repositories of their own."""
        mode = _U32.pack(GITLINK)
        return tuple(_parts(entry[0]) for entry in self.entries if entry[1][24:28] == mode)


def read_index(data: bytes, *, hash_size: int = SHA1_SIZE, mtime: int = 0) -> IndexFile:
    """The entries of an index. The checksum is not asked for: git does not, either. Raises ValueError."""
    entries, at = _entries(data, hash_size)
    names = tuple(name for name, _, _ in _extensions(data, at, hash_size))
    return IndexFile(_HEADER.unpack_from(data)[1], tuple(entries), hash_size, names, mtime)


def plain_index(data: bytes, *, hash_size: int = SHA1_SIZE, distrusted: Collection[bytes] = ()) -> bytes:
    """The same entries in a file without what git only uses to save work: caches, which may be forged, are left out,
    and of `distrusted` paths the times, so that git reads those files again. Raises ValueError, also where entries are
    kept elsewhere (a split index): nobody could say what is in it."""
    starts: list[int] = []
    entries, at = _entries(data, hash_size, starts)
    kept = [bytearray(data[:at])]
    for name, begin, end in _extensions(data, at, hash_size):
        if name == b"link":
            raise ValueError("a split index")
        if not name[:1].isupper():  # git refuses an index without those that it must understand
            kept.append(bytearray(data[begin:end]))
    if distrusted:
        wanted = frozenset(distrusted)
        for entry, start in zip(entries, starts, strict=True):
            if entry.path in wanted:
                kept[0][start : start + len(_DISTRUSTED)] = _DISTRUSTED
    content = b"".join(kept)
    return content + _HASHES[hash_size](content, usedforsecurity=False).digest()


def _entries(data: bytes, hash_size: int, starts: list[int] | None = None) -> tuple[list[IndexEntry], int]:
    """And where they end. 50,000 take about 90 ms: nothing but slices is made of them here."""
    if len(data) > LARGEST_INDEX or len(data) < _HEADER.size + hash_size or hash_size not in _HASHES:
        raise ValueError("not the size of an index")
    signature, version, count = _HEADER.unpack_from(data)
    end = len(data) - hash_size
    fixed = _STAT_SIZE + hash_size + 2
    if signature != b"DIRC" or version not in (2, 3, 4) or count * (fixed + 1) > end:
        raise ValueError("not an index of a known version")
    found: list[IndexEntry] = []
    at = _HEADER.size
    before = b""
    unfolded = 0
    read, find, make = struct.Struct(f">{_STAT_SIZE}s{hash_size}sH").unpack_from, data.find, tuple.__new__
    try:
        for _ in range(count):
            times, object_id, flags = read(data, at)
            extended = 0
            name_at = at + fixed
            if flags & _EXTENDED:
                if version == 2:
                    raise ValueError("extended flags in version 2")
                extended = _U16.unpack_from(data, name_at)[0]
                name_at += 2
            if version == 4:
                strip = data[name_at]
                name_at += 1
                if strip & 0x80:
                    strip, name_at = _varint(data, name_at - 1, end)
                if strip > len(before):
                    raise ValueError("a name of negative length")
                stop = find(b"\0", name_at, end)
                path = before[: len(before) - strip] + data[name_at:stop]
                following = stop + 1
                unfolded += len(path)
                if unfolded > LARGEST_INDEX:
                    raise ValueError("names that would fill the memory")
            else:
                length = flags & _NAME_MASK
                stop = find(b"\0", name_at, end) if length == _NAME_MASK else name_at + length
                path = data[name_at:stop]
                following = at + ((stop - at + 8) & ~7)
            if stop < 0 or following > end:  # the name of an entry of a split index may be empty
                raise ValueError("an entry that does not end")
            found.append(make(IndexEntry, (path, times, object_id, flags, extended)))
            if starts is not None:
                starts.append(at)
            before = path
            at = following
    except (struct.error, IndexError):
        raise ValueError("an entry that does not end") from None
    return found, at


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """As in a pack: seven bits a byte, each further one counted from one on."""
    value = -1
    while at < end and value < 1 << 20:
        byte = data[at]
        at += 1
        value = ((value + 1) << 7) | (byte & 0x7F)
        if not byte & 0x80:
            return value, at
    raise ValueError("a number that does not end")


def _extensions(data: bytes, at: int, hash_size: int) -> Iterator[tuple[bytes, int, int]]:
    end = len(data) - hash_size
    while at + 8 <= end:
        size = _U32.unpack_from(data, at + 4)[0]
        if at + 8 + size > end:
            raise ValueError("an extension that does not end")
        yield data[at : at + 4], at, at + 8 + size
        at += 8 + size
    if at != end:
        raise ValueError("something between the extensions and the checksum")


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversions:
    """What changes a file's content on its way into an object."""

    filters: frozenset[str] = frozenset()
    """Names that git's config gives a `clean` or `process` program."""
    attributes: tuple[str, ...] = ()
    """Texts of attribute files outside of the work tree: `info/attributes`, `core.attributesFile`."""


@dataclass(frozen=True, slots=True)
class IndexComparison:
    leftovers: tuple[Leftover, ...] = ()
    distrusted: frozenset[bytes] = frozenset()
    """Paths whose entries claim to be clean while they are not, or were not compared: see `plain_index`."""


_FORGED: Final = "Git's index says that these files are unchanged, and they are not, so `git status` did not show it"
_COVERED: Final = "Git was told not to look at these files (skip-worktree or assume-unchanged), and they are changed"
_CHANGED: Final = (
    "These files changed, and `git status` does not show it, because git was told not to look at them before"
)
_OVERLOOKED: Final = "Git was told not to look at these files any more (skip-worktree or assume-unchanged)"
_UNREAD: Final = "Too many entries of git's index changed to compare each with its file; git will read these again"
_HIDDEN: Final = {
    **dict.fromkeys((_FORGED, _COVERED), Severity.CRITICAL),
    **dict.fromkeys((_CHANGED, _OVERLOOKED), Severity.WARNING),
    _UNREAD: Severity.NOTE,
}
"""How files are hidden from `git status`, in words, and how grave that is."""


def compare_indexes(
    before: IndexFile | None,
    after: IndexFile,
    zone: Zone,
    *,
    changed: Collection[Parts] = frozenset(),
    conversions: Conversions | None = None,
) -> IndexComparison:
    """What a command hid from `git status` in the work tree that begins at the zone's root. `changed`: paths that it
    made or changed. Files are read only for entries that are new or other than before, and for `changed`."""
    known = {entry.path: entry for entry in before.entries if not entry.flags & _STAGE} if before is not None else {}
    touched = {b"/".join(map(os.fsencode, parts)) for parts in changed}
    worktree = _WorkTree(zone, after.hash_size, conversions or Conversions(), touched)
    hidden: dict[str, list[bytes]] = {text: [] for text in _HIDDEN}
    for entry in [one for one in after.entries if known.get(one[0]) != one or one[0] in touched]:
        old = known.get(entry.path)
        if entry.mode in (GITLINK, _DIRECTORY) or entry.flags & _STAGE:
            continue
        if entry.overlooked:
            newly = old is None or not old.overlooked
            matches = worktree.holds(entry, whatever_its_times=True)
            if newly:
                hidden[_COVERED if matches is False else _OVERLOOKED].append(entry.path)
            elif matches is False and entry.path in worktree.touched:
                hidden[_CHANGED].append(entry.path)
        elif not entry.intent_to_add and not (after.mtime and after.mtime <= entry.mtime[0]):
            matches = worktree.holds(entry)
            if not matches:
                hidden[_UNREAD if matches is None else _FORGED].append(entry.path)
    told = [*_index_leftovers(hidden, zone), *_extension_leftovers(before, after, zone)]
    return IndexComparison(tuple(told), frozenset((*hidden[_FORGED], *hidden[_UNREAD], *worktree.converted)))


class _WorkTree:
    def __init__(self, zone: Zone, hash_size: int, conversions: Conversions, touched: Collection[bytes]) -> None:
        self._zone = zone
        self._hash = _HASHES[hash_size]
        self._conversions = conversions
        self.touched = touched
        self._files = _MOST_FILES
        self._bytes = _MOST_BYTES
        self._attributes: dict[Parts, list[tuple[str, Parts]]] = {}
        self.converted: set[bytes] = set()
        """What an attribute may explain. A command may have written that attribute too, so git reads these again."""
        self._empty = self._blob(b"")

    def holds(self, entry: IndexEntry, *, whatever_its_times: bool = False) -> bool | None:
        """Whether the file is what the entry names, as far as git would not look by itself; None: too many to read."""
        parts = _parts(entry.path)
        if self._files <= 0:
            return None
        try:
            file = self._zone.open(parts, ENTRY)
            info = os.fstat(file.fd)
            if stat.S_IFMT(info.st_mode) != stat.S_IFMT(entry.mode):
                return not whatever_its_times  # git sees another kind of file by itself
            if not whatever_its_times and not self._claims(entry, info):
                return True
            if info.st_size > self._bytes:
                return None
            self._files -= 1
            self._bytes -= info.st_size
            content = self._content(file, parts, info)
        except (OSError, ValueError):
            return True  # it is gone, or nobody can read it: git says so
        if self._is(entry, content):
            return True
        if not self._is_converted(parts):
            return False
        self.converted.add(entry.path)
        return True

    def _claims(self, entry: IndexEntry, info: os.stat_result) -> bool:
        """Whether git would take the file for unchanged without opening it."""
        if entry.size == 0 and entry.object_id != self._empty:  # git's own mark of an entry that needs a look
            return False
        return entry.size == info.st_size & 0xFFFFFFFF and entry.mtime[0] == int(info.st_mtime) & 0xFFFFFFFF

    def _content(self, file: Handle, parts: Parts, info: os.stat_result) -> bytes:
        if stat.S_ISLNK(info.st_mode):
            return os.fsencode(os.readlink("", dir_fd=file.fd))
        content = self._zone.open(parts, CONTENT)
        if (found := read_regular(content.fd, info.st_size + 1)) is None:
            raise ValueError("no longer a regular file")
        return found

    def _is(self, entry: IndexEntry, content: bytes) -> bool:
        if self._blob(content) == entry.object_id:
            return True
        if b"\r\n" in content and self._blob(content.replace(b"\r\n", b"\n")) == entry.object_id:
            return True
        pointer = _POINTER.format(hashlib.sha256(content).hexdigest(), len(content)).encode()
        return stat.S_ISREG(entry.mode) and self._blob(pointer) == entry.object_id

    def _blob(self, content: bytes) -> bytes:
        made = self._hash(b"blob %d\0" % len(content), usedforsecurity=False)
        made.update(content)
        return made.digest()

    def _is_converted(self, parts: Parts) -> bool:
        """Whether a filter, `ident` or an encoding stands between the file and its object. Patterns are taken
        generously. An attribute file that the command itself changed says nothing."""
        files = [(depth, self._attributes_of(parts[:depth])) for depth in range(len(parts))]
        files += [(0, list(_attribute_lines(text))) for text in self._conversions.attributes]
        for depth, lines in files:
            for pattern, attributes in lines:
                name = "/".join(parts[depth:]) if "/" in pattern else parts[-1]
                if self._convert(attributes) and fnmatchcase(name, pattern.lstrip("/").replace("**/", "*")):
                    return True
        return False

    def _convert(self, attributes: Parts) -> bool:
        for attribute in attributes:
            name, _, value = attribute.partition("=")
            if name in ("ident", "working-tree-encoding") or (name == "filter" and value in self._conversions.filters):
                return True
        return False

    def _attributes_of(self, here: Parts) -> list[tuple[str, Parts]]:
        if here not in self._attributes:
            lines: list[tuple[str, Parts]] = []
            place = (*here, _ATTRIBUTES)
            if b"/".join(map(os.fsencode, place)) not in self.touched:
                with contextlib.suppress(OSError):
                    file = self._zone.open(place, CONTENT)
                    text = read_regular(file.fd, _LARGEST_ATTRIBUTES) or b""
                    lines = list(_attribute_lines(text.decode("utf-8", "surrogateescape")))
            self._attributes[here] = lines
        return self._attributes[here]


def _attribute_lines(text: str) -> Iterator[tuple[str, Parts]]:
    for line in text.splitlines():
        words = line.split()
        if len(words) > 1 and not words[0].startswith(("#", "[attr]")):
            yield words[0].strip('"'), tuple(words[1:])


def _index_leftovers(hidden: dict[str, list[bytes]], zone: Zone) -> Iterator[Leftover]:
    for text, paths in hidden.items():
        if paths:
            shown = [zone.virtual(_parts(path)) for path in paths[:_MOST_PATHS]]
            names = ", ".join(escape_control_chars(path).replace("\n", "\\n") for path in shown[:_MOST_NAMED])
            more = f" and {len(paths) - _MOST_NAMED} more" if len(paths) > _MOST_NAMED else ""
            yield Leftover(kind="git_index", severity=_HIDDEN[text], text=f"{text}: {names}{more}.", paths=tuple(shown))


def _extension_leftovers(before: IndexFile | None, after: IndexFile, zone: Zone) -> Iterator[Leftover]:
    old = before.extensions if before is not None else ()
    where = zone.virtual((".git", "index"))
    if after.split and b"link" not in old:
        text = "Git's index was split into two files, and what it hides from `git status` is not known"
        yield Leftover(kind="git_index", severity=Severity.WARNING, text=f"{text}: {where}.", paths=(where,))
    for name, what in _FORGEABLE.items():
        if name in after.extensions and name not in old:
            text = f"Git's index has {what} that it did not have before; `git status` believes it: {where}."
            yield Leftover(kind="git_index", severity=Severity.WARNING, text=text, paths=(where,))


def _parts(path: bytes) -> Parts:
    return tuple(os.fsdecode(path).split("/"))


_INDEX_NAME: Final = "index"
_ODD_PATH: Final = regex(rb"(?:^|/)(?:\.\.?|\.git)?(?:/|$)|\x00", re.IGNORECASE)
"""Git refuses such paths when it adds them, not when it finds them in an index."""
_NS: Final = 1_000_000_000


class TrackedFiles:
    def __init__(self, zone: Zone) -> None:
        self._zone = zone
        self._real = GitDir(zone.root.fd, zone.opener, (GIT_FILE,))
        self._known: tuple[Stamp | None, IndexFile | None] = (None, None)
        self._changed: Collection[Parts] = ()
        self._compared = False
        self._gitlinks: set[Parts] = set()
        self.leftovers: list[Leftover] = []

    def begin(self, changed: Collection[Parts]) -> None:
        """`changed`: what a command made or changed in the zone, for all that follows until `finish`."""
        self._changed, self._compared = changed, False

    def judged(self, name: str, theirs: bytes | None, ours: bytes) -> tuple[bytes, str]:
        """What of an index that a command wrote is taken over, or why nothing is. Caches in it are left out, and what
        it hides is told; files are compared with the entries of the zone's own work tree only."""
        shown = self._zone.virtual((GIT_FILE, name))
        refused = f"The command wrote {shown} so that it cannot be judged ({{}}); the old one stays."
        size = self._hash_size()
        try:
            after = read_index(ours, hash_size=size)
            before = read_index(theirs, hash_size=size) if theirs is not None else None
            if after.split:  # entries in it have no names
                if before is None or not before.split:
                    return ours, refused.format("a split index")
                text = f"{shown} is split: what a command hides in it is not seen. Join it by `git update-index"
                text += " --no-split-index`."
                self.leftovers.append(Leftover(kind="git_index", severity=Severity.WARNING, text=text))
                return ours, ""
            if any(_ODD_PATH.search(entry.path.removesuffix(b"/")) for entry in after.entries):
                return ours, refused.format("it names paths outside of the work tree or in .git")
            distrusted: Collection[bytes] = ()
            if name == _INDEX_NAME:
                known = set(before.gitlinks()) if before is not None else set()
                self._gitlinks |= set(after.gitlinks()) - known
                distrusted = self._compare(before, after)
            return plain_index(ours, hash_size=size, distrusted=distrusted), ""
        except ValueError as error:
            return ours, refused.format(error)

    def finish(self) -> None:
        """Tell of changed files that git was told not to look at, where the index itself did not change."""
        if self._changed and not self._compared and (index := self._index()) is not None and not index.split:
            self._compare(index, index)
        self._changed = ()

    def new_gitlinks(self) -> tuple[Parts, ...]:
        """Directories that commands added to the index as repositories of their own, since somebody last asked."""
        found, self._gitlinks = tuple(self._gitlinks), set()
        return found

    def includes(self) -> Callable[[Parts], bool]:
        """Whether git tracks a path of the zone."""
        index = self._index()
        paths = {entry.path for entry in index.entries} if index is not None else set()
        return lambda parts: os.fsencode("/".join(parts)) in paths

    def _compare(self, before: IndexFile | None, after: IndexFile) -> Collection[bytes]:
        compared = compare_indexes(before, after, self._zone, changed=self._changed, conversions=self._conversions())
        self.leftovers += compared.leftovers
        self._compared = True
        return compared.distrusted

    def _index(self) -> IndexFile | None:
        """The person's own, read again when it is another one."""
        stamp = self._real.stamp(_INDEX_NAME)
        if self._known[0] != stamp:
            try:
                content = self._real.read(_INDEX_NAME) if stamp is not None else None
                found = None
                if content is not None and stamp is not None:
                    found = read_index(content, hash_size=self._hash_size(), mtime=stamp[2] // _NS)
            except ValueError:
                found = None
            self._known = (stamp, found)
        return self._known[1]

    def _hash_size(self) -> int:
        return SHA256_SIZE if config_value(self._real, "extensions.objectformat") == "sha256" else SHA1_SIZE

    def _conversions(self) -> Conversions:
        """What the person's repository does to content on its way in."""
        settings = _settings(self._real)
        names = {one.subsection for one in settings if one.section == "filter" and one.key in ("clean", "process")}
        attributes = (self._real.read("info/attributes") or b"").decode("utf-8", "surrogateescape")
        return Conversions(filters=frozenset(name or "" for name in names), attributes=(attributes,))


def config_value(git: GitDir, name: str) -> str:
    """A value of a repository's own config, in lower case; empty if there is none, or nobody can read it."""
    return next((one.value or "" for one in reversed(_settings(git)) if one.name == name), "").casefold()


def _settings(git: GitDir) -> list[GitSetting]:
    try:
        return read_config((git.read("config") or b"").decode("utf-8", "surrogateescape"))
    except ValueError:
        return []
