"""Reading a journal for its turns: which of a model's calls followed each other and succeeded.

A turn is what a worker did about one input; the order is the one its model asked in. Anything between two calls parts
them: one that failed or was refused, one that has not ended, and calls that make or run a user tool.
Takes records in order, as often as there are new ones; keeps the newest `MOST_STEPS` steps and forgets the rest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final

from golem_forge.core.verdict import Status
from golem_forge.custom.suggestions.steps import Segment, Step, step
from golem_forge.events.call_states import CallRecord, CallStates
from golem_forge.events.chain import unseal
from golem_forge.events.journal_reader import parse_body

MOST_STEPS: Final = 2_000
_LONGEST_LINE: Final = 8 << 20
_HEAD: Final = 200
_TYPE: Final = b'"type":"'
_OF_CALLS: Final = frozenset([b"proposed", b"started", b"begun", b"finished", b"done"])
_SAID: Final = (b'"event":"message"', b'"event":"toolSuggested"')
_RESULTS: Final = b'"message":{"role":"results"'
_PARTING: Final = frozenset({"create_custom_tool", "run_custom_tool"})
_BY_MODEL: Final = "llm"


@dataclass(slots=True)
class _Turn:
    calls: dict[str, None] = field(default_factory=dict)
    """In the order the model asked."""
    answered: bool = False


class TurnReader:
    def __init__(self) -> None:
        self.suggested: list[Any] = []
        """The sequences that this session's `toolSuggested` events named."""
        self._segments: deque[Segment] = deque()
        self._steps = 0
        self._turns: dict[str, _Turn] = {}
        """Worker run → the turn it is in."""
        self._states = CallStates()
        self._given: dict[str, tuple[str, ...]] = {}
        """Call → the arguments that the model gave; the record of its start has the defaults too."""

    def add(self, record: Mapping[str, Any]) -> None:
        kind = record.get("type")
        if kind == "history":
            self._said(str(record.get("workerId", "")), record.get("message"))
        elif kind == "event":
            self._event(record)
        elif (call := self._states.add(record)) is not None:
            self._called(call, record)

    def answered(self) -> tuple[Segment, ...]:
        """Of turns that are over: one that goes on may yet become a longer sequence."""
        return self._all(turn for turn in self._turns.values() if turn.answered)

    def all(self) -> tuple[Segment, ...]:
        """Of a session that has ended, however it ended."""
        return self._all(iter(self._turns.values()))

    def _all(self, turns: Iterator[_Turn]) -> tuple[Segment, ...]:
        return (*self._segments, *(segment for turn in turns for segment in self._parted(turn)))

    def _said(self, worker: str, message: Any) -> None:
        if not isinstance(message, dict):
            return
        if message.get("role") == "user" and message.get("kind") == "input":
            self._close(worker)
        elif message.get("role") == "assistant":
            calls = message.get("calls")
            asked = [each for each in calls if isinstance(each, dict)] if isinstance(calls, list) else []
            turn = self._turn(worker)
            turn.answered = not asked
            for each in asked:
                self._asked(turn, str(each.get("id", "")), each.get("args"))

    def _event(self, record: Mapping[str, Any]) -> None:
        data = record.get("data")
        if not isinstance(data, dict):
            return
        message = data.get("message")
        if record.get("event") == "toolSuggested":
            self.suggested.append(data.get("sequence"))
        elif isinstance(message, dict) and message.get("role") == "user":
            self._close(str(record.get("workerId", "")))

    def _called(self, call: CallRecord, record: Mapping[str, Any]) -> None:
        call.value, call.decision, call.more = None, None, {}  # large, and nobody asks here
        if call.caller == _BY_MODEL and record.get("type") in ("proposed", "begun", "done"):
            args = record.get("args") if record["type"] == "proposed" else None
            self._asked(self._turn(call.worker_id or call.worker), call.id, args)
        elif call.caller != _BY_MODEL and call.finished_at:
            del self._states.calls[call.id]

    def _asked(self, turn: _Turn, call: str, args: Any) -> None:
        turn.answered = False
        turn.calls.setdefault(call)  # a response with its calls and the calls themselves are both on record
        if isinstance(args, dict):
            self._given.setdefault(call, tuple(args))

    def _turn(self, worker: str) -> _Turn:
        return self._turns.setdefault(worker, _Turn())

    def _close(self, worker: str) -> None:
        turn = self._turns.pop(worker, None)
        if turn is None:
            return
        for segment in self._parted(turn):
            self._segments.append(segment)
            self._steps += len(segment)
        while self._steps > MOST_STEPS:
            self._steps -= len(self._segments.popleft())
        for call in turn.calls:
            self._states.calls.pop(call, None)
            self._given.pop(call, None)

    def _parted(self, turn: _Turn) -> list[Segment]:
        found: list[Segment] = []
        row: list[Step] = []
        for call in list(turn.calls)[-MOST_STEPS:]:
            one = self._step(call)
            if one is not None:
                row.append(one)
                continue
            found.append(tuple(row))
            row = []
        return [segment for segment in (*found, tuple(row)) if len(segment) > 1]

    def _step(self, call_id: str) -> Step | None:
        call = self._states.calls.get(call_id)
        if call is None or call.status != Status.SUCCESS or not isinstance(call.args, dict):
            return None
        if _PARTING & {call.tool, call.requested}:
            return None
        given = self._given.get(call_id)
        asked = given is not None and call.args.keys() >= set(given)  # else a name was written in another way
        args = {name: call.args[name] for name in given} if given is not None and asked else call.args
        return step(call.tool, args, call.proposed_at, _number(call.duration_ms), call.id)


def _number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0


class JournalTail:
    """A journal that may still be written: each time, the records that are new since the last one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read = 0

    def records(self) -> Iterator[dict[str, Any]]:
        """Only those that a TurnReader asks about. OSError where the file cannot be read."""
        with self.path.open("rb") as file:
            file.seek(self._read)
            while line := _line(file):
                self._read = file.tell()
                parts = unseal(line[:-1]) if _matters(line) else None
                if parts is not None and (record := parse_body(parts[0])) is not None:
                    yield record


def _line(file: BinaryIO) -> bytes:
    """The next whole line; only the beginning of one that is longer than any record is. Empty: there is none yet."""
    line = piece = file.readline(_LONGEST_LINE)
    while piece and not piece.endswith(b"\n"):
        piece = file.readline(_LONGEST_LINE)
    return line if piece else b""


def _matters(line: bytes) -> bool:
    """Most of a journal is results and what screens were told; those lines are not even decoded."""
    head = line[:_HEAD]
    at = head.find(_TYPE)
    kind = head[at + len(_TYPE) : at + len(_TYPE) + 12].partition(b'"')[0] if at > 0 else b""
    if kind in _OF_CALLS:
        return True
    if kind == b"event":
        return any(said in head for said in _SAID)
    return kind == b"history" and _RESULTS not in head
