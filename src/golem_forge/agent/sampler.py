"""Sampling: a server or a tool asks for a completion; the model of the calling worker answers if a person agrees.

The card holds everything that would be sent and can be edited. No tools, nothing of the conversation and nothing of
other servers is sent. The worker's budget pays.

`PersonPartner` is whom a running tool asks in a session with a person (`ctx.ask`, `ctx.sample`, `ctx.roots`,
`ctx.log`): forms go to whoever watches the session, answers come from its own model, roots are the zones, and a line of
log is a notice.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from golem_forge.agent.loop import Loop
from golem_forge.agent.mcp_servers import Sampler
from golem_forge.agent.model.interface import AssistantMessage, Finish, Message, UserMessage
from golem_forge.agent.run_result import RunInterrupted
from golem_forge.agent.worker_scope import WorkerScope
from golem_forge.core.decisions import Verdict
from golem_forge.core.errors import ForgeError, ToolFailed
from golem_forge.core.json import digest
from golem_forge.core.lazy_dataclass import replace
from golem_forge.core.results import block_text
from golem_forge.core.text import escape_control_chars
from golem_forge.mcp.client.active_calls import MOST_TOKENS, tool_form
from golem_forge.mcp.client.model import ElicitationForm, FormAnswer, SamplingAnswer, SamplingRequest
from golem_forge.tools.context import ToolContext
from golem_forge.toolsets.client import NOBODY, zone_roots

_STOP_REASONS: Final = {Finish.STOP: "endTurn", Finish.LENGTH: "maxTokens", Finish.REFUSED: "refusal"}


def sampler_for(
    scope: WorkerScope, wait_for_model: Callable[[], Awaitable[Loop | None]], model_name: Callable[[], str]
) -> Sampler:
    """`wait_for_model`: gives the worker's loop once its model is open. `model_name`: what it is called now."""

    async def sample(request: SamplingRequest) -> SamplingAnswer:
        try:
            loop = await wait_for_model()
        except ForgeError as error:
            return SamplingAnswer(refused=error.message)
        if loop is None:
            return SamplingAnswer(refused="this worker has no model")
        if request.verdict is not Verdict.PRE_APPROVED:
            agreed = await _ask_to_sample(scope, model_name(), request)
            if agreed is None:
                return SamplingAnswer(refused="the person refused it")
            request = agreed
        clean = scope.state.redactor.redact_secrets  # a server may have been given some, and says them to a model
        try:
            messages = [_as_message(each, clean) for each in request.messages]
            done = await loop.dialogue.request_aside(clean(request.system_prompt), messages, request.max_tokens)
        except RunInterrupted:
            return SamplingAnswer(refused="interrupted")
        except ForgeError as error:
            return SamplingAnswer(refused=error.message)
        return SamplingAnswer(text=clean(done.message.text), model=model_name(), stop_reason=_STOP_REASONS[done.finish])

    return sample


async def _ask_to_sample(scope: WorkerScope, model: str, request: SamplingRequest) -> SamplingRequest | None:
    """The request as the person left it; None: they refused, or nobody is there."""
    args = {
        "messages": [{"role": one.get("role"), "text": _message_text(one)} for one in request.messages],
        "systemPrompt": request.system_prompt,
        "maxTokens": request.max_tokens,
    }
    asking, reader = ("The tool", "the tool") if request.by_tool else ("The MCP server", "the server")
    fingerprint = digest([request.server, args])
    answer = await scope.state.ui.request_approval(
        {
            "type": "sampling",
            "description": f"{asking} '{request.server}' wants an answer from {model}.",
            "tool": request.server,
            "args": scope.state.redactor.value(args),
            "payload": escape_control_chars(_card_text(request)),
            "effects": [f"ask {model} on behalf of {request.server}"],
            "risk": "high",
            "riskReasons": [f"{reader} reads the answer"],
            "why": f"a {reader.removeprefix('the ')} asks your model",
            "choices": [],
            "fingerprint": fingerprint,
            "argsKey": fingerprint,
            "previouslyDenied": 0,
            "warnings": [],
            "workerPath": [link.to_wire() for link in scope.lineage],
        },
        check_edit=_edit_problems,
        worker_id=scope.id,
    )
    if not answer["approved"]:
        return None
    edited = answer.get("args")
    return _edited(request, edited) if isinstance(edited, Mapping) else request


def _edit_problems(args: Mapping[str, Any]) -> dict[str, str]:
    """Returns the problems of an edited request, by member."""
    found: dict[str, str] = {}
    messages = args.get("messages")
    if not isinstance(messages, list) or not all(map(_is_message, messages)) or not messages:
        found["messages"] = "a list of {role: user or assistant, text}"
    if not isinstance(args.get("systemPrompt", ""), str):
        found["systemPrompt"] = "a text"
    limit = args.get("maxTokens", 1)
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        found["maxTokens"] = "a whole number above 0"
    return found


def _is_message(value: Any) -> bool:
    return (
        isinstance(value, Mapping) and value.get("role") in ("user", "assistant") and isinstance(value.get("text"), str)
    )


def _edited(request: SamplingRequest, args: Mapping[str, Any]) -> SamplingRequest:
    """A message whose text was left alone stays as it came."""
    before = {index: (each.get("role"), _message_text(each)) for index, each in enumerate(request.messages)}
    messages = tuple(
        request.messages[index]
        if before.get(index) == (each["role"], each["text"])
        else {"role": each["role"], "content": {"type": "text", "text": each["text"]}}
        for index, each in enumerate(args.get("messages") or ())
    )
    return replace(
        request,
        messages=messages or request.messages,
        system_prompt=args.get("systemPrompt", request.system_prompt),
        max_tokens=min(args.get("maxTokens", request.max_tokens), request.max_tokens),
    )


def _card_text(request: SamplingRequest) -> str:
    head = [f"at most {request.max_tokens} tokens"]
    if request.system_prompt:
        head.append(f"system: {request.system_prompt}")
    return "\n".join((*head, *(f"{one.get('role')}: {_message_text(one)}" for one in request.messages)))


def _message_text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    blocks = content if isinstance(content, list) else [content]
    return "\n".join(block_text(block) for block in blocks)


def _as_message(message: Mapping[str, Any], clean: Callable[[str], str]) -> Message:
    """Text only: a picture or a sound is named, not sent."""
    text = clean(_message_text(message))
    return AssistantMessage(text=text) if message.get("role") == "assistant" else UserMessage(text=text)


_SHOWN_AS: Final = {"debug": "info", "info": "info", "notice": "info", "warning": "warning"}
"""Level of a line → type of the notice; every other level is an error."""


class PersonPartner:
    """The `toolsets.client.Partner` of one worker."""

    def __init__(self, scope: WorkerScope, sampler: Sampler | None = None) -> None:
        """`sampler` is None if the worker has no model."""
        self._scope = scope
        self._sampler = sampler

    async def ask(self, message: str, schema: Mapping[str, Any], key: str, ctx: ToolContext) -> dict[str, Any]:
        scope = self._scope
        if not scope.state.ui.attached:
            raise ToolFailed("Nobody is there to answer a form.", code=NOBODY)
        path = [link.to_wire() for link in scope.lineage]

        async def put(form: ElicitationForm) -> FormAnswer:
            request = {
                "source": form.server,
                "title": f"The tool '{form.server}' asks",
                "message": form.message,
                "fields": [dict(field) for field in form.fields],
                "workerPath": path,
            }
            answer = await scope.state.ui.request_form(request, worker_id=scope.id)
            return FormAnswer(action=str(answer["action"]), values=answer.get("values") or {})

        form = ElicitationForm(server=ctx.called_by, message=message, schema=schema, key=key)
        return await tool_form(form, put, ctx.redactor)

    async def sample(self, request: Mapping[str, Any], ctx: ToolContext) -> dict[str, Any]:
        if self._sampler is None:
            raise ToolFailed("This worker has no model to ask.", code=NOBODY)
        asked = SamplingRequest(
            server=ctx.called_by,
            messages=tuple(request["messages"]),
            system_prompt=request["system"],
            max_tokens=min(request["max_tokens"], MOST_TOKENS),
            by_tool=True,
        )
        answer = await self._sampler(asked)
        if answer.refused:
            raise ToolFailed(f"No answer of the model: {answer.refused}.", code=NOBODY)
        return {"text": answer.text, "model": answer.model, "stopReason": answer.stop_reason}

    async def roots(self, key: str, ctx: ToolContext) -> list[dict[str, str]]:
        return zone_roots(ctx.sandbox)

    def log(self, level: str, text: str, ctx: ToolContext) -> None:
        message = f"{ctx.called_by}: {escape_control_chars(text)}"
        self._scope.emit("status", {"type": _SHOWN_AS.get(level, "error"), "message": message})

    def resource_updated(self, uri: str, ctx: ToolContext) -> None:
        """Does nothing: nobody is subscribed."""
