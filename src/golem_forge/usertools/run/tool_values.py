"""What a program sees of tools: their names, their descriptions, and the values that calls of them give.

`function_value` takes a result and gives what `forge_tools` returns of it: a text as text, JSON as JSON, of any other
kind its members. `value_answer` takes an Outcome and gives the answer on the wire. Up to 8 MiB of a value go there;
what is larger, and images and other blobs, are kept and given as handles, whose parts `KeptHandles.read` gives to the
run that got the handle and to no other. A failed call's answer has its status, code and text.

`RecordedCall` is a call of a run that was kept, with the answer it got; a `Recording` holds all of a run, and `Replay`
gives the answers again.
Threat: what a server or a tool says is a stranger's. It is bounded, its descriptions have no secret in them, and a
value cannot say that it is a handle: that stands beside it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from golem_forge.core.calls import EXIT_CODES, Outcome
from golem_forge.core.decisions import Status
from golem_forge.core.errors import ForgeError
from golem_forge.core.json import safe_json, same_json
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.core.results import ToolResult, block_text
from golem_forge.core.text import clip, escape_control_chars
from golem_forge.events.redaction import Redactor
from golem_forge.tools.catalog import schema_problem
from golem_forge.tools.context import ToolContext
from golem_forge.tools.threads import run_in_thread
from golem_forge.tools.tool import SourceKind, Tool

LARGEST_VALUE: Final = 8 << 20
"""Bytes of a value as JSON; of a larger one a handle is given."""
MOST_HANDLES: Final = 200
_LARGEST_BLOB: Final = 16 << 20
_MOST_LISTED: Final = 10_000
_LONGEST_DESCRIPTION: Final = 8_000
_LONGEST_ERROR: Final = 4_000
_OUTPUT_KIND: Final = "tool.output"
_WHOLE_TEXTS: Final = {"exec.result": "output", _OUTPUT_KIND: "stdout"}
"""Kind → the member that holds the text of which the whole is kept by handle."""
_PLAIN_MEMBERS: Final = {"text": "content", "file_content": "content", "file_list": "files", "json": "data"}
_RETURNS: Final = {
    "read_file": "str, the content; of a long file the page that `offset` and `limit` choose",
    "list_files": "list of names",
    "list_dir": "str, one entry a line",
    "grep_files": "dict with `files`, or `matches` (each path, number, text), `count` and `truncated`",
    "exec_command": "dict with `output` and `exit_code` (`session_id` while it still runs)",
    "shell": "dict with `output` and `exit_code`",
    "webfetch": "dict with `url`, `status`, `title` and `text`",
    "write_file": "dict with `path`, `isNew` and `bytesWritten`",
    "apply_patch": "dict with `path` and `bytesWritten`, or `files`",
}


def list_tools(tools: Iterable[Tool]) -> dict[str, Any]:
    """The names that can be called, and those of servers as the server has them."""
    names: list[str] = []
    servers: dict[str, dict[str, str]] = {}
    for tool in tools:
        if len(names) >= _MOST_LISTED:
            break
        names.append(tool.name)
        if tool.remote is not None:
            servers.setdefault(tool.remote.server, {})[tool.remote.tool] = tool.name
    return {"names": names, "servers": servers}


def describe_tool(tool: Tool, redactor: Redactor | None) -> dict[str, Any]:
    """Threat: a module's docstring and a server's schema may hold what they were given in their environment."""
    schema: Any = {} if schema_problem(tool) else tool.input_schema
    description = tool.description
    if redactor is not None:
        description = redactor.redact_secrets(description)
        if tool.source is not SourceKind.NATIVE:
            schema = redactor.without_secrets(schema)
    described = {"name": tool.name, "description": clip(description, _LONGEST_DESCRIPTION), "parameters": schema}
    return described | {"returns": _RETURNS.get(tool.name, _returns(tool))}


def _returns(tool: Tool) -> str:
    if tool.source is SourceKind.MCP:
        return "its structured content, else str; an image or a blob is a ResultHandle"
    return "str, or its JSON value"


def function_value(result: ToolResult) -> Any:
    """Returns the value of a function call: structured content, else text; other kinds as a dict of their members."""
    value, kind = result.value, result.kind
    if kind == _OUTPUT_KIND:
        return value.get("stdout", "") if result.structured is None else result.structured
    return value_of_kind(value)


def value_of_kind(value: Mapping[str, Any]) -> Any:
    """Returns the value of a semantic value alone, as a journal has it."""
    kind = str(value.get("kind"))
    member = _PLAIN_MEMBERS.get(kind)
    if member is not None and member in value:
        return value[member]
    hidden = ("kind", "original", "modified") if kind == "diff" else ("kind",)  # the caller has the text it wrote
    return {key: item for key, item in value.items() if key not in hidden}


@dataclass(frozen=True, slots=True)
class KeptHandle:
    path: Path
    mime: str
    size: int
    """Size in bytes of what it stands for."""
    encoded: bool
    """Whether the file holds it in base64."""

    def read(self, start: int, end: int) -> bytes:
        if not self.encoded:
            with open(self.path, "rb") as file:
                file.seek(start)
                return file.read(max(0, end - start))
        return base64.b64decode(self.path.read_bytes())[start:end]


@dataclass(slots=True)
class KeptHandles:
    """The handles that one run was given."""

    known: dict[str, KeptHandle] = field(default_factory=dict)

    async def read(self, said: Mapping[str, Any]) -> dict[str, Any]:
        """A part of what a handle stands for. Raises ForgeError."""
        kept = self.known.get(str(said.get("handle")))
        start, end = said.get("start", 0), said.get("end")
        if kept is None:
            raise ForgeError("this handle was not given to this run", status=Status.INPUT_INVALID)
        last = min(end if isinstance(end, int) else kept.size, kept.size)
        if not isinstance(start, int) or start < 0 or last - start > LARGEST_VALUE:
            why = f"`start` is 0 or more, and at most {LARGEST_VALUE >> 20} MiB are read at once"
            raise ForgeError(why, status=Status.INPUT_INVALID)
        try:
            data = await run_in_thread(lambda: kept.read(start, last))
        except (OSError, ValueError):
            raise ForgeError("this output is no longer kept", status=Status.EXECUTION_FAILED) from None
        return {"status": Status.SUCCESS.value, "data": base64.b64encode(data).decode()}

    def blocks_of(self, value: Any) -> tuple[dict[str, Any], ...]:
        """The content blocks of the handles in a value, as a program gives them back: pictures, sounds and files."""
        blocks: list[dict[str, Any]] = []
        room = _LARGEST_BLOB
        for said in _members_with_handles(value):
            kept = self.known.get(str(said["handle"]))
            if kept is None or not kept.encoded or kept.size > room:
                continue
            try:
                written = base64.b64encode(kept.read(0, kept.size)).decode()
            except (OSError, ValueError):
                continue
            room -= kept.size
            kind = kept.mime.partition("/")[0]
            held = {"uri": f"output:{said['handle']}", "mimeType": kept.mime, "blob": written}
            plain = {"type": kind, "data": written, "mimeType": kept.mime}
            blocks.append(plain if kind in ("image", "audio") else {"type": "resource", "resource": held})
        return tuple(blocks)

    def keep(self, data: bytes, mime: str, ctx: ToolContext) -> dict[str, Any]:
        """Stores data and returns its handle. Raises ForgeError if it cannot be stored."""
        text = mime.startswith("text/") or mime == "application/json"
        handle = self._stored(data if text else base64.b64encode(data), ctx)
        return self.add(handle, mime, len(data), ctx, encoded=not text)

    def add(self, handle: str, mime: str, size: int, ctx: ToolContext, *, encoded: bool = False) -> dict[str, Any]:
        found = ctx.outputs.find(handle, ctx.worker) if ctx.outputs is not None else None
        if found is None:
            raise ForgeError("a result was too large, and could not be kept", status=Status.EXECUTION_FAILED)
        if handle not in self.known and len(self.known) >= MOST_HANDLES:
            raise ForgeError(f"one run gets at most {MOST_HANDLES} handles", status=Status.EXECUTION_FAILED)
        self.known[handle] = KeptHandle(found.path, mime, size, encoded)
        return {"handle": handle, "mime": mime, "size": size}

    def _stored(self, data: bytes, ctx: ToolContext) -> str:
        if ctx.outputs is None:
            raise ForgeError("a result was too large, and nothing can be kept here", status=Status.EXECUTION_FAILED)
        try:
            return ctx.outputs.keep_pieces((data,), ctx.worker)
        except OSError:
            raise ForgeError("a result could not be kept", status=Status.EXECUTION_FAILED) from None


def _members_with_handles(value: Any) -> Iterator[dict[str, Any]]:
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            if "handle" in each:
                yield each
            each = list(each.values())
        waiting += reversed(each) if isinstance(each, list) else ()


async def value_answer(outcome: Outcome, ctx: ToolContext, handles: KeptHandles) -> dict[str, Any]:
    """Raises ForgeError where a large value cannot be kept."""
    answer: dict[str, Any] = {"status": outcome.status.value, "exit": EXIT_CODES[outcome.status]}
    if notes := [clip(escape_control_chars(note), _LONGEST_ERROR) for note in (*outcome.notes, *_page_note(outcome))]:
        answer["notes"] = notes
    if not outcome.ok:
        body = outcome.error or (outcome.result.text if outcome.result is not None else "")
        return answer | {"code": outcome.code, "stderr": clip(body, _LONGEST_ERROR)}
    result = outcome.whole or outcome.result
    if result is None:
        return answer | {"value": None}
    blobs = any(isinstance(block, Mapping) and block.get("type") != "text" for block in result.content)
    if blobs and result.structured is None and result.kind != "file_content":  # of a PDF: its text
        return answer | _parts(result, ctx, handles)
    value = function_value(await _with_whole_text(result, outcome, ctx))
    plain = value if isinstance(value, str) else safe_json(value)[0]
    size = len(plain) if isinstance(plain, str) else len(json.dumps(plain))
    if size <= LARGEST_VALUE // 4 or len(_as_bytes(plain)) <= LARGEST_VALUE:
        return answer | {"value": plain}
    if outcome.output_handle and isinstance(plain, str) and outcome.whole is None:
        return answer | handles.add(outcome.output_handle, "text/plain", len(_as_bytes(plain)), ctx)
    mime = "text/plain" if isinstance(plain, str) else "application/json"
    return answer | handles.keep(_as_bytes(plain), mime, ctx)


def _as_bytes(plain: Any) -> bytes:
    text = plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)
    return text.encode("utf-8", "replace")


def _page_note(outcome: Outcome) -> tuple[str, ...]:
    """A page of a file is not the file: a program that takes one for the other would not notice."""
    value = outcome.result.value if outcome.result is not None else {}
    if value.get("kind") != "file_content" or not value.get("truncated"):
        return ()
    lines = f"lines {value.get('start_line')} to {value.get('end_line')} of {value.get('total_lines')}"
    return (f"{outcome.tool} gave {lines} of {value.get('path')}; use offset and limit, or open the file itself",)


async def _with_whole_text(result: ToolResult, outcome: Outcome, ctx: ToolContext) -> ToolResult:
    """A tool that bounds its own text kept the whole."""
    member = _WHOLE_TEXTS.get(result.kind)
    kept = None
    if member and outcome.output_handle and ctx.outputs is not None and not result.value.get("stderr"):
        kept = ctx.outputs.find(outcome.output_handle, ctx.worker)
    if kept is None or member is None:
        return result
    path = kept.path
    try:
        data = await run_in_thread(lambda: _beginning(path))
    except OSError:
        return result
    whole = {key: item for key, item in result.value.items() if key != "handle"}
    return ToolResult(
        {**whole, member: data.decode("utf-8", "replace")}, text=result.text, structured=result.structured
    )


def _beginning(path: Path) -> bytes:
    with open(path, "rb") as file:
        return file.read(LARGEST_VALUE)


def _parts(result: ToolResult, ctx: ToolContext, handles: KeptHandles) -> dict[str, Any]:
    """Returns the content blocks: texts unchanged, all others as handles."""
    parts: list[dict[str, Any]] = []
    for block in result.content:
        data, mime = _blob(block)
        if data is None:
            parts.append({"text": block_text(block)})
        else:
            parts.append({"handle": handles.keep(data, mime, ctx)})
    return {"parts": parts}


def _blob(block: Any) -> tuple[bytes | None, str]:
    """The bytes of an image, a sound or a resource; None: it is a text."""
    if not isinstance(block, Mapping):
        return None, ""
    resource = block.get("resource")
    held = resource if isinstance(resource, Mapping) else block
    encoded = held.get("blob") if isinstance(resource, Mapping) else held.get("data")
    if not isinstance(encoded, str) or len(encoded) > _LARGEST_BLOB * 4 // 3 + 4:
        return None, ""
    try:
        return base64.b64decode(encoded), str(held.get("mimeType") or "application/octet-stream")[:100]
    except ValueError:
        return None, ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCall:
    name: str
    arguments: Mapping[str, Any]
    value: Any = None
    status: str = Status.SUCCESS.value
    code: str = ""
    error: str = ""
    """The error of a call that failed."""

    def to_json(self) -> dict[str, Any]:
        said: dict[str, Any] = {"name": self.name, "arguments": dict(self.arguments)}
        if self.status == Status.SUCCESS.value:
            return said | {"value": self.value}
        return said | {"status": self.status, "error": self.error} | ({"code": self.code} if self.code else {})

    @classmethod
    def from_json(cls, said: Any) -> RecordedCall:
        """Reads a recorded call. Raises ValueError for anything else."""
        if not isinstance(said, Mapping) or not said.keys() <= {
            *("name", "arguments", "value", "status", "code", "error")
        }:
            raise ValueError("a recorded call has `name`, `arguments` and `value`, or `status`, `code` and `error`")
        name, arguments, status = said.get("name"), said.get("arguments"), said.get("status", Status.SUCCESS.value)
        if not isinstance(name, str) or not isinstance(arguments, Mapping) or status not in tuple(Status):
            raise ValueError("a recorded call has a `name`, `arguments` and, unless it succeeded, a `status`")
        error, code = str(said.get("error", "")), str(said.get("code", ""))
        return cls(name=name, arguments=arguments, value=said.get("value"), status=status, code=code, error=error)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """The calls of a run, and the order of the parameters of the tools it called, as a file beside a tool."""

    calls: tuple[RecordedCall, ...] = ()
    parameters: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        said = {"parameters": self.parameters, "calls": [each.to_json() for each in self.calls]}
        return (json.dumps(said, ensure_ascii=False, indent=1) + "\n").encode("utf-8", "replace")

    @classmethod
    def from_bytes(cls, data: bytes) -> Recording:
        """Reads a recording. Raises ValueError."""
        try:
            said = json.loads(data)
        except RecursionError:
            raise ValueError("it is nested too deep") from None
        if not isinstance(said, Mapping) or not isinstance(said.get("calls"), list):
            raise ValueError("it has a list of `calls`")
        order = said.get("parameters", {})
        if not isinstance(order, Mapping) or not all(isinstance(each, list) for each in order.values()):
            raise ValueError("`parameters` gives the names of each tool's parameters as a list")
        return cls(calls=tuple(map(RecordedCall.from_json, said["calls"])), parameters=order)

    def describe(self, name: str) -> dict[str, Any] | None:
        """Describes a tool as far as a replay needs it: the order of its arguments."""
        names = self.parameters.get(name)
        if names is None:
            return None
        schema = {"properties": {str(each): {} for each in names}, "required": list(map(str, names))}
        return {"name": name, "description": "", "parameters": schema, "returns": "what was recorded"}


class Replay:
    """Answers the calls of a recording, in any order. A record has the defaults of its arguments too, so a call that
    leaves them out is the same call; what was asked twice may be asked again."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self._left = list(recording.calls)
        self._used: list[RecordedCall] = []

    def answer(self, name: str, arguments: Any) -> RecordedCall | None:
        given = _as_mapping(arguments)
        if given is None:
            return None
        for one in (*self._left, *reversed(self._used)):
            if one.name == name and all(
                key in one.arguments and same_json(one.arguments[key], value) for key, value in given.items()
            ):
                if one in self._left:
                    self._left.remove(one)
                    self._used.append(one)
                return one
        return None


def _as_mapping(arguments: Any) -> Mapping[str, Any] | None:
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return None
    return arguments if isinstance(arguments, Mapping) else None


def replayed_answer(recorded: RecordedCall, wants_value: bool) -> dict[str, Any]:
    status = Status(recorded.status)
    answer: dict[str, Any] = {"status": status.value, "exit": EXIT_CODES[status]}
    if status is not Status.SUCCESS:
        return answer | {"code": recorded.code, "stdout": "", "stderr": recorded.error}
    if wants_value:
        return answer | {"value": recorded.value}
    text = recorded.value if isinstance(recorded.value, str) else json.dumps(recorded.value, ensure_ascii=False)
    outcome = {"status": status.value, "text": text, "value": recorded.value}
    return answer | {"stdout": text, "stderr": "", "outcome": outcome}
