"""XmlModel: a Model without native calling, made one that has it. The loop notices no difference.

Tools become part of the system prompt, results a user's text, calls in the history are written back as the model
wrote them, and what streams is read for calls. Raises what the inner model raises.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from golem_forge.workers.messages import AssistantMessage, Message, ResultsMessage, UserMessage
from golem_forge.workers.models.layer import Completed, Finish, Model, ModelEvent, Request, TextDelta
from golem_forge.workers.xml_calls.catalog import catalog_prompt
from golem_forge.workers.xml_calls.reader import XmlReader
from golem_forge.workers.xml_calls.results import results_text
from golem_forge.workers.xml_calls.writing import write_call

_WRITTEN: Final = "xml"
_INNER: Final = "inner"
CUT: Final = "response was cut at the token limit"


@dataclass(frozen=True, slots=True)
class XmlModel:
    inner: Model

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def context_window(self) -> int | None:
        return self.inner.context_window

    @property
    def max_output_tokens(self) -> int:
        return self.inner.max_output_tokens

    @property
    def calls_natively(self) -> bool:
        """For whoever asks, it does: nothing more has to be done about it."""
        return True

    def takes(self, media_type: str) -> bool:
        return self.inner.takes(media_type)

    async def aclose(self) -> None:
        await self.inner.aclose()

    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        schemas = {offer.name: offer.schema for offer in request.tools}
        reader = XmlReader(schemas, request.schema_of)
        heard: list[str] = []
        events = self.inner.stream(as_plain_text(request))
        try:
            async for event in events:
                if isinstance(event, TextDelta):
                    heard.append(event.text)
                    if shown := reader.feed(event.text):
                        yield TextDelta(shown)
                elif isinstance(event, Completed):
                    if "".join(heard) != event.message.text:  # the whole is what counts, whatever was streamed of it
                        reader = XmlReader(schemas, request.schema_of)
                        reader.feed(event.message.text)
                    read = reader.finish()
                    if read.rest:
                        yield TextDelta(read.rest)
                    raw = {_WRITTEN: read.written, _INNER: event.message.raw}
                    calls = (*read.calls, *event.message.calls)
                    if event.finish is Finish.LENGTH:  # why the last one is not closed
                        calls = tuple(replace(call, problem=CUT) for call in calls)
                    yield replace(event, message=replace(event.message, text=read.text, calls=calls, raw=raw))
                else:
                    yield event
        finally:
            await _close(events)


def as_plain_text(request: Request) -> Request:
    """The same request without tools: what a model needs to know about them is in its texts."""
    schemas = {offer.name: offer.schema for offer in request.tools}
    prompt = catalog_prompt(request.tools)
    return replace(
        request,
        system=f"{request.system}\n\n{prompt}" if prompt and request.system else prompt or request.system,
        messages=tuple(_as_text(message, schemas) for message in request.messages),
        tools=(),
    )


def _as_text(message: Message, schemas: Mapping[str, Mapping[str, Any]]) -> Message:
    if isinstance(message, ResultsMessage):
        return UserMessage(text=results_text(message), kind="note")
    if not isinstance(message, AssistantMessage):
        return message
    if isinstance(message.raw, dict) and isinstance(written := message.raw.get(_WRITTEN), str):
        return replace(message, text=written, calls=(), raw=message.raw.get(_INNER))
    if not message.calls:
        return message
    calls = (write_call(call.name, call.args, schemas.get(call.name, {})) for call in message.calls)
    return replace(message, text="\n".join((message.text, *calls) if message.text else calls), calls=(), raw=None)


async def _close(events: AsyncIterator[ModelEvent]) -> None:
    """A cancelled stream closes its connection at once, not when it is collected."""
    aclose = getattr(events, "aclose", None)
    if aclose is not None:
        await aclose()
