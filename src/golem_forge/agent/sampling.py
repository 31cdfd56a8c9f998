"""Sampling: a server asks for a completion; the model of the worker that called it answers if a person agrees.

The card holds everything that would be sent and can be edited. No tools, nothing of the conversation and nothing of
other servers is sent. The worker's budget pays.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from golem_forge.agent.loop import Loop
from golem_forge.agent.mcp_servers import Sampler
from golem_forge.agent.messages import AssistantMessage, Message, UserMessage
from golem_forge.agent.model.interface import Finish
from golem_forge.agent.run_result import RunInterrupted
from golem_forge.agent.worker_scope import WorkerScope
from golem_forge.core.decisions import Verdict
from golem_forge.core.errors import ForgeError
from golem_forge.core.json import digest
from golem_forge.core.lazy_dataclass import replace
from golem_forge.core.results import block_text
from golem_forge.core.text import escape_control_chars
from golem_forge.mcp.client.hooks import SamplingAnswer, SamplingRequest

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
    fingerprint = digest([request.server, args])
    answer = await scope.state.ui.request_approval(
        {
            "type": "sampling",
            "description": f"The MCP server '{request.server}' wants an answer from {model}.",
            "tool": request.server,
            "args": scope.state.redactor.value(args),
            "payload": escape_control_chars(_card_text(request)),
            "effects": [f"ask {model} on behalf of {request.server}"],
            "risk": "high",
            "riskReasons": ["the server reads the answer"],
            "why": "a server asks your model",
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
    """What is wrong with an edited request, by member."""
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
