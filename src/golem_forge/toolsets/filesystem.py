"""The `filesystem` toolset: read, list, look, write and delete inside the zones of a sandbox.

`create_<tool>_tool(sandbox)` gives one tool for embedders; without a sandbox it uses the one of each call's context.
`needs_approval` (also as `{"needs_approval": …}`) and `zone_approval` replace a zone's consent, never its `blocked` and
nothing that always asks.

read_file gives a text file by lines: the caller reads `L<n>: text`, the value holds the raw text of the same lines. A
picture is a content block; a PDF is its text by lines, with pictures of the pages that they are on.
list_files gives one directory, one level; `/` lists the zones. file_exists and file_info say what is at a path without
its content; links are followed, one that leads nowhere is described itself. write_file creates or replaces one file;
its diff is made when planning, from the bytes that the run will write. If the old content is another one by the time of
the run, nothing is written: the person agreed to a change of the content they saw. delete_file removes one file, or a
link itself; directories are refused.
"""

from __future__ import annotations

import hashlib
import os
from base64 import b64encode
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from golem_forge.core.effects import Mark, Verb
from golem_forge.core.errors import ConfigError, ToolFailed
from golem_forge.core.images import image_size, picture_type
from golem_forge.core.lazy_module import pydantic
from golem_forge.core.options import takes_options
from golem_forge.core.results import ToolResult, block_text
from golem_forge.sandbox import files
from golem_forge.sandbox.errors import from_os_error, path_changed, too_large
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.target import FileKind, Target
from golem_forge.tools.context import Plan, ToolContext
from golem_forge.tools.factory import ToolsetContext
from golem_forge.tools.threads import run_in_thread
from golem_forge.tools.tool import NeedsApproval, Tool
from golem_forge.toolsets.file_access import (
    DIFF_LIMIT,
    PAGE_BYTES,
    SAMPLE_BYTES,
    Decoded,
    FileAccess,
    FileTool,
    ZoneApproval,
    checked_overrides,
    closing_note,
    count_lines,
    decode,
    first_line,
    has_binary_name,
    lines_from_number,
    looks_binary,
    media_type,
    offset_field,
    path_arguments,
    path_field,
    reading_plan,
    replaced_secret,
    replaced_whole,
    strip_line_end,
    unified_diff,
    utc_text,
)

if TYPE_CHECKING:
    from golem_forge.events.redaction import Redactor
    from golem_forge.sandbox.walls.walls import Walls

DEFAULT_READ_LINES: Final = 2000
_MAX_LINE: Final = 2000


def _read_arguments() -> type[pydantic.BaseModel]:
    return pydantic.create_model(
        "read_file",
        path=path_field("The file"),
        offset=offset_field("read"),
        limit=(int, pydantic.Field(default=DEFAULT_READ_LINES, ge=1, le=10_000, description="How many lines at most.")),
    )


def _plan_read(access: FileAccess, args: dict[str, Any], ctx: ToolContext) -> Plan:
    target = access.target(args["path"], Verb.READ, ctx)
    target.must_be_file()
    page = _PageRequest(args.get("offset", 1), args.get("limit", DEFAULT_READ_LINES), ctx.redactor)
    if media_type(target.name, binary=True) == _PDF:
        # Walls hold the zones of the context's sandbox; a tool with one of its own has to do without.
        walls = ctx.walls if access.sandbox is None or access.sandbox is ctx.sandbox else None
        return reading_plan(access, target, lambda: _read_pdf(target, page, walls))
    return reading_plan(access, target, lambda: _text_result(target, files.read_bytes(target), page))


class _PageRequest(NamedTuple):
    offset: int
    limit: int
    redactor: Redactor | None


_PICTURES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
_PDF: Final = "application/pdf"


def _media_result(target: Target, data: bytes, kind: str) -> ToolResult | None:
    """A picture or PDF as a content block, for a caller that can see; None: it is neither, whatever its name says."""
    width, height = image_size(data) if kind in _PICTURES else (0, 0)
    kind = picture_type(data) if width else kind
    written = b64encode(data).decode()
    if width:
        block: dict[str, Any] = {"type": "image", "data": written, "mimeType": kind}
    elif kind == _PDF and data.startswith(b"%PDF-"):
        uri = f"file://{target.virtual}"
        block = {"type": "resource", "resource": {"uri": uri, "mimeType": kind, "blob": written}}
    else:
        return None
    value = {"kind": "file_media", "path": target.virtual, "mimeType": kind, "size": len(data)}
    value |= {"width": width, "height": height} if width else {}
    return ToolResult(value=value, text=f"{target.virtual}: {block_text(block)}", content=(block,))


async def _read_pdf(target: Target, page: _PageRequest, walls: Walls | None) -> ToolResult:
    """Its text by lines, with the pages of these lines as pictures; the PDF itself where there is no text to be had."""
    from golem_forge.toolsets.pdf import read_pdf

    data = await run_in_thread(lambda: files.read_bytes(target))
    whole = _media_result(target, data, _PDF)
    if whole is None:
        return _text_result(target, data, page)
    read = await read_pdf(data, page.offset, page.limit, walls)
    if read.problem:
        whole.text += f"\nIts text cannot be read here: {read.problem}."
        return whole
    result = _page_of(target, Decoded(read.text, "utf-8", False), len(data), page)
    result.value |= {"mimeType": _PDF, "pages": read.pages, "truncated": result.value["truncated"] or read.cut}
    if read.cut:
        result.text += f"\n[the text of a PDF with {read.pages} pages; it goes on, and is not read further]"
    blocks = [{"type": "image", "data": png, "mimeType": "image/png"} for _, png in read.pictures]
    pages = [
        f"[page {number} as a picture] {block_text(block)}"
        for (number, _), block in zip(read.pictures, blocks, strict=True)
    ]
    result.text = "\n".join([result.text, *pages])
    result.content = ({"type": "text", "text": result.text}, *blocks) if blocks else ()
    return result


def _text_result(target: Target, data: bytes, page: _PageRequest) -> ToolResult:
    if has_binary_name(target.name) or looks_binary(data):
        kind = media_type(target.name, binary=True)
        if (media := _media_result(target, data, kind)) is not None:
            return media
        text = f"'{target.virtual}' is binary ({kind}, {len(data)} bytes). Use file_info, or attach it."
        raise ToolFailed(text, code="BINARY_FILE")
    return _page_of(target, decode(data), len(data), page)


def _page_of(target: Target, decoded: Decoded, size: int, page: _PageRequest) -> ToolResult:
    total = count_lines(decoded.text)
    first = first_line(page.offset, total)
    lines = lines_from_number(decoded.text, first, page.limit)
    texts = [_redact_long_line(strip_line_end(line), page.redactor) for line in lines]
    shown = _numbered_page(texts, first)
    last = first - 1 + len(shown)
    raw = lines[: len(shown)]
    shortened = len(lines) > 1 and any(len(text) > _MAX_LINE for text in texts[: len(shown)])
    note = closing_note(first, last, total)
    value = {
        "kind": "file_content",
        "path": target.virtual,
        "content": "".join(raw),
        "size": size,
        "start_line": first if total else 0,
        "end_line": last,
        "total_lines": total,
        "truncated": bool(note) or shortened,
        "encoding": decoded.encoding,
        "lossy": decoded.lossy,
    }
    return ToolResult(value=value, text="\n".join([*shown, note] if note else shown) or "(empty file)")


def _redact_long_line(line: str, redactor: Redactor | None) -> str:
    """Redacts a line that will be shortened: a secret that is cut could not be found later."""
    return redactor.redact_secrets(line) if redactor is not None and len(line) > _MAX_LINE else line


def _numbered_page(lines: list[str], first: int) -> list[str]:
    """Returns as many lines as fit a page. A single line is shown whole, whatever its length."""
    if len(lines) == 1:
        return [f"L{first}: {lines[0]}"]
    shown: list[str] = []
    room = PAGE_BYTES
    for number, line in enumerate(lines, first):
        over = len(line) - _MAX_LINE
        row = f"L{number}: {line if over <= 0 else f'{line[:_MAX_LINE]}…[+{over} chars]'}"
        room -= len(row.encode()) + 1
        if room < 0:
            break
        shown.append(row)
    return shown


_READ_FILE: Final = FileTool(
    name="read_file",
    description="Read a text file. Lines come back numbered as `L<n>: text`, up to `limit` lines or 30 KiB at a time; "
    "the last line says where to continue. A very long line is shown whole when it is the only one asked for "
    "(`limit: 1`).",
    label="Read file",
    arguments=_read_arguments,
    planner=_plan_read,
)


KIND_SUFFIXES: Final = {FileKind.FILE: "", FileKind.DIRECTORY: "/", FileKind.LINK: "@", FileKind.OTHER: "?"}
_MAX_LISTED: Final = 1000


def _plan_list(access: FileAccess, args: dict[str, Any], ctx: ToolContext) -> Plan:
    target = access.target(args.get("path", "."), Verb.READ, ctx)
    target.must_exist()
    return reading_plan(access, target, lambda: _list(target))


def _list(target: Target) -> ToolResult:
    if target.zone is None:
        names = [f"{name}/ ({target.zones[name].mode})" for name in sorted(target.zones)]
    else:
        names = [entry.name + KIND_SUFFIXES[entry.kind] for entry in files.list_dir(target)]
    shown = names[:_MAX_LISTED]
    count = len(names)
    lines = list(shown)
    if count > len(shown):
        lines.append(f"[… {count - len(shown)} more; use list_dir]")
    lines.append(f"{'1 entry' if count == 1 else f'{count} entries'} in {target.virtual}")
    value = {
        "kind": "file_list",
        "path": target.virtual,
        "files": shown,
        "count": count,
        "truncated": count > len(shown),
    }
    return ToolResult(value=value, text="\n".join(lines))


_LIST_FILES: Final = FileTool(
    name="list_files",
    description="List one directory, one level deep: `/` after directories, `@` after links, `?` after anything else "
    "that is no file. The path `/` lists the zones.",
    label="List files",
    arguments=path_arguments("list_files", "The directory", default="."),
    planner=_plan_list,
)
_MAX_INSPECTED: Final = 10 * 1024 * 1024


def _plan_exists(access: FileAccess, args: dict[str, Any], ctx: ToolContext) -> Plan:
    target = _target_or_link(access, args["path"], ctx)
    answer = {
        "path": target.virtual,
        "exists": target.exists,
        "type": target.kind.value if target.kind else None,
    }
    return reading_plan(access, target, lambda: answer)


def _plan_info(access: FileAccess, args: dict[str, Any], ctx: ToolContext) -> Plan:
    target = _target_or_link(access, args["path"], ctx)
    target.must_exist()
    return reading_plan(access, target, lambda: _file_info(target))


def _target_or_link(access: FileAccess, path: str, ctx: ToolContext) -> Target:
    target = access.target(path, Verb.READ, ctx)
    if target.exists:
        return target
    itself = access.target(path, Verb.READ, ctx, follow_last=False)
    return itself if itself.kind is FileKind.LINK else target


def _file_info(target: Target) -> dict[str, Any]:
    info = files.file_info(target)
    answer: dict[str, Any] = {
        "path": target.virtual,
        "type": info.kind.value,
        "size": info.size,
        "modified": utc_text(info.modified) if target.zone else None,
        "mode": f"{info.mode:04o}",
        "mime": None,
        "binary": None,
        "lines": None,
        "sha256": None,
    }
    if info.kind is FileKind.FILE and not target.unreadable:
        answer |= _content_facts(target, info.size)
    return answer


def _content_facts(target: Target, size: int) -> dict[str, Any]:
    whole = size <= _MAX_INSPECTED
    data = files.read_bytes(target) if whole else _beginning(target)
    binary = has_binary_name(target.name) or looks_binary(data)
    facts: dict[str, Any] = {"mime": media_type(target.name, binary=binary), "binary": binary}
    if whole:
        facts["lines"] = None if binary else count_lines(decode(data).text)
        facts["sha256"] = hashlib.sha256(data).hexdigest()
    return facts


def _beginning(target: Target) -> bytes:
    assert target.entry is not None
    try:
        return os.pread(target.entry.fd, SAMPLE_BYTES, 0)
    except OSError as error:
        raise from_os_error(error, target.virtual) from None


_FILE_EXISTS: Final = FileTool(
    name="file_exists",
    description="Tell whether something is at a path, and what it is: file, directory, link (one that leads nowhere) "
    "or other.",
    label="File exists?",
    arguments=path_arguments("path", "The file or directory"),
    planner=_plan_exists,
)
_FILE_INFO: Final = FileTool(
    name="file_info",
    description="Describe a file or directory: type, size, time of change, mode, media type, whether it is binary, "
    "and up to 10 MiB its number of lines and its SHA-256.",
    label="File info",
    arguments=path_arguments("path", "The file or directory"),
    planner=_plan_info,
)
_MAX_WRITE_ARGUMENTS: Final = 16 * 1024 * 1024
"""Above the write limit, so that a content just over it gets the answer that names that limit."""
_MAX_ORIGINAL: Final = 100 * 1024


def _write_arguments() -> type[pydantic.BaseModel]:
    return pydantic.create_model(
        "write_file",
        path=path_field("The file"),
        content=(str, pydantic.Field(description="The whole new content.")),
    )


def _plan_write(access: FileAccess, args: dict[str, Any], ctx: ToolContext) -> Plan:
    target = access.target(args["path"], Verb.WRITE, ctx)
    content: str = args["content"]
    data = content.encode()
    if len(data) > files.WRITE_LIMIT:
        raise too_large(target.virtual, len(data), files.WRITE_LIMIT, "Write it as several files.")
    change = _PlannedWrite(target, content, data)
    effects = (access.effect(target, ctx),)
    return Plan(run=change.make, effects=effects, diff=change.diff, recheck=target.recheck, close=target.close)


class _PlannedWrite:
    def __init__(self, target: Target, content: str, data: bytes) -> None:
        self._target = target
        self._content = content
        self._data = data
        self._original: str | None = None
        self._old_hash: bytes | None = None
        self._old_size = target.stat.st_size if target.stat else 0
        self._unchanged = False
        if self._old_size > files.READ_LIMIT:
            self.diff = replaced_whole(target.virtual, self._old_size, data)
            return
        old = files.read_bytes(target) if target.exists else None
        secret = Mark.SECRET_PATH in target.marks
        self.diff = (
            replaced_secret(target.virtual, len(old), data)
            if secret and old is not None
            else unified_diff(target.virtual, old, data)
        )
        if old is not None:
            self._old_hash = hashlib.sha256(old).digest()
            self._unchanged = old == data
            if len(old) <= _MAX_ORIGINAL and not secret and not looks_binary(old):
                self._original = decode(old).text

    def make(self) -> ToolResult:
        target = self._target
        # Size and time of change do not tell everything: two writes within one tick of the clock look alike.
        if self._old_hash is not None and hashlib.sha256(files.read_bytes(target)).digest() != self._old_hash:
            raise path_changed(target.virtual)
        if self._unchanged:
            target.recheck()
        else:
            files.write_atomic(target, self._data)
        return self._result()

    def _result(self) -> ToolResult:
        path, size = self._target.virtual, len(self._data)
        if self._unchanged:
            summary = f"Unchanged {path}"
        elif self._target.exists:
            summary = f"Modified {path} ({size} bytes, was {self._old_size})"
        else:
            summary = f"Created {path} ({size} bytes)"
        value: dict[str, Any] = {"kind": "diff", "path": path}
        if self._original is not None:
            value["original"] = self._original
        value |= {
            "modified": self._content,
            "isNew": not self._target.exists,
            "bytesWritten": 0 if self._unchanged else size,
            "summary": summary,
        }
        return ToolResult(value=value, text=summary)


_WRITE_FILE: Final = FileTool(
    name="write_file",
    description="Create a file or replace its whole content (at most 10 MiB). Missing directories are made. The "
    "content is written as given; no newline is added.",
    label="Write file",
    arguments=_write_arguments,
    planner=_plan_write,
    always=Verb.WRITE,
    max_argument_bytes=_MAX_WRITE_ARGUMENTS,
)


def _plan_delete(access: FileAccess, args: dict[str, Any], ctx: ToolContext) -> Plan:
    target = access.target(args["path"], Verb.DELETE, ctx)
    effects = (access.effect(target, ctx),)
    diff = _deletion_diff(target)
    return Plan(run=lambda: _delete(target), effects=effects, diff=diff, recheck=target.recheck, close=target.close)


def _deletion_diff(target: Target) -> str:
    if target.kind is not FileKind.FILE or target.stat is None or target.unreadable:
        return ""
    size = target.stat.st_size
    if Mark.SECRET_PATH in target.marks:
        return replaced_secret(target.virtual, size, None)
    if size > DIFF_LIMIT:
        return replaced_whole(target.virtual, size, None)
    return unified_diff(target.virtual, files.read_bytes(target), None)


def _delete(target: Target) -> str:
    what = "link" if target.kind is FileKind.LINK else f"{files.file_info(target).size} bytes"
    files.delete(target)
    return f"Deleted {target.virtual} ({what})"


_DELETE_FILE: Final = FileTool(
    name="delete_file",
    description="Delete one file, or a link itself (never what it leads to). Directories are not deleted.",
    label="Delete file",
    arguments=path_arguments("delete_file", "The file or link"),
    planner=_plan_delete,
    always=Verb.DELETE,
)
_TOOLS: Final = (_READ_FILE, _LIST_FILES, _FILE_EXISTS, _FILE_INFO, _WRITE_FILE, _DELETE_FILE)


class FilesystemToolset:
    name = "filesystem"
    config = None

    @takes_options("FilesystemToolset", at=1)
    def __init__(
        self,
        sandbox: Sandbox | Mapping[str, Any] | None = None,
        *,
        zone_approval: ZoneApproval | None = None,
        zone_approval_config: ZoneApproval | None = None,
    ) -> None:
        """`zone_approval`: zone → `{"write": verdict, "delete": verdict}`; `zone_approval_config` is another name of
        it. All of it may be one mapping. Raises ConfigError for a zone, a verb or a verdict that does not exist."""
        assert not isinstance(sandbox, Mapping)
        if zone_approval is not None and zone_approval_config not in (None, zone_approval):
            raise ConfigError("zone_approval and zone_approval_config are the same option; give one of them")
        given = zone_approval if zone_approval is not None else zone_approval_config
        self._called = "zone_approval" if zone_approval is not None else "zone_approval_config"
        self._zone_approval = given or {}
        self._sandbox = FileAccess(sandbox).sandbox
        checked_overrides(sandbox, self._zone_approval, self._called)

    def get_tools(self, ctx: ToolsetContext | None = None) -> list[Tool]:
        """Raises ConfigError where the zones that it was told of are known only now, and are not there."""
        sandbox = self._sandbox or (ctx.sandbox if ctx else None)
        access = FileAccess(sandbox, checked_overrides(sandbox, self._zone_approval, self._called))
        return [tool.create(access) for tool in _TOOLS]


class FileToolFactory(Protocol):
    """`sandbox` None: that of each call's context. `needs_approval` may be a mapping of options, too."""

    def __call__(
        self, sandbox: Sandbox | None = None, needs_approval: NeedsApproval | Mapping[str, Any] | None = None
    ) -> Tool: ...


def _factory(tool: FileTool) -> FileToolFactory:
    name = f"create_{tool.name}_tool"

    @takes_options(name, at=1)
    def create(sandbox: Sandbox | None = None, needs_approval: NeedsApproval | Mapping[str, Any] | None = None) -> Tool:
        assert not isinstance(needs_approval, Mapping)  # options were taken out of it
        return tool.create(FileAccess(sandbox), needs_approval)

    create.__name__ = create.__qualname__ = name
    return create


create_read_file_tool = _factory(_READ_FILE)
create_list_files_tool = _factory(_LIST_FILES)
create_file_exists_tool = _factory(_FILE_EXISTS)
create_file_info_tool = _factory(_FILE_INFO)
create_write_file_tool = _factory(_WRITE_FILE)
create_delete_file_tool = _factory(_DELETE_FILE)
