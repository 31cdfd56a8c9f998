"""present: from what a tool returned to what its caller gets. Checked, redacted, bounded; refuses with
`execution_failed`.

Takes the raw value of a run (or how it was aborted), gives the Outcome. It contains no secret and no host path.

Only known secrets are removed from a result: a result that happens to have a member named `token` belongs to its
caller, and the content of a file keeps its paths, or it could not be written back. (Events and the journal also redact
by name.) Secrets that a user types are learned here. `failure_text` is what a caller reads when a tool's own code
raised.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from golem_forge.core.calls import Outcome, ToolCompletion
from golem_forge.core.decisions import Status
from golem_forge.core.errors import error_name
from golem_forge.core.json import safe_json
from golem_forge.core.lazy_dataclass import replace
from golem_forge.core.results import ToolResult
from golem_forge.core.text import shorten_middle
from golem_forge.events.redaction import Redactor, joined_texts
from golem_forge.orchestrator.call_state import CallState
from golem_forge.orchestrator.outputs import SHORT_TEXT_CHARS, OutputStore, bound_result, keep_media
from golem_forge.orchestrator.run import CallAborted, aborted_text, refuse_unfinished
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.tools.results import text_is_complete, to_result

_MAX_ERROR_CHARS: Final = 1 << 20


class Presenter:
    def __init__(self, redactor: Redactor, outputs: OutputStore, worker: str, sandbox: Sandbox | None) -> None:
        self._redactor = redactor
        self._outputs = outputs
        self._worker = worker
        self._sandbox = sandbox

    def ran(self, state: CallState, value: Any) -> Outcome:
        tool = state.tool
        if isinstance(value, ToolCompletion):
            return self._finished(state, value)
        refuse_unfinished(tool.name, value)
        if tool.output is not None:
            value = tool.output.check(tool.name, value)
        given = to_result(value)
        result, handle = self._presentable(given)
        outcome = state.outcome(Status.SUCCESS, result=result)
        if state.keeps_whole and result is not given:
            outcome.whole = redact_result(given, self._redactor)
        if result.content and not state.reads_secret:
            outcome.media = keep_media(result, self._outputs, self._worker)
        if result.is_error:
            outcome.status, outcome.error = Status.EXECUTION_FAILED, result.text or "the tool reported an error"
        if handle:
            outcome.truncated, outcome.output_handle = True, handle
        return outcome

    def ended(self, state: CallState, ended: CallAborted) -> Outcome:
        """Builds the Outcome of a call that was ended from outside; keeps what the tool still returned."""
        text = aborted_text(state, ended)
        if ended.finished is None:
            return state.outcome(ended.status, error=text)
        outcome = self._finished(state, ended.finished)
        outcome.status, outcome.error = ended.status, text
        return outcome

    def safe(self, text: str) -> str:
        """Returns the text for the caller: without secrets and host paths, then shortened."""
        text = self._redactor.text(text[:_MAX_ERROR_CHARS])
        return shorten_middle(self._sandbox.virtualise(text) if self._sandbox else text, _MAX_SHOWN_CHARS, " … ")

    def _finished(self, state: CallState, finished: ToolCompletion) -> Outcome:
        """Builds the Outcome from a tool that reports how its call ended; an output that it stored is not shortened
        again.
        """
        handle = finished.output_handle
        if handle or finished.bounded:
            result = redact_result(finished.result, self._redactor)
        else:
            result, handle = self._presentable(finished.result)
        error = self.safe(finished.error) if finished.error else ""
        if not error and finished.status is not Status.SUCCESS:
            error = result.text
        outcome = state.outcome(finished.status, result=result, error=error, code=finished.code)
        if state.keeps_whole and not (finished.output_handle or finished.bounded) and result is not finished.result:
            outcome.whole = redact_result(finished.result, self._redactor)
        if result.content and not state.reads_secret:
            outcome.media = keep_media(result, self._outputs, self._worker)
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
        """Redacts and shortens a result. Most results are short plain text with nothing to redact and take a quick
        path.
        """
        text = result.text
        if len(text) <= SHORT_TEXT_CHARS:
            if text_is_complete(result) and result.meta is None and self._redactor.redact_secrets(text) is text:
                return result, ""
            if is_clean(result, self._redactor):
                return result, ""
        return bound_result(redact_result(result, self._redactor), self._outputs, self._worker)


_MIN_TYPED_SECRET_CHARS: Final = 6


def learn_typed_secrets(name: str, typed: Iterable[str], redactor: Redactor) -> None:
    """Adds what a person typed into a secret field of a tool or a server's form to the redactor. Threat: a tool or
    server that repeats it in its result, error or progress. Texts shorter than a password are left out: they would
    match ordinary words.
    """
    for text in typed:
        if len(text) >= _MIN_TYPED_SECRET_CHARS and text not in redactor.secrets:
            redactor.add_secret(name, text)


def redact_result(result: ToolResult, redactor: Redactor) -> ToolResult:
    def clean(value: Any) -> Any:
        """A tool's own ToolResult may hold anything; what is not JSON could not be searched."""
        plain = safe_json(value)[0]
        return _redact_value(plain, redactor) if redactor.secrets else plain

    return replace(
        result,
        text=redactor.redact_secrets(str(result.text)),
        value=clean(result.value),
        content=tuple(map(clean, result.content)),
        structured=clean(result.structured),
        meta=clean(result.meta),
    )


def is_clean(result: ToolResult, redactor: Redactor) -> bool:
    """Whether the value is short, pure ASCII JSON without a secret, as most results are. False only means that this
    quick test cannot tell.
    """
    clean = redactor.redact_secrets
    if type(result.text) is not str or clean(result.text) is not result.text:
        return False
    value, structured = result.value, result.structured
    if structured is not None and value.get("data") is structured:
        structured = None  # the value holds it
    texts = joined_texts(value, structured, result.meta, *result.content)
    return texts is not None and texts.isascii() and clean(texts) is texts


def _redact_value(value: Any, redactor: Redactor) -> Any:
    if isinstance(value, str):
        return redactor.redact_secrets(value)
    if isinstance(value, dict):
        return {redactor.redact_secrets(key): _redact_value(item, redactor) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_redact_value(item, redactor) for item in value]
    return value


_MAX_SHOWN_CHARS: Final = 2000


def failure_text(error: BaseException) -> str:
    """Describes an exception. The text is not shortened yet, because redaction must see secrets whole."""
    kind = error_name(error)[:200]
    try:
        words = str(error)[:_MAX_ERROR_CHARS]
    except BaseException:  # an exception that cannot be read is still only one failed call
        words = "(its words cannot be read)"
    return f"{kind}: {words}" if words else kind
