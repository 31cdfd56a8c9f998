"""grep_files: which files, or which lines, match a pattern.

Looks at regular files inside the zones only: no links, no binary files, nothing in `.git`, nothing that `.gitignore`
leaves out, and nothing that would need a question of its own (secrets, read rules) unless it is the very path asked
for. Ripgrep in walls does the work, or `tools/pattern_child.py`, a process that walks by descriptors, searches with
`re` and is killed when the time is up; both answer alike. What may be shown of their matches is decided here.
`zone_files` names the files that such a search would look at, for a UI that completes their names.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing, suppress
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from golem_forge.core.calls import ToolCompletion
from golem_forge.core.decisions import Status
from golem_forge.core.effects import Verb
from golem_forge.core.errors import ToolFailed
from golem_forge.core.lazy_dataclass import replace
from golem_forge.core.results import ToolResult
from golem_forge.events.redaction import redact_start
from golem_forge.sandbox.errors import not_a_file, permission_denied
from golem_forge.sandbox.paths import MAX_DEPTH
from golem_forge.sandbox.target import FileKind, special_file_kind
from golem_forge.sandbox.walls.model import Level
from golem_forge.sandbox.zones import USER_TOOLS
from golem_forge.tools.context import Plan, ToolContext
from golem_forge.tools.pattern_child import GlobError, IncludeGlob
from golem_forge.tools.pattern_search import (
    MAX_PATTERN,
    PatternLimits,
    PatternTooCostly,
    pattern_problem,
    search_in_child,
)
from golem_forge.tools.threads import run_in_thread
from golem_forge.toolsets.file_access import FileAccess, FileTool, path_field, reading_plan
from golem_forge.toolsets.search import ripgrep
from golem_forge.toolsets.search.query import (
    MAX_LINE_TEXT,
    MatchLine,
    SearchMatches,
    SearchMode,
    SearchQuery,
    SearchRoot,
    WithheldPaths,
    bad_pattern,
    named_is_masked,
    newest_files,
)

if TYPE_CHECKING:
    from pydantic import BaseModel

    from golem_forge.sandbox.handles import Handle
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


def _arguments() -> type[BaseModel]:
    from pydantic import AfterValidator, Field, create_model
    from pydantic_core import PydanticCustomError

    def not_blank(pattern: str) -> str:
        if not pattern.strip():
            raise PydanticCustomError("pattern", "must not be blank")
        for char, name in (("\n", "line break"), ("\0", "NUL")):
            if (where := pattern.find(char)) >= 0:
                problem = f"not a valid pattern: a line holds no {name} at position {where}"
                raise PydanticCustomError("pattern", "{problem}", {"problem": problem})
        return pattern

    def usable(glob: str) -> str:
        try:
            IncludeGlob(glob, 0)
        except GlobError as error:
            raise PydanticCustomError("glob", "{problem}", {"problem": f"not a valid glob: {error}"}) from None
        return glob

    pattern = Field(max_length=MAX_PATTERN, description="The regular expression.")
    include = Field(
        default="",
        max_length=MAX_PATTERN,
        description="Only files whose name fits this glob (`*.py`, `*.{ts,tsx}`), or whose path from `path` on does "
        "(`src/**/*.py`).",
    )
    modes: Any = Literal["files", "lines"]
    return create_model(
        "grep_files",
        pattern=(Annotated[str, AfterValidator(not_blank)], pattern),
        path=path_field("The directory or file to search", default="."),
        include=(Annotated[str, AfterValidator(usable)], include),
        mode=(modes, Field(default="files", description="What to give: `files` or `lines`.")),
        ignore_case=(bool, Field(default=False, description="Whether `a` also matches `A`.")),
        limit=(int, Field(default=_LIMIT, ge=1, le=2000, description="How many files or lines at most.")),
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
    from asyncio import get_running_loop

    query = replace(query, until=get_running_loop().time() + SECONDS)
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
            await ripgrep.search(query, matches, ripgrep.in_walls(walls), ripgrep.program_in_walls(level))
            return "rg", matches
        except ripgrep.NotStartable:
            pass
    matches = SearchMatches(query.limit)
    await _search_in_child(query, matches)
    return "python", matches


async def _search_in_child(query: SearchQuery, matches: SearchMatches) -> None:
    """Adds matches in path order. Raises InputInvalid for a pattern that `re` does not understand."""
    from asyncio import get_running_loop

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
    seconds = query.until - get_running_loop().time()
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
