"""What a caller reads of a program that `shell` ran: how it ended, then each stream that said something."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from golem_forge.core.finished import Finished
from golem_forge.core.result import ToolResult
from golem_forge.core.verdict import Status
from golem_forge.sandbox.walls.denials import blocked_line
from golem_forge.tools.context import ToolContext
from golem_forge.tools.threads import run_in_thread
from golem_forge.toolsets.exec.bounding import Fixed, Joined, Stretch, bounded, with_handle
from golem_forge.toolsets.exec.running import keeper
from golem_forge.toolsets.exec.text import LIMITS, TIMED_OUT, after, ended_well, limit_line, signal_name

if TYPE_CHECKING:
    from golem_forge.sandbox.processes.ending import Ending
    from golem_forge.sandbox.walls.walled_child import Aftermath

_LIMIT: Final = 32 * 1024
_NOT_STARTED: Final = {126: "permission denied", 127: "command not found"}
_STAGE: Final = re.compile(rb"sh: [0-9]+: exec: (.*): (?:not found|Permission denied)\n", re.DOTALL)
"""How the stage before the program says that it could not be started."""
_LONGEST_COMMAND: Final = 40_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    ending: Ending
    out: Stretch
    err: Stretch
    after: Aftermath
    timeout_s: float


async def shell_result(ran: Ran, ctx: ToolContext) -> Finished:
    ending, found = ran.ending, ran.after
    status, code = _status(ending)
    head = [_first_line(ending, ran.timeout_s)]
    if found.denials and status is Status.EXECUTION_FAILED and not code:
        status = Status.SANDBOX_DENIED
        head.append(blocked_line(found.denials))
    err = _plain_words(ran)
    whole = Joined([Fixed("\n".join(head).encode()), *_sections(ran.out, err)])
    # What must be kept on disk may be 64 MiB; the loop does not wait for it.
    shown = await run_in_thread(lambda: bounded(whole, _LIMIT, keeper(ctx)))
    value: dict[str, Any] = {
        "kind": "exec.result",
        "exit_code": ending.exit_code,
        "signal": ending.signal,
        "stdout": with_handle(ran.out, _LIMIT, shown.handle).text,
        "stderr": with_handle(err, _LIMIT, shown.handle).text,
        "duration_ms": round(ending.seconds * 1000, 1),
        "truncated": shown.cut,
        "denials": list(found.denials),
    }
    if shown.handle:
        value["handle"] = shown.handle
    return Finished(
        result=ToolResult(value, shown.text),
        status=status,
        error="" if status is Status.SUCCESS else head[-1],
        code=code,
        denials=found.denials,
        protected_created=found.protected_created,
        leftovers=found.leftovers,
        output_handle=shown.handle,
        bounded=True,
    )


def missing_program(name: str, exit_code: int) -> Finished:
    """Nothing was started: what a shell would have said of it."""
    text = f"{name}: {_NOT_STARTED[exit_code]}"
    value = {
        "kind": "exec.result",
        "exit_code": exit_code,
        "signal": None,
        "stdout": "",
        "stderr": f"{text}\n",
        "duration_ms": 0.0,
        "truncated": False,
        "denials": [],
    }
    result = ToolResult(value, f"exit {exit_code} (0.00 s)\nstderr:\n{text}\n")
    return Finished(result=result, status=Status.EXECUTION_FAILED, error=f"exit {exit_code} (0.00 s)")


def _plain_words(ran: Ran) -> Stretch:
    """Its standard error, where it was never started without the words of the stage that tried."""
    code = ran.ending.exit_code
    if code not in _NOT_STARTED or ran.out.size or ran.err.size > _LONGEST_COMMAND:
        return ran.err
    said = _STAGE.fullmatch(ran.err.read())
    return Fixed(said[1] + f": {_NOT_STARTED[code]}\n".encode()) if said else ran.err


def _status(ending: Ending) -> tuple[Status, str]:
    if ending.code == TIMED_OUT:
        return Status.TIMEOUT, TIMED_OUT
    if ending.code in LIMITS:
        return Status.EXECUTION_FAILED, ending.code
    if ending.code:
        return Status.INTERRUPTED, ""
    return (Status.SUCCESS if ended_well(ending) else Status.EXECUTION_FAILED), ""


def _first_line(ending: Ending, timeout_s: float) -> str:
    if ending.code == TIMED_OUT:
        return f"timed out {after(ending, timeout_s)}"
    if ending.code in LIMITS:
        return f"{limit_line(ending.code)} ({ending.seconds:.2f} s)"
    how = f"ended by signal {signal_name(ending.signal)}" if ending.signal else f"exit {ending.exit_code}"
    return f"{how} ({ending.seconds:.2f} s)"


def _sections(out: Stretch, err: Stretch) -> list[Stretch]:
    """`stdout:` and `stderr:`, each only if it is not empty."""
    parts: list[Stretch] = []
    newline = True
    for name, stream in (("stdout", out), ("stderr", err)):
        if stream.size:
            before = "\n" if newline else ""
            parts += [Fixed(f"{before}{name}:\n".encode()), stream]
            newline = not stream.read(stream.size - 1).endswith(b"\n")
    return parts or [Fixed(b"\n(no output)")]
