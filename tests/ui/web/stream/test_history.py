"""The past in pages: every recorded event once and in order, from any point, whatever state the file is in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from golem_forge.core.decisions import Decision, Verdict
from golem_forge.events.bus import EventBus
from golem_forge.events.journal import CallStart, Journal, reopen
from golem_forge.events.journal_records import events_after
from golem_forge.events.serialization import Event
from golem_forge.ui.web.stream import history as journal_index
from golem_forge.ui.web.stream.history import JournalHistory, JournalIndex, RememberedHistory

DECISION = Decision(verdict=Verdict.PRE_APPROVED)


class Written:
    """A journal that a bus records into."""

    def __init__(self, home: Path) -> None:
        self.journal = Journal.create(home)
        self.bus = EventBus(self.journal.session_id, recorder=self.journal.record_event, commit=self.journal.flush)
        self.history = JournalHistory(lambda: self.journal.path, self.journal.flush)

    def say(self, count: int) -> None:
        for number in range(count):
            self.bus.emit("status", {"type": "info", "message": f"said {number}"})

    def call(self, id: str) -> None:
        """A call that waited, so its records are four and stand apart."""
        self.journal.propose(id, "echo", {"text": id}, worker="main")
        self.say(1)
        self.journal.decide(id, DECISION)
        self.journal.start(id, "echo", {"text": id})
        self.bus.seq = self.journal.seq
        self.say(1)
        self.journal.finish(id, "success", 1.0, value={"kind": "text", "content": id})
        self.bus.seq = self.journal.seq

    def quick_call(self, id: str) -> None:
        self.journal.begin_without_effects(CallStart(id, "echo", {"text": id}, DECISION, worker="main"))
        self.journal.finish(id, "success", 1.0, value={"kind": "text", "content": id})
        self.bus.seq = self.journal.seq

    def all_events(self) -> list[dict[str, Any]]:
        self.journal.flush()
        return [event.to_dict() for event in events_after(self.journal.path)]


@pytest.fixture
async def written(tmp_path: Path) -> Written:
    made = Written(tmp_path / "home")
    made.say(3)
    for number in range(30):
        made.call(f"call{number}")
        made.quick_call(f"quick{number}")
    return made


async def walked(history: JournalHistory, limit: int) -> list[dict[str, Any]]:
    found: list[Event] = []
    after = 0
    while True:
        page = await history.page(after=after, limit=limit)
        found += page.events
        if not page.more:
            return [event.to_dict() for event in found]
        after = page.reached


async def walked_back(history: JournalHistory, limit: int) -> list[dict[str, Any]]:
    found: list[Event] = []
    before = None
    while True:
        page = await history.page(before=before, limit=limit)
        found = [*page.events, *found]
        if not page.more:
            return [event.to_dict() for event in found]
        before = page.reached


async def test_pages_in_either_direction_give_what_the_journal_records_gives(written: Written) -> None:
    everything = written.all_events()
    assert [event["seq"] for event in everything] == list(range(1, len(everything) + 1))
    assert {event["type"] for event in everything} == {"status", "toolStarted", "toolResult"}
    for limit in (1, 7, 200):
        assert await walked(written.history, limit) == everything
        assert await walked_back(written.history, limit) == everything


async def test_one_event_by_its_number(written: Written) -> None:
    for event in written.all_events():
        found = await written.history.one(event["seq"])
        assert found is not None and found.to_dict() == event
    assert await written.history.one(0) is None
    assert await written.history.one(10_000) is None


async def test_what_is_recorded_meanwhile_is_found(written: Written) -> None:
    last = (await written.history.page()).events[-1].seq
    written.say(2)
    page = await written.history.page(after=last)
    assert [event.wire["message"] for event in page.events] == ["said 0", "said 1"]
    assert not page.more


async def test_a_file_that_is_cut_back_and_goes_on_is_read_anew(written: Written) -> None:
    await written.history.page()
    path = written.journal.path
    written.journal.release()
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-40]) + b'{"torn')
    page = await written.history.page()
    assert [event.to_dict() for event in page.events] == [event.to_dict() for event in events_after(path)][-200:]
    again = reopen(path.parent.parent, path.stem)
    again.journal.record_event(Event("status", {"type": "info", "message": "back"}, ts="now"))
    again.journal.close()
    assert (await written.history.page()).events[-1].wire["message"] == "back"
    assert await walked(written.history, 200) == [event.to_dict() for event in events_after(path)]


async def test_a_file_that_is_gone_has_no_past(written: Written) -> None:
    await written.history.page()
    written.journal.release()
    written.journal.path.unlink()
    assert (await written.history.page()).events == ()
    assert await written.history.one(1) is None


HOSTILE = [
    b"not json\n",
    b"\xff\xfe\x00\n",
    b"\n",
    b'{"n":1,"ts":"x","type":"event","seq":99999999999999999999,"event":"status","data":{}}\n',
    b'{"n":1,"ts":"x","type":"event","seq":5,"event":"status","data":"no object","hash":"' + b"0" * 64 + b'"}\n',
    b'{"n":1,"ts":"x","type":"event","seq":6,"event":7,"data":{},"hash":"' + b"0" * 64 + b'"}\n',
    b'{"n":1,"ts":"x","type":"finished","seq":7,"call":"c","more":3,"hash":"' + b"0" * 64 + b'"}\n',
    b'{"n":1,"ts":"x","type":"started","seq":8,"call":"c","hash":"' + b"0" * 64 + b'"}\n',
    b'{"n":1,"ts":"x","type":"decided","call":"c","decision":[],"hash":"' + b"0" * 64 + b'"}\n',
    b'{"n":1,"ts":"x","type":"finished","seq":9,"call":"c","hash":"' + b"0" * 64 + b'"}\n',
    b'{"seq":10,"type":["event"],"ts":{},"hash":"' + b"0" * 64 + b'"}\n',
    b'{"n":1,"ts":"x","type":"event","seq":11,"event":"status","data":'
    + b"[" * 100_000
    + b',"hash":"'
    + b"0" * 64
    + b'"}\n',
    b'{"n":1,"ts":"x","type":"event","seq":3,"event":"status","data":{"again":1},"hash":"' + b"0" * 64 + b'"}\n',
    b"x" * 3_000_000 + b"\n",
    b'{"n":1,"ts":"x","type":"event","seq":12,"event":"status","data":{"good":1},"hash":"' + b"0" * 64 + b'"}\n',
]


async def test_a_hostile_file_shows_what_can_be_read_of_it(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_bytes(b"".join(HOSTILE))
    history = JournalHistory(lambda: path)
    page = await history.page()
    seqs = [event.seq for event in page.events]
    assert seqs == sorted(set(seqs))
    assert page.events[-1].wire == {"good": 1}
    assert not page.more
    there, last, _ = await history.look()
    assert there and last == 12


async def test_a_page_of_long_events_ends_early_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_index, "_PAGE_BYTES", 1 << 20)
    made = Written(tmp_path / "home")
    for number in range(6):
        made.bus.emit("status", {"type": "info", "message": f"{number}" + "x" * 300_000})
    page = await made.history.page(after=0)
    assert 0 < len(page.events) < 6 and page.more
    assert [event["seq"] for event in await walked(made.history, 200)] == [1, 2, 3, 4, 5, 6]
    back = await made.history.page()
    assert back.events[-1].seq == 6 and back.more


async def test_the_last_page_of_ten_thousand_events_reads_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    event_at = JournalIndex.event
    monkeypatch.setattr(
        JournalIndex, "event", lambda index, file, seq: (read.append(seq), event_at(index, file, seq))[1]
    )
    made = Written(tmp_path / "home")
    made.bus.emit(
        "sessionStarted",
        {"worker": "w", "model": "m", "mode": "chat", "approvalMode": "x", "zones": [], "resumed": False},
    )
    made.say(10_000)
    page = await made.history.page()
    assert [event.seq for event in page.events] == list(range(9802, 10_002)) and page.more
    assert len(read) <= 201


async def test_a_session_without_a_journal_is_remembered_within_bounds() -> None:
    history = RememberedHistory()
    for seq in range(1, 1501):
        history.take(Event("status", {"message": f"{seq}"}, None, seq))
    assert [event.seq for event in (await history.page()).events] == list(range(1301, 1501))
    page = await history.page(after=1495)
    assert [event.seq for event in page.events] == [1496, 1497, 1498, 1499, 1500] and not page.more
    assert [event.seq for event in (await history.page(before=503, limit=5)).events] == [501, 502]
    assert await history.one(500) is None and (await history.one(501)) is not None
    for seq in range(1501, 1510):
        history.take(Event("status", {"message": "x" * 10_000_000}, None, seq))
    assert [event.seq for event in (await history.page()).events] == [1507, 1508, 1509]


@pytest.mark.parametrize("finished", [True, False])
async def test_a_line_that_is_no_record_is_passed_over_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, finished: bool
) -> None:
    """Threat: a line without an end, looked at four times a second, would be read again and again."""
    monkeypatch.setattr(journal_index, "MAX_LINE", 4096)
    made = Written(tmp_path / "home")
    made.say(3)
    made.journal.flush()
    path = made.journal.path
    with path.open("ab") as file:
        file.write(b"x" * 100_000 + (b"\n" if finished else b""))
    index = journal_index.JournalIndex(path)
    assert index.grow() and index.last == 3
    read: list[int] = []
    lines = journal_index._lines
    monkeypatch.setattr(
        journal_index, "_lines", lambda *given, **how: (read.append(len(line)) or line for line in lines(*given, **how))
    )
    assert index.grow() and sum(read) == 0
    with path.open("ab") as file:
        file.write((b"" if finished else b"y\n") + b'{"n":9,"ts":"x","type":"event","seq":7,"event":"status"}\n')
    assert index.grow() and sum(read) < 200 and index.last == 7
    assert index.after(0, 10) == [1, 2, 3, 7]
