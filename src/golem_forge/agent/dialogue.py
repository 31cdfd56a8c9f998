"""Dialogue: one worker's requests to its model. Takes the history, returns the next response, records what it cost.

Before each request the history is compacted to fit the context window and the budget is checked; while the response
streams, UIs see it; afterwards its usage is counted and it is in the history. Raises RunInterrupted, BudgetExceeded,
ContextExceeded or ModelError; text that had arrived by then is in the history, marked as interrupted, and none of its
calls will run. Where the worker's list has another model, that one is asked the same after a failure.

`ask_with_retries`: up to four attempts with a wait between them; what a failed attempt showed is withdrawn. Raises
ModelError when the request cannot succeed or the attempts are used up. Cancelling it closes the connection and leaves
nothing running.

`SilenceNotice` tells the person that a request is still waited for, first after ten seconds without a sign of life.
"""

from __future__ import annotations

import asyncio
import random as _random
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import aclosing
from functools import partial
from typing import Any, Final, TypeVar, cast

from golem_forge.agent.budget import (
    MIN_OUTPUT,
    Budget,
    Estimator,
    Meter,
    clamp_usage,
    cost_of,
    message_tokens,
    worst_cost,
)
from golem_forge.agent.history import KEEP_LAST_ON_REQUEST, Compacted, History, compact
from golem_forge.agent.model.interface import (
    RESPONSE_CUT,
    RESPONSE_TOO_LARGE,
    SCHEMA_REFUSED,
    AssistantMessage,
    Completed,
    Finish,
    Message,
    Model,
    ModelError,
    ModelEvent,
    Request,
    ResponseLimit,
    TextDelta,
    ThinkingDelta,
    TokenUsage,
    UsageSoFar,
    UserMessage,
    refused_tools,
    storable_message,
    with_bare_schemas,
)
from golem_forge.agent.run_result import RunInterrupted, unless_interrupted
from golem_forge.agent.worker_scope import WorkerScope
from golem_forge.config.run_block import Price
from golem_forge.core.calls import MediaPart
from golem_forge.core.errors import ForgeError
from golem_forge.core.ids import new_id
from golem_forge.core.json import valid_unicode
from golem_forge.core.lazy_dataclass import dataclass, field, replace
from golem_forge.orchestrator.bound_output import media_bytes

_T = TypeVar("_T")
_REFUSALS: Final = (0, 400, 404, 413, 415, 422)
"""HTTP status of an answer that says that the request itself cannot be; 0: the provider's library says so."""
ANSWER_WITHHELD: Final = "ANSWER_WITHHELD"
"""The code of a ModelError: the model answered, and gave nothing."""
_SUMMARISE: Final = (
    "Summarise the conversation above for yourself, so that you can go on without it: the person's goals and "
    "constraints, what was found and changed (with paths), what was tried and failed, what is still to be done."
)


@dataclass(slots=True)
class _Streamed:
    """The parts of a response received so far."""

    request_id: str = field(default_factory=new_id)
    pieces: list[str] = field(default_factory=list)
    thinking: bool = False
    usage: TokenUsage = field(default_factory=TokenUsage)

    @property
    def text(self) -> str:
        return "".join(self.pieces)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweringModel:
    """A model with what depends on which one it is."""

    model: Model
    price: Price | None
    context_limit: int


@dataclass(slots=True, kw_only=True)
class Dialogue:
    scope: WorkerScope
    model: Model
    history: History
    budget: Budget
    meter: Meter
    price: Price | None
    context_limit: int
    system: Callable[[], str]
    """Returns the present system prompt."""
    attachment: Callable[[str], bytes]
    next_model: Callable[[], Coroutine[Any, Any, AnsweringModel | None]] | None = field(default=None, repr=False)
    """Opens the one that answers when this one failed; None: there is none."""
    chosen: AnsweringModel | None = None
    """The one that a person chose while this one answers: it is used from the next request on."""
    context_used: int = 0
    """Input tokens of the last request, as the provider counted them."""
    last_text: str = ""
    """The last words: of the response that is being streamed, or of the last one that had any."""
    last_finish: Finish = Finish.STOP
    """Why the last response ended."""
    last_unsent: str = ""
    """The tool of a call that the last response wrote behind words, where it does not count."""
    bare_schemas: set[str] = field(default_factory=set)
    """Names of models whose server refused a schema: their requests carry bare ones from then on."""
    _refused_media: set[tuple[str, str]] = field(default_factory=set)
    """(model, handle) of pictures, sounds and files with which a request was refused: their lines of text stay."""
    _accepted_media: set[tuple[str, str]] = field(default_factory=set)
    _sent_media: set[tuple[str, str]] = field(default_factory=set)
    """Those in the request that is being made."""
    _estimator: Estimator = field(default_factory=Estimator)
    _unsettled: float = 0.0
    """Cost of requests that is not yet recorded where sessions share a budget."""
    _counted_more: float = 1.0
    """Ratio of the provider's token count to our estimate for the last request; at least 1."""

    async def next_response(self) -> AssistantMessage:
        self.use_chosen()
        return await self._with_fallback(self._next_response)

    def use_chosen(self) -> None:
        if (chosen := self.chosen) is not None:
            self.model, self.price, self.context_limit = chosen.model, chosen.price, chosen.context_limit
            self.chosen = None

    async def _with_fallback(self, ask: Callable[[], Awaitable[_T]]) -> _T:
        """Asks; where all tries of the model failed, the next model of the worker's list is asked the same. It goes on
        answering for the rest of the session. What a provider answered and withheld is an answer."""
        while True:
            try:
                return await ask()
            except ModelError as error:
                if error.code in (ANSWER_WITHHELD, RESPONSE_TOO_LARGE):
                    raise
                if self.chosen is None and self.next_model is not None:
                    self.chosen = await unless_interrupted(self.scope.signal, self.next_model())
                if self.chosen is None:
                    raise
                text = f"{error.message}; {self.chosen.model.name} answers instead"
                self.scope.emit("status", {"type": "warning", "message": text, "code": "MODEL_FALLBACK"})
                self.use_chosen()

    async def _next_response(self) -> AssistantMessage:
        request = await self._fitting(self._request(self.history.messages))
        self.last_finish = Finish.STOP
        completed = await self._ask(request)
        self.last_finish, self.last_unsent = completed.finish, completed.unsent
        self.context_used = completed.usage.input
        self.scope.emit(
            "contextUsage",
            {
                "tokensUsed": self.context_used,
                "tokenLimit": self.context_limit,
                "exceeded": self.context_used > self.context_limit,
            },
        )
        if completed.finish is Finish.REFUSED:
            raise ModelError(f"{self.model.name} withheld its answer", code=ANSWER_WITHHELD)
        message = storable_message(_without_cut_calls(completed), self.scope.state.call_ids)
        self.history.add(message)
        if completed.note:
            self.scope.emit("status", {"type": "info", "message": completed.note, "code": "TEXT_CALL"})
        if message.text:
            self.scope.emit("message", {"message": {"role": "assistant", "content": message.text}})
        if completed.finish is Finish.LENGTH:
            self.scope.emit("status", {"type": "warning", "message": f"The {RESPONSE_CUT}.", "code": "RESPONSE_CUT"})
        return message

    def _request(self, messages: list[Message]) -> Request:
        request = Request(
            system=self.system(),
            messages=tuple(messages),
            tools=self.scope.model_tools.offers(),
            max_output_tokens=self.model.max_output_tokens,
            attachment=self._attached,
            media=self._media,
            media_tokens=self._media_tokens,
            schema_of=self.scope.model_tools.schema_of,
        )
        return with_bare_schemas(request) if self.model.name in self.bare_schemas else request

    def _attached(self, digest: str) -> bytes:
        """Bytes as they are, except that a text is given without the secrets that Forge knows."""
        data = self.attachment(digest)
        try:
            text = data.decode()
        except UnicodeDecodeError:
            return data
        shown = self.scope.state.redactor.redact_secrets(text)
        return data if shown == text else shown.encode()

    def _media(self, handle: str) -> bytes | None:
        if (self.model.name, handle) in self._refused_media:
            return None
        self._sent_media.add((self.model.name, handle))
        path = self.scope.orchestrator
        return media_bytes(path.outputs, handle, path.worker)

    def _media_tokens(self, part: MediaPart) -> int:
        return 0 if (self.model.name, part.handle) in self._refused_media else self.model.media_tokens(part)

    async def _fitting(self, request: Request) -> Request:
        """Returns the request, or one with a compacted history if it is too long. An interrupt leaves the history
        unchanged.
        """
        compacted = await self._compacted(request)
        return request if compacted is None else self._request(compacted.messages)

    async def compact_now(self, wish: str = "") -> Compacted | None:
        """Makes the history shorter although there is room; `wish`: what the summary must keep. None: there is nothing
        to make shorter. Raises RunInterrupted, ModelError, BudgetExceeded, ContextExceeded."""
        request = self._request(self.history.messages)
        said = self.scope.state.redactor.redact_secrets(valid_unicode(wish))
        compacted = await self._compacted(request, said, keep=KEEP_LAST_ON_REQUEST, force=True)
        if compacted is not None:
            self.context_used = compacted.after
        return compacted

    async def _compacted(self, request: Request, wish: str = "", **how: Any) -> Compacted | None:
        compacted: Compacted | None = await unless_interrupted(
            self.scope.signal,
            compact(
                list(request.messages),
                limit=self.context_limit,
                used=self._estimator.tokens(request),
                summarise=lambda messages: self._summary(messages, wish),
                keep_output=self._keep_output,
                count=partial(message_tokens, count_media=self._media_tokens),
                **how,
            ),
        )
        if compacted is not None:
            if len(self.history.messages) != len(request.messages):  # the person spoke while a command made the summary
                raise ForgeError("A new message came meanwhile, so Forge did not change the history.")
            self.history.replace_all(compacted.messages)
            self.scope.emit("contextCompacted", {"before": compacted.before, "after": compacted.after})
        return compacted

    def _keep_output(self, text: str) -> str:
        return self.scope.orchestrator.outputs.keep(text, self.scope.orchestrator.worker)

    async def _summary(self, messages: list[Message], wish: str) -> str:
        """Asks the model for a summary; it is not streamed to anybody. Called inside `_fitting`, which an interrupt
        ends.
        """
        asked = f"{_SUMMARISE} The person asks to keep above all: {wish}" if wish else _SUMMARISE
        request = self._request([*messages, UserMessage(text=asked, kind="note")])
        streamed = _Streamed()
        completed = await self._paid(replace(request, tools=()), streamed, lambda event: None)
        return completed.message.text

    async def request_aside(self, system: str, messages: list[Message], max_output_tokens: int) -> Completed:
        """A request beside the conversation, for somebody else (a server's sampling): paid for like every other, no
        tools, nothing of it in the history. Raises as `next_response` does."""
        request = Request(system=system, messages=tuple(messages), max_output_tokens=max_output_tokens)
        return await self._with_fallback(
            lambda: unless_interrupted(self.scope.signal, self._paid(request, _Streamed(), lambda event: None))
        )

    async def _ask(self, request: Request) -> Completed:
        streamed = _Streamed()
        try:
            completed = await unless_interrupted(
                self.scope.signal, self._paid(request, streamed, lambda event: self._show(streamed, event))
            )
        except (RunInterrupted, ModelError):
            if streamed.pieces or streamed.thinking:
                self._stream(streamed, "", "text", done=True)
            if text := valid_unicode(streamed.text):
                self.last_text = text
                self.history.add(AssistantMessage(text=text, model=self.model.name, interrupted=True))
                content = f"{text}\n[interrupted]"
                self.scope.emit("message", {"message": {"role": "assistant", "content": content}})
            raise
        self._stream(streamed, "", "text", done=True)
        self.last_text = completed.message.text or self.last_text
        return completed

    async def _paid(self, request: Request, streamed: _Streamed, show: ShowEvent) -> Completed:
        """Asks for no more output than the budget has room for, and the money that sessions share."""
        estimated = self._estimator.tokens(request)
        estimate = int(estimated * self._counted_more)
        most = min(request.max_output_tokens or self.model.max_output_tokens, self.model.max_output_tokens)
        output = self.budget.fit_output(estimate, most, self.price)
        if (gate := self.scope.state.spending) is None:
            return await self._within_budget(request, streamed, show, (estimated, estimate, output))
        least = worst_cost(estimate, min(output, MIN_OUTPUT), self.price) if self.price is not None else None
        held = await gate.hold(least, worst_cost(estimate, output, self.price))
        if held is not None and self.price is not None and (each := self.price.at(estimate).output) > 0:
            room = int((held - worst_cost(estimate, 0, self.price)) * 1_000_000 / each)
            output = min(output, max(room, MIN_OUTPUT))
        self._unsettled = 0.0 if held is None else self._unsettled
        try:
            return await self._within_budget(request, streamed, show, (estimated, estimate, output))
        finally:
            if held is not None:
                cost, self._unsettled = self._unsettled, 0.0
                await asyncio.shield(asyncio.ensure_future(gate.settle(held, cost)))

    async def _within_budget(
        self, request: Request, streamed: _Streamed, show: ShowEvent, tokens: tuple[int, int, int]
    ) -> Completed:
        """Sets the budget for it aside until the answer is there. What failed or was stopped on the way is paid for all
        the same. `tokens`: of the input, as estimated and as the last answers make it likely, and of the output."""
        estimated, estimate, output = tokens
        with self.budget.hold_request(estimate, output, self.price) as hold:

            def observe(event: ModelEvent | DiscardedAttempt | SchemaRefused) -> None:
                if isinstance(event, UsageSoFar):
                    streamed.usage = event.usage
                elif isinstance(event, SchemaRefused):
                    self._tell_schema_refused(event)
                elif isinstance(event, DiscardedAttempt):
                    self._count(streamed.request_id, event.usage)
                    streamed.usage = TokenUsage()
                show(event)
                silence.heard(event.wait or 0.0 if isinstance(event, DiscardedAttempt) else 0.0)
                if isinstance(event, DiscardedAttempt) and event.wait is not None:
                    hold.check_again()

            silence = SilenceNotice(self._tell_waiting)
            try:
                completed = await self._with_media_it_takes(replace(request, max_output_tokens=output), observe)
            except BaseException:
                self._count(streamed.request_id, streamed.usage)
                raise
            finally:
                silence.stop()
            hold.spend(completed.usage, cost_of(completed.usage, self.price))
        self._counted_more = max(1.0, completed.usage.input / max(estimated, 1))
        self._tell_usage(streamed.request_id, completed.usage)
        return completed

    async def _with_media_it_takes(self, request: Request, show: ShowEvent) -> Completed:
        """Asks; where the request was refused with pictures, sounds or files that no request before had, asks once more
        without these. A model behind a provider of many may not see, and a picture may be broken."""
        self._sent_media.clear()
        try:
            completed = await ask_with_retries(self.model, request, show=show)
        except ModelError as error:
            new = self._sent_media - self._accepted_media
            if not new or error.retryable or error.http_status not in _REFUSALS:
                raise
            self._refused_media |= new
            try:
                completed = await ask_with_retries(self.model, request, show=show)
            except ModelError:
                self._refused_media -= new  # they were not why
                raise
            text = f"{error.message}; asked again without what was new of pictures, sounds and files ({len(new)})"
            self.scope.emit("status", {"type": "warning", "message": text, "code": "MEDIA_REFUSED"})
        self._accepted_media |= self._sent_media - self._refused_media
        return completed

    def _tell_waiting(self, seconds: float) -> None:
        text = f"still waiting for {self.model.name}: nothing for {seconds:.0f} s"
        self.scope.emit("status", {"type": "warning", "message": text, "code": "MODEL_WAITING"})

    def _tell_schema_refused(self, refused: SchemaRefused) -> None:
        self.bare_schemas.add(self.model.name)
        text = f"{refused.reason} (the schema of {refused.tools}); asked again with plain schemas"
        self.scope.emit("status", {"type": "warning", "message": text, "code": SCHEMA_REFUSED})

    def _show(self, streamed: _Streamed, event: ModelEvent | DiscardedAttempt | SchemaRefused) -> None:
        if isinstance(event, TextDelta):
            if event.text:
                streamed.pieces.append(event.text)
                self._stream(streamed, event.text, "text")
        elif isinstance(event, ThinkingDelta):
            streamed.thinking = True
            self._stream(streamed, event.text, "thinking")
        elif isinstance(event, DiscardedAttempt):
            self._stream(streamed, "", "text", done=True, discarded=True)
            if event.wait is not None:
                text = f"{event.reason}; trying again in {event.wait:.1f} s"
                self.scope.emit("status", {"type": "warning", "message": text, "code": "MODEL_RETRY"})
            streamed.request_id = new_id()
            streamed.pieces.clear()

    def _stream(
        self, streamed: _Streamed, delta: str, channel: str, *, done: bool = False, discarded: bool = False
    ) -> None:
        data: dict[str, Any] = {"requestId": streamed.request_id, "delta": delta, "done": done, "channel": channel}
        if discarded:
            data["discarded"] = True
        self.scope.emit("streaming", data)

    def _count(self, request_id: str, usage: TokenUsage) -> None:
        """A request that came to nothing is paid for all the same."""
        if usage.total:
            self.budget.spend_request(usage, cost_of(usage, self.price))
            self._tell_usage(request_id, usage)

    def _tell_usage(self, request_id: str, usage: TokenUsage) -> None:
        event = self.meter.updated(request_id=request_id, worker_id=self.scope.id, usage=usage, price=self.price)
        self._unsettled += event.cost or 0.0
        self.scope.state.bus.emit(event, worker_id=self.scope.id)


def _without_cut_calls(completed: Completed) -> AssistantMessage:
    """Marks all calls of a response that the token limit cut as not runnable: the last may be incomplete."""
    message = completed.message
    if completed.finish is not Finish.LENGTH or not message.calls:
        return message
    calls = tuple(replace(call, problem=call.problem or RESPONSE_CUT) for call in message.calls)
    return replace(message, calls=calls)


FIRST_NOTICE_S = 10.0


class SilenceNotice:
    """Calls `tell` with the seconds since the last sign of life: after ten, and each time they have doubled."""

    def __init__(self, tell: Callable[[float], None]) -> None:
        self._tell = tell
        self._loop = asyncio.get_running_loop()
        self._due = FIRST_NOTICE_S
        self._last = self._loop.time()
        self._timer = self._loop.call_at(self._last + self._due, self._look)

    def heard(self, wait: float = 0.0) -> None:
        """`wait`: seconds in which nothing can come, because nothing is asked."""
        self._last = self._loop.time() + wait
        if self._due != FIRST_NOTICE_S:  # told already: the timer waits for longer
            self.stop()
            self._due = FIRST_NOTICE_S
            self._timer = self._loop.call_at(self._last + self._due, self._look)

    def stop(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        silent = self._loop.time() - self._last
        if silent >= self._due:
            self._due = 2 * silent
            self._tell(silent)
        self._timer = self._loop.call_at(self._last + self._due, self._look)


MAX_ATTEMPTS: Final = 4
MAX_WAIT: Final = 60.0
"""Seconds of `Retry-After` that are waited for; a provider that asks for more is an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscardedAttempt:
    """A try failed and another one follows, or none does and the error is raised. What it streamed is withdrawn."""

    reason: str
    streamed: bool
    """Whether text or thinking was already shown."""
    usage: TokenUsage
    """The usage counted by then, which is charged all the same."""
    wait: float | None
    """Seconds until the next try; None: there is none."""


async def ask_with_retries(
    model: Model,
    request: Request,
    *,
    show: ShowEvent,
    sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
    random: Callable[[], float] = _random.random,
) -> Completed:
    """`random` gives numbers in [0, 1). Everything but the Completed of the last try goes to `show`."""
    for number in range(1, MAX_ATTEMPTS + 1):
        one = _Attempt(show)
        try:
            return await _with_schemas_it_takes(one, model, request)
        except ModelError as error:
            wait = _retry_wait(error, number, random) if error.retryable and number < MAX_ATTEMPTS else None
            if one.streamed or one.usage.total or wait is not None:
                show(DiscardedAttempt(reason=error.message, streamed=one.streamed, usage=one.usage, wait=wait))
            if wait is None:
                raise _final_error(error, number) from error
        await sleep(wait)
    raise AssertionError("the last try returns or raises")


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaRefused:
    """The server cannot use the schema of a tool; the request was sent once more with the least of each schema."""

    reason: str
    tools: str
    """The tools whose schema was refused, as far as the server says."""


ShowEvent = Callable[[ModelEvent | DiscardedAttempt | SchemaRefused], None]


async def _with_schemas_it_takes(attempt: _Attempt, model: Model, request: Request) -> Completed:
    """One try. Where the server refused a schema, one more with bare ones; the error names the tool."""
    try:
        return await attempt.run(model, request)
    except ModelError as error:
        if error.code != SCHEMA_REFUSED or not request.tools:
            raise
        tools, bare = refused_tools(error.message, request.tools), with_bare_schemas(request)
        if bare is request:
            raise _about_schema(error, tools) from error
        attempt.show(SchemaRefused(reason=error.message, tools=tools))
        try:
            return await attempt.run(model, bare)
        except ModelError as again:
            raise (_about_schema(again, tools) if again.code == SCHEMA_REFUSED else again) from error


def _about_schema(error: ModelError, tools: str) -> ModelError:
    text = f"{error.message} (the schema of {tools}; leave the tool out of the worker's toolsets, or try another model)"
    return ModelError(text, code=error.code, http_status=error.http_status)


class _Attempt:
    def __init__(self, show: ShowEvent) -> None:
        self.show = show
        self.streamed = False
        self.usage = TokenUsage()

    async def run(self, model: Model, request: Request) -> Completed:
        completed: Completed | None = None
        flood = ResponseLimit(model.name)
        # Closed here and now, not by the garbage collector: a cancelled request must not keep its connection.
        async with aclosing(cast(Any, model.stream(request))) as events:
            async for event in events:
                if isinstance(event, Completed):
                    completed = replace(event, usage=clamp_usage(event.usage))
                    continue
                if isinstance(event, (TextDelta, ThinkingDelta)):
                    flood.add(event.text)
                    self.streamed = self.streamed or bool(event.text)
                elif isinstance(event, UsageSoFar):
                    event = UsageSoFar(usage=clamp_usage(event.usage))
                    self.usage = event.usage
                self.show(event)
        if completed is None:
            raise ModelError(f"{model.name}: the response broke off before its end", retryable=True)
        return completed


def _retry_wait(error: ModelError, number: int, random: Callable[[], float]) -> float | None:
    """Seconds before the next try; None where the provider wants more patience than we have."""
    if error.retry_after is not None:
        return error.retry_after if error.retry_after <= MAX_WAIT else None
    base: float = 2 ** (number - 1)
    return base * (0.5 + random())


def _final_error(error: ModelError, number: int) -> ModelError:
    text = error.message
    if error.retryable and error.retry_after is not None and error.retry_after > MAX_WAIT:
        text += f"; the provider asks to wait {error.retry_after:.0f} s, more than the {MAX_WAIT:.0f} s waited for"
    elif number > 1:
        text += f" (after {number} tries)"
    return ModelError(
        text,
        retryable=error.retryable,
        retry_after=error.retry_after,
        code=error.code,
        http_status=error.http_status,
    )
