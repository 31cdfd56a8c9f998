"""ApprovalController: turns an `ask` into an answer, by mode, by memory, or by a person.

One controller serves a whole tree of workers. `blocked` never comes here: nobody can approve it. `request_approval`
asks about something that is no tool call, with the same mode and memory and of the same person.

The memory keeps approvals of this session by fingerprint. A denial is counted, never used as an answer: the next
request asks again and says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import fields
from typing import Any, Final

from golem_forge.config.run_block import ApprovalMode
from golem_forge.core.decisions import AnsweredBy, Decision, Risk, Verdict
from golem_forge.core.errors import ForgeError
from golem_forge.core.lazy_dataclass import replace
from golem_forge.core.options import options_from, require, takes_options
from golem_forge.core.signals import InterruptSignal
from golem_forge.core.text import nearest_hint
from golem_forge.events.open_questions import AnsweredApproval
from golem_forge.policy.approval_queue import (
    ApprovalCallback,
    ApprovalQueue,
    ApprovalResult,
    Asker,
    PendingApproval,
    callback_asker,
    denied_result,
)
from golem_forge.policy.fingerprint import both_keys
from golem_forge.policy.request import ApprovalOffer, ApprovalRequest

BeforePerson = Callable[[PendingApproval], Awaitable[ApprovalResult | None]]
"""Given a question that a person is about to see; an answer, or None: ask them."""
_NEEDS_A_PERSON = frozenset({ApprovalMode.INTERACTIVE, ApprovalMode.STRICT})


class ApprovalController:
    @takes_options("ApprovalController", at=1)
    def __init__(
        self,
        mode: ApprovalMode | str | Mapping[str, Any] = ApprovalMode.INTERACTIVE,
        approval_callback: ApprovalCallback | None = None,
        *,
        ask: Asker | None = None,
        timeout: float | None = None,
    ) -> None:
        """`approval_callback(request)` answers `{approved, remember?, choice?, args?, reason?}` within `timeout`
        seconds; `ask` is a UI's (`ui_asker`) and knows its own timeout. `mode` may be a mapping of all options."""
        self.mode = _parse_mode(mode)
        fits = approval_callback is None or callable(approval_callback)
        require(fits, "approval_callback", "a function that takes the request", approval_callback)
        self.approval_callback = approval_callback
        self.memory = ApprovalMemory()
        asker = ask or (callback_asker(approval_callback, timeout) if approval_callback is not None else None)
        if asker is None and self.mode in _NEEDS_A_PERSON:
            raise ValueError(
                f"mode {self.mode.value!r} needs somebody to ask: give approval_callback=…, "
                "or choose 'approve_all' or 'auto_deny'"
            )
        self._queue = ApprovalQueue(asker) if asker else None

    def switch(self, mode: ApprovalMode) -> None:
        """A person chose another mode for the rest of the session; what waits for an answer goes on waiting.

        No worker comes here. Raises ForgeError where the mode would ask and nobody can be asked.
        """
        if self._queue is None and mode in _NEEDS_A_PERSON:
            raise ForgeError(
                f"Nobody can be asked in this session, so it cannot be {mode.value}; start it without "
                "`--approval auto_deny` where somebody can answer.",
                code="NOBODY_TO_ASK",
            )
        self.mode = mode

    @property
    def pending(self) -> int:
        return self._queue.pending if self._queue else 0

    async def approve(
        self,
        decision: Decision,
        tool: str,
        wait: Callable[[], PendingApproval],
        first: BeforePerson | None = None,
    ) -> ApprovalResult:
        """Answers one `ask`. `wait` builds the request; it is only called when a person must see it. `first`: is given
        it before they do, and may answer in their place."""
        if decision.only_a_person:
            return await self._ask_person(tool, wait)
        if decision.answered_by is AnsweredBy.CONTAINED:
            return ApprovalResult(approved=True, by=AnsweredBy.CONTAINED)
        if self.mode is ApprovalMode.APPROVE_ALL:
            return ApprovalResult(approved=True, by=AnsweredBy.MODE)
        if answer := self.remembered(decision.fingerprint):
            return answer
        if self.mode is ApprovalMode.AUTO_DENY or self._queue is None:
            text = f"Auto-deny mode: {tool} requires approval"
            if decision.not_contained:
                text = f"Nobody can be asked, and {tool} asks because {'; '.join(decision.not_contained)}"
            return denied_result(text, by=AnsweredBy.MODE, unaskable=True)
        waiting = wait()
        if first is not None and (answered := await first(waiting)) is not None:
            return answered
        answer = await self._queue.wait(waiting)
        if not answer.approved and answer.by is AnsweredBy.PERSON:
            self.memory.deny(decision.fingerprint)
        return answer

    async def _ask_person(self, tool: str, wait: Callable[[], PendingApproval]) -> ApprovalResult:
        """Asks a person about this call, whatever the mode or remembered answers allow."""
        if self.mode is ApprovalMode.AUTO_DENY or self._queue is None:
            text = f"Nobody can be asked, and {tool} outside the walls runs only by a person's own yes"
            return denied_result(text, by=AnsweredBy.MODE, unaskable=True)
        answer = await self._queue.wait(wait())
        if answer.approved and answer.by is not AnsweredBy.PERSON:
            return denied_result(f"{tool} outside the walls runs only by a person's own yes", by=answer.by)
        return replace(answer, choice=None)

    def remembered(self, fingerprint: str) -> ApprovalResult | None:
        """The answer that was kept for this very call; None: there is none."""
        granted = self.memory.granted(fingerprint)
        return ApprovalResult(approved=True, by=AnsweredBy.MEMORY, cached=True) if granted else None

    async def request_approval(
        self, request: ApprovalRequest | Mapping[str, Any] | None = None, **options: Any
    ) -> AnsweredApproval:
        """Asks about something that is no tool call: `description`, and any of `tool` (or `tool_name`), `args`, `type`,
        `risk` and the other members of an ApprovalRequest. `{approved, by, reason?, choice?}`, true only if approved.

        What is remembered for the session answers the same request, and no other, from then on.
        """
        asked = request if isinstance(request, ApprovalRequest) and not options else _complete_request(request, options)
        decision = Decision(Verdict.ASK, compute_keys=lambda: (asked.fingerprint, asked.args_key))
        asked.previously_denied = self.memory.denials(asked.fingerprint)

        def pending() -> PendingApproval:
            return PendingApproval(
                request=asked,
                check_edit=lambda args: () if args == asked.args else (("", "this request cannot be edited"),),
                is_edit=lambda args: False,
                restore=dict,
                redact=lambda problems: problems,
                reevaluate=lambda: self.remembered(asked.fingerprint),
                signal=InterruptSignal(),
            )

        answer = await self.approve(decision, asked.tool or asked.description, pending)
        result = AnsweredApproval(approved=answer.approved, by=answer.by.value)
        if answer.choice is not None:
            result["choice"] = answer.choice.id
            self.keep(asked.fingerprint, asked.description or asked.tool)
            self.judge_again()
        if answer.message:
            result["reason"] = answer.message
        if answer.stop:
            result["stop"] = True
        return result

    def keep(self, fingerprint: str, what: str) -> None:
        """Remembers this exact call for the session."""
        self.memory.grant(fingerprint, what)

    def judge_again(self) -> None:
        if self._queue:
            self._queue.judge_again()


def _parse_mode(named: Any) -> ApprovalMode:
    try:
        return ApprovalMode(named)
    except ValueError:
        hint = nearest_hint(str(named), list(ApprovalMode))
        raise ValueError(f"mode {named!r} is not one of {', '.join(ApprovalMode)}{hint}") from None


_SESSION_OFFER = ApprovalOffer(
    id="request:session", label="this exact request, for the session", scope="session", exact=True
)
_REQUEST_FIELDS = frozenset(member.name for member in fields(ApprovalRequest)) | {"tool_name"}


def _complete_request(
    given: ApprovalRequest | Mapping[str, Any] | None, keywords: Mapping[str, Any]
) -> ApprovalRequest:
    """A whole request of what is known of it. TypeError: an unknown member; ValueError: nothing to decide on."""
    if isinstance(given, ApprovalRequest):
        given = {member.name: getattr(given, member.name) for member in fields(given)}
    members = options_from(given, keywords, known=_REQUEST_FIELDS, where="request_approval")
    tool = str(members.pop("tool_name", "") or members.get("tool", ""))
    description = str(members.get("description") or tool)
    if not description:
        raise ValueError("request_approval: say what is to be approved: description=… (and tool=…, args=…)")
    args = dict(members.get("args") or {})
    risk = Risk(members.get("risk", Risk.HIGH)).value
    kind = str(members.get("type", "tool_call"))
    keys = both_keys(tool=tool, definition=kind, args=args, worker="", targets=() if tool else (description,))
    made = {"fingerprint": keys[0], "args_key": keys[1], "payload": description, "choices": (_SESSION_OFFER,)}
    whole = {"why": "", **made, **members, "tool": tool, "args": args, "description": description, "risk": risk}
    return ApprovalRequest(**whole)


_MAX_GRANTS: Final = 10_000


class ApprovalMemory:
    def __init__(self) -> None:
        self._granted: dict[str, str] = {}
        self._denied: Counter[str] = Counter()

    def grant(self, fingerprint: str, what: str) -> None:
        self._granted[fingerprint] = what
        if len(self._granted) > _MAX_GRANTS:  # the oldest approval is the one to ask again
            del self._granted[next(iter(self._granted))]

    def granted(self, fingerprint: str) -> bool:
        return fingerprint in self._granted

    def grants(self) -> dict[str, str]:
        """Fingerprint → what was approved, oldest first."""
        return dict(self._granted)

    def revoke(self, fingerprint: str) -> bool:
        return self._granted.pop(fingerprint, None) is not None

    def deny(self, fingerprint: str) -> None:
        self._denied[fingerprint] += 1
        if len(self._denied) > _MAX_GRANTS:
            del self._denied[next(iter(self._denied))]

    def denials(self, fingerprint: str) -> int:
        return self._denied[fingerprint]

    def clear(self) -> None:
        self._granted.clear()
        self._denied.clear()
