"""The ripgrep engine: asks first which files match and, where lines are wanted, then for the lines of the first of
them.

Two questions are quicker than one: files are found by all cores and each only up to its first match, and no more lines
are ever printed than are shown. It runs in walls that let it read and nothing else, without any config file, and prints
paths relative to their zone; what may be shown of them is decided in `query.py`. Raises InputInvalid for a pattern it
does not understand, NotStartable where it cannot run at all.
"""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from golem_forge.core.errors import ToolFailed
from golem_forge.core.regex import regex
from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.paths import has_control_character
from golem_forge.sandbox.walls.model import Job, Level, Streams
from golem_forge.tools.pattern_child import SAMPLE_BYTES, is_binary
from golem_forge.tools.pattern_search import pattern_problem
from golem_forge.tools.threads import run_in_thread
from golem_forge.toolsets.search.query import (
    MAX_LINE_TEXT,
    FoundFile,
    MatchLine,
    SearchMatches,
    SearchMode,
    SearchQuery,
    SearchRoot,
    bad_pattern,
    first_files,
)

if TYPE_CHECKING:
    from golem_forge.sandbox.process.monitor import ExitStatus
    from golem_forge.sandbox.process.output import Capture
    from golem_forge.sandbox.walls.walls import Walls

_OUTPUT_OPTIONS: Final = ("--no-config", "--no-messages", "--color=never", "--null")
_FILTER_OPTIONS: Final = (
    *("--hidden", "--no-require-git", "--no-ignore-dot", "--no-ignore-exclude", "--no-ignore-global"),
    *("--glob", "!.git", "--glob", "!*\n*"),
)
"""Of all ignore files only `.gitignore`. A name with a line break cannot be opened by any tool, nor told apart here."""
_AS_TEXT: Final = "--text"
"""Only for files known to be text: of a binary file it might hold gigabytes in memory as one line."""
_BINARY_TOO: Final = "--binary"
"""Else a NUL anywhere hides a file, or not, by where it lies. Which files are binary is decided in `query.py`."""
_SIMPLE_GLOB: Final = regex(r"[\w.*{},-]*\*[\w.*{},-]*", re.ASCII)
_PRINTED_LINE: Final = regex(rb"([^\0\n]+)\0(\d+):([^\n]*)\n")
_FILES_SHARE: Final = 0.8
"""Of the time: if the files take longer, there is still some left for the lines of those found."""
_MAX_FILES: Final = 500
_MAX_ARGUMENT_BYTES: Final = 100_000
_MAX_PRINTED: Final = 4 * MAX_LINE_TEXT + 100
_CARET: Final = regex(r"^ {4}(?P<shown>.*)\n {4}(?P<before> *)\^", re.MULTILINE)
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


def _batches(found: Sequence[FoundFile]) -> Iterator[tuple[SearchRoot, list[str]]]:
    """Files of one root at a time, and no more than fit into one command line."""
    batch: list[str] = []
    root: SearchRoot | None = None
    size = 0
    for place, path in found:
        if root is not None and (place is not root or len(batch) == _MAX_FILES or size > _MAX_ARGUMENT_BYTES):
            yield root, batch
            batch, size = [], 0
        root = place
        batch.append(_argument(path))
        size += len(batch[-1]) * 4
    if root is not None:
        yield root, batch


class NotStartable(Exception):
    """ripgrep is missing here, or does not run."""


class RipgrepProcess(Protocol):
    """What `sandbox.process.child.Child` is to this engine."""

    @property
    def output(self) -> Capture: ...
    @property
    def errors(self) -> Capture | None: ...
    async def wait(self, seconds: float | None = None) -> ExitStatus | None: ...
    def kill(self) -> None: ...


StartRipgrep = Callable[[Job], Awaitable[RipgrepProcess]]


async def search(query: SearchQuery, matches: SearchMatches, start: StartRipgrep, program: str = "rg") -> None:
    from asyncio import get_running_loop

    now = get_running_loop().time
    ask = _RipgrepSearch(query, matches, start, program)
    share = 1.0 if query.mode is SearchMode.FILES else _FILES_SHARE
    for place in query.places:
        await ask.files(place, max((query.until - now()) * share, 0.0))
    if query.mode is SearchMode.LINES:
        chosen = await run_in_thread(lambda: first_files(matches.found, query.limit + 1))
        for place, files in _batches(chosen):
            if matches.more or not await ask.lines(place, files, max(query.until - now(), 0.0)):
                return


class _RipgrepSearch:
    def __init__(self, query: SearchQuery, matches: SearchMatches, start: StartRipgrep, program: str) -> None:
        self._query = query
        self._matches = matches
        self._start = start
        self._how = (program, *_OUTPUT_OPTIONS, *(("--ignore-case",) if query.ignore_case else ("--case-sensitive",)))

    async def files(self, place: SearchRoot, seconds: float) -> None:
        """Adds every file with a match, as long as there is time."""
        how: tuple[str, ...]
        if place.is_file:
            how = () if is_binary(os.pread(place.entry.fd, SAMPLE_BYTES, 0)) else (_AS_TEXT,)
        else:
            how = (_BINARY_TOO, "--max-depth", str(place.levels), *_FILTER_OPTIONS, *_prefilter(self._query.include))
        child = await self._started(place, ("--files-with-matches", *how), (_argument("/".join(place.parts)),))
        ending = None
        try:
            ending = await child.wait(seconds)
        finally:
            if ending is None:
                child.kill()
            for path in child.output.read().split(b"\0")[:-1]:  # what comes after the last is unfinished
                if (name := _parse_path(path)) is not None:
                    self._matches.found.append((place, name))
        if ending is None:
            self._matches.stopped = True
        else:
            self._must_have_worked(child, ending)

    async def lines(self, place: SearchRoot, files: Sequence[str], seconds: float) -> bool:
        """Adds their lines in this order; whether there is anything left to do."""
        from asyncio import get_running_loop

        loop = get_running_loop()
        until = loop.time() + seconds
        left = self._query.limit + 1 - len(self._matches.lines)
        how = (
            *("--threads=1", "--line-number", "--with-filename", "--no-heading", f"--max-count={left}"),
            *(f"--max-columns={_MAX_PRINTED}", "--max-columns-preview", _AS_TEXT),
        )
        child = await self._started(place, how, files)
        read = 0
        try:
            while (remaining := until - loop.time()) > 0:
                more = await child.output.more(read, remaining)
                text = child.output.read(read)
                end = text.rfind(b"\n") + 1
                read += end
                for printed, number, line in _PRINTED_LINE.findall(text[:end]):
                    if (path := _parse_path(printed)) is None:
                        continue
                    shown = line.decode("utf-8", "replace").removesuffix("\r")[:MAX_LINE_TEXT]
                    if not self._matches.add_line(MatchLine(place.virtual(path), int(number), shown)):
                        return False
                if not end and await child.wait(0) is not None:
                    return True
                if more and not end:  # an unfinished line: wait for the rest of it, not for what is there already
                    await child.output.more(read + len(text), min(until - loop.time(), 0.1))
            self._matches.stopped = True
            return False
        finally:
            child.kill()

    async def _started(self, place: SearchRoot, how: Sequence[str], names: Sequence[str]) -> RipgrepProcess:
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

    def _must_have_worked(self, child: RipgrepProcess, ending: ExitStatus) -> None:
        """0 and 1 are answers; 2 is one too where only some file could not be read."""
        if ending.code == "OUTPUT_LIMIT":
            self._matches.more = True
        elif ending.code:
            raise ToolFailed(f"The search was stopped ({ending.code}); narrow it with path or include.")
        elif ending.exit_code not in (0, 1):
            said = child.errors.read(0, 8192).decode("utf-8", "replace") if child.errors else ""
            if ending.exit_code == 2 and said.startswith(_ABOUT_THE_PATTERN):
                raise bad_pattern(_pattern_problem(self._query.pattern, said))
            if ending.exit_code != 2 or said:
                raise NotStartable(said)


def _prefilter(include: str) -> tuple[str, ...]:
    """Spares ripgrep files that would be left out anyway; by type, because a `--glob` would undo `.gitignore`."""
    if not _SIMPLE_GLOB.fullmatch(include) or include.count("{") != include.count("}"):
        return ()
    return "--type-add", f"forge:{include}", "--type", "forge"


def _argument(path: str) -> str:
    """From the zone's root; never to be taken for an option."""
    return f"./{path}"


def _parse_path(printed: bytes) -> str | None:
    """What `_argument` began with, as text; None if no tool could open such a name."""
    try:
        text = printed.decode().removeprefix("./")
    except UnicodeDecodeError:
        return None
    return None if has_control_character(text) else text


def _pattern_problem(pattern: str, said: str) -> str:
    """In the words of the other engine where it has some, so that both say the same; its position is right, too."""
    if problem := pattern_problem(pattern):
        return problem
    if said.startswith(_LINE_BREAK):
        return f"not a valid pattern: a line holds no line break at position {pattern.find(_ESCAPED_BREAK)}"
    caret = _CARET.search(said)
    where = len(caret["before"]) - len(_WRAPPER) if caret and caret["shown"].startswith(_WRAPPER) else -1
    error = re.search(r"^error: (.+)$", said, re.MULTILINE)
    words = error[1] if error else said.removeprefix("rg: ").split("\n", 1)[0]
    return f"not a valid pattern: {words}{f' at position {where}' if where >= 0 else ''}"


def in_walls(walls: Walls) -> StartRipgrep:
    async def start(job: Job) -> RipgrepProcess:
        return (await walls.start(job)).child

    return start


def program_in_walls(level: Level) -> str:
    """The one that came with Forge, by its path: a program of that name in the person's PATH may be another one."""
    from golem_forge.sandbox.walls.bubblewrap import ripgrep_path
    from golem_forge.sandbox.walls.layout import SHIPPED

    shipped = ripgrep_path()
    if not shipped:
        return "rg"
    return f"{SHIPPED}/rg" if level is Level.FULL else shipped
