"""One call of a server's tool, from the request to a Finished. Only a cancelled task raises.

`call_tool` maps every end to a text that says whether the call may have run: `isError`, a structured result that breaks
its own schema, a JSON-RPC error, a lost connection, a time limit. `request_within_limits` does the work (slot,
connection, request, questions) in its own task, so that an interrupted caller continues within a second while the task
still tells the server. `answer_input_requests` handles newer servers that ask inside a result: at most ten rounds, and
a round that did not reach the server is not sent again. `Rewriter` maps zone addresses to paths inside the server's
walls in requests and back in answers, and removes known secrets; bytes and cursors are left alone.

Threat: a server may report progress ten thousand times a second (shown at most twenty times), or name resources without
end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from golem_forge.core.calls import ToolCompletion
from golem_forge.core.decisions import Status
from golem_forge.core.errors import ForgeError, error_name
from golem_forge.core.json import NotJson, as_json
from golem_forge.core.lazy_dataclass import replace
from golem_forge.core.results import ToolResult, from_mcp
from golem_forge.core.text import escape_control_chars
from golem_forge.events.redaction import joined_texts
from golem_forge.mcp import lazy_sdk as sdk
from golem_forge.mcp.client.active_calls import ActiveCall, CallTimers, TimeLimit, call_in_progress
from golem_forge.mcp.client.model import RemoteTool
from golem_forge.mcp.client.transport import (
    ErrorResponse,
    LineTooLong,
    Progress,
    ResponseLost,
    ServerLink,
    Unprocessed,
    UnusableAnswer,
)
from golem_forge.tools.context import ToolContext
from golem_forge.tools.schema import json_path

if TYPE_CHECKING:
    from golem_forge.mcp.client.managed_server import ManagedServer
    from golem_forge.mcp.client.model import ServerManifest

_UNKNOWN_TOOL: Final = frozenset({-32601, -32602, -32020})
"""Error codes of servers for a tool that they do not have (any more), or whose header rules changed."""
_FLAT_TYPES: Final = frozenset({str, bool})
"""Numbers are not among them: `1e999`, NaN and integers of a thousand digits can be written too."""
_MAX_FLAT_KEYS: Final = 64


async def call_tool(
    owner: ManagedServer, tool: RemoteTool, args: Mapping[str, Any], ctx: ToolContext
) -> ToolCompletion:
    params = {"name": tool.name, "arguments": args}

    def headers(link: ServerLink) -> Mapping[str, str] | None:
        """Called right before the request is sent, on whatever connection there is by then."""
        owner.offer.check_unchanged(tool)
        return owner.offer.headers(link, tool, args)

    try:
        raw = await request_within_limits(owner, "tools/call", params, ctx, about=tool.name, headers=headers)
    except Exception as error:
        if isinstance(error, ErrorResponse) and error.code in _UNKNOWN_TOOL:
            owner.refresh_soon()
        return _failed(to_forge_error(owner, error))
    try:
        return to_finished(owner, tool, raw)
    except RecursionError:
        text = f"{tool.server} answered with something that is nested too deeply"
        return _failed(ForgeError(text, code="NOT_MCP"))


async def call_method(owner: ManagedServer, method: str, params: Mapping[str, Any], ctx: ToolContext) -> dict[str, Any]:
    """Sends any other request under the same rules. Raises ForgeError."""
    try:
        return owner.rewriter.answer(await request_within_limits(owner, method, params, ctx, about=method))
    except Exception as error:
        raise to_forge_error(owner, error) from None


def to_forge_error(owner: ManagedServer, error: Exception) -> ForgeError:
    """Converts an error for the caller. An unexpected one is named by its type alone, because its text
    may be anything.
    """
    spec = owner.spec
    match error:
        case ForgeError():
            return error
        case CallTimedOut(limit=TimeLimit.IDLE):
            text = f"no progress from {spec.name} for {spec.idle_timeout:g} seconds"
            return ForgeError(text, status=Status.TIMEOUT, code="IDLE_TIMEOUT")
        case CallTimedOut():
            text = f"{spec.name} did not finish within {spec.total_timeout:g} seconds"
            return ForgeError(text, status=Status.TIMEOUT, code="TOTAL_TIMEOUT")
        case CallInterrupted():
            text = f"the call to {spec.name} was interrupted"
            return ForgeError(text, status=Status.INTERRUPTED, code="INTERRUPTED")
        case ErrorResponse():
            said = owner.rewriter.text(error.message)
            return ForgeError(f"{spec.name} answered with error {error.code}: {said}", code="MCP_ERROR")
        case Unprocessed():
            why = f": {error.cause.message}" if error.cause is not None else ""
            return ForgeError(f"{spec.name} could not be reached; the call did not run{why}", code="NOT_SENT")
        case ResponseLost(cause=UnusableAnswer() as cause) if not isinstance(cause, LineTooLong):
            return ForgeError(f"{cause.message}; the call may have run", code=cause.code)
        case ResponseLost():
            why = f" ({error.cause.message})" if isinstance(error.cause, LineTooLong) else ""
            return ForgeError(f"connection to {spec.name} was lost; the call may have run{why}", code="CONNECTION_LOST")
        case _:
            return ForgeError(f"the call to {spec.name} failed: {error_name(error)}", code="CALL_FAILED")


def _failed(error: ForgeError) -> ToolCompletion:
    said = ToolResult(value={"kind": "text", "content": error.message}, text=error.message, is_error=True)
    return ToolCompletion(result=said, status=error.status, error=error.message, code=error.code)


def to_finished(owner: ManagedServer, tool: RemoteTool, raw: dict[str, Any]) -> ToolCompletion:
    if not isinstance(raw.get("content"), list) and raw.get("structuredContent") is None:
        text = f"{tool.server} sent an answer that is not a tool result"
        shown = from_mcp(owner.rewriter.result(raw))
        return ToolCompletion(result=shown, status=Status.EXECUTION_FAILED, error=text, code="NOT_MCP")
    result = from_mcp(owner.rewriter.result(raw))
    if result.is_error:
        text = "" if result.text.strip() else f"{tool.server} reported an error without a message"
        return ToolCompletion(result=result, status=Status.EXECUTION_FAILED, error=text, code="TOOL_ERROR")
    if tool.output_schema is not None and (problem := _mismatch(owner, tool, raw)):
        return ToolCompletion(result=result, status=Status.EXECUTION_FAILED, error=problem, code="OUTPUT_INVALID")
    return ToolCompletion(result=result)


def _is_flat(value: Any) -> bool:
    """A few texts, truths and nulls by name, as most are: read from JSON, it cannot be anything that JSON is not."""
    few = type(value) is dict and len(value) <= _MAX_FLAT_KEYS
    return few and all(item is None or type(item) in _FLAT_TYPES for item in value.values())


def _mismatch(owner: ManagedServer, tool: RemoteTool, raw: dict[str, Any]) -> str:
    """Describes how the structured content violates the tool's output schema; empty if it does not."""
    if "structuredContent" not in raw:
        return f"{_returned_by(tool)} no structured content at $, which its output schema promises"
    subject = raw["structuredContent"]
    if not _is_flat(subject):
        try:
            subject = as_json(subject)
        except NotJson as error:
            return f"{_returned_by(tool)} an invalid value at $: {error}"
    problems = owner.offer.output_check(tool).problems(subject, limit=1)
    if not problems:
        return ""
    path, words = problems[0]
    problem = f"{json_path(path)}: {words[:1].lower()}{words[1:]}"
    return owner.rewriter.text(f"{_returned_by(tool)} an invalid value at {problem}")


def _returned_by(tool: RemoteTool) -> str:
    return f"tool {tool.name!r} of {tool.server} returned"


PROGRESS_INTERVAL_S: Final = 0.05
"""Threat: a server may report progress ten thousand times a second; people see twenty."""
_MOST_WORDS: Final = 500
Headers = Callable[[ServerLink], Mapping[str, str] | None]


class CallTimedOut(Exception):
    def __init__(self, limit: TimeLimit) -> None:
        super().__init__(limit)
        self.limit = limit


class CallInterrupted(Exception):
    pass


async def request_within_limits(
    owner: ManagedServer,
    method: str,
    params: Mapping[str, Any],
    ctx: ToolContext,
    *,
    about: str,
    headers: Headers | None = None,
) -> dict[str, Any]:
    """`about`: the tool's raw name, or the method; what a server's question on behalf of this call is headed with."""
    if ctx.cancel:
        raise CallInterrupted
    spec = owner.spec
    loop = asyncio.get_running_loop()
    end: asyncio.Future[Exception | None] = loop.create_future()

    def ends(why: Exception | None) -> None:
        if not end.done():
            end.set_result(why)

    clocks = CallTimers(spec.idle_timeout, spec.total_timeout, lambda limit: ends(CallTimedOut(limit)))
    shown = _ProgressThrottle(clocks, ctx, owner.rewriter)
    flight = ActiveCall(ctx, about, clocks.paused)

    async def asked(link: ServerLink) -> dict[str, Any]:
        clocks.start()
        more = headers(link) if headers is not None else None
        sent = owner.rewriter.request(params)
        result = await link.request(method, sent, progress=shown.report, headers=more)
        if link.is_modern and result.get("resultType") == "input_required":
            return await answer_input_requests(link, method, sent, result, clocks, progress=shown.report, headers=more)
        return result

    async def work() -> dict[str, Any]:
        try:
            with call_in_progress(flight):
                return await owner.run_with_link(flight, asked)
        finally:
            ends(None)  # here: told by the task's end, the caller would go on one turn of the loop later

    task = loop.create_task(work())
    task.add_done_callback(lambda _: ends(None))  # one that is cancelled before it began never comes to that line
    forget = ctx.cancel.listen(lambda _: loop.call_soon_threadsafe(ends, CallInterrupted()))
    try:
        why = await end
    finally:
        forget()
        clocks.stop()
        shown.stop()
        if not task.done():
            owner.slots.abandon(task)
    if why is not None:
        raise why
    if task.cancelled():  # not by this caller, who must not be taken for cancelled
        raise ResponseLost(None)
    return task.result()


class _ProgressThrottle:
    """Progress as it is passed on: at once, or the latest of many a little later."""

    __slots__ = ("_clocks", "_ctx", "_due", "_latest", "_loop", "_rewriter", "_timer")

    def __init__(self, clocks: CallTimers, ctx: ToolContext, rewriter: Rewriter) -> None:
        self._clocks, self._ctx, self._rewriter = clocks, ctx, rewriter
        self._loop = asyncio.get_running_loop()
        self._due = 0.0
        self._latest: tuple[float, float | None, str] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def report(self, done: float, total: float | None, words: str) -> None:
        self._clocks.note_progress()
        self._latest = (done, total, words)
        if self._timer is not None:
            return
        if self._loop.time() >= self._due:
            self._show()
        else:
            self._timer = self._loop.call_at(self._due, self._show)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._show()

    def _show(self) -> None:
        self._timer = None
        self._due = self._loop.time() + PROGRESS_INTERVAL_S
        if self._latest is not None:
            done, total, words = self._latest
            self._latest = None
            self._ctx.report_progress(done, total, escape_control_chars(self._rewriter.text(words[:_MOST_WORDS])))


MAX_INPUT_ROUNDS: Final = 10
MOST_QUESTIONS: Final = 10
_FIRST_WAIT: Final = 0.05
_LONGEST_WAIT: Final = 0.25


async def answer_input_requests(
    link: ServerLink,
    method: str,
    params: Mapping[str, Any],
    result: dict[str, Any],
    clocks: CallTimers,
    *,
    progress: Progress,
    headers: Mapping[str, str] | None,
) -> dict[str, Any]:
    wait = _FIRST_WAIT
    for _ in range(MAX_INPUT_ROUNDS):
        try:
            asked = sdk.InputRequiredResult.model_validate(result, by_name=False)
        except sdk.ValidationError:
            raise ForgeError(f"{link.server} asked for input in a way that is not MCP", code="NOT_MCP") from None
        again = dict(params)
        if asked.request_state is not None:
            again["requestState"] = asked.request_state
        if asked.input_requests:
            again["inputResponses"] = await _answers(link, asked)
            wait = _FIRST_WAIT
        else:  # the server only wants to be asked again
            await asyncio.sleep(wait)
            wait = min(wait * 2, _LONGEST_WAIT)
        clocks.note_progress()
        try:
            result = await link.request(method, again, progress=progress, headers=headers)
        except Unprocessed as error:
            raise ResponseLost(error.cause) from None
        if result.get("resultType") != "input_required":
            return result
    text = f"{link.server} asked for input more than {MAX_INPUT_ROUNDS} times during one call"
    raise ForgeError(text, code="TOO_MANY_ROUNDS")


async def _answers(link: ServerLink, asked: sdk.InputRequiredResult) -> dict[str, Any]:
    requests = asked.input_requests or {}
    if len(requests) > MOST_QUESTIONS:
        raise ForgeError(f"{link.server} asked more than {MOST_QUESTIONS} questions at once", code="TOO_MANY_QUESTIONS")
    answers: dict[str, Any] = {}
    for key, request in requests.items():
        meta = request.params.meta if request.params else None
        context = sdk.ClientRequestContext(session=link.session, request_id=key, meta=meta)
        answer = await link.session.dispatch_input_request(context, request)
        if isinstance(answer, sdk.ErrorData):
            raise ForgeError(f"{link.server} asked for what cannot be given: {answer.message}", code="INPUT_REFUSED")
        answers[key] = answer.model_dump(mode="json", by_alias=True, exclude_none=True)
    return answers


CleanText = Callable[[str], str]

_FILE: Final = "file://"
_CURSOR: Final = "nextCursor"
_TEXT_KEYS: Final = frozenset({"description", "title"})
_BYTES: Final = frozenset({"image", "audio"})
_MOST_URIS: Final = 20_000
"""Threat: a server that names resources without end."""


class Rewriter:
    def __init__(self) -> None:
        self.clean_text: CleanText | None = None
        """`OpenTransport.clean_text` of the present connection; None: nothing is to be rewritten."""
        self.zone_paths: Mapping[str, str] = {}
        """Address of a zone → where it stands inside, if that is elsewhere."""
        self._uris: dict[str, str] = {}

    def request(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Rewrites the parameters of a request before it is sent."""
        sent = dict(params)
        if self.zone_paths and "arguments" in sent:
            sent["arguments"] = self._arguments(sent["arguments"])
        if isinstance(uri := sent.get("uri"), str):
            sent["uri"] = self._uris.get(uri) or self._place(uri)
        return sent

    def _arguments(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._place(value)
        if isinstance(value, Mapping):
            return {key: self._arguments(item) for key, item in value.items()}
        return [self._arguments(item) for item in value] if isinstance(value, list) else value

    def _place(self, text: str) -> str:
        scheme = _FILE if text.startswith(f"{_FILE}/") else ""
        path = text.removeprefix(scheme)
        for address, place in self.zone_paths.items():
            if path == address or path.startswith(f"{address}/"):
                return f"{scheme}{quote(place) if scheme else place}{path.removeprefix(address)}"
        return text

    def text(self, text: str) -> str:
        return self.clean_text(text) if self.clean_text is not None else text

    def result(self, raw: dict[str, Any]) -> dict[str, Any]:
        """Rewrites a tool's result; returns the same object if nothing changes, as for most. Raises RecursionError for
        one nested too deeply.
        """
        if self.clean_text is None:
            return raw
        said = joined_texts(raw)
        if said is not None and self.clean_text(said) is said:
            return raw
        return {
            key: self._protocol(value, self.clean_text)
            if key == "content"
            else _clean_all_texts(value, self.clean_text)
            for key, value in raw.items()
        }

    def answer(self, raw: dict[str, Any]) -> dict[str, Any]:
        """Rewrites the answer to any other request. Raises RecursionError too."""
        return raw if self.clean_text is None else self._protocol(raw, self.clean_text)

    def manifest(self, listed: ServerManifest) -> ServerManifest:
        """Rewrites what a model reads: descriptions, titles, instructions. Names and schema values go back to the
        server and stay unchanged.
        """
        if (clean := self.clean_text) is None:
            return listed
        return replace(
            listed,
            instructions=clean(listed.instructions),
            tools=tuple(_clean_entry(entry, clean) for entry in listed.tools),
            prompts=tuple(_clean_entry(entry, clean) for entry in listed.prompts),
        )

    def _protocol(self, value: Any, clean: CleanText) -> Any:
        """Rewrites values that the protocol defines, where some members are no text."""
        if isinstance(value, str):
            return clean(value)
        if isinstance(value, list):
            return [self._protocol(item, clean) for item in value]
        if not isinstance(value, dict):  # it was read from JSON
            return value
        return {key: self._member(value, key, item, clean) for key, item in value.items()}

    def _member(self, around: Mapping[str, Any], key: str, value: Any, clean: CleanText) -> Any:
        if key in ("blob", _CURSOR) or (key == "data" and around.get("type") in _BYTES):
            return value
        said = self._protocol(value, clean)
        if key == "uri" and said != value and isinstance(value, str) and len(self._uris) < _MOST_URIS:
            self._uris[said] = value
        return said


def _clean_entry(entry: Any, clean: CleanText) -> Any:
    try:
        return _with_descriptions(entry, clean)
    except RecursionError:
        return entry  # nobody will read it: it is kept out for its depth


def _with_descriptions(value: Any, clean: CleanText) -> Any:
    if isinstance(value, list):
        return [_with_descriptions(item, clean) for item in value]
    if not isinstance(value, Mapping):
        return value
    return {
        key: clean(item) if key in _TEXT_KEYS and isinstance(item, str) else _with_descriptions(item, clean)
        for key, item in value.items()
    }


def _clean_all_texts(value: Any, clean: CleanText) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(key): _clean_all_texts(item, clean) for key, item in value.items()}
    return [_clean_all_texts(item, clean) for item in value] if isinstance(value, list) else value
