"""Sampling: a server asks for an answer of the worker's model. Bounded here; asked and counted by `hooks.sample`.

Refused with an error: more than 5 requests during one call, messages over 256 KiB, tools or results of tools, and
whatever the person turns down. At most 4096 tokens come back. `includeContext` is ignored: a server gets no context
from elsewhere. Threat: a server that spends a person's budget, or reads what others said to the model.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from golem_forge.config.mcp.spec import ServerSpec
from golem_forge.mcp.client.asking.request_errors import INVALID_PARAMS, REJECTED, Refused
from golem_forge.mcp.client.calling.flight import Flight, asked
from golem_forge.mcp.client.hooks import Hooks, SamplingAnswer, SamplingRequest

if TYPE_CHECKING:
    from golem_forge.mcp import sdk

MOST_TOKENS: Final = 4096
REQUESTS_PER_CALL: Final = 5
MESSAGES_BYTES: Final = 256 * 1024
_MOST_MESSAGES: Final = 200
_MOST_STOPS: Final = 16
_MEDIA: Final = frozenset({"text", "image", "audio"})
_TURNED_DOWN: Final = "User rejected sampling request"


async def answer_sampling(spec: ServerSpec, hooks: Hooks, flight: Flight, params: Any) -> sdk.CreateMessageResult:
    from golem_forge.mcp import sdk

    flight.samplings += 1
    if flight.samplings > REQUESTS_PER_CALL:
        raise Refused(INVALID_PARAMS, f"more than {REQUESTS_PER_CALL} sampling requests during one call")
    request = _request(spec, params)
    answer = await asked(flight, _question(hooks, request, flight))
    if answer is None:
        raise Refused(REJECTED, _TURNED_DOWN)
    if answer.refused:
        raise Refused(REJECTED, f"{_TURNED_DOWN}: {answer.refused}")
    return sdk.CreateMessageResult(
        role="assistant",
        content=sdk.TextContent(type="text", text=answer.text),
        model=answer.model,
        stop_reason=answer.stop_reason,
    )


def _request(spec: ServerSpec, params: Any) -> SamplingRequest:
    if params.tools or params.tool_choice is not None:
        raise Refused(INVALID_PARAMS, "tools are not offered for sampling")
    if not 1 <= len(params.messages) <= _MOST_MESSAGES:
        raise Refused(INVALID_PARAMS, f"messages: must be 1 to {_MOST_MESSAGES}")
    messages = tuple(_message(each) for each in params.messages)
    stops = tuple(params.stop_sequences or ())
    system = params.system_prompt or ""
    if len(json.dumps([messages, system, stops], ensure_ascii=False).encode("utf-8", "replace")) > MESSAGES_BYTES:
        raise Refused(INVALID_PARAMS, f"messages: larger than {MESSAGES_BYTES // 1024} KiB")
    if len(stops) > _MOST_STOPS:
        raise Refused(INVALID_PARAMS, f"stopSequences: more than {_MOST_STOPS}")
    if params.max_tokens < 1:
        raise Refused(INVALID_PARAMS, "maxTokens: must be positive")
    if params.temperature is not None and not 0 <= params.temperature <= 2:
        raise Refused(INVALID_PARAMS, "temperature: must be 0 to 2")
    return SamplingRequest(
        server=spec.name,
        messages=messages,
        system_prompt=system,
        max_tokens=min(params.max_tokens, MOST_TOKENS),
        temperature=params.temperature,
        stop_sequences=stops,
        verdict=spec.sampling,
    )


def _message(message: Any) -> dict[str, Any]:
    """As MCP writes it, without `_meta`: what a person reads is all that is sent."""
    parts = [part.model_dump(by_alias=True, exclude_none=True, mode="json") for part in message.content_as_list]
    for part in parts:
        if part["type"] not in _MEDIA:
            raise Refused(INVALID_PARAMS, "messages: only text, images and audio can be sent")
        part.pop("_meta", None)
    return {"role": message.role, "content": parts[0] if len(parts) == 1 else parts}


async def _question(hooks: Hooks, request: SamplingRequest, flight: Flight) -> SamplingAnswer:
    return await hooks.sample(request, flight.ctx)
