"""The past of a session in pages, from its journal or from memory, and the latest event of each kind that still holds.

`page(after=N)` gives the events that follow number N, `page(before=N)` those just below it, `page()` the last ones, in
rising order, with `more` for others beyond. A page holds at most 200 events and ends early where they are long. Reading
happens in a thread; a journal that cannot be read gives nothing.
`JournalIndex` knows where each numbered event is; `grow` reads the heads of new lines only.
`LatestEvents` takes events in any order and keeps the latest of each key, so that a page knows the current state
without the whole past; bounded.
Threat: the file may be damaged or made by anybody: lines are bounded, numbers that do not rise are skipped, a record
that is not what it claims to be gives no event, and nothing but OSError is raised.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Final, TypeVar

from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.regex import regex
from golem_forge.events.journal_records import CallRecords, call_event, parse_line
from golem_forge.events.serialization import Event
from golem_forge.tools.threads import run_in_thread
from golem_forge.ui.web.views import characters_in

PAGE_EVENTS: Final = 200
_PAGE_BYTES: Final = 16 << 20
_MAX_REMEMBERED: Final = 1000
_MAX_REMEMBERED_CHARACTERS: Final = 32 << 20
_log = logging.getLogger(__name__)
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryPage:
    events: tuple[Event, ...] = ()
    more: bool = False
    reached: int = 0
    """The number furthest in that direction that was looked at, whether or not its record could be read."""


class EventHistory(ABC):
    async def page(
        self, *, after: int | None = None, before: int | None = None, limit: int = PAGE_EVENTS
    ) -> HistoryPage:
        return await self._page(after, before, min(max(limit, 1), PAGE_EVENTS))

    @abstractmethod
    async def one(self, seq: int) -> Event | None: ...
    @abstractmethod
    async def _page(self, after: int | None, before: int | None, limit: int) -> HistoryPage: ...


class JournalHistory(EventHistory):
    def __init__(self, path: Callable[[], Path], flush: Callable[[], None] = lambda: None) -> None:
        """`path`: a session that is being started knows late under which name it is recorded.

        `flush`: what must happen before the file holds everything that was said.
        """
        self._path = path
        self._flush = flush
        self._index = JournalIndex(path())
        self._reading = asyncio.Lock()

    async def _page(self, after: int | None, before: int | None, limit: int) -> HistoryPage:
        async with self._reading:
            index = self._current()
            return await _in_thread(lambda: _read_page(index, after, before, limit), HistoryPage())

    async def one(self, seq: int) -> Event | None:
        async with self._reading:
            index = self._current()
            return await _in_thread(lambda: index.read(seq), None)

    async def look(self) -> tuple[bool, int, LatestEvents]:
        """(whether there is a file, the highest number in it, what still holds since the last look)."""
        async with self._reading:
            index = self._current()
            there = await _in_thread(index.grow, False)
            return there, index.last, index.news()

    def _current(self) -> JournalIndex:
        self._flush()
        if self._index.path != (path := self._path()):
            self._index = JournalIndex(path)
        return self._index


class RememberedHistory(EventHistory):
    def __init__(self) -> None:
        self._events: deque[tuple[Event, int]] = deque()
        self._characters = 0

    def take(self, event: Event) -> None:
        size = characters_in(event.wire)
        self._events.append((event, size))
        self._characters += size
        while len(self._events) > _MAX_REMEMBERED or self._characters > _MAX_REMEMBERED_CHARACTERS:
            self._characters -= self._events.popleft()[1]

    async def _page(self, after: int | None, before: int | None, limit: int) -> HistoryPage:
        if after is not None:
            found = [event for event, _ in self._events if event.seq > after]
            shown, furthest = found[:limit], -1
        else:
            found = [event for event, _ in self._events if before is None or event.seq < before]
            shown, furthest = found[-limit:], 0
        reached = shown[furthest].seq if shown else 0
        return HistoryPage(events=tuple(shown), more=len(found) > limit, reached=reached)

    async def one(self, seq: int) -> Event | None:
        return next((event for event, _ in self._events if event.seq == seq), None)


def _read_page(index: JournalIndex, after: int | None, before: int | None, limit: int) -> HistoryPage:
    if not index.grow():
        return HistoryPage()
    if after is not None:
        wanted = index.after(after, limit + 1)
    else:
        wanted = index.before(index.last + 1 if before is None else before, limit + 1)[::-1]
    events: list[Event] = []
    room = _PAGE_BYTES
    more, reached = False, 0
    with index.path.open("rb") as file:
        for count, seq in enumerate(wanted):
            if count == limit or room < 0:
                more = True
                break
            event, cost = index.event(file, seq)
            room -= cost
            reached = seq
            if event is not None:
                events.append(event)
    if after is None:
        events.reverse()
    return HistoryPage(events=tuple(events), more=more, reached=reached)


async def _in_thread(read: Callable[[], _T], instead: _T) -> _T:
    try:
        return await run_in_thread(read)
    except OSError as error:
        _log.warning("a journal could not be read: %s", type(error).__name__)
        return instead


MAX_LINE: Final = 64 << 20
_MAX_EVENTS: Final = 1_000_000
_MAX_OPEN_CALLS: Final = 10_000
_MAX_RECORDS_PER_CALL: Final = 8
_MAX_PARSED: Final = 1 << 20
_MAX_SEQ: Final = (1 << 62) - 1
_ENDING_BYTES: Final = 80
"""Bytes of the last line that was read, hash included: they tell whether it is still there."""
_HEAD: Final = regex(
    rb'\{"n":\d{1,18},"ts":"[^"\\]{0,40}","type":"(?P<type>[A-Za-z]{1,40})"(?=[,}])(?:,"seq":(?P<seq>\d{1,18})(?=[,}]))?'
    rb'(?:,"event":"(?P<event>[A-Za-z]{1,80})")?(?:,"call":"(?P<call>(?:[^"\\]|\\.){0,400})")?'
)
_CALL_TYPES: Final = frozenset({b"proposed", b"decided", b"started", b"begun", b"finished", b"done"})


class JournalIndex:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._news = LatestEvents()
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
        """The highest event number."""
        return self._seqs[-1] if self._seqs else 0

    def after(self, seq: int, limit: int) -> list[int]:
        start = bisect_right(self._seqs, seq)
        return self._seqs[start : start + limit].tolist()

    def before(self, seq: int, limit: int) -> list[int]:
        """Returns the last numbers below `seq`, ascending."""
        end = bisect_left(self._seqs, seq)
        return self._seqs[max(end - limit, 0) : end].tolist()

    def news(self) -> LatestEvents:
        """Returns the latest events among those read since the last call."""
        news, self._news = self._news, LatestEvents()
        return news

    def grow(self) -> bool:
        """Reads what is new; False when the file is gone."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._read - len(self._ending))
                if file.read(len(self._ending)) != self._ending:  # another file, or a shorter one
                    self._forget()
                file.seek(self._read)
                for line in _lines(file, inside=self._inside_a_line):
                    whole = line.endswith(b"\n")
                    if whole and not self._inside_a_line:
                        self._take(line, self._read)
                    self._inside_a_line = not whole
                    self._ending = line[-_ENDING_BYTES:]
                    self._read += len(line)
        except FileNotFoundError:
            self._forget()
            return False
        return True

    def read(self, seq: int) -> Event | None:
        if not self.grow():
            return None
        with self.path.open("rb") as file:
            return self.event(file, seq)[0]

    def event(self, file: IO[bytes], seq: int) -> tuple[Event | None, int]:
        """(the event, how many bytes were read for it)."""
        at = bisect_left(self._seqs, seq)
        if at == len(self._seqs) or self._seqs[at] != seq:
            return None, 0
        calls = CallRecords()
        cost = 0
        found: Event | None = None
        for offset in (*self._before.get(seq, ()), self._offsets[at]):
            file.seek(offset)
            line = file.readline(MAX_LINE)
            cost += len(line)
            found = _build_event(line, seq, calls, self.path.stem)
        return found, cost

    def _take(self, line: bytes, offset: int) -> None:
        kind, seq, event, call = _head(line)
        if kind == b"resumed":
            self._news.resume_after(self.last)
        if seq > self.last and kind == b"done" and seq - 1 > self.last:
            self._number(seq - 1, offset)
        numbered = seq > self.last
        if numbered:
            self._number(seq, offset)
        if call and kind in _CALL_TYPES:
            self._take_call(kind, seq if numbered else 0, call, offset)
        elif numbered and event in LATEST_TYPES:
            found = _build_event(line, seq, CallRecords(), self.path.stem)
            if found is not None:
                self._news.take(found)

    def _take_call(self, kind: bytes, seq: int, call: bytes, offset: int) -> None:
        earlier = self._calls.pop(call, ())
        if kind in (b"proposed", b"begun", b"done"):
            earlier = ()
        if seq and earlier:
            self._before[seq] = earlier
        if kind not in (b"finished", b"done"):
            if len(self._calls) >= _MAX_OPEN_CALLS:
                del self._calls[next(iter(self._calls))]
            self._calls[call] = (*earlier, offset)[:_MAX_RECORDS_PER_CALL]

    def _number(self, seq: int, offset: int) -> None:
        self._seqs.append(seq)
        self._offsets.append(offset)
        if len(self._seqs) > _MAX_EVENTS:
            half = _MAX_EVENTS // 2
            for old in self._seqs[:half]:
                self._before.pop(old, None)
            del self._seqs[:half], self._offsets[:half]


def _lines(file: IO[bytes], *, inside: bool) -> Iterator[bytes]:
    """Each line with its end; one that is too long to be a record in parts, as far as it is there. A line that its
    writer has not finished is left for the next time. `inside`: whether the first part belongs to one too long."""
    while line := file.readline(MAX_LINE):
        whole = line.endswith(b"\n")
        if not (whole or inside or len(line) == MAX_LINE):
            return
        yield line
        inside = not whole


def _head(line: bytes) -> tuple[bytes, int, str, bytes]:
    """(type, number or 0, event, call) of a record, without reading all of it where it looks as we write it."""
    if (match := _HEAD.match(line)) is not None:
        seq = int(match["seq"] or 0)
        return match["type"], seq if seq <= _MAX_SEQ else 0, (match["event"] or b"").decode(), match["call"] or b""
    record = parse_line(line[:-1]) if len(line) <= _MAX_PARSED else None
    if record is None:
        return b"", 0, "", b""
    number, call = record.get("seq"), record.get("call")
    return (
        str(record.get("type", "")).encode("utf-8", "replace"),
        number if isinstance(number, int) and 0 < number <= _MAX_SEQ else 0,
        str(record.get("event", "")),
        call.encode("utf-8", "replace")[:400] if isinstance(call, str) else b"",
    )


def _build_event(line: bytes, seq: int, calls: CallRecords, session_id: str) -> Event | None:
    record = parse_line(line[:-1])
    if record is None:
        return None
    try:
        return _event_of(record, seq, calls, session_id)
    except (TypeError, ValueError, KeyError, AttributeError):  # members of other types than we write
        return None


def _event_of(record: dict[str, Any], seq: int, calls: CallRecords, session_id: str) -> Event | None:
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


MAX_PER_TYPE: Final = 500
_ENDED_STATUSES: Final = frozenset({"complete", "error"})
_Key = tuple[str, str]


def _key_by(member: str) -> Callable[[Event], str]:
    return lambda event: str(event.wire.get(member) or event.worker_id)[:200]


_KEYS: Final[Mapping[str, Callable[[Event], str]]] = {
    "sessionStarted": lambda _: "",
    "sessionEnd": lambda _: "",
    "planUpdated": lambda event: event.worker_id[:200],
    "workerUpdate": _key_by("workerId"),
    "usageUpdated": _key_by("workerId"),
    "contextUsage": lambda event: event.worker_id[:200],
    "manualToolsAvailable": lambda _: "",
    "mcpStatus": _key_by("server"),
    "wallsReport": lambda _: "",
}
LATEST_TYPES: Final = frozenset(_KEYS)
_RUN_TYPES: Final = frozenset(LATEST_TYPES - {"sessionStarted", "planUpdated", "usageUpdated"})
"""Events that a resumed session emits again; those that it does not emit no longer hold."""


class LatestEvents:
    def __init__(self) -> None:
        self._events: dict[_Key, Event] = {}
        self._went_on_after = -1

    def take(self, event: Event) -> None:
        find = _KEYS.get(event.type)
        if find is None:
            return
        key = (event.type, find(event))
        known = self._events.get(key)
        if known is not None and known.seq > event.seq:
            return
        if known is None:
            self._make_room(event.type)
        self._events[key] = event
        started, ended = self._events.get(("sessionStarted", "")), self._events.get(("sessionEnd", ""))
        if started is not None and ended is not None and ended.seq < started.seq:
            del self._events["sessionEnd", ""]

    def resume_after(self, after: int) -> None:
        """The session was taken up again after event `after`: its workers and servers are not those of before."""
        self._went_on_after = max(after, self._went_on_after)
        for key in [key for key, event in self._events.items() if key[0] in _RUN_TYPES and event.seq <= after]:
            del self._events[key]

    def merge(self, news: LatestEvents) -> None:
        """Adds events that were found elsewhere since."""
        self.resume_after(news._went_on_after)
        for event in news.events():
            self.take(event)

    def events(self) -> list[Event]:
        return sorted(self._events.values(), key=lambda event: event.seq)

    def last(self, type: str) -> Event | None:
        return max((each for each in self._events.values() if each.type == type), key=lambda one: one.seq, default=None)

    def _make_room(self, type: str) -> None:
        same = [key for key in self._events if key[0] == type]
        if len(same) >= MAX_PER_TYPE:
            ended = (key for key in same if self._events[key].wire.get("status") in _ENDED_STATUSES)
            del self._events[next(ended, same[0])]
