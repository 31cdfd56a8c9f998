"""One request that a running tool makes of Forge: a line of JSON, `{token, name, words | args, json}`.

Takes the bytes as they came, gives a Request or nothing: whoever sends something else is told no more than that. Its
own answer to a request, in the words and exit codes of `forge call`, is made here too.
"""

from __future__ import annotations

import hmac
import json
from dataclasses import dataclass
from typing import Any, Final

from golem_forge.core.call import Outcome
from golem_forge.core.outcome_json import EXIT, outcome_json
from golem_forge.core.verdict import Status
from golem_forge.core.visible import visible

LONGEST: Final = 1 << 20
"""Bytes of a request."""
LONGEST_NAME: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    name: str
    words: tuple[str, ...] | None
    """Options still to be bound to the tool's parameters; None: `args` has them."""
    args: Any
    """A mapping, or the raw JSON text of one."""
    wants_outcome: bool


def read_request(line: bytes, token: str) -> Request | None:
    """None: no request, or not of the tool that this token was given to."""
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict):
        return None
    given, name, words, args = said.get("token"), said.get("name"), said.get("words"), said.get("args")
    if not isinstance(given, str) or not hmac.compare_digest(given.encode("utf-8", "replace"), token.encode()):
        return None
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME:
        return None
    if (words is None) == (args is None):
        return None
    if words is not None and not (isinstance(words, list) and all(isinstance(word, str) for word in words)):
        return None
    if args is not None and not isinstance(args, (dict, str)):
        return None
    return Request(
        name=name,
        words=None if words is None else tuple(words),
        args=args,
        wants_outcome=said.get("json") is True,
    )


def answer_of(outcome: Outcome, request: Request, session_id: str) -> dict[str, Any]:
    """What `forge call` prints and exits with, and the whole Outcome for whoever asked for it."""
    text = outcome.own_text if outcome.ok else (outcome.result.text if outcome.result else "")
    left = "".join(f"forge: {visible(line)}\n" for line in outcome.left_lines)
    answer: dict[str, Any] = {
        "status": outcome.status.value,
        "exit": EXIT[outcome.status],
        "stdout": text if text.endswith("\n") or not text else text + "\n",
        "stderr": left if outcome.ok else left + _complaint(outcome.status, outcome.error),
    }
    return answer | {"outcome": outcome_json(outcome, session_id)} if request.wants_outcome else answer


def refusal(status: Status, why: str) -> dict[str, Any]:
    """Where there is no Outcome to tell of."""
    return {"status": status.value, "exit": EXIT[status], "stdout": "", "stderr": _complaint(status, why)}


def written(answer: dict[str, Any]) -> bytes:
    return json.dumps(answer, default=str).encode() + b"\n"


def _complaint(status: Status, why: str) -> str:
    return f"forge: {status.value}: {visible(why)}\n"
