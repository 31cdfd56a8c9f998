"""`tools/call` and every other request that becomes a call: request, questions, progress, and the result on the wire.

A name that is unknown to Caller.MCP is a JSON-RPC error; every other end is a result. A request that the client cancels
ends the call's whole process tree within a second and gets no response. Questions (forms, sampling, roots): with the
handshake protocol a request while the call's request stays open; on 2026-07-28 the request is answered with
`input_required`, all that are open and a state token, and the client comes back with both; any failure counts as
`cancel`. Progress: only to a client that sent a token, the latest report only, never after the response. Log messages:
from the level on that the client set (`logging/setLevel`), on 2026-07-28 that the request names.

A call that failed because its client cannot be asked is the missing-capability error of 2026-07-28.

Results: a success is its ToolResult; anything else has `isError` and `<status>: <message>` as its first line. `_meta`
says what became of the call. Blocks that the client's version does not know, or that a proxied server wrote wrongly,
become text: one bad block would cost the client the whole answer.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from typing import Any, Final

from golem_forge.core.calls import Outcome
from golem_forge.core.changes import file_diff
from golem_forge.core.decisions import Status
from golem_forge.core.ids import new_id
from golem_forge.core.lazy_dataclass import replace
from golem_forge.core.results import ToolResult, block_text, to_mcp
from golem_forge.core.text import escape_control_chars, shorten_middle
from golem_forge.mcp.server.clients import (
    LOG_LEVELS,
    Client,
    ClientRegistry,
    ExportedToolList,
    InvalidStateToken,
    SuspendedCall,
)
from golem_forge.mcp.server.host import (
    ANSWER_SECONDS,
    ELICIT,
    ROOTS,
    SAMPLE,
    ClientQuestion,
    ElicitationReply,
    ElicitationSupport,
    ServedCall,
)
from golem_forge.mcp.server.sdk import (
    MODERN_PROTOCOL_VERSIONS,
    Context,
    MCPError,
    TypeAdapter,
    ValidationError,
    anyio,
    ask_client,
    log_level,
    progress_token,
    types,
)
from golem_forge.tools.catalog import is_reserved

_LONGEST_NAME: Final = 200


class CallHandler:
    def __init__(self, clients: ClientRegistry, listing: ExportedToolList) -> None:
        self._clients = clients
        self._listing = listing

    async def call_tool(self, ctx: Context, params: types.CallToolRequestParams) -> dict[str, Any] | types.Result:
        if is_reserved(params.name):  # prompts and resources have requests of their own
            raise _invalid(f"Unknown tool: {escape_control_chars(params.name[:_LONGEST_NAME])}")
        came = await self.outcome(ctx, params, params.name, params.arguments or {})
        if not isinstance(came, Outcome):
            return came
        if came.status is Status.TOOL_NOT_FOUND and not came.executed and params.name not in self._listing:
            raise _invalid(f"Unknown tool: {escape_control_chars(params.name[:_LONGEST_NAME])}")
        return call_result(came, ctx.protocol_version)

    async def outcome(
        self, ctx: Context, params: types.InputResponseRequestParams, name: str, args: dict[str, Any]
    ) -> Outcome | types.InputRequiredResult:
        """Runs the call, or goes on with the one that was parked for exactly this request of this client."""
        client = self._clients.client_of(ctx)
        returns = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
        bound_to = json.dumps([ctx.method, name, args], sort_keys=True, ensure_ascii=True)
        call = self._resumed(client, params, bound_to) if returns else None
        if call is None:
            call = _begin(client, name, args, elicitation_support(ctx))
        async with _ended_with_request(call), progress_sent(ctx, call), logs_sent(ctx, call, client):
            while isinstance(news := await call.next(), ClientQuestion):
                if returns:
                    open_now = tuple(await call.settled())
                    if asked := _input_requests(open_now):
                        state = client.suspended.issue(bound_to, SuspendedCall(call, open_now))
                        return types.InputRequiredResult(input_requests=asked, request_state=state)
                else:
                    await ask_while_open(ctx, news)
        if news.output_handle:
            client.note_output(news.output_handle, news.tool)
        if returns:
            _refuse_missing(call, news)
        return news

    async def unasked(self, ctx: Context, name: str, args: dict[str, Any]) -> Outcome:
        """A call on behalf of a request that cannot bring a question to the client: what would ask is refused."""
        call = _begin(self._clients.client_of(ctx), name, args, ElicitationSupport())
        async with _ended_with_request(call):
            outcome = await call.next()
        assert isinstance(outcome, Outcome)
        return outcome

    def _resumed(self, client: Client, params: types.InputResponseRequestParams, bound_to: str) -> ServedCall | None:
        """The call this request goes on with. One that brings no answer is asked the same again."""
        if not params.request_state:
            return None
        try:
            parked = client.suspended.redeem(params.request_state, bound_to)
        except InvalidStateToken:
            raise _invalid("requestState did not come from this server; call again without it") from None
        if parked is None:
            return None
        for question in parked.questions:
            reply = reply_from(params.input_responses, question)
            if reply is not None:
                question.answer(reply)
        return parked.call


def _begin(client: Client, name: str, args: dict[str, Any], support: ElicitationSupport) -> ServedCall:
    if client.full:
        raise MCPError(types.INTERNAL_ERROR, "too many calls under way; wait for some of them to end")
    return client.begin(name, args, support)


@asynccontextmanager
async def _ended_with_request(call: ServedCall) -> AsyncIterator[None]:
    """Ends the call if its request is cancelled."""
    try:
        yield
    except anyio.get_cancelled_exc_class():
        with anyio.CancelScope(shield=True):
            await call.end("cancelled by the client")
        raise


def _refuse_missing(call: ServedCall, outcome: Outcome) -> None:
    """Raises the error of 2026-07-28 where the call failed for want of a capability of the client, and said so."""
    told = {name: text for name, text in call.missing.items() if text in outcome.error}
    if told and outcome.status is Status.EXECUTION_FAILED:
        needed: dict[str, dict[str, Any]] = {name: {} for name in told}
        raise MCPError(
            types.MISSING_REQUIRED_CLIENT_CAPABILITY, " ".join(told.values()), {"requiredCapabilities": needed}
        )


def _invalid(message: str) -> Exception:
    return MCPError(types.INVALID_PARAMS, message)


_ACTIONS: Final = frozenset({"accept", "decline", "cancel"})


def elicitation_support(ctx: Context) -> ElicitationSupport:
    """Returns what the client declared. `elicitation: {}` without a mode means forms, as before there were modes."""
    declared = ctx.session.client_capabilities
    reachable = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS or ctx.session.can_send_request
    if declared is None or not reachable:
        return ElicitationSupport()
    elicitation = declared.elicitation
    pages = elicitation is not None and elicitation.url is not None
    return ElicitationSupport(
        forms=elicitation is not None and (elicitation.form is not None or not pages),
        pages=pages,
        sampling=declared.sampling is not None,
        roots=declared.roots is not None,
    )


async def ask_while_open(ctx: Context, question: ClientQuestion) -> None:
    """Puts the question while the request is open, and answers it. Ends early if the question is withdrawn."""
    async with anyio.create_task_group() as together:

        async def put() -> None:
            reply = ElicitationReply()
            with suppress(Exception), anyio.move_on_after(ANSWER_SECONDS):  # whatever went wrong counts as `cancel`
                if question.method == ELICIT:
                    reply = _as_reply(await _elicit(ctx, question))
                else:
                    reply = _as_answer(question.method, await ask_client(ctx, question.method, question.params))
            question.answer(reply)

        together.start_soon(put)
        await question.replied()
        together.cancel_scope.cancel()


async def _elicit(ctx: Context, question: ClientQuestion) -> types.ElicitResult:
    if question.url:
        return await ctx.session.elicit_url(question.message, question.url, new_id(), ctx.request_id)
    return await ctx.session.elicit_form(question.message, dict(question.schema), ctx.request_id)


def _input_requests(questions: Iterable[ClientQuestion]) -> dict[str, Any]:
    """Returns the questions by key. A question that the protocol cannot carry counts as dismissed, so that the call
    goes on.
    """
    found: dict[str, Any] = {}
    for question in questions:
        try:
            found[question.key] = _input_request(question)
        except ValidationError:
            question.answer(ElicitationReply())
    return found


def _input_request(question: ClientQuestion) -> Any:
    if question.method == ROOTS:
        return types.ListRootsRequest(params=types.RequestParams())
    if question.method == SAMPLE:
        params = types.CreateMessageRequestParams.model_validate(question.params, by_name=False)
        return types.CreateMessageRequest(params=params)
    return _elicit_request(question)


def _elicit_request(question: ClientQuestion) -> types.ElicitRequest:
    params: types.ElicitRequestFormParams | types.ElicitRequestURLParams
    if question.url:
        params = types.ElicitRequestURLParams(message=question.message, url=question.url, elicitation_id=new_id())
    else:
        params = types.ElicitRequestFormParams(message=question.message, requested_schema=dict(question.schema))
    return types.ElicitRequest(params=params)


_ANSWERS: Final[Mapping[str, tuple[type[types.Result], ...]]] = {
    ELICIT: (types.ElicitResult,),
    SAMPLE: (types.CreateMessageResult, types.CreateMessageResultWithTools),
    ROOTS: (types.ListRootsResult,),
}


def reply_from(responses: Mapping[str, Any] | None, question: ClientQuestion) -> ElicitationReply | None:
    """Returns the answer of a returning client; None if there is no valid one."""
    given = (responses or {}).get(question.key)
    if not isinstance(given, _ANSWERS[question.method]):
        return None
    if isinstance(given, types.ElicitResult):
        return _as_reply(given)
    return _as_answer(question.method, given.model_dump(by_alias=True, mode="json", exclude_none=True))


_MOST_ROOTS: Final = 100
_LONGEST_ANSWER: Final = 256 * 1024


def _as_answer(method: str, result: Mapping[str, Any]) -> ElicitationReply:
    """Threat: a client sends what it likes. What is kept is text, bounded."""
    if method == ROOTS:
        listed = [each for each in _as_list(result.get("roots")) if isinstance(each, dict)][:_MOST_ROOTS]
        roots = [{name: str(each.get(name) or "")[:2000] for name in ("uri", "name")} for each in listed]
        return ElicitationReply(action="accept", content={"roots": roots})
    content = result.get("content")
    blocks = content if isinstance(content, list) else [content]
    text = "\n".join(block_text(block) for block in blocks)[:_LONGEST_ANSWER]
    said = {"text": text, "model": str(result.get("model", ""))[:200]}
    return ElicitationReply(action="accept", content={**said, "stopReason": str(result.get("stopReason") or "")[:100]})


def _as_reply(result: types.ElicitResult) -> ElicitationReply:
    action = result.action if result.action in _ACTIONS else "cancel"
    return ElicitationReply(action=action, content=dict(result.content or {}) if action == "accept" else {})


_LONGEST: Final = 2000
_LAST_WORD_SECONDS: Final = 0.2


def progress_sent(ctx: Context, call: ServedCall) -> AbstractAsyncContextManager[None]:
    return nullcontext() if progress_token(ctx) is None else _sent_meanwhile(_send_all(ctx, call), call.progress)


@asynccontextmanager
async def _sent_meanwhile(sending: Coroutine[Any, Any, None], unsent: asyncio.Queue[Any]) -> AsyncIterator[None]:
    """What is unsent at the end gets a moment."""
    sender = asyncio.get_running_loop().create_task(sending)
    try:
        yield
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORD_SECONDS):
                await unsent.join()
    finally:
        sender.cancel()


async def _send_all(ctx: Context, call: ServedCall) -> None:
    while True:
        done, total, message = await call.progress.get()
        await ctx.session.report_progress(done, total, message[:_LONGEST] or None)
        call.progress.task_done()


def logs_sent(ctx: Context, call: ServedCall, client: Client) -> AbstractAsyncContextManager[None]:
    wanted = log_level(ctx) if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS else client.log_level
    return _sent_meanwhile(_send_logs(ctx, call, wanted), call.logs)


async def _send_logs(ctx: Context, call: ServedCall, wanted: str) -> None:
    levels = LOG_LEVELS[LOG_LEVELS.index(wanted) :] if wanted in LOG_LEVELS else ()
    while True:
        level, text = await call.logs.get()
        try:
            if level in levels:
                params = types.LoggingMessageNotificationParams.model_validate({"level": level, "data": text})
                message = types.LoggingMessageNotification(params=params)
                await ctx.session.send_notification(message, related_request_id=ctx.request_id)
        finally:
            call.logs.task_done()


OUTCOME_KEY: Final = "golem-forge/outcome"
OUTPUT_URI: Final = "forge://output/"
_SINCE: Final = {"audio": "2025-03-26", "resource_link": "2025-06-18"}


def call_result(outcome: Outcome, version: str) -> dict[str, Any]:
    written = _success(outcome) if outcome.ok else _failure(outcome)
    written["content"] = [supported_block(block, version) for block in _as_list(written.get("content"))]
    if version in MODERN_PROTOCOL_VERSIONS:
        written["resultType"] = "complete"
    elif not isinstance(written.get("structuredContent"), dict):
        written.pop("structuredContent", None)  # objects only, in the handshake era; its text is there
    meta = written.get("_meta")
    written["_meta"] = {**(meta if isinstance(meta, dict) else {}), OUTCOME_KEY: outcome_facts(outcome)}
    return written


def outcome_facts(outcome: Outcome) -> dict[str, Any]:
    duration = round(outcome.duration_ms, 3)
    return {"status": outcome.status.value, "callId": outcome.call.id, "durationMs": duration}


_MOST_DIFF: Final = 64 << 10
_EDITORS: Final = frozenset({"write_file", "apply_patch", "delete_file", "save_memory"})
"""Forge's own tools that change a file. What a program's own tool returns is sent as it is."""


def _change(value: dict[str, Any]) -> dict[str, Any]:
    """A changed file as a unified diff: the client knows what it holds now, and both whole texts would fill a model's
    context. Without a diff where what was there before is not known."""
    original, modified = value.get("original"), value.get("modified")
    rest = {name: item for name, item in value.items() if name not in ("original", "modified")}
    if not isinstance(modified, str) or not (isinstance(original, str) or value.get("isNew")):
        return rest if isinstance(modified, str) else value
    text = "\n".join(file_diff(str(value.get("path", "")), original if isinstance(original, str) else None, modified))
    return {**rest, "diff": shorten_middle(text, _MOST_DIFF, "\n… cut …\n")}


def _success(outcome: Outcome) -> dict[str, Any]:
    result = outcome.result or ToolResult(value={"kind": "text", "content": ""})
    if outcome.output_handle:
        result = replace(result, text=_with_output_uri(result.text, outcome.output_handle))
    written = dict(to_mcp(replace(result, is_error=False)))
    if outcome.tool in _EDITORS and result.value.get("kind") == "diff":
        written["structuredContent"] = _change(dict(result.value))
        written["_meta"] = {}  # it would hold both texts again
    if notes := (*outcome.leftover_texts, *outcome.notes):
        written["content"] = [_text("\n".join(notes)), *_as_list(written.get("content"))]
    return written


def _failure(outcome: Outcome) -> dict[str, Any]:
    result = outcome.result
    body = result.text if result is not None else ""
    error = outcome.error or body or "no reason was given"
    lines = [f"{outcome.status.value}: {error}", *outcome.leftover_texts, *outcome.notes]
    if body and body not in error:
        lines.append(body)
    text = "\n".join(lines)
    if outcome.output_handle:
        text = _with_output_uri(text, outcome.output_handle)
    written = dict(to_mcp(result)) if result is not None else {}
    others = [block for block in _as_list(written.get("content")) if not _is_text(block)]
    return {**written, "content": [_text(text), *others], "isError": True}


def _with_output_uri(text: str, handle: str) -> str:
    """Adds the URI of the whole output, for a client that may not have `read_output`."""
    named = f"read_output handle={handle}"
    uri = OUTPUT_URI + handle
    return text.replace(named, f"{uri} or {named}", 1) if named in text else f"{text}\n[whole output: {uri}]"


def supported_block(block: Any, version: str) -> dict[str, Any]:
    """The block, if this version has its kind and it is well made; else its text."""
    if _is_text(block):
        return block if isinstance(block.get("text"), str) else _text(block_text(block))
    kind = block.get("type") if isinstance(block, dict) else None
    if isinstance(kind, str) and version >= _SINCE.get(kind, "") and _is_valid_block(block):
        return dict(block)
    return _text(block_text(block))


def _is_valid_block(block: dict[str, Any]) -> bool:
    global _blocks
    _blocks = _blocks or TypeAdapter(types.ContentBlock)
    try:
        _blocks.validate_python(block, by_name=False)
    except ValidationError:
        return False
    return True


_blocks: Any = None


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, Iterable) and not isinstance(value, (str, dict)) else []


def _is_text(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == "text"


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}
