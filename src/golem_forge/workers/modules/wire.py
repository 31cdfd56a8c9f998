"""The words between Forge and a module host: one JSON object a line, of at most 16 MiB each.

Forge sends `load`, `call` and `predicate`, each with an `id`; the host answers every id once, with `value`, `result` or
`error`. While it works it may send `progress`, and `call` to ask for another tool, which Forge answers with `reply`.
Both sides use these functions, so that they mean the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from golem_forge.core.call import Caller, Outcome, ToolCall
from golem_forge.core.errors import BlockedError, ForgeError, ToolFailed, error_name
from golem_forge.core.leftovers import Leftover
from golem_forge.core.verdict import Status
from golem_forge.tools.json_values import safe_json
from golem_forge.tools.mcp_results import from_mcp, to_mcp

LONGEST: Final = 16 << 20
_LONGEST_WORDS: Final = 20_000


def encoded(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def failure(error: BaseException) -> dict[str, Any]:
    """An exception as data. The words of one that is not Forge's are a stranger's."""
    if isinstance(error, ForgeError):
        blocked = isinstance(error, BlockedError)
        return {"message": error.message, "status": error.status.value, "code": error.code, "blocked": blocked}
    try:
        words = str(error)[:_LONGEST_WORDS]
    except Exception:
        words = "(its words cannot be read)"
    return {"kind": error_name(error), "message": words}


def failed(said: Mapping[str, Any]) -> ForgeError:
    """The same, to be raised."""
    message = str(said.get("message", ""))
    if said.get("blocked"):
        return BlockedError(message)
    if kind := str(said.get("kind", ""))[:200]:
        return ToolFailed(f"{kind}: {message}" if message else kind)
    status = Status(said.get("status", Status.EXECUTION_FAILED))
    if status in (Status.SUCCESS, Status.INTERRUPTED, Status.SKIPPED, Status.APPROVAL_DENIED):
        status = Status.EXECUTION_FAILED  # not for a tool's code to say
    return ToolFailed(message, status=status, code=str(said.get("code", "")))


def outcome_to_wire(outcome: Outcome) -> dict[str, Any]:
    """What a tool that called another one is told of it."""
    return {
        "name": outcome.call.name,
        "args": safe_json(outcome.call.args)[0],
        "id": outcome.call.id,
        "tool": outcome.tool,
        "status": outcome.status.value,
        "result": safe_json(to_mcp(outcome.result))[0] if outcome.result else None,
        "error": outcome.error,
        "code": outcome.code,
        "duration_ms": outcome.duration_ms,
        "executed": outcome.executed,
        "truncated": outcome.truncated,
        "output_handle": outcome.output_handle,
        "notes": list(outcome.notes),
        "protected_created": list(outcome.protected_created),
        "leftovers": [one.to_wire() for one in outcome.leftovers],
    }


def outcome_from_wire(said: Mapping[str, Any]) -> Outcome:
    result = said["result"]
    return Outcome(
        ToolCall(said["name"], said["args"], Caller.TOOL, said["id"]),
        said["tool"],
        Status(said["status"]),
        result=from_mcp(result) if result is not None else None,
        error=said["error"],
        code=said["code"],
        duration_ms=said["duration_ms"],
        executed=said["executed"],
        truncated=said["truncated"],
        output_handle=said["output_handle"],
        notes=tuple(said["notes"]),
        protected_created=tuple(said["protected_created"]),
        leftovers=tuple(Leftover.from_wire(one) for one in said["leftovers"]),
    )
