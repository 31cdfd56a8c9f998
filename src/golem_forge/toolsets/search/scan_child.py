"""A search that can be killed: runs as a program of its own, with nothing but the standard library. Forge itself uses
only its globs and `is_binary`.

Reads one line of JSON from standard input, writes one line of JSON per match, as it finds them. The order is `{pattern,
ignore_case, lines, longest, places, include, seconds, memory}`; a place is `{zone, parts, entry, levels}` with
inherited descriptors of the zone's root and of what is searched, `levels` 0 for a single file. A match is `[place, path
in the zone]` and, where lines are wanted, `number, text`.

Threat: while the tree is walked another process changes it. Nothing here opens a path of more than one component or
follows a link, so whatever is put in the way, the walk stays below the directory it was handed.

`.gitignore` files: the nearest one that says anything decides, in it the last line that matches; `!` takes an entry
back in; a line that cannot be understood is skipped. Globs are those of `.gitignore` and ripgrep: `*` and `?` stay
within one component, `**` between slashes stands for any number of them, `[a-z]` and `[!a]` are one character of a set,
`{a,b}` one of several, a backslash takes a character as it is. An include glob without a slash is about the name, else
about the path from where the search began; a leading `!` turns it round, a trailing slash means everything below.

Text is UTF-8, or UTF-16 with a mark; lines end at LF. A file with a NUL byte near its beginning is binary and has no
lines. One further on is a character like others, only that a walk through a tree takes it for a line's end while it
chooses files: what ripgrep can do without keeping a binary file's endless line in memory.
"""

from __future__ import annotations

import codecs
import json
import os
import re
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

_MAX_FILE_BYTES = 256 << 20


def main() -> None:
    import resource

    order = json.loads(sys.stdin.buffer.readline())
    _end_with_forge()
    resource.setrlimit(resource.RLIMIT_CPU, (order["seconds"], order["seconds"]))
    resource.setrlimit(resource.RLIMIT_AS, (order["memory"], order["memory"]))
    matcher = LineMatcher(order["pattern"], order["ignore_case"])
    for index, place in enumerate(order["places"]):
        for path, data in _file_contents(place, order["include"]):
            named = not place["levels"]
            for match in _matches(matcher, data, named, order["longest"] if order["lines"] else 0):
                sys.stdout.write(json.dumps([index, path, *match]) + "\n")
                sys.stdout.flush()


def _end_with_forge() -> None:
    """Standard input stays open as long as Forge lives; its end is a signal that ends this process.

    A thread that waits for it would not do: a pattern that is being matched lets no other thread run.
    """
    import fcntl
    import select

    fcntl.fcntl(0, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(0, fcntl.F_SETFL, fcntl.fcntl(0, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([0], [], [], 0)[0]:  # it ended before
        os._exit(1)


def _file_contents(place: dict[str, Any], include: str) -> Iterator[tuple[str, bytes]]:
    parts = tuple(place["parts"])
    if not place["levels"]:
        yield "/".join(parts), _read_descriptor(place["entry"])
        return
    wanted = IncludeGlob(include, len(parts)) if include else None
    start = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=place["entry"])
    path: Parts
    for path, directory in files_below(start, parts, ignores_above(place["zone"], parts), place["levels"]):
        if wanted is None or wanted(path):
            try:
                if data := read_regular_file(path[-1], directory, _MAX_FILE_BYTES):
                    yield "/".join(path), data
            except MemoryError:  # one file too large must not end the search
                continue


def _read_descriptor(file: int) -> bytes:
    """By position: the descriptor's own place in the file is shared with the process that opened it."""
    chunks: list[bytes] = []
    done = 0
    while done < _MAX_FILE_BYTES and (chunk := os.pread(file, 1 << 20, done)):
        chunks.append(chunk)
        done += len(chunk)
    return b"".join(chunks)


def _matches(matcher: LineMatcher, data: bytes, named: bool, longest: int) -> Iterator[tuple[Any, ...]]:
    """`longest` 0: only whether there is one."""
    try:
        if longest:
            for number, text in matcher.lines(data, named=named):
                yield number, text[:longest]
        elif matcher.finds(data, named=named):
            yield ()
    except (MemoryError, RecursionError):
        return


_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
Parts = tuple[str, ...]


def ignores_above(root: int, parts: Parts) -> GitIgnoreFile | None:
    """What the files between a zone's root and a directory in it say; the directory's own is read by `files_below`."""
    known: GitIgnoreFile | None = None
    here = os.open(".", _OPEN | os.O_DIRECTORY, dir_fd=root)
    try:
        for depth, name in enumerate(parts):
            known = ignores_in(here, depth, known)
            below = os.open(name, _OPEN | os.O_DIRECTORY, dir_fd=here)
            os.close(here)
            here = below
    except OSError:
        pass
    finally:
        os.close(here)
    return known


def ignores_in(directory: int, depth: int, above: GitIgnoreFile | None) -> GitIgnoreFile | None:
    data = read_regular_file(IGNORE_FILE_NAME, directory, MAX_IGNORE_BYTES)
    return GitIgnoreFile(data.decode("utf-8", "replace"), depth, above) if data else above


def files_below(
    directory: int, parts: Parts, ignores: GitIgnoreFile | None, levels: int
) -> Iterator[tuple[Parts, int]]:
    """(path, its directory's descriptor), for as long as the next one is not asked for. Closes `directory`."""
    try:
        ignores = ignores_in(directory, len(parts), ignores)
        for name, is_directory in _entries(directory):
            path = (*parts, name)
            if ignores is not None and ignores.ignores(path, is_directory):
                continue
            if not is_directory:
                yield path, directory
            elif levels > 1:
                try:
                    below = os.open(name, _OPEN | os.O_DIRECTORY, dir_fd=directory)
                except OSError:  # not ours to read, or no directory any more
                    continue
                yield from files_below(below, path, ignores, levels - 1)
    finally:
        os.close(directory)


def read_regular_file(name: str, directory: int, largest: int) -> bytes | None:
    """A regular file's bytes; None if it is none, cannot be read or is larger than that."""
    try:
        file = os.open(name, _OPEN, dir_fd=directory)
    except OSError:
        return None
    try:
        info = os.fstat(file)
        if not stat.S_ISREG(info.st_mode) or info.st_size > largest:
            return None
        with open(file, "rb", buffering=0, closefd=False) as stream:
            return stream.readall()
    except OSError:
        return None
    finally:
        os.close(file)


def _entries(directory: int) -> list[tuple[str, bool]]:
    """Directories and files, so that walking them in this order gives paths in the order of their text."""
    found: list[tuple[str, str, bool]] = []
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                name = entry.name
                if name == ".git" or (not name.isprintable() and _is_unaddressable(name)):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    found.append((f"{name}/", name, True))
                elif entry.is_file(follow_symlinks=False):
                    found.append((name, name, False))
    except OSError:
        return []
    return [(name, is_directory) for _, name, is_directory in sorted(found)]


def _is_unaddressable(name: str) -> bool:
    """Control characters, and bytes that are not UTF-8: no tool can open such a name."""
    return any(char < " " or "\x7f" <= char <= "\x9f" or "\ud800" <= char <= "\udfff" for char in name)


IGNORE_FILE_NAME = ".gitignore"
MAX_IGNORE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class _IgnoreLine:
    pattern: re.Pattern[str]
    keeps: bool
    only_directories: bool


class GitIgnoreFile:
    def __init__(self, text: str, depth: int, above: GitIgnoreFile | None = None) -> None:
        """`depth`: how many components of a path lead to the directory that the file is in."""
        lines = (_parse_line(line) for line in text.removeprefix("\ufeff").split("\n"))
        self._lines = [line for line in reversed(list(lines)) if line is not None]
        self._depth = depth
        self._above = above

    def ignores(self, parts: tuple[str, ...], is_directory: bool) -> bool:
        """Whether an entry is to be left out; of what is above it nothing is asked."""
        here: GitIgnoreFile | None = self
        while here is not None:
            path = _by_bytes("/".join(parts[here._depth :]))
            for line in here._lines:
                if (is_directory or not line.only_directories) and line.pattern.fullmatch(path):
                    return not line.keeps
            here = here._above
        return False


def _by_bytes(text: str) -> str:
    """One character per byte: that is what `?` and sets stand for in these files, for git as for ripgrep."""
    return text if text.isascii() else text.encode("utf-8", "surrogateescape").decode("latin-1")


def _parse_line(line: str) -> _IgnoreLine | None:
    if line.startswith("#"):
        return None
    if not line.endswith("\\ "):
        line = line.rstrip()
    if not line:
        return None
    keeps = anchored = only_directories = False
    if line.startswith(("\\!", "\\#")):
        line = line[1:]
    else:
        if line.startswith("!"):
            keeps, line = True, line[1:]
        if line.startswith("/"):
            anchored, line = True, line[1:]
    if line.endswith("/"):
        only_directories, line = True, line[:-1].removesuffix("\\")
    if not anchored and "/" not in line and line != "**":
        line = f"**/{line}"
    if line.endswith("/**"):
        line += "/*"  # what is in the directory, not the directory itself
    try:
        return _IgnoreLine(compile_glob(_by_bytes(line)), keeps, only_directories)
    except (GlobError, re.error):
        return None


_PREFIX, _MIDDLE, _SUFFIX = "(?:.*/)?", "(?:/|/.*/)", "/.*"


class GlobError(ValueError):
    """The text names what is wrong and where."""


@lru_cache(maxsize=512)
def compile_glob(glob: str) -> re.Pattern[str]:
    return re.compile(_GlobTranslator(glob).whole(), re.DOTALL)


class _GlobTranslator:
    def __init__(self, glob: str) -> None:
        self._glob = glob
        self._at = 0
        self._open: list[int] = []
        """Positions of braces that are not closed yet."""

    def whole(self) -> str:
        parts: list[str] = []
        while self._at < len(self._glob):
            parts.append(self._next())
        if self._open:
            raise GlobError(f"'{{' is never closed at position {self._open[-1]}")
        return "".join(parts)

    def _next(self) -> str:
        char = self._glob[self._at]
        self._at += 1
        if char == "*":
            return self._stars()
        if char == "?":
            return "[^/]"
        if char == "[":
            return self._set()
        if char == "{":
            self._open.append(self._at - 1)
            return "(?:"
        if char == "}":
            if not self._open:
                raise GlobError(f"'}}' closes nothing at position {self._at - 1}")
            self._open.pop()
            return ")"
        if char == "," and self._open:
            return "|"
        if char == "\\":
            if self._at == len(self._glob):
                raise GlobError(f"nothing follows the '\\' at position {self._at - 1}")
            char = self._glob[self._at]
            self._at += 1
        elif char == "/" and self._glob.startswith("**", self._at) and self._glob[self._at + 2 : self._at + 3] in "/":
            return self._between_slashes()
        return re.escape(char)

    def _stars(self) -> str:
        """After one `*`. Two are special only where they fill a whole component."""
        glob, start = self._glob, self._at - 1
        if glob[self._at : self._at + 1] != "*":
            return "[^/]*"
        self._at += 1
        if start == 0 and glob[2:3] in ("", "/"):
            self._at = min(3, len(glob))
            self._skip_more()
            return _PREFIX if self._at < len(glob) else ".*"
        return "[^/]*"

    def _between_slashes(self) -> str:
        """At `/**` that a slash or the end follows."""
        self._at += 2
        if self._at == len(self._glob):
            return _SUFFIX
        self._at += 1
        self._skip_more()
        return _MIDDLE

    def _skip_more(self) -> None:
        """`**/**/` means no more than `**/`, and costs a lot less."""
        while self._glob.startswith("**/", self._at):
            self._at += 3

    def _set(self) -> str:
        glob, start = self._glob, self._at
        negated = glob[start : start + 1] in ("!", "^") and start < len(glob)
        first = start + negated
        end = glob.find("]", first + 1)
        if end < 0:  # never closed: the bracket itself
            return re.escape("[")
        self._at = end + 1
        members = _set_members(glob[first:end])
        # A set never stands for `/`: the component boundary is what these globs promise to keep.
        return f"(?!/)[{'^' if negated else ''}{members}]"


def _set_members(inner: str) -> str:
    members: list[str] = []
    while inner:
        if len(inner) > 2 and inner[1] == "-":
            low, high, inner = inner[0], inner[2], inner[3:]
            if low > high:
                raise GlobError(f"the range {low}-{high} is empty")
            members.append(f"{re.escape(low)}-{re.escape(high)}")
        else:
            members.append(re.escape(inner[0]))
            inner = inner[1:]
    return "".join(members)


class IncludeGlob:
    def __init__(self, glob: str, start: int) -> None:
        """`start`: how many components of a path lead to where the search began. Raises GlobError."""
        self._wanted = not glob.startswith("!")
        glob = glob.removeprefix("!").removeprefix("./")
        self._by_name = "/" not in glob
        glob = glob.lstrip("/")
        self._pattern = compile_glob(f"{glob}**" if glob.endswith("/") else glob)
        self._start = start

    def __call__(self, parts: tuple[str, ...]) -> bool:
        text = parts[-1] if self._by_name else "/".join(parts[self._start :])
        return (self._pattern.fullmatch(text) is not None) is self._wanted


SAMPLE_BYTES = 8192
_LITERAL = re.compile(r"[^.^$*+?{}\[\]\\|()]+")
_NEEDS_LINES = re.compile(r"\(\?(?!:|P?<[A-Za-z_])|\\[AZzsWDxuUNnrtfv0-9]|\[\^|[*+?}]\+|[\x00-\x1f]")
"""What may match a line by itself but not in the middle of a text, or could run over many lines there."""
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def is_binary(sample: bytes) -> bool:
    return b"\0" in sample and not sample.startswith(_UTF_16)


class LineMatcher:
    def __init__(self, pattern: str, ignore_case: bool) -> None:
        flags = re.IGNORECASE if ignore_case else 0
        self._line = re.compile(pattern, flags)
        self._literal = pattern.encode() if _LITERAL.fullmatch(pattern) and not ignore_case else b""
        self._anywhere = None if _NEEDS_LINES.search(pattern) else re.compile(pattern, flags | re.MULTILINE)

    def finds(self, data: bytes, *, named: bool) -> bool:
        """Whether a file is one of those found. `named`: it was asked for itself, not met on a walk."""
        if is_binary(data[:SAMPLE_BYTES]):
            return False
        if not named and b"\0" in data and not data.startswith(_UTF_16):
            data = data.replace(b"\0", b"\n")
        return next(self._matches(data), None) is not None

    def lines(self, data: bytes, *, named: bool) -> Iterator[tuple[int, str]]:
        """(number from 1, text without its end), of a file that is found."""
        if named or b"\0" not in data or self.finds(data, named=False):
            yield from self._matches(data)

    def _matches(self, data: bytes) -> Iterator[tuple[int, str]]:
        text = self._text(data)
        if text is None or (self._anywhere is not None and not self._anywhere.search(text)):
            return
        search = self._line.search
        lines = text.split("\n")
        if not lines[-1]:
            lines.pop()
        for number, line in enumerate(lines, 1):
            if search(line):
                yield number, line.removesuffix("\r")

    def _text(self, data: bytes) -> str | None:
        """None: nothing to find here."""
        if data.startswith(_UTF_16):
            return data.decode("utf-16", "replace")
        if is_binary(data[:SAMPLE_BYTES]) or (self._literal and self._literal not in data):
            return None
        return data.removeprefix(codecs.BOM_UTF8).decode("utf-8", "replace")
