"""Dialogue: one worker's talk with its model. Takes the history, gives the next response, and says what it cost.

Before each request the context is made to fit and the budget is asked; while it streams, UIs see it; afterwards usage
is counted and the response is in the history. Raises Interrupted, BudgetExceeded, ContextExceeded or ModelError; text
that had come by then is in the history, marked as interrupted, and none of its calls will run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from golem_forge.config.run_settings import Price
from golem_forge.core.ids import new_id
from golem_forge.tools.json_values import valid_unicode
from golem_forge.workers.budget import Budget
from golem_forge.workers.context import Compacted, compact
from golem_forge.workers.history import History
from golem_forge.workers.interrupting import Interrupted, unless_interrupted
from golem_forge.workers.messages import AssistantMessage, Message, RequestedCall, UserMessage
from golem_forge.workers.models.asking import Discarded, Show, ask
from golem_forge.workers.models.layer import (
    Completed,
    Finish,
    Model,
    ModelError,
    ModelEvent,
    Request,
    TextDelta,
    ThinkingDelta,
    Usage,
    UsageSoFar,
)
from golem_forge.workers.models.pricing import cost_of
from golem_forge.workers.models.requested import fit_to_keep
from golem_forge.workers.models.usage import Estimator, Meter
from golem_forge.workers.station import Station

CUT: Final = "response was cut at the token limit"
WITHHELD: Final = "ANSWER_WITHHELD"
"""The code of a ModelError: the model answered, and gave nothing."""
_SUMMARISE: Final = (
    "Summarise the conversation above for yourself, so that you can go on without it: the person's goals and "
    "constraints, what was found and changed (with paths), what was tried and failed, what is still to be done."
)


@dataclass(slots=True)
class _Streamed:
    """What has come of a response so far."""

    request_id: str = field(default_factory=new_id)
    pieces: list[str] = field(default_factory=list)
    thinking: bool = False
    usage: Usage = field(default_factory=Usage)

    @property
    def text(self) -> str:
        return "".join(self.pieces)


@dataclass(slots=True, kw_only=True)
class Dialogue:
    station: Station
    model: Model
    history: History
    budget: Budget
    meter: Meter
    price: Price | None
    context_limit: int
    system: Callable[[], str]
    """The system prompt as it stands now."""
    attachment: Callable[[str], bytes]
    context_used: int = 0
    """Input tokens of the last request, as the provider counted them."""
    so_far: str = ""
    """The last words: of the response that is being streamed, or of the last one that had any."""
    _estimator: Estimator = field(default_factory=Estimator)

    async def next_response(self) -> AssistantMessage:
        request = await self._fitting(self._request(self.history.messages))
        completed = await self._ask(request)
        self.context_used = completed.usage.input
        self.station.emit(
            "contextUsage",
            {
                "tokensUsed": self.context_used,
                "tokenLimit": self.context_limit,
                "exceeded": self.context_used > self.context_limit,
            },
        )
        if completed.finish is Finish.REFUSED:
            raise ModelError(f"{self.model.name} withheld its answer", code=WITHHELD)
        message = fit_to_keep(_without_cut_calls(completed), self.station.tree.call_ids)
        self.history.add(message)
        if message.text:
            self.station.emit("message", {"message": {"role": "assistant", "content": message.text}})
        if completed.finish is Finish.LENGTH:
            self.station.emit("status", {"type": "warning", "message": f"The {CUT}.", "code": "RESPONSE_CUT"})
        return message

    def _request(self, messages: list[Message]) -> Request:
        return Request(
            system=self.system(),
            messages=tuple(messages),
            tools=self.station.deferring.offers(),
            max_output_tokens=self.model.max_output_tokens,
            attachment=self._attached,
            schema_of=self.station.deferring.schema_of,
        )

    def _attached(self, digest: str) -> bytes:
        """Bytes as they are, except that a text is given without the secrets that Forge knows."""
        data = self.attachment(digest)
        try:
            text = data.decode()
        except UnicodeDecodeError:
            return data
        shown = self.station.tree.redactor.secrets_out(text)
        return data if shown == text else shown.encode()

    async def _fitting(self, request: Request) -> Request:
        """The same request, or one over a compacted history. An interrupt meanwhile leaves the history as it was."""
        used = self._estimator.tokens(request)
        compacted: Compacted | None = await unless_interrupted(
            self.station.signal,
            compact(
                list(request.messages),
                limit=self.context_limit,
                used=used,
                summarise=self._summary,
                keep_output=self._keep_output,
            ),
        )
        if compacted is None:
            return request
        self.history.replace_all(compacted.messages)
        self.station.emit("contextCompacted", {"before": compacted.before, "after": compacted.after})
        return self._request(compacted.messages)

    def _keep_output(self, text: str) -> str:
        return self.station.path.outputs.keep(text, self.station.path.worker)

    async def _summary(self, messages: list[Message]) -> str:
        """Made by the model itself; nobody sees it stream. Called inside `_fitting`, which an interrupt ends."""
        request = self._request([*messages, UserMessage(text=_SUMMARISE, kind="note")])
        streamed = _Streamed()
        completed = await self._paid(replace(request, tools=()), streamed, lambda event: None)
        return completed.message.text

    async def beside(self, system: str, messages: list[Message], max_output_tokens: int) -> Completed:
        """A request beside the conversation, for somebody else (a server's sampling): paid for like every other, no
        tools, nothing of it in the history. Raises as `next_response` does."""
        request = Request(system=system, messages=tuple(messages), max_output_tokens=max_output_tokens)
        return await unless_interrupted(self.station.signal, self._paid(request, _Streamed(), lambda event: None))

    async def _ask(self, request: Request) -> Completed:
        streamed = _Streamed()
        try:
            completed = await unless_interrupted(
                self.station.signal, self._paid(request, streamed, lambda event: self._show(streamed, event))
            )
        except (Interrupted, ModelError):
            self._stopped(streamed)
            raise
        self._stream(streamed, "", "text", done=True)
        self.so_far = completed.message.text or self.so_far
        return completed

    async def _paid(self, request: Request, streamed: _Streamed, show: Show) -> Completed:
        """Asks for no more output than the budget has room for, and sets that aside until the answer is there. What
        failed or was stopped on the way is paid for all the same."""
        estimate = self._estimator.tokens(request)
        most = min(request.max_output_tokens or self.model.max_output_tokens, self.model.max_output_tokens)
        output = self.budget.fit_output(estimate, most, self.price)
        with self.budget.hold_request(estimate, output, self.price) as hold:

            def seen(event: ModelEvent | Discarded) -> None:
                if isinstance(event, UsageSoFar):
                    streamed.usage = event.usage
                elif isinstance(event, Discarded):
                    self._count(streamed.request_id, event.usage)
                    streamed.usage = Usage()
                show(event)
                if isinstance(event, Discarded) and event.wait is not None:
                    hold.check_again()

            try:
                completed = await ask(self.model, replace(request, max_output_tokens=output), show=seen)
            except BaseException:
                self._count(streamed.request_id, streamed.usage)
                raise
            hold.spend(completed.usage, cost_of(completed.usage, self.price))
        self._tell_usage(streamed.request_id, completed.usage)
        return completed

    def _show(self, streamed: _Streamed, event: ModelEvent | Discarded) -> None:
        if isinstance(event, TextDelta):
            streamed.pieces.append(event.text)
            self._stream(streamed, event.text, "text")
        elif isinstance(event, ThinkingDelta):
            streamed.thinking = True
            self._stream(streamed, event.text, "thinking")
        elif isinstance(event, Discarded):
            self._withdraw(streamed, event)

    def _withdraw(self, streamed: _Streamed, event: Discarded) -> None:
        """A failed try: what it showed is taken back, and the next one starts anew."""
        self._stream(streamed, "", "text", done=True, discarded=True)
        if event.wait is not None:
            text = f"{event.reason}; trying again in {event.wait:.1f} s"
            self.station.emit("status", {"type": "warning", "message": text, "code": "MODEL_RETRY"})
        streamed.request_id = new_id()
        streamed.pieces.clear()

    def _stopped(self, streamed: _Streamed) -> None:
        if streamed.pieces or streamed.thinking:
            self._stream(streamed, "", "text", done=True)
        if text := valid_unicode(streamed.text):
            self.so_far = text
            self.history.add(AssistantMessage(text=text, model=self.model.name, interrupted=True))
            content = f"{text}\n[interrupted]"
            self.station.emit("message", {"message": {"role": "assistant", "content": content}})

    def _stream(
        self, streamed: _Streamed, delta: str, channel: str, *, done: bool = False, discarded: bool = False
    ) -> None:
        data: dict[str, Any] = {"requestId": streamed.request_id, "delta": delta, "done": done, "channel": channel}
        if discarded:
            data["discarded"] = True
        self.station.emit("streaming", data)

    def _count(self, request_id: str, usage: Usage) -> None:
        """A request that came to nothing is paid for all the same."""
        if usage.total:
            self.budget.spend_request(usage, cost_of(usage, self.price))
            self._tell_usage(request_id, usage)

    def _tell_usage(self, request_id: str, usage: Usage) -> None:
        cost = cost_of(usage, self.price)
        told = self.meter.updated(request_id=request_id, worker_id=self.station.id, usage=usage, cost=cost)
        self.station.tree.bus.emit(told, worker_id=self.station.id)


def _without_cut_calls(completed: Completed) -> AssistantMessage:
    """Where the token limit cut a response, its last call may be half of what was meant: none of them may run."""
    message = completed.message
    if completed.finish is not Finish.LENGTH or not message.calls:
        return message
    calls: tuple[RequestedCall, ...] = tuple(replace(call, problem=call.problem or CUT) for call in message.calls)
    return replace(message, calls=calls)
