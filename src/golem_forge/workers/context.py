"""Keeping a history inside a model's window. `compact` gives a smaller history, or None where nothing has to be done.

First old tool outputs become handles, then the oldest turns one summary. Always kept: the first input, the last
messages, and every call together with its result. Nothing given is changed, so an interrupt on the way loses nothing.
Raises ContextExceeded when what must be kept is still too large.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from golem_forge.core.errors import ForgeError, ToolFailed
from golem_forge.tools.json_values import compact as json_text
from golem_forge.tools.json_values import safe_json
from golem_forge.workers.fencing import fenced, unfenced
from golem_forge.workers.messages import AssistantMessage, CallResult, Message, ResultsMessage, UserMessage
from golem_forge.workers.models.usage import message_tokens

KEEP_LAST: Final = 10
COMPACT_AT: Final = 0.8
_BYTES_PER_TOKEN: Final = 3
"""Of a transcript that must fit: fewer than an estimate would say."""
_WORTH_KEEPING: Final = 100
"""Characters; a shorter output is no longer than the line that would stand for it."""
_KEPT: Final = "[output kept, handle "
_SUMMARY_SHARE: Final = 0.5
"""How much of the window the text to be summarised may take."""
_LEAST_SHOWN: Final = 200


class ContextExceeded(ForgeError):
    def __init__(self) -> None:
        super().__init__("context limit exceeded", code="CONTEXT_EXCEEDED")


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    messages: list[Message]
    before: int
    after: int
    """Tokens of the next request, as estimated."""


async def compact(
    history: Sequence[Message],
    *,
    limit: int,
    used: int,
    summarise: Callable[[list[Message]], Awaitable[str]],
    keep_output: Callable[[str], str],
    keep: int = KEEP_LAST,
) -> Compacted | None:
    """`used`: tokens the next request would take. `keep_output` stores a text and gives its handle. `summarise` gets
    one user message that holds the old turns as text."""
    if used <= limit * COMPACT_AT:
        return None
    messages = _with_handles(history, keep, keep_output)
    after = used - _saved(history, messages)
    if after > limit * COMPACT_AT and (old := _old_turns(messages, keep)):
        before_summary = messages
        transcript = _transcript(old.messages, int(limit * _SUMMARY_SHARE) * _BYTES_PER_TOKEN)
        text = (await summarise([UserMessage(text=transcript, kind="note")])).strip()
        summary = UserMessage(text=f"[Summary of {old.count} earlier messages]\n{text}", kind="summary")
        messages = [*messages[: old.start], summary, *old.unanswered, *messages[old.end :]]
        if not text or _saved(before_summary, messages) <= 0:
            messages = before_summary  # a summary that is longer than what it stands for helps nobody
        after = used - _saved(history, messages)
    if after > limit:
        raise ContextExceeded
    return Compacted(messages=messages, before=used, after=after) if messages != list(history) else None


def _saved(before: Sequence[Message], after: Sequence[Message]) -> int:
    return sum(map(message_tokens, before)) - sum(map(message_tokens, after))


def _with_handles(history: Sequence[Message], keep: int, keep_output: Callable[[str], str]) -> list[Message]:
    """The same objects where nothing changed: the journal refers to those."""
    messages = list(history)
    for index, message in enumerate(history[: max(len(history) - keep, 0)]):
        if isinstance(message, ResultsMessage):
            results = tuple(_kept(each, keep_output) for each in message.results)
            if results != message.results:
                messages[index] = replace(message, results=results)
    return messages


def _kept(result: CallResult, keep_output: Callable[[str], str]) -> CallResult:
    if len(result.text) <= _WORTH_KEEPING or result.text.startswith(_KEPT):
        return result
    try:
        handle = result.output_handle or keep_output(unfenced(result.text))
    except (OSError, ToolFailed):  # no room for it on disk: better large than lost
        return result
    return replace(result, text=f"{_KEPT}{handle}]", output_handle=handle)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Old:
    start: int
    end: int
    messages: list[Message]
    unanswered: list[Message]
    """Calls without a result, and what was asked for beside them: they stay, whatever else goes."""

    @property
    def count(self) -> int:
        return len(self.messages)


def _old_turns(history: Sequence[Message], keep: int) -> _Old | None:
    """What lies between the first input and the last messages, without cutting a call from its result."""
    first = next((i for i, each in enumerate(history) if isinstance(each, UserMessage) and each.kind == "input"), -1)
    start, end = first + 1, _first_kept(history, keep)
    answered = {each.id for message in history if isinstance(message, ResultsMessage) for each in message.results}
    pending = {
        call.id
        for message in history[start:end]
        if isinstance(message, AssistantMessage) and any(call.id not in answered for call in message.calls)
        for call in message.calls
    }
    old: list[Message] = []
    unanswered: list[Message] = []
    for message in history[start:end]:
        (old if pending.isdisjoint(_ids(message)) else unanswered).append(message)
    if all(isinstance(each, UserMessage) and each.kind == "summary" for each in old):
        return None
    return _Old(start=start, end=end, messages=old, unanswered=unanswered)


def _first_kept(history: Sequence[Message], keep: int) -> int:
    """Where the last messages begin, moved back to the calls whose results are among them."""
    asked = {call: index for index, message in enumerate(history) for call in _calls(message)}
    end = max(len(history) - keep, 0)
    for index in range(len(history) - 1, -1, -1):
        message = history[index]
        if index < end:
            break
        if isinstance(message, ResultsMessage):
            end = min(end, *(asked.get(each.id, end) for each in message.results), end)
    return end


def _calls(message: Message) -> list[str]:
    return [call.id for call in message.calls] if isinstance(message, AssistantMessage) else []


def _ids(message: Message) -> list[str]:
    return [each.id for each in message.results] if isinstance(message, ResultsMessage) else _calls(message)


def _transcript(messages: Sequence[Message], room: int) -> str:
    """The turns as text, each cut in its middle where all of them together are too long."""
    texts = [_told(message) for message in messages]
    share = max(room // max(len(texts), 1), _LEAST_SHOWN)
    if sum(len(text.encode("utf-8", "replace")) for text in texts) > room:
        texts = [_cut(text, share) for text in texts]
    body = _cut("\n\n".join(texts), max(room, _LEAST_SHOWN))
    return f"The conversation so far, to be summarised:\n{fenced(body)}"


def _told(message: Message) -> str:
    if isinstance(message, UserMessage):
        names = "".join(f"\n[attachment {each.name}, {each.media_type}]" for each in message.attachments)
        return f"{'Earlier summary' if message.kind == 'summary' else 'Person'}: {message.text}{names}"
    if isinstance(message, AssistantMessage):
        calls = "".join(f"\n[calls {call.name} {_args_text(call.args)}]" for call in message.calls)
        return f"Assistant: {message.text}{calls}"
    results = "\n".join(f"[{each.name}: {each.status}] {unfenced(each.text)}" for each in message.results)
    return f"Results: {results}{f' ({message.note})' if message.note else ''}"


def _cut(text: str, most: int) -> str:
    data = text.encode("utf-8", "replace")
    if len(data) <= most:
        return text
    half = max(most // 2 - 2, 1)
    return f"{data[:half].decode('utf-8', 'ignore')} … {data[-half:].decode('utf-8', 'ignore')}"


def _args_text(args: Any) -> str:
    return args if isinstance(args, str) else json_text(safe_json(args)[0])
