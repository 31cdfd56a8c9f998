"""The ripgrep engine: asks it first which files match and, where lines are wanted, then for the lines of the first.

Two questions are quicker than one: files are found by all cores and each only up to its first match, and no more
lines are ever printed than are shown. It runs in walls that let it read and nothing else, without any config file,
and prints paths relative to their zone; what may be shown of them is decided here, not by it. Raises InputInvalid
for a pattern it does not understand, NotStartable where it cannot run at all.
"""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from golem_forge.core.errors import ToolFailed
from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.paths import has_control_character
from golem_forge.sandbox.walls.levels import Level
from golem_forge.toolsets.search.found import Found, first
from golem_forge.toolsets.search.query import LONGEST_TEXT, Line, Matches, Mode, Place, Query, bad_pattern
from golem_forge.toolsets.search.scan.matching import SAMPLE, is_binary

if TYPE_CHECKING:
    from golem_forge.sandbox.processes.capture import Capture
    from golem_forge.sandbox.processes.ending import Ending
    from golem_forge.sandbox.walls.job import Job
    from golem_forge.sandbox.walls.walls import Walls

_QUIET: Final = ("--no-config", "--no-messages", "--color=never", "--null")
_WHERE: Final = (
    *("--hidden", "--no-require-git", "--no-ignore-dot", "--no-ignore-exclude", "--no-ignore-global"),
    *("--glob", "!.git", "--glob", "!*\n*"),
)
"""Of all ignore files only `.gitignore`. A name with a line break cannot be opened by any tool, nor told apart here."""
_TEXT: Final = "--text"
"""Only for files known to be text: of a binary file it might hold gigabytes in memory as one line."""
_BINARY_TOO: Final = "--binary"
"""Else a NUL anywhere hides a file, or not, by where it lies. Which files are binary is decided in `found.py`."""
_SIMPLE_GLOB: Final = re.compile(r"[\w.*{},-]*\*[\w.*{},-]*", re.ASCII)
_LINE: Final = re.compile(rb"([^\0\n]+)\0(\d+):([^\n]*)\n")
_FILES_SHARE: Final = 0.8
"""Of the time: if the files take longer, there is still some left for the lines of those found."""
_MOST_FILES: Final = 500
_MOST_BYTES: Final = 100_000
_LONGEST_PRINTED: Final = 4 * LONGEST_TEXT + 100
_CARET: Final = re.compile(r"^ {4}(?P<shown>.*)\n {4}(?P<before> *)\^", re.MULTILINE)
_WRAPPER: Final = "(?:"
_ABOUT_THE_PATTERN: Final = (
    "rg: regex parse error",
    "rg: the literal",
    "rg: pattern",
    "rg: compiled regex",
    "rg: Compiled",
)
_LINE_BREAK: Final = r'rg: the literal "\n" is not allowed'
_ESCAPED_BREAK: Final = r"\n"


class NotStartable(Exception):
    """ripgrep is missing here, or does not run."""


class Running(Protocol):
    """What `sandbox.processes.child.Child` is to this engine."""

    @property
    def output(self) -> Capture: ...
    @property
    def errors(self) -> Capture | None: ...
    async def wait(self, seconds: float | None = None) -> Ending | None: ...
    def kill(self) -> None: ...


Start = Callable[["Job"], Awaitable[Running]]


async def search(query: Query, matches: Matches, start: Start, program: str = "rg") -> None:
    from asyncio import get_running_loop

    from golem_forge.tools.threads import run_in_thread

    now = get_running_loop().time
    ask = _Asking(query, matches, start, program)
    share = 1.0 if query.mode is Mode.FILES else _FILES_SHARE
    for place in query.places:
        await ask.files(place, max((query.until - now()) * share, 0.0))
    if query.mode is Mode.LINES:
        chosen = await run_in_thread(lambda: first(matches.found, query.limit + 1))
        for place, files in _batches(chosen):
            if matches.more or not await ask.lines(place, files, max(query.until - now(), 0.0)):
                return


class _Asking:
    def __init__(self, query: Query, matches: Matches, start: Start, program: str) -> None:
        self._query = query
        self._matches = matches
        self._start = start
        self._how = (program, *_QUIET, *(("--ignore-case",) if query.ignore_case else ("--case-sensitive",)))

    async def files(self, place: Place, seconds: float) -> None:
        """Adds every file with a match, as long as there is time."""
        how: tuple[str, ...]
        if place.is_file:
            how = () if is_binary(os.pread(place.entry.fd, SAMPLE, 0)) else (_TEXT,)
        else:
            how = (_BINARY_TOO, "--max-depth", str(place.levels), *_WHERE, *_prefilter(self._query.include))
        child = await self._started(place, ("--files-with-matches", *how), (_argument("/".join(place.parts)),))
        ending = None
        try:
            ending = await child.wait(seconds)
        finally:
            if ending is None:
                child.kill()
            for path in child.output.read().split(b"\0")[:-1]:  # what comes after the last is unfinished
                if (name := _path(path)) is not None:
                    self._matches.found.append((place, name))
        if ending is None:
            self._matches.stopped = True
        else:
            self._must_have_worked(child, ending)

    async def lines(self, place: Place, files: Sequence[str], seconds: float) -> bool:
        """Adds their lines in this order; whether there is anything left to do."""
        from asyncio import get_running_loop

        loop = get_running_loop()
        until = loop.time() + seconds
        left = self._query.limit + 1 - len(self._matches.lines)
        how = (
            *("--threads=1", "--line-number", "--with-filename", "--no-heading", f"--max-count={left}"),
            *(f"--max-columns={_LONGEST_PRINTED}", "--max-columns-preview", _TEXT),
        )
        child = await self._started(place, how, files)
        read = 0
        try:
            while (remaining := until - loop.time()) > 0:
                more = await child.output.more(read, remaining)
                text = child.output.read(read)
                end = text.rfind(b"\n") + 1
                read += end
                for line in _lines(place, text[:end]):
                    if not self._matches.add_line(line):
                        return False
                if not end and await child.wait(0) is not None:
                    return True
                if more and not end:  # an unfinished line: wait for the rest of it, not for what is there already
                    await child.output.more(read + len(text), min(until - loop.time(), 0.1))
            self._matches.stopped = True
            return False
        finally:
            child.kill()

    async def _started(self, place: Place, how: Sequence[str], names: Sequence[str]) -> Running:
        from golem_forge.sandbox.walls.job import Job, Streams

        job = Job(
            argv=(*self._how, *how, f"--regexp={self._query.pattern}", "--", *names),
            cwd=place.zone.virtual(()),
            streams=Streams.APART,
            lifted=frozenset({place.zone.virtual(place.parts)}) if place.masked else frozenset(),
            reads_only=True,
            own_program=True,
        )
        try:
            return await self._start(job)
        except SandboxError as error:
            raise NotStartable(error.message) from None

    def _must_have_worked(self, child: Running, ending: Ending) -> None:
        """0 and 1 are answers; 2 is one too where only some file could not be read."""
        if ending.code == "OUTPUT_LIMIT":
            self._matches.more = True
        elif ending.code:
            raise ToolFailed(f"The search was stopped ({ending.code}); narrow it with path or include.")
        elif ending.exit_code not in (0, 1):
            said = child.errors.read(0, 8192).decode("utf-8", "replace") if child.errors else ""
            if ending.exit_code == 2 and said.startswith(_ABOUT_THE_PATTERN):
                raise bad_pattern(_problem(self._query.pattern, said))
            if ending.exit_code != 2 or said:
                raise NotStartable(said)


def _prefilter(include: str) -> tuple[str, ...]:
    """Spares ripgrep files that would be left out anyway; by type, because a `--glob` would undo `.gitignore`."""
    if not _SIMPLE_GLOB.fullmatch(include) or include.count("{") != include.count("}"):
        return ()
    return "--type-add", f"forge:{include}", "--type", "forge"


def _batches(found: Sequence[Found]) -> Iterator[tuple[Place, list[str]]]:
    """Files of one place at a time, and no more than fit into one command line."""
    batch: list[str] = []
    at: Place | None = None
    size = 0
    for place, path in found:
        name = _argument(path)
        if at is not None and (place is not at or len(batch) == _MOST_FILES or size > _MOST_BYTES):
            yield at, batch
            batch, size = [], 0
        at = place
        batch.append(name)
        size += len(name) * 4
    if at is not None:
        yield at, batch


def _argument(path: str) -> str:
    """From the zone's root; never to be taken for an option."""
    return f"./{path}"


def _path(printed: bytes) -> str | None:
    """What `_argument` began with, as text; None if no tool could open such a name."""
    try:
        text = printed.decode().removeprefix("./")
    except UnicodeDecodeError:
        return None
    return None if has_control_character(text) else text


def _lines(place: Place, text: bytes) -> Iterator[Line]:
    for printed, number, line in _LINE.findall(text):
        if (path := _path(printed)) is not None:
            shown = line.decode("utf-8", "replace").removesuffix("\r")[:LONGEST_TEXT]
            yield Line(place.virtual(path), int(number), shown)


def _problem(pattern: str, said: str) -> str:
    """In the words of the other engine where it has some, so that both say the same; its position is right, too."""
    from golem_forge.toolsets.line_search import pattern_problem

    if problem := pattern_problem(pattern):
        return problem
    if said.startswith(_LINE_BREAK):
        return f"not a valid pattern: a line holds no line break at position {pattern.find(_ESCAPED_BREAK)}"
    caret = _CARET.search(said)
    where = len(caret["before"]) - len(_WRAPPER) if caret and caret["shown"].startswith(_WRAPPER) else -1
    error = re.search(r"^error: (.+)$", said, re.MULTILINE)
    words = error[1] if error else said.removeprefix("rg: ").split("\n", 1)[0]
    return f"not a valid pattern: {words}{f' at position {where}' if where >= 0 else ''}"


def in_walls(walls: Walls) -> Start:
    async def start(job: Job) -> Running:
        return (await walls.start(job)).child

    return start


def program_in_walls(level: Level) -> str:
    """The one that came with Forge, by its path: a program of that name in the person's PATH may be another one."""
    from golem_forge.sandbox.walls.backend import ripgrep
    from golem_forge.sandbox.walls.layout import SHIPPED

    shipped = ripgrep()
    if not shipped:
        return "rg"
    return f"{SHIPPED}/rg" if level is Level.FULL else shipped
