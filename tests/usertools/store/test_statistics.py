"""Statistics: exact figures from what was recorded, the same after a restart, and bounded however often a tool runs."""

from __future__ import annotations

import pytest
from tests.tables import table

from golem_forge.core.errors import ForgeError
from golem_forge.events.serialization import iso_time
from golem_forge.storage.home import ForgeHome
from golem_forge.usertools.diagnostics import DiagnosticCode
from golem_forge.usertools.store import ToolStore
from golem_forge.usertools.store.queries import MOST_USES, Author, AuthorKind, UseRecord
from golem_forge.usertools.store.statistics import (
    PLAIN_BLOCKS,
    bar_chart,
    parse_age,
    tool_statistics,
    total_statistics,
    unused_tools,
)

ONE, TWO = "sha256:" + "1" * 64, "sha256:" + "2" * 64
NOW = 1_800_000_000.0
DAY = 86_400


@pytest.fixture
def book(home: ForgeHome) -> ToolStore:
    return ToolStore(home)


def used(book: ToolStore, status: str = "success", ms: float = 10.0, *, name: str = "x", **more: object) -> None:
    facts: dict[str, object] = {"digest": ONE, "session": "s1", "call": "c", "at": iso_time(NOW)} | more
    book.record_use(UseRecord(name=name, status=status, duration_ms=ms, **facts))  # type: ignore[arg-type]


def test_a_call_that_was_refused_is_a_call_and_no_run(book: ToolStore) -> None:
    used(book, "success", 10)
    used(book, "success", 20)
    for status in ("approval_denied", "policy_denied", "input_invalid", "sandbox_denied", "skipped"):
        used(book, status, 99_999, at=iso_time(NOW + DAY))
    (found,) = tool_statistics(book)
    assert (found.usage.calls, found.usage.ran, found.usage.success_rate) == (7, 2, 1.0)
    assert (found.usage.median_ms, found.usage.total_ms, found.usage.last_used) == (15, 30, iso_time(NOW))


def test_whether_it_ran_is_taken_from_the_outcome_where_that_says_so(book: ToolStore) -> None:
    used(book, "sandbox_denied", executed=True)
    used(book, "interrupted", executed=False)
    (found,) = tool_statistics(book)
    assert (found.usage.calls, found.usage.ran, found.usage.success_rate) == (2, 1, 0.0)


def test_each_digest_has_figures_of_its_own(book: ToolStore) -> None:
    used(book, "success", 10)
    used(book, "execution_failed", 30, digest=TWO)
    used(book, "success", 7, name="other")
    (found,) = tool_statistics(book, ["x"])
    assert found.usage.calls == 2
    assert {digest: usage.success_rate for digest, usage in found.by_digest.items()} == {ONE: 1.0, TWO: 0.0}
    assert [each.name for each in tool_statistics(book)] == ["other", "x"]


def test_a_tool_nobody_used_has_no_rate(book: ToolStore) -> None:
    (found,) = tool_statistics(book, ["x"])
    assert found.to_json() == {
        "name": "x",
        "calls": 0,
        "statuses": {},
        "ran": 0,
        "success_rate": None,
        "last_used": None,
        "median_ms": None,
        "total_ms": 0.0,
        "ratings": {"good": 0, "bad": 0},
        "digests": {},
    }
    assert tool_statistics(book) == ()


def test_ratings_stand_beside_the_figures(book: ToolStore) -> None:
    book.rate("x", True, "")
    book.rate("x", False, "slow")
    book.rate("x", True, "")
    (found,) = tool_statistics(book, ["x"])
    assert (found.good, found.bad) == (2, 1)


def test_old_uses_become_sums_and_no_count_is_lost(book: ToolStore) -> None:
    for number in range(MOST_USES + 600):
        used(book, "success" if number % 2 else "timeout", 2.0, at=iso_time(NOW + number))
    used(book, name="rare", at=iso_time(NOW))
    (kept,) = book.rows("SELECT count(*) FROM uses WHERE name = 'x'")
    assert MOST_USES <= kept[0] <= MOST_USES + 500
    rare, found = tool_statistics(book)
    assert (found.usage.calls, found.usage.successes) == (2600, 1300)
    assert (found.usage.total_ms, found.usage.last_used) == (5200, iso_time(NOW + 2599))
    assert rare.usage.calls == 1
    assert [each.name for each in unused_tools(book, ["x", "rare"], 10, now=NOW + 2600)] == ["rare"]


# unused


def test_candidates_are_those_that_never_ran_or_not_since(book: ToolStore) -> None:
    used(book, name="old", at=iso_time(NOW - 100 * DAY))
    used(book, name="older", at=iso_time(NOW - 200 * DAY))
    used(book, name="fresh", at=iso_time(NOW - 3 * DAY))
    used(book, "approval_denied", name="denied", at=iso_time(NOW - 1 * DAY))
    used(book, name="off", at=iso_time(NOW - 300 * DAY))
    used(book, name="deleted", at=iso_time(NOW - 300 * DAY))
    book.retire("off")
    names = ["fresh", "old", "older", "never", "denied", "off"]
    found = unused_tools(book, names, parse_age("90d"), now=NOW)
    assert [each.name for each in found] == ["denied", "never", "older", "old"]
    assert found[1].to_json() == {"name": "never", "last_used": None}
    assert found[3].last_used == iso_time(NOW - 100 * DAY)
    assert not book.is_retired("never")


@table(
    ("text", "seconds"),
    [("90d", 90 * DAY), ("12h", 43_200), ("30m", 1800), ("45s", 45), ("2w", 14 * DAY), (" 1D ", DAY)],
)
def test_ages(text: str, seconds: int) -> None:
    assert parse_age(text) == seconds


@table("text", ["", "d", "90", "-1d", "0d", "1.5d", "90 d", "9999999w", "١d", "1d\x1b[2J", "1y"])
def test_what_is_no_age(text: str) -> None:
    with pytest.raises(ForgeError, match="like 90d") as refused:
        parse_age(text)
    assert "\x1b" not in refused.value.message


# totals


def test_tools_by_author_and_state(book: ToolStore) -> None:
    book.record_version("hand", ONE)
    book.record_creation("forged", Author(AuthorKind.AGENT, "s1", "w"))
    book.record_version("forged", TWO)
    book.record_creation("taken", Author(AuthorKind.IMPORT, source="folder"))
    found = total_statistics(book, {"hand": "active", "forged": "draft", "taken": "draft"})
    assert found.by_author == {"agent": 1, "import": 1, "manual": 1}
    assert found.by_state == {"active": 1, "draft": 2}
    assert found.tools == 3


def test_how_far_creations_came(book: ToolStore) -> None:
    for name in ("a", "b", "c", "d"):
        book.record_creation(name, Author(AuthorKind.AGENT))
        book.record_version(name, ONE)
    book.mark_built("a", ONE)
    book.mark_tested("b", ONE)
    book.mark_failed("b", ONE, DiagnosticCode.TESTS_FAILED, "later")
    book.trust("c", ONE, who="person")
    book.mark_tested("c", ONE)
    book.mark_failed("d", ONE, DiagnosticCode.BUILD_FAILED, "no")
    book.trust("d", ONE, who="person")
    found = total_statistics(book, {}).creations
    assert (found.made, found.built, found.tested, found.activated) == (4, 3, 2, 1)
    assert found.to_json()["activated_rate"] == 0.25


def test_a_folder_that_appears_is_one_creation_however_it_is_announced(book: ToolStore) -> None:
    book.record_version("hand", ONE)
    book.record_version("hand", TWO)
    book.record_version("seen-first", ONE)
    book.record_creation("seen-first", Author(AuthorKind.AGENT))
    book.record_creation("announced-first", Author(AuthorKind.AGENT))
    book.record_version("announced-first", ONE)
    assert total_statistics(book, {}).creations.made == 3
    book.forget("hand")
    book.record_version("hand", "sha256:3")
    assert total_statistics(book, {}).creations.made == 4


def test_reuse_is_the_share_of_active_tools_called_in_two_sessions(book: ToolStore) -> None:
    for name, sessions in {"twice": ["s1", "s2", "s1"], "once": ["s1", "s1"], "draft": ["s1", "s2"]}.items():
        for session in sessions:
            used(book, name=name, session=session)
    states = {"twice": "active", "once": "active", "never": "active", "other": "active", "draft": "draft"}
    assert total_statistics(book, states).reuse == 0.25
    assert total_statistics(book, {"draft": "draft"}).reuse is None


def test_time_saved_is_estimated_only_for_tools_made_from_a_suggestion(book: ToolStore) -> None:
    agent = Author(AuthorKind.AGENT)
    book.record_creation("plain", agent)
    assert total_statistics(book, {"plain": "active"}).saved_ms is None
    book.record_creation("slow", agent, suggestion="read > write", sequence_ms=50)
    book.record_creation("suggested", agent, suggestion="read > grep > write", sequence_ms=1000)
    for ms in (100, 200, 300):
        used(book, ms=ms, name="suggested")
        used(book, ms=ms, name="plain")
        used(book, ms=ms, name="slow")
    by_name = {each.name: each.saved_ms for each in tool_statistics(book)}
    assert by_name == {"plain": None, "suggested": 2400, "slow": 0}, "never negative"
    assert total_statistics(book, {"plain": "active"}).saved_ms == 2400, "also of tools that are gone"


def test_refresh_times_are_those_of_the_last_thousand(book: ToolStore) -> None:
    assert total_statistics(book, {}).refresh.to_json() == {"count": 0, "p50_ms": None, "p95_ms": None}
    for _ in range(50):
        book.record_refresh(9_999)
    for number in range(1, 1001):
        book.record_refresh(number)
    found = total_statistics(book, {}).refresh
    assert (found.count, found.p50_ms, found.p95_ms) == (1000, 500, 950)


def test_refresh_times_are_kept_when_the_book_is_closed(book: ToolStore, home: ForgeHome) -> None:
    for number in range(1, 28):
        book.record_refresh(number)
    book.close()
    assert total_statistics(ToolStore(home), {}).refresh.count == 27


def test_totals_of_an_unreadable_book_are_empty(home: ForgeHome) -> None:
    home.path.mkdir(parents=True)
    (home.path / "state").write_text("in the way")
    found = total_statistics(ToolStore(home), {"x": "draft"})
    assert found.creations.made == 0 and found.to_json()["by_author"] == {"manual": 1}


# the chart


def test_the_longest_bar_fills_the_width_and_the_rest_is_in_proportion() -> None:
    lines = bar_chart([("all", 100), ("half", 50), ("none", 0), ("little", 0.1)], 40)
    assert {len(line) for line in lines} == {40}
    bars = [line[7:-4].rstrip() for line in lines]
    assert bars[0] == "█" * 29
    assert bars[1] in ("█" * 14 + "▌", "█" * 14 + "▍")
    assert bars[2:] == ["", "▏"]
    assert [line.split()[-1] for line in lines] == ["100", "50", "0", "0.1"]


def test_a_chart_can_be_plain() -> None:
    lines = bar_chart([("a", 10), ("b", 5)], 25, marks=PLAIN_BLOCKS)
    assert "".join(lines).isascii() and [line.count("#") for line in lines] == [20, 10]


def test_a_chart_of_odd_rows_is_safe_and_bounded() -> None:
    assert bar_chart([], 40) == []
    lines = bar_chart([("n" * 500, 3), ("e\x1b[2J\nx", float("nan")), ("-", -1), ("inf", float("inf"))], 40)
    assert {len(line) for line in lines} == {40}
    assert not any("\x1b" in line or "\n" in line for line in lines)
    assert all(bar_chart([("name", 1)], width) for width in (0, 1, 5))
