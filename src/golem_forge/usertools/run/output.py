"""What a caller reads of one run: status, bounded output, and the JSON value of a tool with `output: json`.

Takes a FinishedRun; gives a ToolCompletion of kind `tool.output`: streams apart, bounded, the whole on disk by handle.
Exit 0 with nothing on standard error is standard output exactly; anything else says first how it ended. Threat: a
limit or a refusal of the walls that reads like an ordinary failure would be tried again for ever, so each says what it
is.

Of two streams that may be 64 MiB only what is shown is read; the rest is streamed once, to be kept and counted. The
whole is also kept where nothing was cut but bytes are no text: shown as U+FFFD, kept as they are.

A standard output that is one picture or one PDF becomes a content block, which a model that sees gets.

`parse_json_output` gives one JSON value that matches the output schema, or raises ToolFailed with the position or
path. Threat: output is a stranger's. Size, depth and number of values are bounded; `NaN` and broken Unicode are no
JSON.
"""

from __future__ import annotations

import json
import signal
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from golem_forge.core.calls import ToolCompletion
from golem_forge.core.decisions import Status
from golem_forge.core.errors import ToolFailed
from golem_forge.core.images import file_type
from golem_forge.core.json import NotJson, as_json, strict_json
from golem_forge.core.lazy_dataclass import dataclass, field, replace
from golem_forge.core.results import ToolResult, block_text
from golem_forge.core.text import head_and_tail
from golem_forge.orchestrator.bound_output import CONTENT_LIMIT
from golem_forge.sandbox.process.launch import Capture
from golem_forge.sandbox.process.monitor import ENDED, REASONS, TIMEOUT, WALLS_CHANGED, ExitStatus
from golem_forge.sandbox.walls.denials import blocked_line
from golem_forge.sandbox.walls.walls import Aftermath
from golem_forge.tools.context import ToolContext
from golem_forge.tools.schema import json_path
from golem_forge.tools.threads import run_in_thread
from golem_forge.tools.validation import SchemaCheck
from golem_forge.usertools.manifest import OutputFormat, ToolManifest
from golem_forge.usertools.run.access import ToolAccess, zone_hint

OUTPUT_KIND: Final = "tool.output"
_WITHHELD: Final = "Its output is withheld: for a moment it could read what was to stay hidden."
_READ_ONLY: Final = "read-only zone"
"""The `denials` text for a zone that is read-only for this call."""
_MOST_ON_LOOP: Final = 64 * 1024
_MISSING_MODULE: Final = b"ModuleNotFoundError"


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedRun:
    manifest: ToolManifest
    ending: ExitStatus
    out: Capture
    err: Capture
    after: Aftermath
    seconds: float
    timeout: float
    access: ToolAccess | None = None
    """Used for hints about zones."""
    unread_packages: str = ""
    """A hint about a missing module."""


@dataclass(slots=True, kw_only=True)
class _RunStatus:
    """The status of a run, and the lines before its output."""

    status: Status
    code: str = ""
    lines: list[str] = field(default_factory=list)
    error: str = ""
    structured: Any = None


async def finish_run(ran: FinishedRun, ctx: ToolContext) -> ToolCompletion:
    if ran.out.size + ran.err.size <= _MOST_ON_LOOP:
        return _finish(ran, ctx)
    return await run_in_thread(lambda: _finish(ran, ctx))  # up to 64 MiB are read, and written to disk


def _finish(ran: FinishedRun, ctx: ToolContext) -> ToolCompletion:
    ended = _run_status(ran)
    denials = tuple(_with_manifest_hint(one, ran.access) for one in ran.after.denials)
    if ended.status is Status.EXECUTION_FAILED and not ended.code and denials:
        ended.status = Status.SANDBOX_DENIED
        ended.error = "\n".join((blocked_line(denials), *_zone_hints(denials, ran.access)))
        ended.lines.append(ended.error)
    if ended.status is Status.SUCCESS and ran.manifest.output is OutputFormat.JSON:
        try:
            ended.structured = parse_json_output(ran.manifest, ran.out)
        except ToolFailed as error:
            ended.status, ended.code, ended.error = error.status, error.code, error.message
            ended.lines.append(error.message)
    blocks = _media_printed(ran.out) if ran.ending.code != WALLS_CHANGED else ()
    if ran.ending.code == WALLS_CHANGED:
        ended.lines.append(_WITHHELD)
        shown = OutputExcerpt()
    else:
        keep = ctx.outputs
        out = Capture() if blocks else ran.out
        shown = excerpt_streams(out, ran.err, keep=lambda all_: keep.keep_pieces(all_, ctx.worker) if keep else "")
        shown = replace(shown, out="".join(map(block_text, blocks))) if blocks else shown
    value: dict[str, Any] = {
        "kind": OUTPUT_KIND,
        "stdout": shown.out,
        "stderr": shown.err,
        "exit_code": shell_exit_code(ran.ending),
        "signal": signal_name(ran.ending.signal) if ran.ending.signal else None,
        "duration_ms": round(ran.seconds * 1000),
        "truncated": shown.cut,
        **({"handle": shown.handle} if shown.handle else {}),
        "denials": list(denials),
    }
    text = _result_text(ran, ended, shown)
    if blocks and text != shown.out:
        blocks = ({"type": "text", "text": text}, *blocks)
    return ToolCompletion(
        result=ToolResult(value, text, content=blocks, structured=ended.structured),
        status=ended.status,
        error=ended.error,
        code=ended.code,
        denials=denials,
        protected_created=ran.after.protected_created,
        leftovers=ran.after.leftovers,
        output_handle=shown.handle,
        bounded=True,
    )


_MEDIA_BEGINS: Final = (b"\x89PNG", b"GIF8", b"\xff", b"RIFF", b"%PDF-", b"ID3", b"OggS", b"fLaC")


def _media_printed(out: Capture) -> tuple[dict[str, Any], ...]:
    is_media = out.size <= CONTENT_LIMIT and out.read(0, 8).startswith(_MEDIA_BEGINS)
    data = out.read() if is_media else b""
    written = b64encode(data).decode()
    kind = file_type(data)
    if kind == "application/pdf":
        return ({"type": "resource", "resource": {"uri": "stdout.pdf", "mimeType": kind, "blob": written}},)
    return ({"type": kind.partition("/")[0], "data": written, "mimeType": kind},) if kind else ()


def shell_exit_code(ending: ExitStatus) -> int | None:
    """Returns the exit code as shells count it: 128+n for signal n."""
    return 128 + ending.signal if ending.signal else ending.exit_code


def signal_name(number: int) -> str:
    """`SIGKILL`; a real-time signal has only its number."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _run_status(ran: FinishedRun) -> _RunStatus:
    ending, tool = ran.ending, f"tool '{ran.manifest.name}'"
    if ending.code == TIMEOUT:
        after = ran.timeout if ran.seconds >= ran.timeout else round(ran.seconds, 1)
        return _failed_status(Status.TIMEOUT, f"{tool} timed out after {after:g} seconds", TIMEOUT)
    if ending.code == ENDED:
        return _failed_status(Status.INTERRUPTED, f"{tool} was interrupted")
    if ending.code:
        return _failed_status(Status.EXECUTION_FAILED, f"{tool} was ended: {REASONS[ending.code]}", ending.code)
    if ending.exit_code == 0:
        return _RunStatus(status=Status.SUCCESS)
    known = shell_exit_code(ending) is not None
    how = f"failed with exit code {_exit_text(ending)}" if known else "ended; how is not known"
    failed = _failed_status(Status.EXECUTION_FAILED, f"{tool} {how}")
    if ran.unread_packages and _MISSING_MODULE in ran.err.read(max(0, ran.err.size - _MOST_ON_LOOP)):
        failed.lines.append(ran.unread_packages)
    return failed


def _failed_status(status: Status, line: str, code: str = "") -> _RunStatus:
    return _RunStatus(status=status, code=code, lines=[line], error=line)


def _exit_text(ending: ExitStatus) -> str:
    """Returns the exit code as text: `3`, `137 (SIGKILL)`."""
    name = f" ({signal_name(ending.signal)})" if ending.signal else ""
    return f"{shell_exit_code(ending)}{name}"


def _result_text(ran: FinishedRun, ended: _RunStatus, shown: OutputExcerpt) -> str:
    if ended.status is Status.SUCCESS and not shown.err:
        return shown.out
    lines = list(ended.lines)
    if shell_exit_code(ran.ending) is not None:
        lines.insert(1 if ended.status is not Status.SUCCESS else 0, f"Exit code: {_exit_text(ran.ending)}")
    text = "\n".join(lines)
    for name, stream in (("Stdout:", shown.out), ("Stderr:", shown.err)):
        if stream:
            text += f"{'' if text.endswith(chr(10)) else chr(10)}{name}\n{stream}"
    return text


def _with_manifest_hint(denial: dict[str, Any], access: ToolAccess | None) -> dict[str, Any]:
    """A zone that only this tool has read-only is opened in its tool.yaml, not in the program's file."""
    zone = _denied_zone(denial)
    if not zone or access is None or not access.could_write(zone):
        return denial
    return {**denial, "widen": f"tool.yaml: zones: {{{zone}: rw}}"}


def _zone_hints(denials: tuple[dict[str, Any], ...], access: ToolAccess | None) -> list[str]:
    if access is None:
        return []
    return [
        f"To write in /{zone}, {zone_hint(zone)}."
        if access.could_write(zone)
        else f"/{zone} is read-only for this worker; `zones` in tool.yaml cannot change that."
        for zone in dict.fromkeys(map(_denied_zone, denials))
        if zone
    ]


def _denied_zone(denial: dict[str, Any]) -> str:
    """The zone whose being read-only this denial is about; empty if it is about something else."""
    target = str(denial.get("target", ""))
    return target.split("/")[1] if denial.get("why") == _READ_ONLY and target.startswith("/") else ""


EXCERPT_LIMIT: Final = 32 * 1024
"""Maximum bytes of both streams together."""
KeepOutput = Callable[[Iterable[bytes]], str]
"""Keeps a whole output and gives its handle; empty where nothing can be kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputExcerpt:
    out: str = ""
    err: str = ""
    cut: bool = False
    handle: str = ""


def excerpt_streams(out: Capture, err: Capture, *, keep: KeepOutput) -> OutputExcerpt:
    cut = out.size + err.size > EXCERPT_LIMIT
    if not cut and _is_text(out) and _is_text(err):
        return OutputExcerpt(out=out.read().decode(), err=err.read().decode())
    handle = keep(_whole_output(out, err))
    if not cut:
        return OutputExcerpt(out=_decode(out.read()), err=_decode(err.read()), handle=handle)
    half = EXCERPT_LIMIT // 2
    room = max(half, EXCERPT_LIMIT - err.size), max(half, EXCERPT_LIMIT - out.size)
    return OutputExcerpt(
        out=head_and_tail(out, room[0], handle), err=head_and_tail(err, room[1], handle), cut=True, handle=handle
    )


def _whole_output(out: Capture, err: Capture) -> Iterator[bytes]:
    """One stream alone is kept as it is; two, one after the other, each under its name."""
    if not out.size or not err.size:
        yield from (out if out.size else err).pieces()
        return
    yield b"Stdout:\n"
    yield from out.pieces()
    if out.read(out.size - 1) != b"\n":
        yield b"\n"
    yield b"Stderr:\n"
    yield from err.pieces()


def _is_text(stream: Capture) -> bool:
    try:
        stream.read().decode()
    except UnicodeDecodeError:
        return False
    return True


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "replace")


_INVALID: Final = "OUTPUT_INVALID"
MOST_JSON_READ: Final = 8 << 20
MOST_JSON_PASSED_ON: Final = 256 * 1024
"""Bytes of a value that is handed on beside its text; a larger one was checked and is in the output."""


def parse_json_output(manifest: ToolManifest, out: Capture) -> Any:
    """The value; None where it is too large to be handed on."""
    tool = f"tool '{manifest.name}'"
    if out.size > MOST_JSON_READ:
        most = f"of `output: json` at most {MOST_JSON_READ >> 20} MiB are read"
        raise ToolFailed(f"{tool} printed {out.size} bytes; {most}", code=_INVALID)
    try:
        value = as_json(strict_json(out.read().decode()))
    except (ValueError, RecursionError) as error:
        raise ToolFailed(f"{tool} did not print JSON: {_why_not_json(error)}", code=_INVALID) from None
    if manifest.output_schema is not None:
        for path, problem in SchemaCheck(dict(manifest.output_schema)).problems(value, limit=1):
            mismatch = f"does not match its output_schema at {json_path(path)}: {problem}"
            raise ToolFailed(f"{tool} printed JSON that {mismatch}", code=_INVALID)
    return value if out.size <= MOST_JSON_PASSED_ON else None


def _why_not_json(error: ValueError | RecursionError) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8 at byte {error.start}"
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at line {error.lineno} column {error.colno}"
    if isinstance(error, NotJson | RecursionError):
        return "too deep, too many values, a number that is too large, or broken Unicode in a text"
    return str(error)[:100]
