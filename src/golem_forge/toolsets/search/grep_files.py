"""grep_files: which files, or which lines, match a pattern.

Looks at regular files inside the zones only: no links, no binary files, nothing in `.git`, nothing that `.gitignore`
leaves out, and nothing that would need a question of its own (secrets, read rules) unless it is the very path asked
for. Ripgrep in walls does the work, or Python's `re` in a process that can be killed; both answer alike.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from golem_forge.core.calls import ToolCompletion
from golem_forge.core.decisions import Status
from golem_forge.core.effects import Verb
from golem_forge.core.results import ToolResult
from golem_forge.sandbox.errors import not_a_file, permission_denied
from golem_forge.sandbox.target import FileKind, special_file_kind
from golem_forge.sandbox.walls.model import Level
from golem_forge.sandbox.zones import USER_TOOLS
from golem_forge.tools.context import Plan, ToolContext
from golem_forge.toolsets.file_access import FileAccess, FileTool, path_field, reading_plan
from golem_forge.toolsets.search import python_engine, ripgrep
from golem_forge.toolsets.search.query import (
    SearchMatches,
    SearchMode,
    SearchQuery,
    SearchRoot,
    WithheldPaths,
    named_is_masked,
)
from golem_forge.toolsets.search.scan_child import GlobError, IncludeGlob

if TYPE_CHECKING:
    from pydantic import BaseModel

    from golem_forge.events.redaction import Redactor
    from golem_forge.sandbox.handles import Handle
    from golem_forge.sandbox.target import Target
    from golem_forge.sandbox.walls.walls import Walls
    from golem_forge.sandbox.zones import Zone

SECONDS: Final = 30
MAX_PATTERN: Final = 1000
_LIMIT: Final = 100
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
    search = _GrepSearch(args, target, _search_roots(target, args.get("include", ""), ctx), ctx.redactor)
    # Walls hold the zones of the context's sandbox; a tool with one of its own has to do without.
    walls = ctx.walls if access.sandbox is None or access.sandbox is ctx.sandbox else None
    return reading_plan(access, target, partial(search.run, walls))


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


class _GrepSearch:
    def __init__(
        self, args: dict[str, Any], target: Target, places: tuple[SearchRoot, ...], redactor: Redactor | None
    ) -> None:
        self._path = target.virtual
        self._places = places
        self._redactor = redactor
        self._args = args
        self._mode = SearchMode(args.get("mode", SearchMode.FILES))
        self._matches = SearchMatches(args.get("limit", _LIMIT))

    async def run(self, walls: Walls | None) -> ToolResult | ToolCompletion:
        from asyncio import get_running_loop

        args = self._args
        query = SearchQuery(
            pattern=args["pattern"],
            ignore_case=args.get("ignore_case", False),
            mode=self._mode,
            include=args.get("include", ""),
            limit=self._matches.limit,
            places=self._places,
            until=get_running_loop().time() + SECONDS,
            redactor=self._redactor,
        )
        return await self._result(await self._search(query, walls))

    async def _search(self, query: SearchQuery, walls: Walls | None) -> str:
        """Returns the name of the engine that did it."""
        everywhere = all(place.zone.name != USER_TOOLS for place in query.places)  # that one is never in walls
        level = await walls.level() if walls is not None and everywhere else Level.NONE
        if walls is not None and level in (Level.FULL, Level.LANDLOCK):
            try:
                program = ripgrep.program_in_walls(level)
                await ripgrep.search(query, self._matches, ripgrep.in_walls(walls), program)
                return "rg"
            except ripgrep.NotStartable:
                self._matches = SearchMatches(query.limit)
        await python_engine.search(query, self._matches)
        return "python"

    async def _result(self, engine: str) -> ToolResult | ToolCompletion:
        from golem_forge.tools.threads import run_in_thread

        matches = self._matches
        value: dict[str, Any] = {
            "kind": "search.result",
            "engine": engine,
            "path": self._path,
            "mode": self._mode.value,
        }
        if self._mode is SearchMode.FILES:
            shown, more = await run_in_thread(lambda: ripgrep.newest_files(matches.found, matches.limit))
            matches.more = matches.more or more
            value["files"] = shown
        else:
            shown = [f"{line.path}:{line.number}: {line.text}" for line in matches.lines]
            value["matches"] = [line._asdict() for line in matches.lines]
        value |= {"count": len(shown), "truncated": matches.more or matches.stopped}
        lines = shown or ["No matches."]
        if matches.more:
            lines.append(_MORE)
        if not matches.stopped:
            return ToolResult(value=value, text="\n".join(lines))
        text = "\n".join((f"Search stopped after {SECONDS} s; matches so far:", *lines))
        return ToolCompletion(result=ToolResult(value=value, text=text), status=Status.TIMEOUT)
