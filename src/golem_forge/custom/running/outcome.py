"""Outcome: what a caller reads of one run of a user tool, and what it is called.

Takes a Ran; gives a Finished of kind `tool.output`: streams apart, bounded, the whole kept on disk by handle. Exit 0
with nothing on standard error is standard output exactly; anything else says how it ended first. Threat: a limit or a
refusal of the walls that reads like an ordinary failure would be tried again for ever, so each says what it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from golem_forge.core.errors import ToolFailed
from golem_forge.core.finished import Finished
from golem_forge.core.result import ToolResult
from golem_forge.core.verdict import Status
from golem_forge.custom.manifest import Manifest, OutputForm
from golem_forge.custom.running.excerpt import Shown, shown_streams
from golem_forge.custom.running.touching import declare_zone
from golem_forge.sandbox.processes.ending import ENDED, REASONS, TIMEOUT, WALLS_CHANGED, Ending
from golem_forge.sandbox.walls.denials import blocked_line
from golem_forge.tools.context import ToolContext

if TYPE_CHECKING:
    from golem_forge.custom.running.reach import Reach
    from golem_forge.sandbox.processes.capture import Capture
    from golem_forge.sandbox.walls.walled_child import Aftermath

KIND: Final = "tool.output"
_WITHHELD: Final = "Its output is withheld: for a moment it could read what was to stay hidden."
_READ_ONLY: Final = "read-only zone"
"""How `denials` says that a whole zone is read-only for this call."""
_OFF_LOOP: Final = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    manifest: Manifest
    ending: Ending
    out: Capture
    err: Capture
    after: Aftermath
    seconds: float
    timeout: float
    reach: Reach | None = None
    """For hints about zones."""


@dataclass(slots=True, kw_only=True)
class _Standing:
    """How it ended: what the call is called, and the lines before the output."""

    status: Status
    code: str = ""
    lines: list[str] = field(default_factory=list)
    error: str = ""
    structured: Any = None


async def finished(ran: Ran, ctx: ToolContext) -> Finished:
    if ran.out.size + ran.err.size <= _OFF_LOOP:
        return _finished(ran, ctx)
    from golem_forge.tools.threads import run_in_thread

    return await run_in_thread(lambda: _finished(ran, ctx))  # up to 64 MiB are read, and written to disk


def _finished(ran: Ran, ctx: ToolContext) -> Finished:
    standing = _standing(ran)
    denials = tuple(_for_tools(one, ran.reach) for one in ran.after.denials)
    if standing.status is Status.EXECUTION_FAILED and not standing.code and denials:
        standing.status = Status.SANDBOX_DENIED
        standing.error = "\n".join((blocked_line(denials), *_hints(denials, ran.reach)))
        standing.lines.append(standing.error)
    if standing.status is Status.SUCCESS and ran.manifest.output is OutputForm.JSON:
        _read_json(ran, standing)
    if ran.ending.code == WALLS_CHANGED:
        standing.lines.append(_WITHHELD)
        shown = Shown()
    else:
        keep = ctx.outputs
        shown = shown_streams(ran.out, ran.err, keep=lambda all_: keep.keep_pieces(all_, ctx.worker) if keep else "")
    value: dict[str, Any] = {
        "kind": KIND,
        "stdout": shown.out,
        "stderr": shown.err,
        "exit_code": exit_code(ran.ending),
        "signal": signal_name(ran.ending.signal) if ran.ending.signal else None,
        "duration_ms": round(ran.seconds * 1000),
        "truncated": shown.cut,
        **({"handle": shown.handle} if shown.handle else {}),
        "denials": list(denials),
    }
    return Finished(
        result=ToolResult(value, _text(ran, standing, shown), structured=standing.structured),
        status=standing.status,
        error=standing.error,
        code=standing.code,
        denials=denials,
        protected_created=ran.after.protected_created,
        leftovers=ran.after.leftovers,
        output_handle=shown.handle,
        bounded=True,
    )


def exit_code(ending: Ending) -> int | None:
    """As shells count it: 128+n for signal n."""
    return 128 + ending.signal if ending.signal else ending.exit_code


def signal_name(number: int) -> str:
    """`SIGKILL`; a real-time signal has only its number."""
    import signal

    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _standing(ran: Ran) -> _Standing:
    ending, tool = ran.ending, f"tool '{ran.manifest.name}'"
    if ending.code == TIMEOUT:
        after = ran.timeout if ran.seconds >= ran.timeout else round(ran.seconds, 1)
        return _failed(Status.TIMEOUT, f"{tool} timed out after {after:g} seconds", TIMEOUT)
    if ending.code == ENDED:
        return _failed(Status.INTERRUPTED, f"{tool} was interrupted")
    if ending.code:
        return _failed(Status.EXECUTION_FAILED, f"{tool} was ended: {REASONS[ending.code]}", ending.code)
    if ending.exit_code == 0:
        return _Standing(status=Status.SUCCESS)
    how = f"failed with exit code {_code(ending)}" if exit_code(ending) is not None else "ended; how is not known"
    return _failed(Status.EXECUTION_FAILED, f"{tool} {how}")


def _failed(status: Status, line: str, code: str = "") -> _Standing:
    return _Standing(status=status, code=code, lines=[line], error=line)


def _code(ending: Ending) -> str:
    """`3`, `137 (SIGKILL)`."""
    name = f" ({signal_name(ending.signal)})" if ending.signal else ""
    return f"{exit_code(ending)}{name}"


def _read_json(ran: Ran, standing: _Standing) -> None:
    from golem_forge.custom.running.json_output import parsed

    try:
        standing.structured = parsed(ran.manifest, ran.out)
    except ToolFailed as error:
        standing.status, standing.code, standing.error = error.status, error.code, error.message
        standing.lines.append(error.message)


def _text(ran: Ran, standing: _Standing, shown: Shown) -> str:
    if standing.status is Status.SUCCESS and not shown.err:
        return shown.out
    lines = list(standing.lines)
    if exit_code(ran.ending) is not None:
        lines.insert(1 if standing.status is not Status.SUCCESS else 0, f"Exit code: {_code(ran.ending)}")
    text = "\n".join(lines)
    for name, stream in (("Stdout:", shown.out), ("Stderr:", shown.err)):
        if stream:
            text += f"{'' if text.endswith(chr(10)) else chr(10)}{name}\n{stream}"
    return text


def _for_tools(denial: dict[str, Any], reach: Reach | None) -> dict[str, Any]:
    """A zone that only this tool has read-only is opened in its tool.yaml, not in the program's file."""
    zone = _zone_of(denial)
    if not zone or reach is None or not reach.could_write(zone):
        return denial
    return {**denial, "widen": f"tool.yaml: zones: {{{zone}: rw}}"}


def _hints(denials: tuple[dict[str, Any], ...], reach: Reach | None) -> list[str]:
    zones = dict.fromkeys(zone for denial in denials if (zone := _zone_of(denial)))
    if reach is None:
        return []
    return [
        f"To write in /{zone}, {declare_zone(zone)}."
        if reach.could_write(zone)
        else f"/{zone} is read-only for this worker; `zones` in tool.yaml cannot change that."
        for zone in zones
    ]


def _zone_of(denial: dict[str, Any]) -> str:
    """The zone whose being read-only this denial is about; empty if it is about something else."""
    target = str(denial.get("target", ""))
    return target.split("/")[1] if denial.get("why") == _READ_ONLY and target.startswith("/") else ""
