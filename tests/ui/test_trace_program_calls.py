"""A program's calls in the terminal and in editors: one line each below the program, and what it answered."""

from __future__ import annotations

from typing import Any

from golem_forge.events.serialization import Event
from golem_forge.ui.acp.updates import UpdateStream
from golem_forge.ui.render.lines import plain_text
from golem_forge.ui.trace import TraceLevel, create_trace_formatter


def started(call: str, tool: str, parent: str = "", **args: Any) -> Event:
    data = {"toolCallId": call, "toolName": tool, "args": args, "caller": "tool" if parent else "llm", "workerId": "w"}
    return Event("toolStarted", data | ({"parentCallId": parent} if parent else {}), worker_id="w")


def ended(call: str, tool: str, status: str = "success", **more: Any) -> Event:
    data = {"toolCallId": call, "toolName": tool, "args": {}, "status": status, "durationMs": 2.0, "decision": None}
    return Event("toolResult", data | {"truncated": False} | more, worker_id="w")


def shown(*events: Event, level: TraceLevel = TraceLevel.NORMAL) -> list[str]:
    formatter = create_trace_formatter(level)
    return plain_text([row for event in events for row in formatter.format(event)]).splitlines()


RESULT = {
    "kind": "tool.output",
    "stdout": "two\n",
    "stderr": "",
    "exit_code": 0,
    "answer": {"files": 2},
    "calls": {"read_file": {"calls": 2, "failed": 1, "denied": 0}},
}


def test_calls_stand_below_their_program() -> None:
    code = "\n".join(f"line {number}" for number in range(20))
    rows = shown(
        started("p", "run_code", code=code),
        started("a", "read_file", "p", path="a.txt"),
        ended("a", "read_file", value={"kind": "text", "content": "secret of a file"}),
        started("b", "read_file", "p", path="b.txt"),
        ended("b", "read_file", "execution_failed", error="no such file"),
        ended("p", "run_code", value=RESULT),
    )
    assert rows[0] == "▸ run_code" and rows[1] == "  │ line 0" and rows[13] == "  │ … 8 more lines"
    assert rows[14:16] == ["  ▸ read_file a.txt", "  ▸ read_file b.txt"]
    assert rows[16].startswith("  ✗ read_file") and "no such file" in rows[16]
    assert "exit 0, 2 calls, 1 failed" in rows[17] and rows[18:] == ["  two", "  answer", "    files: 2"]
    assert "secret of a file" not in "\n".join(rows)


def test_of_many_calls_the_first_are_shown() -> None:
    inside = [each for n in range(180) for each in (started(f"c{n}", "step", "p"), ended(f"c{n}", "step"))]
    rows = shown(started("p", "run_code", code="x"), *inside)
    assert len(rows) == 2 + 40 + 1 and rows[-1] == "  … further calls; forge log show p lists them"


def test_everything_is_there_for_a_debugger() -> None:
    rows = shown(started("p", "run_code", code="x"), started("a", "step", "p", n=1), level=TraceLevel.DEBUG)
    assert any('"n": 1' in row for row in rows)


class Nowhere:
    def host_path(self, address: str, worker_id: str) -> str:
        return ""


def test_an_editor_sees_whose_call_it_is() -> None:
    stream = UpdateStream(Nowhere())
    (outer,) = stream.take(started("p", "run_code", code="print(1)"))
    (inner,) = stream.take(started("a", "read_file", "p", path="a.txt"))
    assert (outer["kind"], inner["kind"], inner["title"]) == ("execute", "read", "↳ read_file a.txt")
