"""ApprovalController: turns an `ask` into an answer, by mode, by memory, or by a person.

One controller serves a whole tree of workers. `blocked` never comes here: nobody can approve it.
"""

from __future__ import annotations

from collections.abc import Callable

from golem_forge.config.modes import ApprovalMode
from golem_forge.core.decision import AnsweredBy, Decision
from golem_forge.core.errors import ForgeError
from golem_forge.policy.answers import Answer, denied
from golem_forge.policy.asking import ApprovalCallback, callback_asker
from golem_forge.policy.desk import ApprovalDesk, Asker, Waiting
from golem_forge.policy.memory import ApprovalMemory

_NEEDS_A_PERSON = frozenset({ApprovalMode.INTERACTIVE, ApprovalMode.STRICT})
__all__ = ["ApprovalCallback", "ApprovalController"]


class ApprovalController:
    def __init__(
        self,
        mode: ApprovalMode | str = ApprovalMode.INTERACTIVE,
        approval_callback: ApprovalCallback | None = None,
        *,
        ask: Asker | None = None,
        timeout: float | None = None,
    ) -> None:
        """`approval_callback(request)` answers `{approved, remember?, choice?, args?, reason?}` within `timeout`
        seconds; `ask` is a UI's (`ui_asker`) and knows its own timeout."""
        self.mode = ApprovalMode(mode)
        self.memory = ApprovalMemory()
        asker = ask or (callback_asker(approval_callback, timeout) if approval_callback is not None else None)
        if asker is None and self.mode in _NEEDS_A_PERSON:
            raise ValueError(
                f"mode {self.mode.value!r} needs somebody to ask: give approval_callback=…, "
                "or choose 'approve_all' or 'auto_deny'"
            )
        self._desk = ApprovalDesk(asker) if asker else None

    def switch(self, mode: ApprovalMode) -> None:
        """A person chose another mode for the rest of the session; what waits for an answer goes on waiting.

        No worker comes here. Raises ForgeError where the mode would ask and nobody can be asked.
        """
        if self._desk is None and mode in _NEEDS_A_PERSON:
            raise ForgeError(
                f"Nobody can be asked in this session, so it cannot be {mode.value}; start it without "
                "`--approval auto_deny` where somebody can answer.",
                code="NOBODY_TO_ASK",
            )
        self.mode = mode

    @property
    def pending(self) -> int:
        return self._desk.pending if self._desk else 0

    async def approve(self, decision: Decision, tool: str, wait: Callable[[], Waiting]) -> Answer:
        """Answers one `ask`. `wait` builds the request; it is only called when a person must see it."""
        if self.mode is ApprovalMode.APPROVE_ALL:
            return Answer(approved=True, by=AnsweredBy.MODE)
        if self.memory.granted(decision.fingerprint):
            return Answer(approved=True, by=AnsweredBy.MEMORY, cached=True)
        if self.mode is ApprovalMode.AUTO_DENY or self._desk is None:
            return denied(f"Auto-deny mode: {tool} requires approval", by=AnsweredBy.MODE)
        answer = await self._desk.wait(wait())
        if not answer.approved and answer.by is AnsweredBy.PERSON:
            self.memory.deny(decision.fingerprint)
        return answer

    def keep(self, fingerprint: str, what: str) -> None:
        """Remembers this exact call for the session."""
        self.memory.grant(fingerprint, what)

    def judge_again(self) -> None:
        if self._desk:
            self._desk.judge_again()
