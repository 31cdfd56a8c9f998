"""Calls of one server that are under way: slots, time limits, and what the server may ask of us meanwhile.

`ActiveCall` is one call; `call_in_progress` marks it in the caller's task, so that a question which the SDK delivers
there finds its call. `ask_during_call` asks a person: the call's timers stand still until there is an answer, and the
question is withdrawn when the call is interrupted or over. `CallSlots` admits eight calls at a time, first come first
served. `CallTimers` has one timer for two limits: progress restarts the idle limit, never the total one.
`RequestRefused` becomes a JSON-RPC error; its text is for the server's author.

`ServerRequests` has the callbacks that the SDK's client takes. Elicitation and sampling need a call under way and fail
without one; roots are answered at any time. The callbacks always return an answer; they raise nothing but a
cancellation. Sampling is not declared where the config blocks it.

- Elicitation: a form of flat fields, or a URL that only the person opens. Answers `accept` with values that the schema
  allows, `decline`, or `cancel` (dismissed, interrupted, nobody there, values that stay wrong). Refused: over 50
  fields, nested objects, hidden characters, a URL that is neither https nor loopback or that could be misread.
- Sampling: an answer of the worker's model. Refused: more than 5 requests in a call, messages over 256 KiB, tools, and
  what the person denies. At most 4096 tokens are returned; `includeContext` is ignored.
- Roots: the zones the server was given, as file URIs that are valid inside its walls. None over HTTP.

What a person types into a secret field, or into one that is named like a credential, is known to the redactor before
the server has it: from what the server says afterwards it is taken out.

Threats: a server that asks without end or until somebody agrees (its questions are counted per call), spends a person's
budget, or reads what others said to the model; a question about one client's call that is shown to another: a
connection is shared, and older protocol versions do not say which call a question is about; URLs like
`https://bank.example@evil.test`, backslashes, look-alike letters; any other path of this machine.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import Context, ContextVar, Token, copy_context
from enum import StrEnum
from functools import partial
from time import monotonic
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import quote, urlsplit

from golem_forge.config.mcp_spec import ServerSpec, url_problem
from golem_forge.core.decisions import Verdict
from golem_forge.core.errors import ToolFailed
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.core.text import count_control_chars
from golem_forge.events.redaction import IS_CREDENTIAL, Redactor, classify_name
from golem_forge.mcp import lazy_sdk as sdk
from golem_forge.mcp.client.approval_text import display_text
from golem_forge.mcp.client.model import ElicitationForm, FormAnswer, Hooks, SamplingAnswer, SamplingRequest
from golem_forge.orchestrator.bound_output import learn_typed_secrets
from golem_forge.tools.context import ToolContext
from golem_forge.tools.forms import (
    derive_fields,
    errors_by_field,
    form_arguments,
    prefill_fields,
    restore_secrets,
    secret_texts,
)
from golem_forge.tools.validation import SchemaCheck, ToolDefinitionError

T = TypeVar("T")
answering_client: ContextVar[object] = ContextVar("mcp_asks_for", default=None)
"""The client that answers what servers ask during these calls; None means the people at the session."""


@dataclass(slots=True, eq=False)
class ActiveCall:
    ctx: ToolContext
    tool: str
    """Raw name; or the method, for a resource or a prompt."""
    paused: Callable[[], AbstractContextManager[None]] = nullcontext
    """Stops the call's clocks while a person is asked; may be entered several times at once."""
    over: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the call has ended; open questions on its behalf are withdrawn."""
    form_count: int = 0
    """Number of forms so far."""
    sampling_count: int = 0
    context: Context = field(default_factory=copy_context)
    """The caller's: what is asked on its behalf is asked there, whichever task the question arrives in."""


_current_call: ContextVar[ActiveCall | None] = ContextVar("mcp_flight", default=None)


class call_in_progress:
    """`with call_in_progress(call): …`, around the call, in the task that makes it."""

    __slots__ = ("_flight", "_token")

    def __init__(self, flight: ActiveCall) -> None:
        self._flight = flight

    def __enter__(self) -> ActiveCall:
        self._token: Token[ActiveCall | None] = _current_call.set(self._flight)
        return self._flight

    def __exit__(self, *_: object) -> None:
        _current_call.reset(self._token)
        self._flight.over.set()


def call_for_question(flights: Sequence[ActiveCall]) -> ActiveCall | None:
    """The call on whose behalf a question is asked: the one whose task it arrives in, else the latest of that server.

    `flights`: those of the server, in the order they began. Raises RequestRefused where it could be about the call of
    either of two who share nothing but this server.
    """
    current = _current_call.get()
    if current is not None and any(each is current for each in flights):
        return current
    if len({id(each.context.get(answering_client)) for each in flights}) > 1:
        why = "several clients have calls under way, so Forge cannot tell which client this is about"
        raise RequestRefused(INVALID_REQUEST, why)
    return flights[-1] if flights else None


async def ask_during_call(flight: ActiveCall, question: Coroutine[Any, Any, T]) -> T | None:
    """The answer; None: the call was interrupted or ended first, and the question was withdrawn."""
    loop = asyncio.get_running_loop()
    interrupted = asyncio.Event()
    with flight.paused():
        answer = loop.create_task(question, context=flight.context)
        ends = [loop.create_task(interrupted.wait()), loop.create_task(flight.over.wait())]
        forget = flight.ctx.cancel.listen(lambda _: loop.call_soon_threadsafe(interrupted.set))
        try:
            await asyncio.wait({answer, *ends}, return_when=asyncio.FIRST_COMPLETED)
            return answer.result() if answer.done() else None
        finally:  # also when the server itself takes its question back
            forget()
            for task in (answer, *ends):
                task.cancel()


MAX_ACTIVE_CALLS: Final = 8


class CallSlots:
    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(MAX_ACTIVE_CALLS)
        self._flights: dict[ActiveCall, None] = {}
        self._wanted = 0
        self._last_used = monotonic()
        self._left: set[asyncio.Task[Any]] = set()

    def active_calls(self) -> tuple[ActiveCall, ...]:
        """Returns the active calls in the order they began."""
        return tuple(self._flights)

    async def acquire(self) -> None:
        """Waits for a turn, to be given back. Whoever waits counts as use too."""
        self._wanted += 1
        try:
            await self._slots.acquire()
        except BaseException:
            self._wanted -= 1
            raise

    def release(self) -> None:
        self._slots.release()
        self._wanted -= 1
        self._last_used = monotonic()

    def call_began(self, flight: ActiveCall) -> None:
        """Its request is about to be sent: only now, and until it `landed`, may the server ask on its behalf."""
        self._flights[flight] = None

    def call_ended(self, flight: ActiveCall) -> None:
        self._flights.pop(flight, None)

    def touch(self) -> None:
        self._last_used = monotonic()

    def idle_seconds(self) -> float:
        """Returns the seconds without use; 0 while a call runs or waits."""
        return 0.0 if self._wanted else monotonic() - self._last_used

    def abandon(self, task: asyncio.Task[Any]) -> None:
        """Work whose caller is gone: it tells the server, and ends."""
        self._left.add(task)
        task.add_done_callback(self._left_ended)
        task.cancel()

    def stop(self) -> None:
        for task in self._left:
            task.cancel()

    def _left_ended(self, task: asyncio.Task[Any]) -> None:
        self._left.discard(task)
        if not task.cancelled():
            task.exception()


class TimeLimit(StrEnum):
    IDLE = "idle"
    TOTAL = "total"


class CallTimers:
    __slots__ = ("_idle", "_idle_from", "_loop", "_pauses", "_ring", "_since", "_timer", "_total", "_total_from")

    def __init__(self, idle: float, total: float, ring: Callable[[TimeLimit], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._idle, self._total, self._ring = idle, total, ring
        self._idle_from = self._total_from = 0.0
        self._pauses = 0
        self._since = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Starts the timers; a second start begins anew."""
        self._idle_from = self._total_from = self._loop.time()
        if not self._pauses:
            self._arm()

    def note_progress(self) -> None:
        """Restarts the idle timer after the server reported progress."""
        self._idle_from = self._loop.time()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stops the timers; may be entered several times."""
        self._pauses += 1
        if self._pauses == 1:
            self._since = self._loop.time()
        try:
            yield
        finally:
            self._pauses -= 1
            if not self._pauses:
                # progress may have come while a person was asked: the idle clock then starts now
                waited = self._loop.time() - self._since
                self._idle_from = min(self._idle_from + waited, self._loop.time())
                self._total_from += waited
                if self._timer is not None:
                    self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        due = min(self._idle_from + self._idle, self._total_from + self._total)
        self._timer = self._loop.call_at(due, self._check)

    def _check(self) -> None:
        """Progress only notes the time; the timer looks whether it came too early."""
        if self._pauses:
            return
        now = self._loop.time()
        if now >= self._total_from + self._total:
            self._end(TimeLimit.TOTAL)
        elif now >= self._idle_from + self._idle:
            self._end(TimeLimit.IDLE)
        else:
            self._arm()

    def _end(self, limit: TimeLimit) -> None:
        self._timer = None
        self._ring(limit)


INVALID_REQUEST: Final = -32600
INVALID_PARAMS: Final = -32602
REJECTED: Final = -1
"""The error code that MCP's documentation shows for a rejected sampling request."""


class RequestRefused(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


_INTERNAL_ERROR: Final = -32603
_log = logging.getLogger(__name__)


class ServerRequests:
    def __init__(
        self,
        spec: ServerSpec,
        hooks: Hooks,
        flights: Callable[[], Sequence[ActiveCall]],
        redactor: Redactor | None = None,
    ) -> None:
        """`flights`: the calls of this server that are in flight, in the order they began. `redactor` learns the
        secrets that a person types into a form."""
        self._spec = spec
        self._hooks = hooks
        self._flights = flights
        self._redactor = redactor or Redactor()
        self.sampling = None if spec.sampling is Verdict.BLOCKED else self._sampling

    async def elicitation(
        self, context: sdk.ClientRequestContext, params: sdk.ElicitRequestParams
    ) -> sdk.ElicitResult | sdk.ErrorData:
        key = context.request_id if isinstance(context.request_id, str) else ""  # a number names nothing
        answer = partial(answer_elicitation, self._spec, self._hooks, self._redactor, params=params, key=key)
        return await self._answered("elicitation", answer)

    async def _sampling(
        self, context: sdk.ClientRequestContext, params: sdk.CreateMessageRequestParams
    ) -> sdk.CreateMessageResult | sdk.ErrorData:
        return await self._answered("sampling", partial(answer_sampling, self._spec, self._hooks, params=params))

    async def roots(self, context: sdk.ClientRequestContext) -> sdk.ListRootsResult | sdk.ErrorData:
        try:
            return await list_roots(self._spec, self._hooks)
        except Exception as error:
            return _failed("roots", error)

    async def _answered(self, what: str, answer: Callable[[ActiveCall], Awaitable[T]]) -> T | sdk.ErrorData:
        try:
            flight = call_for_question(self._flights())
            if flight is None:
                raise RequestRefused(INVALID_REQUEST, f"{what} is answered only during a call")
            return await answer(flight)
        except Exception as error:
            return _failed(what, error)


def _failed(what: str, error: Exception) -> sdk.ErrorData:
    """Threat: the words of a foreign exception may hold paths or secrets; the server is told that it failed."""
    if isinstance(error, RequestRefused):
        return sdk.ErrorData(code=error.code, message=error.message)
    _log.warning("%s could not be answered: %s", what, type(error).__name__)
    return sdk.ErrorData(code=_INTERNAL_ERROR, message=f"{what} could not be answered")


MESSAGE_BYTES: Final = 4096
KEY_BYTES: Final = 128
FORMS_PER_CALL: Final = 20
"""Threat: a server that asks until somebody says yes out of weariness."""
_ATTEMPTS: Final = 10
_Values = dict[str, Any]


async def answer_elicitation(
    spec: ServerSpec, hooks: Hooks, redactor: Redactor, flight: ActiveCall, params: Any, key: str = ""
) -> sdk.ElicitResult:
    """Answers a server's question. `key`: the server's name for it."""
    flight.form_count += 1
    if flight.form_count > FORMS_PER_CALL:
        raise RequestRefused(INVALID_PARAMS, f"more than {FORMS_PER_CALL} questions during one call")
    key = display_text(key, KEY_BYTES)
    if params.mode == "url":
        return await _ask_page(spec, hooks, flight, params, key)
    answer, typed = await _ask_form(spec, hooks, flight, params, key)
    learn_typed_secrets(spec.name, typed, redactor)
    return answer


async def _ask_page(spec: ServerSpec, hooks: Hooks, flight: ActiveCall, params: Any, key: str) -> sdk.ElicitResult:
    page = checked_url(params.url)
    message = f"{display_text(params.message, MESSAGE_BYTES)}\nIt asks you to open a page of {page.host}."
    form = ElicitationForm(server=spec.name, message=message, url=page.url, key=key)
    answer = await ask_during_call(flight, _ask_hook(hooks, form, flight))
    return _elicit_result(answer.action if answer else "cancel")


async def _ask_form(
    spec: ServerSpec, hooks: Hooks, flight: ActiveCall, params: Any, key: str
) -> tuple[sdk.ElicitResult, Iterable[str]]:
    """The answer, and the secrets that were typed into it."""
    empty = ElicitationForm(server=spec.name, message=params.message, schema=params.requested_schema, key=key)

    async def ask(form: ElicitationForm) -> FormAnswer | None:
        return await ask_during_call(flight, _ask_hook(hooks, form, flight))

    answer, typed = await fill_form(empty, ask)
    return _elicit_result(answer.action, dict(answer.values) if answer.action == "accept" else None), typed


async def fill_form(
    empty: ElicitationForm, ask: Callable[[ElicitationForm], Awaitable[FormAnswer | None]]
) -> tuple[FormAnswer, Iterable[str]]:
    """Shows a form of flat fields until the values fit the schema, with the errors at each field. Returns the answer
    and the secrets that were typed. Raises RequestRefused for a form that cannot be shown.
    """
    schema, key = empty.schema, empty.key
    try:
        check = SchemaCheck(dict(schema))
    except ToolDefinitionError as error:
        raise RequestRefused(INVALID_PARAMS, f"requestedSchema: {error}") from None
    plain = flat_fields(schema)
    message = display_text(empty.message, MESSAGE_BYTES)
    given: _Values = {}
    errors: Mapping[str, str] = {}
    for _ in range(_ATTEMPTS):
        filled = prefill_fields(plain, given)
        fields = tuple({**each, "error": errors[each["name"]]} if each["name"] in errors else each for each in filled)
        text = "\n".join(part for part in (message, errors.get("", "")) if part)
        form = ElicitationForm(server=empty.server, message=text, fields=fields, schema=schema, key=key)
        answer = await ask(form)
        if answer is None or answer.action != "accept":
            return FormAnswer(action=answer.action if answer else "cancel"), ()
        given = form_arguments(fields, restore_secrets(plain, answer.values, given))
        values = _with_defaults(schema, given)
        errors = errors_by_field(check.errors(values))
        if not errors:
            return FormAnswer(action="accept", values=values), _typed_secrets(plain, given)
    return FormAnswer(), ()


async def tool_form(
    empty: ElicitationForm,
    ask: Callable[[ElicitationForm], Awaitable[FormAnswer | None]],
    redactor: Redactor | None,
) -> dict[str, Any]:
    """Does the same for a form of a running tool. Returns `{action, values}`. Raises ToolFailed."""
    try:
        answer, typed = await fill_form(empty, ask)
    except RequestRefused as error:
        raise ToolFailed(f"The form cannot be shown: {error}", code="FORM_INVALID") from None
    if redactor is not None:
        learn_typed_secrets(empty.server, typed, redactor)
    return {"action": answer.action, "values": dict(answer.values)}


def _typed_secrets(fields: Iterable[Mapping[str, Any]], given: _Values) -> Iterator[str]:
    """Yields the secrets that a person typed.

    Threat: a server could propose ordinary words for a field that it calls `password`, and have them taken out of all
    that is shown from then on. What it proposed itself is no secret.
    """
    for asked in fields:
        name, value = asked["name"], given.get(asked["name"])
        if asked["type"] == "secret":
            yield from secret_texts([asked], given)
        elif asked["type"] in _TYPED and IS_CREDENTIAL in (classify_name(name), classify_name(asked["label"])):
            typed = value if isinstance(value, list) else [value]
            yield from (str(each) for each in typed if each not in tuple(_proposed_values(asked)))


async def _ask_hook(hooks: Hooks, form: ElicitationForm, flight: ActiveCall) -> FormAnswer:
    return await hooks.ask_form(form, flight.ctx)


def _with_defaults(schema: Mapping[str, Any], given: _Values) -> _Values:
    """A field that was left empty has the value the server proposed for it."""
    properties: Mapping[str, Any] = schema.get("properties") or {}
    parts = {name: part for name, part in properties.items() if isinstance(part, Mapping)}
    proposed = {name: part["default"] for name, part in parts.items() if part.get("default") is not None}
    return {**proposed, **given}


def _elicit_result(action: str, values: _Values | None = None) -> sdk.ElicitResult:
    known = action if action in ("accept", "decline") else "cancel"
    return sdk.ElicitResult.model_validate({"action": known, "content": values})


MOST_FIELDS: Final = 50
_LONGEST_NAME: Final = 200
_LABEL_BYTES: Final = 200
_DESCRIPTION_BYTES: Final = 1000
_FLAT: Final = frozenset({"text", "secret", "number", "boolean", "select", "multiselect", "fixed"})
_TYPED: Final = frozenset({"text", "number", "list"})
_SCALARS: Final = (str, int, float, bool, type(None))


def flat_fields(schema: Mapping[str, Any]) -> list[dict[str, Any]]:
    properties = schema.get("properties")
    if schema.get("type") != "object" or not isinstance(properties, Mapping):
        raise RequestRefused(INVALID_PARAMS, "requestedSchema: must be an object with properties")
    if len(properties) > MOST_FIELDS:
        raise RequestRefused(INVALID_PARAMS, f"requestedSchema: more than {MOST_FIELDS} fields")
    fields = [_display_field(each) for each in derive_fields(dict(schema))]
    for each in fields:
        _label_options(each, properties[each["name"]])
        _check_field(each)
    return fields


def _display_field(field: dict[str, Any]) -> dict[str, Any]:
    shown_field = {
        **field,
        "label": display_text(field["label"], _LABEL_BYTES),
        "description": display_text(field["description"], _DESCRIPTION_BYTES),
    }
    if "options" in field:
        options = field["options"]
        shown_field["options"] = [{**each, "label": display_text(each["label"], _LABEL_BYTES)} for each in options]
    return shown_field


def _label_options(field: dict[str, Any], part: Any) -> None:
    """`enumNames`: how servers of 2025 label the values of an `enum`."""
    names = part.get("enumNames") if isinstance(part, Mapping) else None
    options = field.get("options", ())
    if isinstance(names, list) and len(names) == len(options) and all(isinstance(name, str) for name in names):
        for option, name in zip(options, names, strict=True):
            option["label"] = display_text(name, _LABEL_BYTES)


def _check_field(field: Mapping[str, Any]) -> None:
    name = field["name"]
    if len(name) > _LONGEST_NAME or count_control_chars(name):
        raise RequestRefused(INVALID_PARAMS, "requestedSchema: a name that is too long or hides characters")
    item = field.get("item", {})
    if field["type"] not in _FLAT and not (field["type"] == "list" and item.get("type") == "text"):
        raise RequestRefused(INVALID_PARAMS, f"requestedSchema: {name}: must be text, a number, a boolean or a choice")
    if any(not isinstance(value, _SCALARS) for value in _proposed_values(field)):
        raise RequestRefused(INVALID_PARAMS, f"requestedSchema: {name}: values must be text, numbers or booleans")
    if any(isinstance(value, str) and count_control_chars(value) for value in _proposed_values(field)):
        raise RequestRefused(INVALID_PARAMS, f"requestedSchema: {name}: a value hides characters")


def _proposed_values(field: Mapping[str, Any]) -> Iterable[Any]:
    """Yields the values that a person may send without having typed them."""
    yield from (option["value"] for option in field.get("options", ()))
    default = field.get("default")
    yield from default if isinstance(default, list) else (default,)


_MAX_URL_LENGTH: Final = 4096


class CheckedUrl(NamedTuple):
    url: str
    host: str
    """The host, with its port if it names one."""


def checked_url(url: str) -> CheckedUrl:
    if len(url) > _MAX_URL_LENGTH or url_problem(url):
        why = "must be https, or http to loopback, in plain characters and without a user"
        raise RequestRefused(INVALID_PARAMS, f"url: {why}")
    return CheckedUrl(url, urlsplit(url).netloc.lower())


MOST_TOKENS: Final = 4096
REQUESTS_PER_CALL: Final = 5
MESSAGES_BYTES: Final = 256 * 1024
_MOST_MESSAGES: Final = 200
_MOST_STOPS: Final = 16
_MEDIA: Final = frozenset({"text", "image", "audio"})
_TURNED_DOWN: Final = "User rejected sampling request"


async def answer_sampling(spec: ServerSpec, hooks: Hooks, flight: ActiveCall, params: Any) -> sdk.CreateMessageResult:
    flight.sampling_count += 1
    if flight.sampling_count > REQUESTS_PER_CALL:
        raise RequestRefused(INVALID_PARAMS, f"more than {REQUESTS_PER_CALL} sampling requests during one call")
    request = _sampling_request(spec, params)
    answer = await ask_during_call(flight, _sample_hook(hooks, request, flight))
    if answer is None:
        raise RequestRefused(REJECTED, _TURNED_DOWN)
    if answer.refused:
        raise RequestRefused(REJECTED, f"{_TURNED_DOWN}: {answer.refused}")
    return sdk.CreateMessageResult(
        role="assistant",
        content=sdk.TextContent(type="text", text=answer.text),
        model=answer.model,
        stop_reason=answer.stop_reason,
    )


def _sampling_request(spec: ServerSpec, params: Any) -> SamplingRequest:
    if params.tools or params.tool_choice is not None:
        raise RequestRefused(INVALID_PARAMS, "tools are not offered for sampling")
    if not 1 <= len(params.messages) <= _MOST_MESSAGES:
        raise RequestRefused(INVALID_PARAMS, f"messages: must be 1 to {_MOST_MESSAGES}")
    messages = tuple(_sampling_message(each) for each in params.messages)
    stops = tuple(params.stop_sequences or ())
    system = params.system_prompt or ""
    if len(json.dumps([messages, system, stops], ensure_ascii=False).encode("utf-8", "replace")) > MESSAGES_BYTES:
        raise RequestRefused(INVALID_PARAMS, f"messages: larger than {MESSAGES_BYTES // 1024} KiB")
    if len(stops) > _MOST_STOPS:
        raise RequestRefused(INVALID_PARAMS, f"stopSequences: more than {_MOST_STOPS}")
    if params.max_tokens < 1:
        raise RequestRefused(INVALID_PARAMS, "maxTokens: must be positive")
    if params.temperature is not None and not 0 <= params.temperature <= 2:
        raise RequestRefused(INVALID_PARAMS, "temperature: must be 0 to 2")
    return SamplingRequest(
        server=spec.name,
        messages=messages,
        system_prompt=system,
        max_tokens=min(params.max_tokens, MOST_TOKENS),
        temperature=params.temperature,
        stop_sequences=stops,
        verdict=spec.sampling,
    )


def _sampling_message(message: Any) -> dict[str, Any]:
    """Returns the message as in MCP, without `_meta`, so that a person reads everything that is sent."""
    parts = [part.model_dump(by_alias=True, exclude_none=True, mode="json") for part in message.content_as_list]
    for part in parts:
        if part["type"] not in _MEDIA:
            raise RequestRefused(INVALID_PARAMS, "messages: only text, images and audio can be sent")
        part.pop("_meta", None)
    return {"role": message.role, "content": parts[0] if len(parts) == 1 else parts}


async def _sample_hook(hooks: Hooks, request: SamplingRequest, flight: ActiveCall) -> SamplingAnswer:
    return await hooks.sample(request, flight.ctx)


async def list_roots(spec: ServerSpec, hooks: Hooks) -> sdk.ListRootsResult:
    roots = []
    if spec.zones and not spec.is_http:
        walls = hooks.walls_for(spec)
        level = await walls.level()
        for zone in spec.zones:
            uri = f"file://{quote(walls.mount_point(zone, level))}"
            roots.append(sdk.Root.model_validate({"uri": uri, "name": zone}))
    return sdk.ListRootsResult(roots=roots)
