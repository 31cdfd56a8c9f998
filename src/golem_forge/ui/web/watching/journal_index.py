"""JournalIndex: where in a journal's file each numbered event is, so that any page of the past is read by itself.

`grow` reads what is new since the last time, the heads of lines only; `event` builds one event from its record, and
from the earlier records of its call where it needs them. It serves a file that grows, is cut back, is taken up again
or disappears. Threat: the file may be damaged or made by anybody: lines are bounded, numbers that do not rise are
passed over, a record that is not what it claims to be gives no event, and nothing but OSError is raised.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from enum import Enum, auto
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

from golem_forge.events.call_states import CallStates, call_event
from golem_forge.events.chain import unseal
from golem_forge.events.envelope import Event
from golem_forge.events.journal_reader import parse_body
from golem_forge.ui.web.watching.standing import KINDS, Standing

LONGEST_LINE: Final = 64 << 20
_MOST_EVENTS: Final = 1_000_000
_MOST_OPEN_CALLS: Final = 10_000
_MOST_OF_A_CALL: Final = 8
_MOST_PARSED: Final = 1 << 20
_HIGHEST: Final = (1 << 62) - 1
_PIECE: Final = 1 << 20
_ENDING: Final = 80
"""Bytes of the last line that was read, hash included: they tell whether it is still there."""
_HEAD: Final = re.compile(
    rb'\{"n":\d{1,18},"ts":"[^"\\]{0,40}","type":"(?P<type>[A-Za-z]{1,40})"(?=[,}])(?:,"seq":(?P<seq>\d{1,18})(?=[,}]))?'
    rb'(?:,"event":"(?P<event>[A-Za-z]{1,80})")?(?:,"call":"(?P<call>(?:[^"\\]|\\.){0,400})")?'
)
_CALL_TYPES: Final = frozenset({b"proposed", b"decided", b"started", b"begun", b"finished", b"done"})


class JournalIndex:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._news = Standing()
        self._forget()

    def _forget(self) -> None:
        self._read = 0
        self._ending = b""
        self._inside_a_line = False
        """Whether what was read ends within one that is too long to be a record."""
        self._seqs = array("q")
        self._offsets = array("q")
        self._before: dict[int, tuple[int, ...]] = {}
        """Number → offsets of the earlier records of its call."""
        self._calls: dict[bytes, tuple[int, ...]] = {}

    @property
    def last(self) -> int:
        """The highest number."""
        return self._seqs[-1] if self._seqs else 0

    @property
    def first(self) -> int:
        return self._seqs[0] if self._seqs else 0

    def after(self, seq: int, limit: int) -> list[int]:
        start = bisect_right(self._seqs, seq)
        return self._seqs[start : start + limit].tolist()

    def before(self, seq: int, limit: int) -> list[int]:
        """The last ones below `seq`, rising."""
        end = bisect_left(self._seqs, seq)
        return self._seqs[max(end - limit, 0) : end].tolist()

    def news(self) -> Standing:
        """What still holds of everything that was taken in since this was asked the last time."""
        news, self._news = self._news, Standing()
        return news

    def grow(self) -> bool:
        """Takes in what is new; False when the file is gone."""
        try:
            with self.path.open("rb") as file:
                if not self._still_there(file):
                    self._forget()
                file.seek(self._read)
                for line in _whole_lines(file):
                    if line.kind is _Kind.RECORD and not self._inside_a_line:
                        self._take(line.head, self._read)
                    self._inside_a_line = line.kind is _Kind.OPEN
                    self._ending = line.ending
                    self._read += line.size
        except FileNotFoundError:
            self._forget()
            return False
        return True

    def event(self, file: IO[bytes], seq: int) -> tuple[Event | None, int]:
        """(the event, how many bytes were read for it)."""
        at = bisect_left(self._seqs, seq)
        if at == len(self._seqs) or self._seqs[at] != seq:
            return None, 0
        calls = CallStates()
        cost = 0
        found: Event | None = None
        for offset in (*self._before.get(seq, ()), self._offsets[at]):
            file.seek(offset)
            line = file.readline(LONGEST_LINE)
            cost += len(line)
            found = _built(line, seq, calls, self.path.stem)
        return found, cost

    def _still_there(self, file: IO[bytes]) -> bool:
        file.seek(self._read - len(self._ending))
        return file.read(len(self._ending)) == self._ending

    def _take(self, line: bytes, offset: int) -> None:
        kind, seq, event, call = _head(line)
        if kind == b"resumed":
            self._news.go_on(self.last)
        if seq > self.last and kind == b"done" and seq - 1 > self.last:
            self._number(seq - 1, offset)
        numbered = seq > self.last
        if numbered:
            self._number(seq, offset)
        if call and kind in _CALL_TYPES:
            self._take_call(kind, seq if numbered else 0, call, offset)
        elif numbered and event in KINDS and (found := _built(line, seq, CallStates(), self.path.stem)) is not None:
            self._news.take(found)

    def _take_call(self, kind: bytes, seq: int, call: bytes, offset: int) -> None:
        earlier = self._calls.pop(call, ())
        if kind in (b"proposed", b"begun", b"done"):
            earlier = ()
        if seq and earlier:
            self._before[seq] = earlier
        if kind not in (b"finished", b"done"):
            if len(self._calls) >= _MOST_OPEN_CALLS:
                del self._calls[next(iter(self._calls))]
            self._calls[call] = (*earlier, offset)[:_MOST_OF_A_CALL]

    def _number(self, seq: int, offset: int) -> None:
        self._seqs.append(seq)
        self._offsets.append(offset)
        if len(self._seqs) > _MOST_EVENTS:
            half = _MOST_EVENTS // 2
            for old in self._seqs[:half]:
                self._before.pop(old, None)
            del self._seqs[:half], self._offsets[:half]


class _Kind(Enum):
    RECORD = auto()
    TOO_LONG = auto()
    OPEN = auto()
    """Too long already, and its end is not there yet."""


class _Line(NamedTuple):
    head: bytes
    size: int
    ending: bytes
    """Its last bytes."""
    kind: _Kind


def _whole_lines(file: IO[bytes]) -> Iterator[_Line]:
    """A line that its writer has not finished is left for the next time, unless it can be no record any more."""
    while True:
        line = file.readline(_PIECE)
        if line.endswith(b"\n"):
            yield _Line(line, len(line), line[-_ENDING:], _Kind.RECORD)
            continue
        size, ending, last = len(line), line[-_ENDING:], line
        while last and not last.endswith(b"\n"):
            last = file.readline(_PIECE)
            size += len(last)
            ending = (ending + last)[-_ENDING:]
        if size > LONGEST_LINE:
            yield _Line(b"", size, ending, _Kind.TOO_LONG if last else _Kind.OPEN)
        elif last:
            yield _Line(line, size, ending, _Kind.RECORD)
        if not last:
            return


def _head(line: bytes) -> tuple[bytes, int, str, bytes]:
    """(type, number or 0, event, call) of a record, without reading all of it where it looks as we write it."""
    if (match := _HEAD.match(line)) is not None:
        seq = int(match["seq"] or 0)
        return match["type"], seq if seq <= _HIGHEST else 0, (match["event"] or b"").decode(), match["call"] or b""
    parts = unseal(line[:-1]) if len(line) <= _MOST_PARSED else None
    record = parse_body(parts[0]) if parts else None
    if record is None:
        return b"", 0, "", b""
    number, call = record.get("seq"), record.get("call")
    return (
        str(record.get("type", "")).encode("utf-8", "replace"),
        number if isinstance(number, int) and 0 < number <= _HIGHEST else 0,
        str(record.get("event", "")),
        call.encode("utf-8", "replace")[:400] if isinstance(call, str) else b"",
    )


def _built(line: bytes, seq: int, calls: CallStates, session_id: str) -> Event | None:
    parts = unseal(line[:-1])
    record = parse_body(parts[0]) if parts else None
    if record is None:
        return None
    try:
        return _event_of(record, seq, calls, session_id)
    except (TypeError, ValueError, KeyError, AttributeError):  # members of other types than we write
        return None


def _event_of(record: dict[str, Any], seq: int, calls: CallStates, session_id: str) -> Event | None:
    number, ts = record.get("seq"), str(record.get("ts", ""))[:40]
    call = calls.add(record)
    if call is not None:
        kind = record["type"]
        if kind == "done":
            kind = "finished" if number == seq else "begun"
        if kind not in ("started", "begun", "finished"):
            return None
        type, made = call_event(kind, call)
        return Event(type, made, None, seq, ts, session_id, str(call.worker_id or call.worker))
    name, data = record.get("event"), record.get("data")
    if number != seq or not isinstance(name, str) or not isinstance(data, dict):
        return None
    return Event(name, data, None, seq, ts, session_id, str(record.get("workerId", "")))
