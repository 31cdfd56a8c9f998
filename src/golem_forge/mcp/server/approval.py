"""ClientApproval: an `ask` becomes a form that the client's user answers. One per client, with that client's memory.

Unlike a session's own controller it never lets two calls share a question: an answer counts for its call alone, and
`session` keeps that exact call for this client only, never as a rule. A call that nobody can be asked about is denied
with the text that says how to allow it. Silence and dismissal are neither a yes nor a denial by a person.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from golem_forge.config.approval_modes import ApprovalMode
from golem_forge.core.decisions import AnsweredBy, Decision, Status
from golem_forge.core.effects import NOT_COVERED, without_command
from golem_forge.core.lazy_dataclass import replace
from golem_forge.core.text import escape_control_chars
from golem_forge.mcp.server.host import ANSWER_SECONDS, ClientQuestion, ElicitationReply, ServedCalls
from golem_forge.policy.approval_queue import ApprovalResult, PendingApproval, denied_result
from golem_forge.policy.controller import ApprovalController, BeforePerson
from golem_forge.policy.request import ApprovalOffer, ApprovalRequest

MOST_SHOWN: Final = 256 * 1024
"""A question that is longer is not asked: nobody may agree to what was cut."""
_EXACT: Final = ApprovalOffer(id="exact:session", label="this exact call, this session", scope="session", exact=True)
_FORM: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "approve": {
            "type": "boolean",
            "title": "Approve",
            "description": "Whether this call may run.",
            "default": False,
        },
        "remember": {
            "type": "string",
            "title": "Remember",
            "description": "once: this call only. session: the same call may run again without a question.",
            "enum": ["once", "session"],
            "default": "once",
        },
    },
    "required": ["approve"],
}


class ClientApproval(ApprovalController):
    def __init__(self, mode: ApprovalMode, calls: ServedCalls, timeout: float | None = None) -> None:
        """`timeout`: seconds a question stays open, if that is less than a client has anyway."""
        super().__init__(mode, _never_called)
        self._calls = calls
        self._seconds = min(timeout or ANSWER_SECONDS, ANSWER_SECONDS)

    async def approve(
        self,
        decision: Decision,
        tool: str,
        wait: Callable[[], PendingApproval],
        first: BeforePerson | None = None,
    ) -> ApprovalResult:
        by_itself = self.mode in (ApprovalMode.APPROVE_ALL, ApprovalMode.AUTO_DENY)
        if by_itself or self.memory.granted(decision.fingerprint):
            return await super().approve(decision, tool, wait, first)
        waiting = wait()
        if first is not None and (answered := await first(waiting)) is not None:
            return answered
        answer = await self._ask(waiting, tool)
        if not answer.approved and answer.by is AnsweredBy.PERSON:
            self.memory.deny(decision.fingerprint)
        return answer

    async def _ask(self, waiting: PendingApproval, tool: str) -> ApprovalResult:
        request = waiting.request
        call = self._calls.call_of(request)
        if call is None or not call.abilities.forms:
            return denied_result(cannot_ask(tool), unaskable=True)
        text = card_text(request)
        if len(text) > MOST_SHOWN:
            too_large = f"'{tool}' needs approval and is too large to be shown; allow it with a rule in rules.yaml"
            return denied_result(too_large, unaskable=True)
        reply = await call.ask(ClientQuestion(text, _FORM), self._seconds)
        if waiting.signal:
            return denied_result("Interrupted before it was approved.", status=Status.INTERRUPTED)
        return read_reply(reply)


class OnceApproval(ClientApproval):
    """For what is done on behalf of several clients: each question goes to the one whose call it is, and no answer is
    kept for another."""

    async def _ask(self, waiting: PendingApproval, tool: str) -> ApprovalResult:
        return replace(await super()._ask(waiting, tool), choice=None)


def cannot_ask(tool: str) -> str:
    return f"'{tool}' needs approval and this client cannot ask; allow it with a rule in rules.yaml"


def read_reply(reply: ElicitationReply) -> ApprovalResult:
    """Only `approve: true` in an accepted form is a yes."""
    if reply.action == "decline" or (reply.action == "accept" and reply.content.get("approve") is not True):
        return ApprovalResult(approved=False, message="Denied by the user.")
    if reply.action != "accept":
        return denied_result("The question was not answered; the call was not run.")
    keep = reply.content.get("remember") == "session"
    return ApprovalResult(approved=True, choice=_EXACT if keep else None)


def card_text(request: ApprovalRequest) -> str:
    """The request in lines, whole: nothing is cut, since what is cut could be what matters.

    Threat: a command or a description that goes on with `Risk: low` in a line of its own. What others wrote has a bar
    before each of its lines, or is one line; only Forge's own words begin at the margin.
    """
    payload = request.payload
    lines = [f"Approve '{request.tool}'? {_one_line(request.description)}"]
    # what stands below, literally, is said once
    arguments = {name: value for name, value in request.args.items() if not payload or value != payload}
    if arguments or not payload:
        lines += ["", "Arguments:", *_with_bar(_as_json(arguments))]
    if payload and payload != _as_json(request.args):
        lines += ["", *_with_bar(payload)]
    if request.effects:
        command = f"exec {payload}"
        named = (
            each.replace(command, "exec the command above", 1) if each.removesuffix(NOT_COVERED) == command else each
            for each in request.effects
        )
        lines += ["", "Effects:", *(line for effect in named for line in _with_bar(effect))]
    said = [_one_line(without_command(reason, (payload,))) for reason in (*request.risk_reasons, request.why)]
    reasons = f" ({'; '.join(said[:-1])})" if request.risk_reasons else ""
    lines += ["", f"Risk: {request.risk}{reasons}"]
    lines += [f"Asked because: {said[-1]}"] if request.why else []
    lines += ["", "Changed since it was approved:", *_with_bar(request.changed)] if request.changed else []
    lines += ["", *_with_bar(request.diff)] if request.diff else []
    lines += [f"Warning: {_one_line(warning)}" for warning in request.warnings]
    if request.previously_denied:
        lines.append(f"Denied before in this session: {request.previously_denied}")
    return "\n".join(lines)


def _with_bar(text: str) -> list[str]:
    return [f"  | {line}" for line in text.splitlines()]


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _as_json(arguments: Mapping[str, Any]) -> str:
    return escape_control_chars(json.dumps(arguments, indent=2, ensure_ascii=False, default=str))


def _never_called(request: ApprovalRequest) -> dict[str, Any]:
    return {"approved": False}
