"""Sampling: a server asks for a completion, and the model of the worker that called it answers, if a person agrees.

The card holds everything that would be sent: messages, system prompt, model, token limit; a person may edit it. No
tools, nothing of the conversation and nothing of other servers goes along. It is paid from the worker's budget.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from golem_forge.core.canonical import digest
from golem_forge.core.errors import ForgeError
from golem_forge.core.verdict import Verdict
from golem_forge.core.visible import visible
from golem_forge.mcp.client.hooks import SamplingAnswer, SamplingRequest
from golem_forge.workers.interrupting import Interrupted
from golem_forge.workers.messages import AssistantMessage, Message, UserMessage
from golem_forge.workers.models.layer import Finish

if TYPE_CHECKING:
    from golem_forge.workers.crew import Crew, WorkerRun
    from golem_forge.workers.mcp.servers import Sampler

_STOPPED: Final = {Finish.STOP: "endTurn", Finish.LENGTH: "maxTokens", Finish.REFUSED: "refusal"}


def sampler_for(crew: Crew, run: WorkerRun) -> Sampler:
    async def sample(request: SamplingRequest) -> SamplingAnswer:
        try:
            loop = await crew.have_model(run)
        except ForgeError as error:
            return SamplingAnswer(refused=error.message)
        if loop is None:
            return SamplingAnswer(refused="this worker has no model")
        if request.verdict is not Verdict.PRE_APPROVED:
            agreed = await _agreed(run, request)
            if agreed is None:
                return SamplingAnswer(refused="the person refused it")
            request = agreed
        try:
            clean = run.station.tree.redactor.secrets_out  # a server may have been given some, and says them to a model
            messages = [_message(each, clean) for each in request.messages]
            done = await loop.dialogue.beside(clean(request.system_prompt), messages, request.max_tokens)
        except Interrupted:
            return SamplingAnswer(refused="interrupted")
        except ForgeError as error:
            return SamplingAnswer(refused=error.message)
        text = run.station.tree.redactor.secrets_out(done.message.text)
        return SamplingAnswer(text=text, model=run.model_name, stop_reason=_STOPPED[done.finish])

    return sample


async def _agreed(run: WorkerRun, request: SamplingRequest) -> SamplingRequest | None:
    """The request as the person left it; None: they refused, or nobody is there."""
    args = {
        "messages": [{"role": one.get("role"), "text": _text(one)} for one in request.messages],
        "systemPrompt": request.system_prompt,
        "maxTokens": request.max_tokens,
    }
    fingerprint = digest([request.server, args])
    station = run.station
    answer = await station.tree.ui.request_approval(
        {
            "type": "sampling",
            "description": f"The MCP server '{request.server}' wants an answer from {run.model_name}.",
            "tool": request.server,
            "args": station.tree.redactor.value(args),
            "payload": visible(_shown(request)),
            "effects": [f"ask {run.model_name} on behalf of {request.server}"],
            "risk": "high",
            "riskReasons": ["the server reads the answer"],
            "why": "a server asks your model",
            "choices": [],
            "fingerprint": fingerprint,
            "argsKey": fingerprint,
            "previouslyDenied": 0,
            "warnings": [],
            "workerPath": [link.to_wire() for link in station.lineage],
        },
        check_edit=_problems,
        worker_id=station.id,
    )
    if not answer["approved"]:
        return None
    edited = answer.get("args")
    return _edited(request, edited) if isinstance(edited, Mapping) else request


def _problems(args: Mapping[str, Any]) -> dict[str, str]:
    """What is wrong with an edited request, by member."""
    found: dict[str, str] = {}
    messages = args.get("messages")
    if not isinstance(messages, list) or not all(_is_message(each) for each in messages) or not messages:
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
    before = {index: (each.get("role"), _text(each)) for index, each in enumerate(request.messages)}
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


def _shown(request: SamplingRequest) -> str:
    head = [f"at most {request.max_tokens} tokens"]
    if request.system_prompt:
        head.append(f"system: {request.system_prompt}")
    return "\n".join((*head, *(f"{one.get('role')}: {_text(one)}" for one in request.messages)))


def _text(message: Mapping[str, Any]) -> str:
    from golem_forge.tools.mcp_results import block_text

    content = message.get("content")
    blocks = content if isinstance(content, list) else [content]
    return "\n".join(block_text(block) for block in blocks)


def _message(message: Mapping[str, Any], clean: Callable[[str], str]) -> Message:
    """Text only: a picture or a sound is named, not sent."""
    text = clean(_text(message))
    return AssistantMessage(text=text) if message.get("role") == "assistant" else UserMessage(text=text)
