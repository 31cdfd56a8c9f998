"""Context: W32. What compaction keeps, whatever the history was."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golem_forge.agent.budget import message_tokens
from golem_forge.agent.history import Compacted, ContextExceeded, compact
from golem_forge.agent.model.interface import (
    AssistantMessage,
    CallResult,
    Message,
    RequestedCall,
    ResultsMessage,
    UserMessage,
    fenced,
)
from golem_forge.core.decisions import Status
from golem_forge.core.errors import ToolFailed


class Keeper:
    """Keeps outputs and summarises, and remembers what it was given."""

    def __init__(self, summary: str = "They did things.") -> None:
        self.kept: dict[str, str] = {}
        self.asked: list[list[Message]] = []
        self.summary = summary

    def keep(self, text: str) -> str:
        handle = f"out_{len(self.kept):012x}"
        self.kept[handle] = text
        return handle

    async def summarise(self, messages: list[Message]) -> str:
        self.asked.append(messages)
        return self.summary

    async def compact(self, history: list[Message], *, limit: int, used: int = 0) -> Compacted | None:
        used = used or sum(map(message_tokens, history))
        before = list(history)
        try:
            return await compact(history, limit=limit, used=used, summarise=self.summarise, keep_output=self.keep)
        finally:
            assert history == before


def turn(number: int, *texts: str, handle: str = "", said: str = "ok") -> list[Message]:
    calls = tuple(RequestedCall(id=f"c{number}.{i}", name="t", args={"i": i}) for i, _ in enumerate(texts))
    results = tuple(
        CallResult(id=call.id, name="t", status=Status.SUCCESS, text=text, output_handle=handle)
        for call, text in zip(calls, texts, strict=True)
    )
    return [AssistantMessage(text=said, calls=calls), ResultsMessage(results=results)]


def pairs(history: list[Message]) -> None:
    """Every call directly followed by its results, every result directly after its calls."""
    for index, message in enumerate(history):
        if isinstance(message, AssistantMessage) and message.calls and index + 1 < len(history):
            following = history[index + 1]
            assert isinstance(following, ResultsMessage)
            assert [each.id for each in following.results] == [call.id for call in message.calls]
        if isinstance(message, ResultsMessage):
            assert index > 0 and isinstance(history[index - 1], AssistantMessage)


async def test_below_80_percent_nothing_happens() -> None:
    keeper = Keeper()
    assert await keeper.compact([UserMessage(text="x")], limit=1000, used=800) is None
    assert not keeper.asked and not keeper.kept


async def test_w32_old_outputs_become_handles_first() -> None:
    history: list[Message] = [UserMessage(text="the goal")]
    for number in range(12):
        history += turn(number, fenced("x" * 4000), "short", handle="")
    keeper = Keeper()
    compacted = await keeper.compact(history, limit=14_000)
    assert compacted is not None and not keeper.asked
    assert compacted.messages[0] == history[0] and compacted.messages[-10:] == history[-10:]
    assert len(compacted.messages) == len(history)
    old = compacted.messages[2]
    assert isinstance(old, ResultsMessage)
    assert old.results[0].text == "[output kept, handle out_000000000000]"
    assert old.results[0].output_handle == "out_000000000000"
    assert keeper.kept["out_000000000000"] == "x" * 4000
    assert old.results[1].text == "short"
    assert compacted.after < 14_000 * 0.8 < compacted.before
    pairs(compacted.messages)
    assert await keeper.compact(compacted.messages, limit=14_000) is None


async def test_an_output_that_was_kept_before_keeps_its_handle() -> None:
    history: list[Message] = [UserMessage(text="g"), *turn(0, "y" * 9000, handle="out_aaaaaaaaaaaa")]
    for number in range(1, 7):
        history += turn(number, "z")
    keeper = Keeper()
    compacted = await keeper.compact(history, limit=1000)
    assert compacted is not None and not keeper.kept
    assert compacted.messages[2].results[0].text == "[output kept, handle out_aaaaaaaaaaaa]"  # type: ignore[union-attr]


@pytest.mark.parametrize("error", [OSError("full"), ToolFailed("no room")])
async def test_an_output_that_cannot_be_kept_stays(error: Exception) -> None:
    history: list[Message] = [UserMessage(text="g"), *turn(0, "y" * 4000)]
    for number in range(1, 7):
        history += turn(number, "z" * 99)

    def no_room(text: str) -> str:
        raise error

    compacted = await compact(history, limit=1600, used=1400, summarise=Keeper().summarise, keep_output=no_room)
    assert compacted is not None  # the turn was summarised instead
    assert "y" * 4000 not in str(compacted.messages)
    assert isinstance(compacted.messages[1], UserMessage) and compacted.messages[1].kind == "summary"


async def test_w32_then_the_oldest_turns_become_one_summary() -> None:
    history: list[Message] = [UserMessage(text="the goal"), UserMessage(text="old", kind="summary")]
    for number in range(20):
        history += turn(number, "r" * 90, said="s" * 400)
    keeper = Keeper()
    compacted = await keeper.compact(history, limit=2500)
    assert compacted is not None
    first, summary, *rest = compacted.messages
    assert first == history[0]
    assert summary == UserMessage(text="[Summary of 31 earlier messages]\nThey did things.", kind="summary")
    assert rest == history[-10:]
    pairs(compacted.messages)
    ((told,),) = keeper.asked
    assert isinstance(told, UserMessage) and "Earlier summary: old" in told.text and "[calls t " in told.text
    assert "the goal" not in told.text


async def test_the_tail_is_moved_back_to_the_call_of_its_first_result() -> None:
    history: list[Message] = [UserMessage(text="g")]
    for number in range(10):
        history += turn(number, "r", said="s" * 400)
    history.append(UserMessage(text="more"))  # the tenth from behind is a ResultsMessage now
    assert isinstance(history[-10], ResultsMessage)
    compacted = await Keeper().compact(history, limit=1000)
    assert compacted is not None
    assert compacted.messages[-11:] == history[-11:]
    pairs(compacted.messages)


async def test_a_pending_call_is_never_dropped() -> None:
    pending = AssistantMessage(text="p", calls=(RequestedCall(id="open", name="t", args={}),))
    history: list[Message] = [UserMessage(text="g"), pending]
    for number in range(10):
        history += turn(number, "r", said="s" * 400)
    compacted = await Keeper().compact(history, limit=1000)
    assert compacted is not None and pending in compacted.messages


async def test_still_too_large_ends_the_run() -> None:
    history: list[Message] = [UserMessage(text="x" * 8000)]
    with pytest.raises(ContextExceeded) as raised:
        await Keeper().compact(history, limit=1000)
    assert raised.value.message == "context limit exceeded"


async def test_between_80_and_100_percent_without_anything_to_save_it_goes_on() -> None:
    keeper = Keeper()
    history: list[Message] = [UserMessage(text="x" * 3100), UserMessage(text="s", kind="summary"), *turn(0, "y")]
    assert await keeper.compact(history, limit=1000) is None
    assert not keeper.asked


async def test_a_summary_longer_than_what_it_stands_for_is_not_used() -> None:
    history: list[Message] = [UserMessage(text="g")]
    for number in range(8):
        history += turn(number, "r")
    keeper = Keeper(summary="w" * 10_000)
    assert await keeper.compact(history, limit=1000, used=900) is None
    assert keeper.asked


async def test_what_is_summarised_fits_the_window() -> None:
    history: list[Message] = [UserMessage(text="g")]
    history += [UserMessage(text="é" * 3000) for _ in range(40)]
    keeper = Keeper()
    compacted = await keeper.compact(history, limit=20_000, used=19_000)
    assert compacted is not None
    assert sum(map(message_tokens, keeper.asked[0])) <= 10_100


@st.composite
def histories(draw: st.DrawFn) -> list[Message]:
    history: list[Message] = []
    for number in range(draw(st.integers(4, 24))):
        size = draw(st.integers(0, 600))
        kind = draw(st.sampled_from(["user", "calls", "calls", "answer", "summary", "note"]))
        if kind == "calls":
            history += turn(
                number, *draw(st.lists(st.sampled_from(["a", "b" * 300, "c" * 2000]), min_size=1, max_size=3))
            )
        elif kind == "answer":
            history.append(AssistantMessage(text="s" * size, interrupted=draw(st.booleans())))
        else:
            history.append(UserMessage(text="u" * size, kind="input" if kind == "user" else kind))  # type: ignore[arg-type]
    if draw(st.booleans()):
        history += turn(99, "pending")[:1]
    return history


@given(history=histories(), share=st.floats(0.75, 1.6))
async def test_w32_pairs_first_and_last_stay_in_any_history(history: list[Message], share: float) -> None:
    """`share`: how much of the window the history would take."""
    keeper = Keeper()
    limit = int(sum(map(message_tokens, history)) / share)
    try:
        compacted = await keeper.compact(history, limit=limit)
    except ContextExceeded:
        return
    if compacted is None:
        return
    pairs(compacted.messages)
    assert compacted.messages[-10:] == history[-10:]
    first = next((each for each in history if isinstance(each, UserMessage) and each.kind == "input"), None)
    assert first is None or first in compacted.messages
    assert compacted.after <= limit
    asked = {call.id for each in compacted.messages if isinstance(each, AssistantMessage) for call in each.calls}
    answered = {each.id for m in compacted.messages if isinstance(m, ResultsMessage) for each in m.results}
    assert answered <= asked and asked - answered <= {"c99.0"}
    for message in compacted.messages:
        for each in message.results if isinstance(message, ResultsMessage) else ():
            if each.text.startswith("[output kept, handle "):
                assert each.output_handle in keeper.kept
