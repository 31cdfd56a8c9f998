"""The library's response in our words: pieces while it comes, and the whole message at its end. Pure.

A response counts as complete only when the provider said why it ended: a stream that just stops, however cleanly, is a
retryable ModelError.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from pydantic_ai import messages as theirs
from pydantic_ai.models import StreamedResponse
from pydantic_ai.usage import RequestUsage

from golem_forge.workers.messages import AssistantMessage
from golem_forge.workers.models.layer import Completed, Finish, ModelError, Request, TextDelta, ThinkingDelta, Usage
from golem_forge.workers.models.requested import requested_calls
from golem_forge.workers.models.usage import estimate_request, estimate_tokens

_FINISHES: Final = {"length": Finish.LENGTH, "content_filter": Finish.REFUSED}


def delta(event: Any) -> TextDelta | ThinkingDelta | None:
    """The first piece of a part comes with its start. Kinds of events that are new to us say nothing here."""
    match event:
        case theirs.PartStartEvent(part=theirs.TextPart(content=text)) if text:
            return TextDelta(text)
        case theirs.PartStartEvent(part=theirs.ThinkingPart(content=text)) if text:
            return ThinkingDelta(text)
        case theirs.PartDeltaEvent(delta=theirs.TextPartDelta(content_delta=text)) if text:
            return TextDelta(text)
        case theirs.PartDeltaEvent(delta=theirs.ThinkingPartDelta(content_delta=text)) if text:
            return ThinkingDelta(text)
        case _:
            return None


def content(event: Any) -> str:
    """What an event adds to the response, of whichever kind."""
    if isinstance(event, theirs.PartStartEvent):
        part: Any = event.part
        found = part.args if isinstance(part, theirs.ToolCallPart) else getattr(part, "content", "")
    elif isinstance(event, theirs.PartDeltaEvent):
        delta: Any = event.delta
        found = delta.args_delta if isinstance(delta, theirs.ToolCallPartDelta) else delta.content_delta
    else:
        return ""
    return found if isinstance(found, str) else ""


def ended(stream: StreamedResponse, name: str) -> theirs.ModelResponse:
    response = stream.get()
    reason = (response.provider_details or {}).get("finish_reason")
    if response.state == "suspended":
        return response
    if (reason is None and response.finish_reason != "content_filter") or response.state != "complete":
        raise ModelError(f"{name}: the response broke off before its end", retryable=True)
    if response.finish_reason == "error":
        raise ModelError(f"{name}: the provider gave up on the response ({reason})", retryable=True)
    return response


def joined(before: theirs.ModelResponse | None, after: theirs.ModelResponse) -> theirs.ModelResponse:
    if before is None:
        return after
    return replace(after, parts=[*before.parts, *after.parts], usage=before.usage + after.usage)


def usage(usage: RequestUsage) -> Usage:
    return Usage(input=usage.input_tokens, output=usage.output_tokens, cached=usage.cache_read_tokens)


def completed(response: theirs.ModelResponse, request: Request, *, provider: str, model: str) -> Completed:
    """The message with the calls it asks for, each under an id that this history does not have yet."""
    finish = _FINISHES.get(response.finish_reason or "stop", Finish.STOP)
    asked = [part for part in response.parts if isinstance(part, theirs.ToolCallPart)]
    calls = requested_calls(
        ((part.tool_call_id, part.tool_name, part.args) for part in asked), history=request.messages, finish=finish
    )
    new_ids = {id(part): call.id for part, call in zip(asked, calls, strict=True)}
    kept = replace(
        response,
        parts=[
            replace(part, tool_call_id=new_ids[id(part)]) if isinstance(part, theirs.ToolCallPart) else part
            for part in response.parts
        ],
    )
    text = "".join(part.content for part in response.parts if isinstance(part, theirs.TextPart))
    thinking = "".join(part.content for part in response.parts if isinstance(part, theirs.ThinkingPart))
    counted = usage(response.usage)
    if not counted.total:
        # A request that nobody counted would slip through every budget.
        counted = Usage(input=estimate_request(request), output=estimate_tokens(text + thinking) + 20 * len(calls))
    message = AssistantMessage(
        text=text,
        thinking=thinking,
        calls=calls,
        model=model,
        raw={
            "provider": provider,
            "response": theirs.ModelMessagesTypeAdapter.dump_python([kept], mode="json")[0],
        },
    )
    return Completed(message=message, usage=counted, finish=finish)
