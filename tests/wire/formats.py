"""What a provider streams for one turn, as SSE events: Anthropic Messages, OpenAI Chat Completions, OpenAI Responses,
Gemini.

Each function gives (event name or "", data) pairs; `ENDING` says how many of the last ones tell that it ended. `WHOLE`
has the same as one JSON object, for clients that do not stream; OpenAI's two formats only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Event = tuple[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class WireCall:
    name: str
    args: Any
    """A text is sent as it is, whatever it is; anything else as its JSON."""
    id: str | None = None
    """None: one is made up. An empty text is sent as such."""

    @property
    def json(self) -> str:
        return self.args if isinstance(self.args, str) else json.dumps(self.args)


def _ids(calls: tuple[WireCall, ...], stem: str) -> list[str]:
    return [f"{stem}_{at}" if call.id is None else call.id for at, call in enumerate(calls)]


def _pieces(text: str, size: int) -> Iterator[str]:
    for start in range(0, len(text), size):
        yield text[start : start + size]


def anthropic(turn: Any, number: int) -> list[Event]:
    events: list[Event] = []

    def add(kind: str, **data: Any) -> None:
        events.append((kind, {"type": kind, **data}))

    usage = {
        "input_tokens": turn.input - turn.cached,
        "cache_read_input_tokens": turn.cached,
        "cache_creation_input_tokens": 0,
        "output_tokens": 1,
    }
    message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "wire", "content": []}
    add("message_start", message={**message, "stop_reason": None, "stop_sequence": None, "usage": usage})
    index = 0
    if turn.think:
        block: dict[str, Any] = {"type": "thinking", "thinking": "", "signature": ""}
        add("content_block_start", index=index, content_block=block)
        for piece in _pieces(turn.think, turn.piece):
            add("content_block_delta", index=index, delta={"type": "thinking_delta", "thinking": piece})
        add("content_block_delta", index=index, delta={"type": "signature_delta", "signature": f"signed-{number}"})
        add("content_block_stop", index=index)
        index += 1
    if turn.say:
        add("content_block_start", index=index, content_block={"type": "text", "text": ""})
        for piece in _pieces(turn.say, turn.piece):
            add("content_block_delta", index=index, delta={"type": "text_delta", "text": piece})
        add("content_block_stop", index=index)
        index += 1
    for call, call_id in zip(turn.calls, _ids(turn.calls, f"toolu_{number}"), strict=True):
        block = {"type": "tool_use", "id": call_id, "name": call.name, "input": {}}
        add("content_block_start", index=index, content_block=block)
        for piece in _pieces(call.json, 12):
            add("content_block_delta", index=index, delta={"type": "input_json_delta", "partial_json": piece})
        add("content_block_stop", index=index)
        index += 1
    reason = {"length": "max_tokens", "refused": "refusal"}.get(turn.finish) or (
        "tool_use" if turn.calls else "end_turn"
    )
    add(
        "message_delta",
        delta={"stop_reason": reason, "stop_sequence": None},
        usage={**usage, "output_tokens": turn.output},
    )
    add("message_stop")
    return events


def chat(turn: Any, number: int) -> list[Event]:
    events: list[Event] = []

    def add(delta: dict[str, Any], finish: str | None = None) -> None:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        events.append(("", {**head, "choices": [choice]}))

    head = {"id": f"chatcmpl-{number}", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": "wire"}
    add({"role": "assistant", "content": ""})
    for piece in _pieces(turn.think, turn.piece):
        add({"reasoning_content": piece})
    for piece in _pieces(turn.say, turn.piece):
        add({"content": piece})
    for at, (call, call_id) in enumerate(zip(turn.calls, _ids(turn.calls, f"call_{number}"), strict=True)):
        function = {"name": call.name, "arguments": ""}
        add({"tool_calls": [{"index": at, "id": call_id, "type": "function", "function": function}]})
        for piece in _pieces(call.json, 12):
            add({"tool_calls": [{"index": at, "function": {"arguments": piece}}]})
    reason = {"length": "length", "refused": "content_filter"}.get(turn.finish) or (
        "tool_calls" if turn.calls else "stop"
    )
    add({}, reason)
    usage = {
        "prompt_tokens": turn.input,
        "completion_tokens": turn.output,
        "total_tokens": turn.input + turn.output,
        "prompt_tokens_details": {"cached_tokens": turn.cached},
        "completion_tokens_details": {"reasoning_tokens": turn.reasoning},
    }
    if turn.counted:
        events.append(("", {**head, "choices": [], "usage": usage}))
    events.append(("", "[DONE]"))
    return events


def responses(turn: Any, number: int) -> list[Event]:
    events: list[Event] = []

    def add(kind: str, **data: Any) -> None:
        events.append((kind, {"type": kind, "sequence_number": len(events), **data}))

    head = {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 1_700_000_000,
        "model": "wire",
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "error": None,
        "incomplete_details": None,
    }
    add("response.created", response={**head, "status": "in_progress"})
    output: list[dict[str, Any]] = []
    if turn.say:
        at = len(output)
        item = {"id": f"msg_{number}", "type": "message", "role": "assistant", "status": "in_progress", "content": []}
        part = {"type": "output_text", "text": "", "annotations": []}
        where = {"item_id": item["id"], "output_index": at, "content_index": 0}
        add("response.output_item.added", output_index=at, item=item)
        add("response.content_part.added", **where, part=part)
        for piece in _pieces(turn.say, turn.piece):
            add("response.output_text.delta", **where, delta=piece, logprobs=[])
        done = {**part, "text": turn.say}
        add("response.output_text.done", **where, text=turn.say, logprobs=[])
        add("response.content_part.done", **where, part=done)
        output.append({**item, "status": "completed", "content": [done]})
        add("response.output_item.done", output_index=at, item=output[-1])
    for call, call_id in zip(turn.calls, _ids(turn.calls, f"call_{number}"), strict=True):
        at = len(output)
        item = {
            "id": f"fc_{number}_{at}",
            "type": "function_call",
            "status": "in_progress",
            "call_id": call_id,
            "name": call.name,
            "arguments": "",
        }
        add("response.output_item.added", output_index=at, item=item)
        for piece in _pieces(call.json, 12):
            add("response.function_call_arguments.delta", item_id=item["id"], output_index=at, delta=piece)
        add("response.function_call_arguments.done", item_id=item["id"], output_index=at, arguments=call.json)
        output.append({**item, "status": "completed", "arguments": call.json})
        add("response.output_item.done", output_index=at, item=output[-1])
    usage = {
        "input_tokens": turn.input,
        "input_tokens_details": {"cached_tokens": turn.cached},
        "output_tokens": turn.output,
        "output_tokens_details": {"reasoning_tokens": turn.reasoning},
        "total_tokens": turn.input + turn.output,
    }
    why = {"length": "max_output_tokens", "refused": "content_filter"}.get(turn.finish)
    end = {**head, "output": output, "usage": usage}
    if why:
        add("response.incomplete", response={**end, "status": "incomplete", "incomplete_details": {"reason": why}})
    else:
        add("response.completed", response={**end, "status": "completed"})
    return events


def gemini(turn: Any, number: int) -> list[Event]:
    """A call comes as a whole: its arguments must be JSON."""
    parts: list[dict[str, Any]] = [{"text": piece, "thought": True} for piece in _pieces(turn.think, turn.piece)]
    parts += [{"text": piece} for piece in _pieces(turn.say, turn.piece)]
    parts += [{"functionCall": {"name": call.name, "args": json.loads(call.json)}} for call in turn.calls]
    head = {"modelVersion": "wire", "responseId": f"gemini-{number}"}
    events: list[Event] = [
        ("", {**head, "candidates": [{"index": 0, "content": {"role": "model", "parts": [part]}}]}) for part in parts
    ]
    usage = {
        "promptTokenCount": turn.input,
        "candidatesTokenCount": turn.output - turn.reasoning,
        "thoughtsTokenCount": turn.reasoning,
        "cachedContentTokenCount": turn.cached,
        "totalTokenCount": turn.input + turn.output,
    }
    reason = {"length": "MAX_TOKENS", "refused": "SAFETY"}.get(turn.finish, "STOP")
    end = {"index": 0, "finishReason": reason, "content": {"role": "model", "parts": [{"text": ""}]}}
    return [*events, ("", {**head, "candidates": [end], "usageMetadata": usage})]


FORMATS = {"/messages": anthropic, "/chat/completions": chat, "/responses": responses, "GenerateContent": gemini}
"""By the end of the path that is asked for."""
ENDING = {"/messages": 2, "/chat/completions": 3, "/responses": 1, "GenerateContent": 1}


def format_at(path: str) -> str:
    """The key of FORMATS; empty: none."""
    return next((each for each in FORMATS if path.endswith(each)), "")


def whole_chat(turn: Any, number: int) -> dict[str, Any]:
    calls = [
        {"id": call_id, "type": "function", "function": {"name": call.name, "arguments": call.json}}
        for call, call_id in zip(turn.calls, _ids(turn.calls, f"call_{number}"), strict=True)
    ]
    message = {"role": "assistant", "content": turn.say or None, **({"tool_calls": calls} if calls else {})}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop", "logprobs": None}
    usage = {
        "prompt_tokens": turn.input,
        "completion_tokens": turn.output,
        "total_tokens": turn.input + turn.output,
    }
    head = {"id": f"chatcmpl-{number}", "object": "chat.completion", "created": 1_700_000_000, "model": "wire"}
    return {**head, "choices": [choice], "usage": usage}


def whole_response(turn: Any, number: int) -> dict[str, Any]:
    _, last = responses(turn, number)[-1]
    whole: dict[str, Any] = last["response"]
    return whole


WHOLE = {"/chat/completions": whole_chat, "/responses": whole_response}
