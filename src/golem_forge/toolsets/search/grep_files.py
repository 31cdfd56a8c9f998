"""grep_files: which files, or which lines, match a pattern.

Looks at regular files inside the zones only: no links, no binary files, nothing in `.git`, nothing that `.gitignore`
leaves out, and nothing that would need a question of its own (secrets, read rules) unless it is the very path asked
for. Ripgrep in walls does the work, or `tools/pattern_child.py`, a process that walks by descriptors, searches with
`re` and is killed when the time is up; both answer alike. What may be shown of their matches is decided here.
`zone_files` names the files that such a search would look at, for a UI that completes their names.

The ripgrep engine asks first which files match and, where lines are wanted, then for the lines of the first of them.
Two questions are quicker than one: files are found by all cores and each only up to its first match, and no more lines
are ever printed than are shown. It runs in walls that let it read and nothing else, without any config file, and prints
paths relative to their zone; what may be shown of them is decided in `query.py`. Raises InputInvalid for a pattern it
does not understand, NotStartable where it cannot run at all.
"""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Protocol

from golem_forge.core.calls import ToolCompletion
from golem_forge.core.decisions import Status
from golem_forge.core.effects import Verb
from golem_forge.core.errors import ToolFailed
from golem_forge.core.lazy_dataclass import replace
from golem_forge.core.lazy_module import asyncio, pydantic, pydantic_core
from golem_forge.core.regex import regex
from golem_forge.core.results import ToolResult
from golem_forge.events.redaction import redact_start
from golem_forge.sandbox.errors import SandboxError, not_a_file, permission_denied
from golem_forge.sandbox.target import MAX_DEPTH, FileKind, has_control_character, special_file_kind
from golem_forge.sandbox.walls.model import Job, Level, Streams
from golem_forge.sandbox.zones import USER_TOOLS
from golem_forge.tools.context import Plan, ToolContext
from golem_forge.tools.pattern_child import SAMPLE_BYTES, GlobError, IncludeGlob, is_binary
from golem_forge.tools.pattern_search import (
    MAX_PATTERN,
    PatternLimits,
    PatternTooCostly,
    pattern_problem,
    search_in_child,
)
from golem_forge.tools.threads import run_in_thread
from golem_forge.toolsets.file_access import FileAccess, FileTool, path_field, reading_plan
from golem_forge.toolsets.search.query import (
    MAX_LINE_TEXT,
    FoundFile,
    MatchLine,
    SearchMatches,
    SearchMode,
    SearchQuery,
    SearchRoot,
    WithheldPaths,
    bad_pattern,
    first_files,
    named_is_masked,
    newest_files,
)

if TYPE_CHECKING:
    from golem_forge.sandbox.handles import Handle
    from golem_forge.sandbox.process.launch import Capture
    from golem_forge.sandbox.process.monitor import ExitStatus
    from golem_forge.sandbox.sandbox import Sandbox
    from golem_forge.sandbox.target import Target
    from golem_forge.sandbox.walls.model import PathRule
    from golem_forge.sandbox.walls.walls import Walls
    from golem_forge.sandbox.zones import Zone

SECONDS: Final = 30
_LIMIT: Final = 100
_CHILD_MEMORY: Final = 2 << 30
_COUNTED_FROM: Final = 5
"""A small model that is asked how many there are miscounts a longer list."""
_MORE: Final = "[more matches; narrow the pattern or raise limit]"


def _arguments() -> type[pydantic.BaseModel]:
    def not_blank(pattern: str) -> str:
        if not pattern.strip():
            raise pydantic_core.PydanticCustomError("pattern", "must not be blank")
        for char, name in (("\n", "line break"), ("\0", "NUL")):
            if (where := pattern.find(char)) >= 0:
                problem = f"not a valid pattern: a line holds no {name} at position {where}"
                raise pydantic_core.PydanticCustomError("pattern", "{problem}", {"problem": problem})
        return pattern

    def usable(glob: str) -> str:
        try:
            IncludeGlob(glob, 0)
        except GlobError as error:
            raise pydantic_core.PydanticCustomError(
                "glob", "{problem}", {"problem": f"not a valid glob: {error}"}
            ) from None
        return glob

    pattern = pydantic.Field(max_length=MAX_PATTERN, description="The regular expression.")
    include = pydantic.Field(
        default="",
        max_length=MAX_PATTERN,
        description="Only files whose name fits this glob (`*.py`, `*.{ts,tsx}`), or whose path from `path` on does "
        "(`src/**/*.py`).",
    )
    modes: Any = Literal["files", "lines"]
    return pydantic.create_model(
        "grep_files",
        pattern=(Annotated[str, pydantic.AfterValidator(not_blank)], pattern),
        path=path_field("The directory or file to search", default="."),
        include=(Annotated[str, pydantic.AfterValidator(usable)], include),
        mode=(modes, pydantic.Field(default="files", description="What to give: `files` or `lines`.")),
        ignore_case=(bool, pydantic.Field(default=False, description="Whether `a` also matches `A`.")),
        limit=(int, pydantic.Field(default=_LIMIT, ge=1, le=2000, description="How many files or lines at most.")),
    )


def _plan(access: FileAccess, args: dict[str, Any], ctx: ToolContext) -> Plan:
    target = access.target(args.get("path", "."), Verb.READ, ctx)
    target.must_exist()
    if target.kind not in (FileKind.FILE, FileKind.DIRECTORY):
        raise not_a_file(target.virtual, special_file_kind(target.stat))
    if target.unreadable:
        raise permission_denied(target.virtual)
    include = args.get("include", "")
    query = SearchQuery(
        pattern=args["pattern"],
        ignore_case=args.get("ignore_case", False),
        mode=SearchMode(args.get("mode", SearchMode.FILES)),
        include=include,
        limit=args.get("limit", _LIMIT),
        places=_search_roots(target, include, ctx),
        redactor=ctx.redactor,
    )
    # Walls hold the zones of the context's sandbox; a tool with one of its own has to do without.
    walls = ctx.walls if access.sandbox is None or access.sandbox is ctx.sandbox else None
    return reading_plan(access, target, partial(_search, query, target.virtual, walls))


GREP_FILES: Final = FileTool(
    name="grep_files",
    description="Search files by regular expression, line by line. `mode: files` gives the paths, newest change first; "
    "`mode: lines` gives `<path>:<line number>: <text>`. Binary files, links, `.git`, secrets and what `.gitignore` "
    "leaves out are not searched; hidden files are.",
    label="Search files",
    arguments=_arguments,
    planner=_plan,
    category="Search",
    aliases={},
)


def _search_roots(target: Target, include: str, ctx: ToolContext) -> tuple[SearchRoot, ...]:
    rules = ctx.path_rules()
    inside: list[tuple[Zone, Handle, bool]]
    if target.zone is not None:
        assert target.entry is not None
        inside = [(target.zone, target.entry, named_is_masked(target, rules))]
    else:
        zones = sorted(target.zones.values(), key=lambda zone: zone.virtual(("",)))
        inside = [(zone, zone.root, False) for zone in zones]
    return tuple(
        SearchRoot(
            zone=zone,
            parts=target.parts,
            entry=entry,
            is_file=target.kind is FileKind.FILE,
            withheld=WithheldPaths(target, zone, rules),
            include=IncludeGlob(include, len(target.parts)) if include else None,
            masked=masked,
        )
        for zone, entry, masked in inside
    )


async def _search(query: SearchQuery, path: str, walls: Walls | None) -> ToolResult | ToolCompletion:
    query = replace(query, until=asyncio.get_running_loop().time() + SECONDS)
    engine, matches = await _matches(query, walls)
    value: dict[str, Any] = {"kind": "search.result", "engine": engine, "path": path, "mode": query.mode.value}
    if query.mode is SearchMode.FILES:
        shown, more = await run_in_thread(lambda: newest_files(matches.found, matches.limit))
        matches.more = matches.more or more
        value["files"] = shown
    else:
        shown = [f"{line.path}:{line.number}: {line.text}" for line in matches.lines]
        value["matches"] = [line._asdict() for line in matches.lines]
    value |= {"count": len(shown), "truncated": matches.more or matches.stopped}
    lines = shown or ["No matches."]
    if matches.more:
        lines.append(_MORE)
    elif query.mode is SearchMode.LINES and len(shown) >= _COUNTED_FROM and not matches.stopped:
        lines.append(f"[{len(shown)} lines match]")
    if not matches.stopped:
        return ToolResult(value=value, text="\n".join(lines))
    text = "\n".join((f"Search stopped after {SECONDS} s; matches so far:", *lines))
    return ToolCompletion(result=ToolResult(value=value, text=text), status=Status.TIMEOUT)


async def _matches(query: SearchQuery, walls: Walls | None) -> tuple[str, SearchMatches]:
    """The name of the engine that did it, and what it found."""
    everywhere = all(place.zone.name != USER_TOOLS for place in query.places)  # that one is never in walls
    level = await walls.level() if walls is not None and everywhere else Level.NONE
    if any(place.include is not None and place.include.may_take_long for place in query.places):
        # Threat: a glob that freezes the runtime. The child, which is killed in time, applies it alone.
        query = replace(query, places=tuple(replace(place, include=None) for place in query.places))
        level = Level.NONE
    if walls is not None and level in (Level.FULL, Level.LANDLOCK):
        try:
            matches = SearchMatches(query.limit)
            await search(query, matches, in_walls(walls), program_in_walls(level))
            return "rg", matches
        except NotStartable:
            pass
    matches = SearchMatches(query.limit)
    await _search_in_child(query, matches)
    return "python", matches


async def _search_in_child(query: SearchQuery, matches: SearchMatches) -> None:
    """Adds matches in path order. Raises InputInvalid for a pattern that `re` does not understand."""
    if problem := pattern_problem(query.pattern):
        raise bad_pattern(problem)

    def take(row: list[Any]) -> bool:
        index, path, *line = row  # line: number and text, cut
        place = query.places[index]
        if query.mode is SearchMode.FILES:
            matches.found.append((place, path))
        elif place.may_show(tuple(path.split("/"))):
            number, text = line
            text = redact_start(text, MAX_LINE_TEXT, query.redactor) if query.redactor else text[:MAX_LINE_TEXT]
            return matches.add_line(MatchLine(place.virtual(path), number, text))
        return True

    order = {
        "pattern": query.pattern,
        "ignore_case": query.ignore_case,
        "lines": query.mode is SearchMode.LINES,
        "longest": MAX_LINE_TEXT + (query.redactor.reach if query.redactor else 0),
        "include": query.include,
        "library": _pathspec_folder(),
        "places": [
            {"zone": place.zone.root.fd, "parts": place.parts, "entry": place.entry.fd, "levels": place.levels}
            for place in query.places
        ],
    }
    files = [fd for place in query.places for fd in (place.zone.root.fd, place.entry.fd)]
    seconds = query.until - asyncio.get_running_loop().time()
    try:
        await search_in_child(order, PatternLimits(seconds, _CHILD_MEMORY), take, files)
    except TimeoutError:
        matches.stopped = True
    except PatternTooCostly:
        raise ToolFailed("The pattern needs too much time or memory on these files; use a simpler one.") from None


def _pathspec_folder() -> str:
    library = find_spec("pathspec")
    assert library is not None
    assert library.origin is not None
    return os.path.dirname(os.path.dirname(library.origin))


async def zone_files(sandbox: Sandbox, rules: Sequence[PathRule], most: int, seconds: float) -> list[str]:
    """The virtual paths of at most `most` files of all zones: what `.gitignore` leaves out, secrets, and what a read
    rule speaks of are not among them. Opens no file. When the time is up, what was found until then.

    Threat: a hostile `.gitignore` whose patterns take for ever. The child reads it, and is killed in time.
    """
    with closing(sandbox.target("/", Verb.READ)) as target:
        zones = sorted(target.zones.values(), key=lambda zone: zone.virtual(("",)))
        withheld = [WithheldPaths(target, zone, rules) for zone in zones]
        found: list[str] = []

        def take(row: list[Any]) -> bool:
            index, paths = row
            held = withheld[index]
            found.extend(f"/{zones[index].name}/{path}" for path in paths if not held(tuple(path.split("/"))))
            return len(found) < most

        places = [{"entry": zone.root.fd, "levels": MAX_DEPTH} for zone in zones]
        order = {"names": True, "library": _pathspec_folder(), "places": places}
        with suppress(TimeoutError, PatternTooCostly):
            files = [zone.root.fd for zone in zones]
            await search_in_child(order, PatternLimits(seconds, _CHILD_MEMORY), take, files)
        return found[:most]


_OUTPUT_OPTIONS: Final = ("--no-config", "--no-messages", "--color=never", "--null")
_FILTER_OPTIONS: Final = (
    *("--hidden", "--no-require-git", "--no-ignore-dot", "--no-ignore-exclude", "--no-ignore-global"),
    *("--glob", "!.git", "--glob", "!*\n*"),
)
"""Uses only `.gitignore` of all ignore files. A name with a line break is left out: no tool can open it."""
_AS_TEXT: Final = "--text"
"""Used only for files known to be text: ripgrep might hold gigabytes of a binary file in memory as one line."""
_BINARY_TOO: Final = "--binary"
"""Else a NUL anywhere hides a file, or not, by where it lies. Which files are binary is decided in `query.py`."""
_SIMPLE_GLOB: Final = regex(r"[\w.*{},-]*\*[\w.*{},-]*", re.ASCII)
_PRINTED_LINE: Final = regex(rb"([^\0\n]+)\0(\d+):([^\n]*)\n")
_FILES_SHARE: Final = 0.8
"""The part of the time limit for finding files, so that some is left for their lines."""
_MAX_FILES: Final = 500
_MAX_ARGUMENT_BYTES: Final = 100_000
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
    """Raised if ripgrep is missing or does not run."""


class RipgrepProcess(Protocol):
    """The part of `sandbox.process.child.Child` that this engine uses."""

    @property
    def output(self) -> Capture: ...
    @property
    def errors(self) -> Capture | None: ...
    async def wait(self, seconds: float | None = None) -> ExitStatus | None: ...
    def kill(self) -> None: ...


StartRipgrep = Callable[[Job], Awaitable[RipgrepProcess]]


async def search(query: SearchQuery, matches: SearchMatches, start: StartRipgrep, program: str = "rg") -> None:
    now = asyncio.get_running_loop().time
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
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        left = self._query.limit + 1 - len(self._matches.lines)
        # Threat: ripgrep cuts a line before its secrets are redacted, and half a secret is not found.
        longest = 4 * (MAX_LINE_TEXT + (self._query.redactor.reach if self._query.redactor else 0)) + 100  # in bytes
        how = (
            *("--threads=1", "--line-number", "--with-filename", "--no-heading", f"--max-count={left}"),
            *(f"--max-columns={longest}", "--max-columns-preview", _AS_TEXT),
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
    """Returns the path from the zone's root in a form that is never taken for an option."""
    return f"./{path}"


def _parse_path(printed: bytes) -> str | None:
    """Returns the path that `_argument` made; None if no tool could open such a name."""
    try:
        text = printed.decode().removeprefix("./")
    except UnicodeDecodeError:
        return None
    return None if has_control_character(text) else text


def _pattern_problem(pattern: str, said: str) -> str:
    """Describes the problem in the words of the other engine if it finds one, so that both say the same; its position
    is right, too.
    """
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
