"""What still holds: the latest of each key, whatever order it came in, within bounds."""

from __future__ import annotations

from typing import Any

from golem_forge.events.serialization import Event
from golem_forge.ui.web.stream.history import MAX_PER_TYPE, LatestEvents


def said(type: str, seq: int, worker: str = "", **data: Any) -> Event:
    return Event(type, data, None, seq, "", "s", worker)


def held(*events: Event) -> list[tuple[str, int]]:
    standing = LatestEvents()
    for event in events:
        standing.take(event)
    return [(event.type, event.seq) for event in standing.events()]


def test_the_latest_of_each_key_stands_and_other_events_do_not() -> None:
    assert held(
        said("sessionStarted", 1),
        said("message", 2),
        said("planUpdated", 3, "root"),
        said("planUpdated", 4, "child"),
        said("planUpdated", 5, "root"),
        said("mcpStatus", 6, server="a"),
        said("mcpStatus", 7, server="b"),
        said("mcpStatus", 8, server="a"),
        said("usageUpdated", 9, workerId="root"),
        said("usageUpdated", 10, workerId="child"),
        said("contextUsage", 11),
        said("contextUsage", 12),
    ) == [
        ("sessionStarted", 1),
        ("planUpdated", 4),
        ("planUpdated", 5),
        ("mcpStatus", 7),
        ("mcpStatus", 8),
        ("usageUpdated", 9),
        ("usageUpdated", 10),
        ("contextUsage", 12),
    ]


def test_an_older_event_that_comes_late_changes_nothing() -> None:
    assert held(said("contextUsage", 9), said("contextUsage", 3)) == [("contextUsage", 9)]


def test_a_later_start_takes_the_end_away_and_an_earlier_one_does_not() -> None:
    assert held(said("sessionStarted", 1), said("sessionEnd", 5)) == [("sessionStarted", 1), ("sessionEnd", 5)]
    assert held(said("sessionEnd", 5), said("sessionStarted", 7)) == [("sessionStarted", 7)]
    assert held(said("sessionStarted", 7), said("sessionEnd", 5)) == [("sessionStarted", 7)]


def test_of_very_many_workers_those_that_ended_go_first() -> None:
    standing = LatestEvents()
    for number in range(MAX_PER_TYPE):
        standing.take(
            said("workerUpdate", number, workerId=f"w{number}", status="complete" if number == 7 else "running")
        )
    standing.take(said("workerUpdate", 900, workerId="new", status="running"))
    standing.take(said("workerUpdate", 901, workerId="newer", status="running"))
    kept = [event.wire["workerId"] for event in standing.events()]
    assert len(kept) == MAX_PER_TYPE
    assert "w7" not in kept and "w0" not in kept
    assert kept[-2:] == ["new", "newer"]


def test_what_another_process_takes_up_again_has_other_workers_but_the_same_plan() -> None:
    before = LatestEvents()
    for event in (
        said("workerUpdate", 1, workerId="old", status="running"),
        said("planUpdated", 2, "root"),
        said("mcpStatus", 9, server="now"),
    ):
        before.take(event)
    news = LatestEvents()
    news.resume_after(5)
    news.take(said("sessionStarted", 8))
    before.merge(news)
    assert [(event.type, event.seq) for event in before.events()] == [
        ("planUpdated", 2),
        ("sessionStarted", 8),
        ("mcpStatus", 9),
    ]
