"""read_file: a text file by lines. The caller reads `L<n>: text`; the value holds the raw text of the same lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from golem_forge.core.effects import Verb
from golem_forge.core.errors import ToolFailed
from golem_forge.core.result import ToolResult
from golem_forge.sandbox import files
from golem_forge.tools.context import ToolContext
from golem_forge.tools.plan import Plan
from golem_forge.tools.tool import NeedsApproval, Tool
from golem_forge.toolsets.content import decode, has_binary_name, looks_binary, media_type
from golem_forge.toolsets.filesystem.reach import Reach
from golem_forge.toolsets.filesystem.shape import file_tool, path_field, reading_plan
from golem_forge.toolsets.numbered import (
    PAGE_BYTES,
    bare,
    closing_note,
    count_lines,
    first_line,
    offset_field,
    some_lines,
)

if TYPE_CHECKING:
    from pydantic import BaseModel

    from golem_forge.events.redaction import Redactor
    from golem_forge.sandbox.target import Target

DEFAULT_LIMIT: Final = 2000
_LONGEST_LINE: Final = 2000
_DESCRIPTION: Final = (
    "Read a text file. Lines come back numbered as `L<n>: text`, up to `limit` lines or 30 KiB at a time; the last "
    "line says where to continue. A very long line is shown whole when it is the only one asked for (`limit: 1`)."
)


def read_file_tool(reach: Reach, needs_approval: NeedsApproval | None = None) -> Tool:
    return file_tool(
        "read_file",
        _DESCRIPTION,
        label="Read file",
        arguments=_arguments,
        planner=_plan,
        reach=reach,
        needs_approval=needs_approval,
    )


def _arguments() -> type[BaseModel]:
    from pydantic import Field, create_model

    return create_model(
        "read_file",
        path=path_field("The file"),
        offset=offset_field("read"),
        limit=(int, Field(default=DEFAULT_LIMIT, ge=1, le=10_000, description="How many lines at most.")),
    )


def _plan(reach: Reach, args: dict[str, Any], ctx: ToolContext) -> Plan:
    target = reach.target(args["path"], Verb.READ, ctx)
    target.must_be_file()
    offset, limit = args.get("offset", 1), args.get("limit", DEFAULT_LIMIT)
    return reading_plan(reach, target, lambda: _read(target, offset, limit, ctx.redactor))


def _read(target: Target, offset: int, limit: int, redactor: Redactor | None) -> ToolResult:
    data = files.read_bytes(target)
    if has_binary_name(target.name) or looks_binary(data):
        kind = media_type(target.name, binary=True)
        text = f"'{target.virtual}' is binary ({kind}, {len(data)} bytes). Use file_info, or attach it."
        raise ToolFailed(text, code="BINARY_FILE")
    decoded = decode(data)
    total = count_lines(decoded.text)
    first = first_line(offset, total)
    lines = some_lines(decoded.text, first, limit)
    texts = [_uncut(bare(line), redactor) for line in lines]
    shown = _numbered(texts, first)
    last = first - 1 + len(shown)
    raw = lines[: len(shown)]
    shortened = len(lines) > 1 and any(len(text) > _LONGEST_LINE for text in texts[: len(shown)])
    note = closing_note(first, last, total)
    value = {
        "kind": "file_content",
        "path": target.virtual,
        "content": "".join(raw),
        "size": len(data),
        "start_line": first if total else 0,
        "end_line": last,
        "total_lines": total,
        "truncated": bool(note) or shortened,
        "encoding": decoded.encoding,
        "lossy": decoded.lossy,
    }
    return ToolResult(value=value, text="\n".join([*shown, note] if note else shown) or "(empty file)")


def _uncut(line: str, redactor: Redactor | None) -> str:
    """A line that will be shortened, without its secrets: one that is cut could not be found any more."""
    return redactor.secrets_out(line) if redactor is not None and len(line) > _LONGEST_LINE else line


def _numbered(lines: list[str], first: int) -> list[str]:
    """As many of the lines as fit a page. One alone is shown whole, whatever its length."""
    if len(lines) == 1:
        return [f"L{first}: {lines[0]}"]
    shown: list[str] = []
    room = PAGE_BYTES
    for number, line in enumerate(lines, first):
        row = f"L{number}: {_shortened(line)}"
        room -= len(row.encode()) + 1
        if room < 0:
            break
        shown.append(row)
    return shown


def _shortened(line: str) -> str:
    over = len(line) - _LONGEST_LINE
    return line if over <= 0 else f"{line[:_LONGEST_LINE]}…[+{over} chars]"
