"""What an `approvalRequired` event says: `card_data(tool="git_push", payload="git push")`."""

from __future__ import annotations

from typing import Any


def card_data(**members: Any) -> dict[str, Any]:
    return {
        "type": "tool_call",
        "description": "t: x",
        "tool": "t",
        "args": {},
        "payload": "",
        "effects": [],
        "risk": "low",
        "riskReasons": [],
        "why": "a test",
        "choices": [],
        "fingerprint": "f",
        "argsKey": "k",
        "previouslyDenied": 0,
        "waiting": 1,
        "warnings": [],
        "workerPath": [],
        **members,
    }
