"""Output that is not a terminal: plain lines, or the answer alone (ui.md §9, §11; U28, U37; W45)."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from tests.ui.card_data import card_data

from golem_forge.agent.model.interface import TokenUsage
from golem_forge.agent.run_result import RunResult, RunStatus
from golem_forge.events.bus import EventBus
from golem_forge.events.runtime_ui import InputUnavailable, create_runtime_ui
from golem_forge.events.serialization import Event
from golem_forge.ui.headless import HeadlessAdapter, PlainAdapter, run_result_data

ANSWER = RunResult(
    success=True, status=RunStatus.COMPLETED, response="Done.\n", usage=TokenUsage(input=5, output=2), cost=0.5
)
CARD = card_data(payload="p")
FORM = {"source": "s", "title": "t", "message": "m", "fields": [], "workerPath": []}


def told(bus: EventBus, *, end: str = "completed") -> None:
    """A run: words, a call that fails, the answer, the end."""
    message = {"role": "user", "content": "go"}
    bus.emit("message", {"message": message}, "w")
    bus.emit("streaming", {"requestId": "1", "delta": "hm", "done": False, "channel": "thinking"}, "w")
    bus.emit("streaming", {"requestId": "1", "delta": "I will \x1b[2J", "done": True, "channel": "text"}, "w")
    bus.emit("message", {"message": {"role": "assistant", "content": "I will \x1b[2J"}}, "w")
    call = {"toolCallId": "c", "toolName": "t", "args": {}}
    bus.emit("toolStarted", {**call, "caller": "llm"}, "w")
    bus.emit(
        "toolResult",
        {**call, "status": "timeout", "error": "slow", "durationMs": 1, "decision": None, "truncated": False},
        "w",
    )
    bus.emit("streaming", {"requestId": "2", "delta": "Done.", "done": True, "channel": "text"}, "w")
    bus.emit("message", {"message": {"role": "assistant", "content": "Done.\n"}}, "w")
    bus.emit("sessionEnd", {"reason": end}, "w")


class Both:
    """A headless adapter between two buffers."""

    def __init__(self, **options: Any) -> None:
        self.bus = EventBus("s")
        self.stdout, self.stderr = io.StringIO(), io.StringIO()
        self.adapter = HeadlessAdapter(self.bus, stdout=self.stdout, stderr=self.stderr, **options)

    @property
    def out(self) -> str:
        return self.stdout.getvalue()

    @property
    def err(self) -> str:
        return self.stderr.getvalue()


async def test_w45_stdout_is_the_answer_and_the_rest_is_on_stderr_once() -> None:
    both = Both(trace="normal")
    await both.adapter.initialize()
    told(both.bus)
    assert both.out == ""
    both.adapter.finished(ANSWER)
    await both.adapter.shutdown()
    assert both.out == "Done.\n"
    assert both.err.splitlines() == [
        "> go",
        "hm",
        "I will \\x1b[2J",
        "▸ t",
        "✗ t - timeout: slow",
        "session completed",
        "total: 1 tool call, 1 failed",
    ]


@pytest.mark.parametrize(("trace", "shown"), [("summary", 0), ("normal", 1)])
async def test_words_before_a_refused_call_are_no_answer_and_stand_before_it(trace: str, shown: int) -> None:
    both = Both(trace=trace)
    await both.adapter.initialize()
    both.bus.emit("message", {"message": {"role": "assistant", "content": "I look."}}, "w")
    refused = {"toolCallId": "c", "toolName": "t", "args": {}, "status": "approval_denied", "error": "nobody"}
    both.bus.emit("toolResult", {**refused, "durationMs": 1, "decision": None, "truncated": False}, "w")
    both.bus.emit("message", {"message": {"role": "assistant", "content": "Done.\n"}}, "w")
    both.bus.emit("sessionEnd", {"reason": "completed"}, "w")
    both.adapter.finished(ANSWER)
    assert (both.out, both.err.count("I look.")) == ("Done.\n", shown)
    assert both.err.startswith("I look.\n✗ t" if shown else "✗ t")


async def test_quiet_says_nothing_but_the_answer_and_an_error() -> None:
    both = Both(trace="quiet")
    await both.adapter.initialize()
    told(both.bus)
    both.adapter.finished(ANSWER)
    both.adapter.finished(ANSWER)
    assert (both.out, both.err) == ("Done.\n", "")
    failed = Both(trace="quiet")
    await failed.adapter.initialize()
    failed.adapter.finished(RunResult(success=False, status=RunStatus.FAILED, partial="half", error="it \x07 broke"))
    assert (failed.out, failed.err) == ("", "error: it \\x07 broke\n")


@pytest.mark.parametrize(
    ("result", "out"),
    [
        (RunResult(success=False, status=RunStatus.LIMIT, partial="half"), "half\n"),
        (RunResult(success=True, status=RunStatus.INTERRUPTED, response="[Interrupted]", partial="half"), ""),
        (RunResult(success=True, status=RunStatus.COMPLETED, response="a\x1b[31mb\r\nc"), "a\\x1b[31mb\nc\n"),
        (RunResult(success=True, status=RunStatus.COMPLETED, response=""), ""),
    ],
)
async def test_what_each_ending_prints(result: RunResult, out: str) -> None:
    both = Both()
    await both.adapter.initialize()
    both.adapter.finished(result)
    assert both.out == out


@pytest.mark.parametrize("json", [False, True])
async def test_what_a_command_left_that_ended_with_the_session_is_said_after_the_answer(json: bool) -> None:
    bus, out, err = EventBus(), io.StringIO(), io.StringIO()
    adapter = HeadlessAdapter(bus, json=json, stdout=out, stderr=err)
    await adapter.initialize()
    adapter.finished(ANSWER)
    before = out.getvalue()
    bus.emit("status", {"type": "warning", "message": "Left behind (critical): a hook", "code": "leftovers"})
    bus.emit("status", {"type": "warning", "message": "anything else"})
    assert out.getvalue() == before, "`runResult` stays the last line"
    assert err.getvalue() == ("" if json else "warning: Left behind (critical): a hook\n")


async def test_an_error_that_an_event_told_is_not_told_again() -> None:
    both = Both(trace="quiet")
    await both.adapter.initialize()
    both.bus.emit("status", {"type": "error", "message": "no key"})
    both.adapter.finished(RunResult(success=False, status=RunStatus.MODEL_UNAVAILABLE, error="no key"))
    assert both.err == "error: no key\n"


def test_a_result_without_an_answer_says_why() -> None:
    failed = run_result_data(RunResult(success=False, status=RunStatus.LIMIT, partial="half", error="too many"))
    assert (failed["status"], failed["partial"], failed["error"]) == ("limit", "half", "too many")


async def test_u37_json_is_one_envelope_a_line_and_run_result_the_last() -> None:
    both = Both(json=True, trace="quiet")
    await both.adapter.initialize()
    told(both.bus)
    both.bus.emit("status", {"type": "info", "message": "line\u2028end \x85 \u202e 日本 𝄞"})
    both.adapter.finished(RunResult(success=True, status=RunStatus.COMPLETED, response="Done.", partial="D", cost=None))
    both.bus.emit("status", {"type": "info", "message": "too late"})
    assert both.out.isascii()
    lines = both.out.splitlines()
    events = [Event.from_json(line) for line in lines]
    assert [event.type for event in events[-2:]] == ["status", "runResult"]
    assert events[-2].wire["message"] == "line\u2028end \x85 \u202e 日本 𝄞"
    assert events[-1].wire == {
        "success": True,
        "status": "completed",
        "response": "Done.",
        "partial": "D",
        "usage": {"input": 0, "output": 0, "cached": 0, "cost": None},
    }
    seqs = [event.seq for event in events]
    assert seqs == sorted(seqs)
    recorded = [event.seq for event in events if event.type != "streaming"]
    assert recorded == list(range(1, len(recorded) + 1))
    assert all(json.loads(line)["sessionId"] == "s" for line in lines)


@pytest.mark.parametrize("kind", ["headless", "plain"])
async def test_u28_nobody_is_asked_and_no_prompt_is_printed(kind: str) -> None:
    bus, out, err = EventBus("s"), io.StringIO(), io.StringIO()
    adapter = PlainAdapter(bus, output=out) if kind == "plain" else HeadlessAdapter(bus, stdout=out, stderr=err)
    await adapter.initialize()
    ui = create_runtime_ui(bus)
    assert (await ui.request_approval(CARD))["approved"] is False
    assert (await ui.request_form(FORM))["action"] == "cancel"
    with pytest.raises(InputUnavailable):
        await ui.get_user_input("your name? ")
    await adapter.shutdown()
    assert "your name" not in out.getvalue() + err.getvalue()
    if kind == "headless":
        assert out.getvalue() == ""


async def test_u28_plain_lines_have_no_escape_byte() -> None:
    bus, out = EventBus("s"), io.StringIO()
    adapter = PlainAdapter(bus, output=out, trace="normal")
    await adapter.initialize()
    await adapter.initialize()
    told(bus)
    adapter.finished(ANSWER)
    assert out.getvalue().splitlines() == [
        "> go",
        "hm",
        "I will \\x1b[2J",
        "▸ t",
        "✗ t - timeout: slow",
        "Done.",
        "session completed",
        "total: 1 tool call, 1 failed",
    ]
    await adapter.shutdown()
    told(bus)
    assert out.getvalue().count("Done.") == 1
    adapter.request_exit(130)
    assert adapter.exit_requested.is_set()
    assert adapter.exit_code == 130


class Gone(io.StringIO):
    writes = 0

    def write(self, text: str) -> int:
        self.writes += 1
        raise BrokenPipeError


async def test_a_reader_that_went_away_does_not_end_the_run(caplog: pytest.LogCaptureFixture) -> None:
    bus, out = EventBus("s"), Gone()
    await PlainAdapter(bus, output=out).initialize()
    told(bus)
    assert out.writes == 1
    assert caplog.records == []


async def test_an_output_of_another_encoding_gets_escapes() -> None:
    raw = io.BytesIO()
    bus = EventBus("s")
    await PlainAdapter(bus, output=io.TextIOWrapper(raw, encoding="ascii")).initialize()
    bus.emit("status", {"type": "error", "message": "naïve ✓"})
    assert raw.getvalue() == b"error: na\\xefve \\u2713\n"
