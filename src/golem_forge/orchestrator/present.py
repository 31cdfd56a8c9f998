"""present: from what a tool gave to what its caller gets. Checked, redacted, bounded; refuses with `execution_failed`.

Takes the raw value of a run (or how it was ended from outside), gives the Outcome. No secret and no host path is in it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from golem_forge.core.call import Outcome
from golem_forge.core.finished import Finished
from golem_forge.core.result import ToolResult
from golem_forge.core.verdict import Status
from golem_forge.events.redaction import Redactor
from golem_forge.orchestrator.bound import SHORT, bound_result
from golem_forge.orchestrator.driver import Ended
from golem_forge.orchestrator.failure import shortened
from golem_forge.orchestrator.outputs import OutputStore
from golem_forge.orchestrator.redact import is_plain, redact_result
from golem_forge.orchestrator.run import ended_text, refuse_unfinished
from golem_forge.orchestrator.travel import Travel
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.tools.results import says_all, to_result

_MOST_ERROR_READ: Final = 1 << 20


class Presenter:
    """The stage with what it needs; one per worker."""

    def __init__(self, redactor: Redactor, outputs: OutputStore, worker: str, sandbox: Sandbox | None) -> None:
        self._redactor = redactor
        self._outputs = outputs
        self._worker = worker
        self._sandbox = sandbox

    def ran(self, travel: Travel, value: Any) -> Outcome:
        tool = travel.tool
        if isinstance(value, Finished):
            return self._finished(travel, value)
        refuse_unfinished(tool.name, value)
        if tool.output is not None:
            value = tool.output.check(tool.name, value)
        result, handle = self._presentable(to_result(value))
        outcome = travel.outcome(Status.SUCCESS, result=result)
        if result.is_error:
            outcome.status, outcome.error = Status.EXECUTION_FAILED, result.text or "the tool reported an error"
        if handle:
            outcome.truncated, outcome.output_handle = True, handle
        return outcome

    def ended(self, travel: Travel, ended: Ended) -> Outcome:
        """Ended from outside; what the tool still had to say is kept."""
        text = ended_text(travel, ended)
        if ended.finished is None:
            return travel.outcome(ended.status, error=text)
        outcome = self._finished(travel, ended.finished)
        outcome.status, outcome.error = ended.status, text
        return outcome

    def safe(self, text: str) -> str:
        """No secret and no host path in what a caller reads, and no end of it: redacted first, then cut."""
        text = self._redactor.text(text[:_MOST_ERROR_READ])
        return shortened(self._sandbox.virtualise(text) if self._sandbox else text)

    def _finished(self, travel: Travel, finished: Finished) -> Outcome:
        """A tool that knows how its call ended; an output it already kept is not bounded again."""
        handle = finished.output_handle
        if handle or finished.bounded:
            result = redact_result(finished.result, self._redactor)
        else:
            result, handle = self._presentable(finished.result)
        error = self.safe(finished.error) if finished.error else ""
        if not error and finished.status is not Status.SUCCESS:
            error = result.text
        outcome = travel.outcome(finished.status, result=result, error=error, code=finished.code)
        outcome.denials = finished.denials
        outcome.protected_created = tuple(map(self.safe, finished.protected_created))
        outcome.leftovers = tuple(
            replace(one, text=self.safe(one.text), paths=tuple(map(self.safe, one.paths))) for one in finished.leftovers
        )
        outcome.stop_turn = outcome.stop_turn or finished.stop_turn
        if handle:
            outcome.truncated, outcome.output_handle = True, handle
        return outcome

    def _presentable(self, result: ToolResult) -> tuple[ToolResult, str]:
        """Redacted and bounded. Most results are short, say all in their text, and hold nothing to take out."""
        text = result.text
        if len(text) <= SHORT:
            if says_all(result) and result.meta is None and self._redactor.secrets_out(text) is text:
                return result, ""
            if is_plain(result, self._redactor):
                return result, ""
        return bound_result(redact_result(result, self._redactor), self._outputs, self._worker)
