"""The `search` toolset: `list_dir` shows what is there, `grep_files` where something is written.

`create_<tool>_tool(sandbox)` gives one tool for embedders; without a sandbox it uses the one of each call's context.

`list_dir` shows a directory and what is below it, depth first, some levels deep and one page at a time. It walks by
held descriptors, never by path and never through a link, so that nothing outside the zone can be put in the way. The
inside of `.git` is not shown. Directories that cannot be read, or whose reading needs a question of its own (secrets,
read rules), are listed by name as `[unreadable]` and not entered; the rest goes on. A page beyond the first 10 000
entries is refused.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from golem_forge.core.effects import Verb
from golem_forge.core.errors import ToolFailed
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.lazy_module import pydantic
from golem_forge.core.results import ToolResult
from golem_forge.sandbox.errors import SandboxError, not_a_directory, permission_denied, too_large
from golem_forge.sandbox.files import LISTING_LIMIT, printable_name
from golem_forge.sandbox.handles import CONTENT, Handle
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.target import MAX_DEPTH, FileKind
from golem_forge.tools.context import Plan, ToolContext
from golem_forge.tools.factory import ToolsetContext
from golem_forge.tools.tool import NeedsApproval, Tool
from golem_forge.toolsets.file_access import FileAccess, FileTool, path_field, reading_plan
from golem_forge.toolsets.filesystem import KIND_SUFFIXES
from golem_forge.toolsets.search.grep_files import GREP_FILES
from golem_forge.toolsets.search.query import WithheldPaths

if TYPE_CHECKING:
    from golem_forge.sandbox.target import Target
    from golem_forge.sandbox.zones import Zone


class SearchToolset:
    name = "search"
    config = None

    def __init__(self, sandbox: Sandbox | None = None) -> None:
        self._sandbox = sandbox

    def get_tools(self, ctx: ToolsetContext | None = None) -> list[Tool]:
        access = FileAccess(self._sandbox or (ctx.sandbox if ctx else None))
        return [LIST_DIR.create(access), GREP_FILES.create(access)]


def create_list_dir_tool(sandbox: Sandbox | None = None, needs_approval: NeedsApproval | None = None) -> Tool:
    return LIST_DIR.create(FileAccess(sandbox), needs_approval)


def create_grep_files_tool(sandbox: Sandbox | None = None, needs_approval: NeedsApproval | None = None) -> Tool:
    return GREP_FILES.create(FileAccess(sandbox), needs_approval)


_DEPTH: Final = 2
_PAGE: Final = 200
_UNREADABLE: Final = " [unreadable]"
_DIRECTORY: Final = CONTENT | os.O_DIRECTORY


def _arguments() -> type[pydantic.BaseModel]:
    return pydantic.create_model(
        "list_dir",
        path=path_field("The directory", default="."),
        depth=(int, pydantic.Field(default=_DEPTH, ge=1, le=10, description="How many levels to show.")),
        offset=(int, pydantic.Field(default=1, ge=1, description="The first entry to show, counted from 1.")),
        limit=(int, pydantic.Field(default=_PAGE, ge=1, le=2000, description="How many entries at most.")),
    )


def _plan(access: FileAccess, args: dict[str, Any], ctx: ToolContext) -> Plan:
    target = access.target(args.get("path", "."), Verb.READ, ctx)
    target.must_exist()
    if target.kind is not FileKind.DIRECTORY:
        raise not_a_directory(target.virtual)
    depth, offset, limit = args.get("depth", _DEPTH), args.get("offset", 1), args.get("limit", _PAGE)
    return reading_plan(access, target, lambda: _page(target, _Walk(target, depth, ctx), offset, limit))


LIST_DIR: Final = FileTool(
    name="list_dir",
    description="List a directory and what is below it, two blanks per level: `/` after directories, `@` after links "
    "(not followed), `?` after anything else that is no file. Dot files are included, the inside of `.git` is not. "
    "The last line says where to continue. The path `/` lists the zones.",
    label="List directory",
    arguments=_arguments,
    planner=_plan,
    category="Search",
    aliases={"dir_path": "path"},
)


def _page(target: Target, walk: _Walk, offset: int, limit: int) -> ToolResult:
    entries = _bounded(target, walk.lines())
    skipped = sum(1 for _ in islice(entries, offset - 1))
    shown = list(islice(entries, limit))
    if not shown and offset > 1:
        count = "1 entry" if skipped == 1 else f"{skipped} entries"
        raise ToolFailed(f"offset {offset} is past the end ({count})")
    lines = [target.virtual, *(shown or ["(empty)"])]
    last = skipped + len(shown)
    if next(entries, None) is not None:
        lines.append(f"[more than {last} entries; continue with offset={last + 1}]")
    text = "\n".join(lines)
    return ToolResult(value={"kind": "text", "content": text}, text=text)


def _bounded(target: Target, lines: Iterator[str]) -> Iterator[str]:
    for count, line in enumerate(lines, 1):
        if count > LISTING_LIMIT:
            raise _too_many_entries(target, count)
        yield line


def _too_many_entries(target: Target, count: int) -> SandboxError:
    advice = "Name a directory below it."
    return too_large(target.virtual, count, LISTING_LIMIT, advice, unit="entries or more")


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    """The name on disk."""
    shown: str
    kind: FileKind


class _TooMany(Exception):
    pass


class _Walk:
    def __init__(self, target: Target, depth: int, ctx: ToolContext) -> None:
        self._target = target
        self._depth = depth
        self._rules = ctx.path_rules()

    def lines(self) -> Iterator[str]:
        """One line per entry, made as they are asked for."""
        target = self._target
        if target.zone is None:
            for name in sorted(target.zones):
                zone = target.zones[name]
                yield from self._directory(zone, zone.root, ".", (), f"{name}/ ({zone.mode})", level=1)
            return
        assert target.entry is not None
        if target.unreadable:
            raise permission_denied(target.virtual)
        try:
            entries = _entries(target.zone, target.entry)
        except _TooMany:
            raise _too_many_entries(target, LISTING_LIMIT + 1) from None
        except OSError:
            raise permission_denied(target.virtual) from None
        held = WithheldPaths(target, target.zone, self._rules)
        yield from self._inside(target.zone, held, target.entry, target.parts, entries, level=1)

    def _inside(
        self, zone: Zone, held: WithheldPaths, here: Handle, parts: tuple[str, ...], entries: list[_Entry], level: int
    ) -> Iterator[str]:
        for entry in entries:
            line = "  " * (level - 1) + entry.shown + KIND_SUFFIXES[entry.kind]
            path = (*parts, entry.name)
            if entry.kind is not FileKind.DIRECTORY or entry.name == ".git" or entry.name != entry.shown:
                yield line
            elif held(path) or len(path) >= MAX_DEPTH:
                yield line + _UNREADABLE
            else:
                yield from self._directory(zone, here, entry.name, path, line, level, held)

    def _directory(
        self,
        zone: Zone,
        above: Handle,
        name: str,
        parts: tuple[str, ...],
        line: str,
        level: int,
        held: WithheldPaths | None = None,
    ) -> Iterator[str]:
        """Its own line and, while there are levels left, what is in it."""
        try:
            here = Handle(os.open(name, _DIRECTORY, dir_fd=above.fd))
            entries = _entries(zone, here) if level < self._depth else []
        except FileNotFoundError:  # gone since its directory was read
            yield line
        except OSError:  # refused, or something else by now: a link is not followed
            yield line + _UNREADABLE
        except _TooMany:
            yield f"{line} [more than {LISTING_LIMIT} entries]"
        else:
            yield line
            held = held or WithheldPaths(self._target, zone, self._rules)
            yield from self._inside(zone, held, here, parts, entries, level + 1)


def _entries(zone: Zone, directory: Handle) -> list[_Entry]:
    """Returns the entries, sorted by the code points of the shown names."""
    found: list[_Entry] = []
    with os.scandir(directory.fd) as names:
        for entry in names:
            if zone.hides(entry):
                continue
            if len(found) == LISTING_LIMIT:
                raise _TooMany
            found.append(_Entry(entry.name, printable_name(entry.name), _kind(entry)))
    return sorted(found, key=lambda entry: entry.shown)


def _kind(entry: os.DirEntry[str]) -> FileKind:
    if entry.is_symlink():
        return FileKind.LINK
    if entry.is_dir(follow_symlinks=False):
        return FileKind.DIRECTORY
    return FileKind.FILE if entry.is_file(follow_symlinks=False) else FileKind.OTHER
