"""XmlModel: a model that only writes text, seen by the loop as one that calls."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from golem_forge.agent.model.interface import (
    AssistantMessage,
    CallResult,
    Completed,
    Finish,
    Message,
    Model,
    ModelEvent,
    Request,
    RequestedCall,
    ResultsMessage,
    TextDelta,
    ThinkingDelta,
    TokenUsage,
    ToolOffer,
    UsageSoFar,
    UserMessage,
    message_from_json,
    message_to_json,
)
from golem_forge.agent.model.text_calls import XmlModel
from golem_forge.core.decisions import Status

OFFER = ToolOffer(
    name="add",
    description="Adds.",
    schema={"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
)
CALL = "<tool><tool_name>add</tool_name><arguments><n>7</n></arguments></tool>"


@dataclass
class Writer:
    """Says the same words each time, in pieces."""

    pieces: Sequence[str]
    finish: Finish = Finish.STOP
    raw: Any = None
    requests: list[Request] = field(default_factory=list)
    closed: int = 0
    name: str = "test:writer"
    context_window: int | None = 1000
    max_output_tokens: int = 100
    calls_natively: bool = False

    def takes(self, media_type: str) -> bool:
        return media_type == "text/plain"

    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        self.requests.append(request)
        try:
            yield ThinkingDelta("hm")
            for piece in self.pieces:
                yield TextDelta(piece)
            yield UsageSoFar(usage=TokenUsage(input=5))
            message = AssistantMessage(text="".join(self.pieces), thinking="hm", raw=self.raw, model=self.name)
            yield Completed(message=message, usage=TokenUsage(input=5, output=6), finish=self.finish)
        finally:
            self.closed += 1

    async def aclose(self) -> None:
        self.closed += 100


async def ask(model: Model, *messages: Message) -> tuple[list[ModelEvent], Completed]:
    request = Request(system="Be good.", messages=messages or (UserMessage(text="hi"),), tools=(OFFER,))
    events = [event async for event in model.stream(request)]
    assert isinstance(events[-1], Completed)
    return events, events[-1]


async def test_calls_come_out_and_nothing_of_them_is_shown() -> None:
    inner = Writer(["Look <to", CALL[3:30], CALL[30:], " done <"], raw={"provider": 1})
    events, completed = await ask(XmlModel(inner))
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "Look  done <"
    assert completed.message.text == "Look  done <"
    assert [(call.name, call.args) for call in completed.message.calls] == [("add", {"n": 7})]
    assert completed.usage == TokenUsage(input=5, output=6)
    assert [type(event).__name__ for event in events if not isinstance(event, TextDelta)] == [
        "ThinkingDelta",
        "UsageSoFar",
        "Completed",
    ]
    (request,) = inner.requests
    assert request.tools == () and request.system.startswith("Be good.\n\n## Tools") and "### add" in request.system


async def test_the_history_goes_back_as_it_was_written_also_through_the_journal() -> None:
    inner = Writer(["ok ", CALL, " end"], raw={"provider": 1})
    model = XmlModel(inner)
    _, completed = await ask(model)
    kept = message_from_json(message_to_json(completed.message))
    result = CallResult(id=completed.message.calls[0].id, name="add", status=Status.SUCCESS, text="<8>")
    await ask(model, UserMessage(text="hi"), kept, ResultsMessage(results=(result,), note="Note."))
    first, said, results = inner.requests[1].messages
    assert first == UserMessage(text="hi")
    assert isinstance(said, AssistantMessage) and said.text == f"ok {CALL} end" and said.calls == ()
    assert said.raw == {"provider": 1}
    assert isinstance(results, UserMessage)
    assert results.text == f'<tool_result id="{result.id}" status="success">&lt;8&gt;</tool_result>\nNote.'


async def test_calls_of_another_format_are_written_as_this_model_would() -> None:
    inner = Writer(["ok"])
    asked = AssistantMessage(text="So:", calls=(RequestedCall(id="1", name="add", args='{"n": 7}'),), raw=["native"])
    broken = AssistantMessage(calls=(RequestedCall(id="2", name="add", args="{broken"),))
    await ask(XmlModel(inner), asked, broken)
    said, other = inner.requests[0].messages
    assert isinstance(said, AssistantMessage) and isinstance(other, AssistantMessage)
    assert (said.text, said.calls, said.raw) == (f"So:\n{CALL}", (), None)
    assert "<![CDATA[{broken]]>" in other.text


async def test_no_call_of_a_response_that_was_cut_can_run() -> None:
    _, completed = await ask(XmlModel(Writer([CALL, CALL[:20]], finish=Finish.LENGTH)))
    assert [call.problem for call in completed.message.calls] == ["response was cut at the token limit"] * 2


async def test_the_calls_before_a_result_that_the_model_made_up_are_whole() -> None:
    inner = Writer([CALL, "\n<tool_re", "sult>\nL1: 1\nL2: 2\n", "L3"], finish=Finish.LENGTH)
    events, completed = await ask(XmlModel(inner))
    assert [(call.name, call.args, call.problem) for call in completed.message.calls] == [("add", {"n": 7}, "")]
    assert completed.finish is Finish.STOP
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "\n"
    await ask(XmlModel(inner), UserMessage(text="hi"), completed.message)
    said = inner.requests[1].messages[1]
    assert isinstance(said, AssistantMessage) and said.text == f"{CALL}\n", "the history holds nothing of it either"


async def test_the_server_is_told_to_stop_before_a_result() -> None:
    inner = Writer(["fine"])
    await ask(XmlModel(inner))
    assert inner.requests[0].stop == ("<tool_result",)


async def test_only_the_models_own_words_are_parsed() -> None:
    _, completed = await ask(XmlModel(Writer(["fine"])), UserMessage(text=f"say {CALL}"))
    assert completed.message.calls == ()


async def test_a_stream_that_is_left_closes_the_inner_one() -> None:
    inner = Writer(["a", "b"])
    model = XmlModel(inner)
    stream = model.stream(Request(system="", messages=()))
    await anext(stream)
    await stream.aclose()
    assert inner.closed == 1
    await model.aclose()
    assert inner.closed == 101
    assert model.calls_natively and model.takes("text/plain") and not model.takes("image/png")
    assert (model.name, model.context_window, model.max_output_tokens) == ("test:writer", 1000, 100)
