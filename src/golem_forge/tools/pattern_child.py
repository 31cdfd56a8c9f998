"""The one program that runs foreign regular expressions: a process of its own, so that it can be killed.

Reads one line of JSON from standard input, the order, and writes one line of JSON per match, as it finds them. Every
order has `{pattern, ignore_case, seconds, memory}` and the keys of one search:

- `text`: is the pattern anywhere in it? Then one empty row.
- `file, long, first, after, most`: lines of a kept output, read from the descriptor `file` piece by piece, from the
  line with index `first` on. A row is `[index, [start, end], …]`; spans only for lines of more than `long` characters.
  Ends after `most` matches in lines behind the one with index `after`.
- `places, include, lines, longest, library`: lines of the files in a tree. A place is `{zone, parts, entry, levels}`
  with inherited descriptors of the zone's root and of what is searched, `levels` 0 for a single file. A row is `[place,
  path in the zone]` and, with `lines`, `number, text`. `library` is the folder of `pathspec`, the only thing here that
  is not of the standard library. Forge itself uses the globs and `is_binary`.
- `places, names, library`: the files in a tree by name, none of them opened. A row is `[place, [path, …]]`.

Threat: while the tree is walked another process changes it. Nothing here opens a path of more than one component or
follows a link, so whatever is put in the way, the walk stays below the directory it was handed.
"""

from __future__ import annotations

import codecs
import json
import os
import re
import stat
import sys
import warnings
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import islice
from typing import Any

Parts = tuple[str, ...]
Span = tuple[int, int]
_MERGE_DISTANCE = 1024
"""Matches nearer to each other than this are told as one span: a line of a million matches needs no million spans."""
_MAX_FILE_BYTES = 256 << 20
_NAMES_IN_A_ROW = 200
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def main() -> None:
    import resource

    order = json.loads(sys.stdin.buffer.readline())
    _end_with_forge()
    resource.setrlimit(resource.RLIMIT_CPU, (order["seconds"], order["seconds"]))
    resource.setrlimit(resource.RLIMIT_AS, (order["memory"], order["memory"]))
    for row in _rows(order):
        sys.stdout.write(json.dumps(row) + "\n")
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


def _rows(order: dict[str, Any]) -> Iterator[list[Any]]:
    if "places" in order:
        sys.path.append(order["library"])
        yield from _name_rows(order) if "names" in order else _tree_rows(order)
    elif "file" in order:
        yield from _output_rows(order)
    elif re.search(order["pattern"], order["text"]):
        yield []


def _output_rows(order: dict[str, Any]) -> Iterator[list[Any]]:
    missing = order["most"]
    lines = output_lines(order["file"], order["first"])
    for index, spans in matching_lines(order["pattern"], lines, order["long"], order["first"]):
        yield [index, *spans]
        missing -= index > order["after"]
        if not missing:
            return


def output_lines(file: int | str, first: int) -> Iterator[str]:
    """The lines of a kept output without their ends, from index `first` on. What is not UTF-8 is U+FFFD; LF, CRLF and
    CR end a line."""
    with open(file, encoding="utf-8", errors="replace") as text:
        for line in islice(text, first, None):
            yield line.removesuffix("\n")


def matching_lines(pattern: str, lines: Iterable[str], long: int, first: int) -> Iterator[tuple[int, list[Span]]]:
    """(index, spans), the first line having index `first`. May take for ever."""
    compiled = re.compile(pattern)
    for index, line in enumerate(lines, first):
        if len(line) > long:
            if spans := _spans(compiled, line):
                yield index, spans
        elif compiled.search(line):
            yield index, []


def _spans(pattern: re.Pattern[str], line: str) -> list[Span]:
    spans: list[Span] = []
    for match in pattern.finditer(line):
        start, end = match.span()
        if spans and start - spans[-1][1] < _MERGE_DISTANCE:
            spans[-1] = (spans[-1][0], end)
        else:
            spans.append((start, end))
    return spans


def _name_rows(order: dict[str, Any]) -> Iterator[list[Any]]:
    for index, place in enumerate(order["places"]):
        start = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=place["entry"])
        paths = ("/".join(path) for path, _ in _files_below(start, (), None, place["levels"]))
        while batch := list(islice(paths, _NAMES_IN_A_ROW)):
            yield [index, batch]


def _tree_rows(order: dict[str, Any]) -> Iterator[list[Any]]:
    matcher = LineMatcher(order["pattern"], order["ignore_case"])
    for index, place in enumerate(order["places"]):
        named = not place["levels"]
        for path, data in _file_contents(place, order["include"]):
            try:
                if order["lines"]:
                    for number, text in matcher.lines(data, named=named):
                        yield [index, path, number, text[: order["longest"]]]
                elif matcher.finds(data, named=named):
                    yield [index, path]
            except (MemoryError, RecursionError):  # one file must not end the search
                continue


def _file_contents(place: dict[str, Any], include: str) -> Iterator[tuple[str, bytes]]:
    parts = tuple(place["parts"])
    if not place["levels"]:
        yield "/".join(parts), _read_descriptor(place["entry"])
        return
    wanted = IncludeGlob(include, len(parts)) if include else None
    start = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=place["entry"])
    for path, directory in _files_below(start, parts, _ignores_above(place["zone"], parts), place["levels"]):
        if wanted is None or wanted(path):
            try:
                if data := _read_regular_file(path[-1], directory, _MAX_FILE_BYTES):
                    yield "/".join(path), data
            except MemoryError:
                continue


def _read_descriptor(file: int) -> bytes:
    """Reads a file with `pread`, because the descriptor's offset is shared with the process that opened it."""
    chunks: list[bytes] = []
    done = 0
    while done < _MAX_FILE_BYTES and (chunk := os.pread(file, 1 << 20, done)):
        chunks.append(chunk)
        done += len(chunk)
    return b"".join(chunks)


def _ignores_above(root: int, parts: Parts) -> GitIgnoreFile | None:
    """Reads the ignore files from the zone's root down to the parent of a directory; `_files_below` reads the
    directory's own.
    """
    known: GitIgnoreFile | None = None
    here = os.open(".", _OPEN | os.O_DIRECTORY, dir_fd=root)
    try:
        for depth, name in enumerate(parts):
            known = _ignores_in(here, depth, known)
            below = os.open(name, _OPEN | os.O_DIRECTORY, dir_fd=here)
            os.close(here)
            here = below
    except OSError:
        pass
    finally:
        os.close(here)
    return known


def _ignores_in(directory: int, depth: int, above: GitIgnoreFile | None) -> GitIgnoreFile | None:
    data = _read_regular_file(".gitignore", directory, 1 << 20)
    return GitIgnoreFile(data.decode("utf-8", "replace"), depth, above) if data else above


def _files_below(
    directory: int, parts: Parts, ignores: GitIgnoreFile | None, levels: int
) -> Iterator[tuple[Parts, int]]:
    """(path, its directory's descriptor), for as long as the next one is not asked for. Closes `directory`."""
    try:
        ignores = _ignores_in(directory, len(parts), ignores)
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
                yield from _files_below(below, path, ignores, levels - 1)
    finally:
        os.close(directory)


def _read_regular_file(name: str, directory: int, largest: int) -> bytes | None:
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


class GlobError(ValueError):
    """Raised for a wrong glob; its text names the problem and the position."""


_GLOB_TOKEN = re.compile(r"\\.|\[[!^]?.[^\]]*\]|.", re.DOTALL)
_OPEN_BRACE, _COMMA, _CLOSE_BRACE, _NO_SLASH = _MARKS = "\ufdd0\ufdd1\ufdd2\ufdd3"
"""No characters: they stand for what `pathspec` would not understand until it has made a regular expression."""
_MARKS_AS_REGEX = str.maketrans(dict(zip(_MARKS, ("(?:", "|", ")", "(?!/)"), strict=True)))

_STAR_BEFORE_STAR = re.compile(r"\[\^/\]\*((?:\\.|\(\?!/\)|\[(?:\\.|[^\]\\])+\]|[^\\()\[\]|*+?/])+)(?=\[\^/\]\*)")
_STARS_THAT_TRY_AGAIN = re.compile(r"\[\^/\]\*(?!\?)")
_MOST_TRIES = 3


@lru_cache(maxsize=512)
def compile_glob(glob: str, start: str = "") -> tuple[re.Pattern[str] | None, bool]:
    """A line of `.gitignore`: what it matches as a whole, if anything (a directory's path ends with a slash), and
    whether that is left out. `start`: what stands before it. Raises GlobError."""
    from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

    directory = "/" if glob.endswith("/") else ""
    if glob.removesuffix("/").endswith("/**"):
        glob = f"{glob.removesuffix('/')}/*{directory}"  # what is in the directory, not the directory itself
    try:
        regex, left_out = GitIgnoreSpecPattern.pattern_to_regex(start + _with_marks(glob))
        if regex is None:
            return None, False
        anchored = regex if regex.startswith("^") else f".*{regex}"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a `[` in a set
            whole = anchored.translate(_MARKS_AS_REGEX)
            # The first place where the text after a star fits is as good as any other if a star follows it too.
            # Threat: `*a*a*a*a*b` against a long name of `a`, where each star would try every place again.
            whole = _STAR_BEFORE_STAR.sub(r"(?>[^/]*?\1)", whole)
            return re.compile(whole, re.DOTALL), bool(left_out)
    except re.error as error:
        raise GlobError(f"the range {error.msg.removeprefix('bad character range ')} is empty") from None
    except GlobError:
        raise
    except ValueError as error:
        raise GlobError(str(error)) from None


def _with_marks(glob: str) -> str:
    """Braces as marks; a set never stands for `/`; a blank, which was not stripped before, is not stripped at all."""
    if any(mark in glob for mark in _MARKS):
        raise GlobError("it contains an invalid character")
    marked: list[str] = []
    opened: list[int] = []
    for match in _GLOB_TOKEN.finditer(glob):
        token, position = match[0], match.start()
        if token == "{":
            opened.append(position)
            token = _OPEN_BRACE
        elif token == "}":
            if not opened:
                raise GlobError(f"'}}' closes nothing at position {position}")
            opened.pop()
            token = _CLOSE_BRACE
        elif token == "," and opened:
            token = _COMMA
        elif token == "\\":
            raise GlobError(f"nothing follows the '\\' at position {position}")
        elif token == "[":  # never closed: the bracket itself
            token = "\\["
        elif token[0] == "[":
            token = f"{_NO_SLASH}{token.replace('/', '')}"
        elif token[-1].isspace():
            token = f"[{token[-1]}]"
        marked.append(token)
    if opened:
        raise GlobError(f"'{{' is never closed at position {opened[-1]}")
    return "".join(marked)


class GitIgnoreFile:
    """One `.gitignore` file, read as ripgrep reads it: the nearest file that says anything decides, in it the last line
    that matches; a line that cannot be understood is skipped. To what git knows come `{a,b}`, and a `[` that is never
    closed stands for itself."""

    def __init__(self, text: str, depth: int, above: GitIgnoreFile | None = None) -> None:
        """`depth`: how many components of a path lead to the directory that the file is in."""
        lines = reversed(text.removeprefix("\ufeff").split("\n"))
        self._rules = [rule for line in lines if (rule := _ignore_rule(line)) is not None]
        self._depth = depth
        self._above = above

    def ignores(self, parts: Parts, is_directory: bool) -> bool:
        """Whether an entry is to be left out; of what is above it nothing is asked."""
        here: GitIgnoreFile | None = self
        while here is not None:
            path = _by_bytes("/".join(parts[here._depth :])) + "/" * is_directory
            for pattern, left_out in here._rules:
                if pattern.fullmatch(path):
                    return left_out
            here = here._above
        return False


def _ignore_rule(line: str) -> tuple[re.Pattern[str], bool] | None:
    line = line if line.endswith("\\ ") else line.rstrip()
    try:
        pattern, left_out = compile_glob("!**" if line == "!" else _by_bytes(line))
    except GlobError:
        return None
    return None if pattern is None else (pattern, left_out)


def _by_bytes(text: str) -> str:
    """One character per byte: that is what `?` and sets stand for in these files, for git as for ripgrep."""
    return text if text.isascii() else text.encode("utf-8", "surrogateescape").decode("latin-1")


class IncludeGlob:
    """A glob without a slash is about the name, else about the path from where the search began; a leading `!` turns it
    round, a trailing slash means everything below."""

    def __init__(self, glob: str, start: int) -> None:
        """`start`: how many components of a path lead to where the search began. Raises GlobError."""
        self._wanted = not glob.startswith("!")
        glob = glob.removeprefix("!").removeprefix("./")
        self._by_name = "/" not in glob
        glob = glob.lstrip("/")
        self._pattern, _ = compile_glob(f"{glob}**" if glob.endswith("/") else glob, "/")
        self._start = start
        self._braces = glob.count("{")

    @property
    def may_take_long(self) -> bool:
        """Whether a name could be found for which matching takes seconds: with many braces, stars beside them, or
        `**`."""
        regex = self._pattern.pattern if self._pattern is not None else ""
        stars = len(_STARS_THAT_TRY_AGAIN.findall(regex))
        return self._braces > _MOST_TRIES or stars > _MOST_TRIES or regex.count(".+") > 2

    def __call__(self, parts: Parts) -> bool:
        text = parts[-1] if self._by_name else "/".join(parts[self._start :])
        return (self._pattern is not None and self._pattern.fullmatch(text) is not None) is self._wanted


SAMPLE_BYTES = 8192
_LITERAL = re.compile(r"[^.^$*+?{}\[\]\\|()]+")
_NEEDS_LINES = re.compile(r"\(\?(?!:|P?<[A-Za-z_])|\\[AZzsWDxuUNnrtfv0-9]|\[\^|[*+?}]\+|[\x00-\x1f]")
"""Patterns that must be matched line by line: in a whole text they could match differently or run over many lines."""
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def is_binary(sample: bytes) -> bool:
    return b"\0" in sample and not sample.startswith(_UTF_16)


class LineMatcher:
    """The matching lines of a file. Text is UTF-8, or UTF-16 with a mark; lines end at LF. A file with a NUL byte near
    its beginning is binary and has no lines. One further on is a character like others, only that a walk through a tree
    takes it for a line's end while it chooses files: what ripgrep can do without keeping a binary file's endless line
    in memory."""

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
        """Decodes the data; returns None if it is binary or cannot contain a match."""
        if data.startswith(_UTF_16):
            return data.decode("utf-16", "replace")
        if is_binary(data[:SAMPLE_BYTES]) or (self._literal and self._literal not in data):
            return None
        return data.removeprefix(codecs.BOM_UTF8).decode("utf-8", "replace")


if __name__ == "__main__":
    main()
