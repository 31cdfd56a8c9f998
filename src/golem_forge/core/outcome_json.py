"""An Outcome for a program that reads it: as JSON, and as the exit code of `forge call`. Pure."""

from __future__ import annotations

from typing import Any, Final

from golem_forge.core.call import Outcome
from golem_forge.core.verdict import Status

EXIT: Final = {
    Status.SUCCESS: 0,
    Status.EXECUTION_FAILED: 1,
    Status.INPUT_INVALID: 2,
    Status.APPROVAL_DENIED: 3,
    Status.POLICY_DENIED: 3,
    Status.SANDBOX_DENIED: 3,
    Status.TOOL_NOT_FOUND: 4,
    Status.TIMEOUT: 124,
    Status.INTERRUPTED: 130,
    Status.SKIPPED: 130,
}


def outcome_json(outcome: Outcome, session_id: str) -> dict[str, Any]:
    result = outcome.result
    return {
        "status": outcome.status.value,
        "tool": outcome.tool,
        "callId": outcome.call.id,
        "sessionId": session_id,
        "args": outcome.args,
        "text": outcome.text,
        "value": result.value if result else None,
        **({"structured": result.structured} if result and result.structured is not None else {}),
        "error": outcome.error or None,
        "code": outcome.code or None,
        "durationMs": round(outcome.duration_ms, 3),
        "truncated": outcome.truncated,
        "outputHandle": outcome.output_handle or None,
        "protectedCreated": list(outcome.protected_created),
        "leftovers": [one.to_wire() for one in outcome.leftovers],
        "decision": outcome.decision.to_json() if outcome.decision else None,
    }
