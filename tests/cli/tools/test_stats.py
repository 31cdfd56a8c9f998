"""`forge tools stats`: numbers from recorded Outcomes, after the sessions that made them are gone."""

from __future__ import annotations

import time

import pytest

from golem_forge.events.serialization import iso_time
from golem_forge.storage.home import ForgeHome
from golem_forge.usertools.store import ToolStore
from golem_forge.usertools.store.queries import Author, AuthorKind, UseRecord

DAY = 86_400


@pytest.fixture
def shell(in_process):
    return in_process


@pytest.fixture
def book(shell):
    for name in ("greet", "idle"):
        folder = shell.forge_home / "tools" / name
        folder.mkdir(parents=True)
        (folder / "tool.yaml").write_text(f'name: {name}\ndescription: x\nversion: "1"\nentrypoint: {name}.sh\n')
        (folder / f"{name}.sh").write_text("echo hello\n")
    shell.forge_home.chmod(0o700)
    return ToolStore(ForgeHome(shell.forge_home))


def used(
    book: ToolStore, status: str, ms: float, *, days: float = 0, digest: str = "sha256:aa", session: str = "s1"
) -> str:
    at = iso_time(time.time() - days * DAY)
    book.record_use(UseRecord(name="greet", digest=digest, status=status, duration_ms=ms, session=session, at=at))
    return at


def test_three_successes_a_failure_and_a_timeout_53(shell, book):
    for ms in (10.0, 20.0, 30.0):
        used(book, "success", ms, days=3)
    used(book, "execution_failed", 40.0, days=2)
    last = used(book, "timeout", 1000.0, days=1, session="s2")
    used(book, "approval_denied", 0.0)
    book.rate("greet", True, "quick \x1b[2J")
    told = shell("tools", "stats", "--json").json
    greet, idle = told["tools"]
    assert (greet["calls"], greet["ran"], greet["success_rate"], greet["median_ms"]) == (6, 5, 0.6, 30.0)
    assert greet["last_used"] == last and greet["total_ms"] == 1100.0
    assert (idle["name"], idle["calls"], idle["last_used"]) == ("idle", 0, None)
    assert told["totals"]["tools"] == 2 and told["totals"]["by_state"] == {"draft": 2}
    said = shell("tools", "stats").out
    assert "tools" in said.splitlines()[0] and "2 draft" in said.splitlines()[0]
    row = next(line for line in said.splitlines() if line.startswith("greet "))
    assert row.split()[1:6] == ["6", "60", "%", "30", "ms"] and "1 good, 0 bad" in row
    assert any(line.startswith("greet █") for line in said.splitlines()), "a chart"
    one = shell("tools", "stats", "greet").out
    assert one.startswith("greet\n") and "1 timeout" in one and "3 success" in one
    assert "“quick \\x1b[2J”" in one and "\x1b" not in one
    assert shell("tools", "stats", "greet", "--json").json["tools"][0]["notes"] == ["quick \\x1b[2J"]


def test_versions_and_time_saved(shell, book):
    book.record_creation("greet", Author(AuthorKind.AGENT, "s1", "main"), suggestion="sabc", sequence_ms=5_000.0)
    used(book, "success", 1_000.0)
    used(book, "success", 1_000.0, digest="sha256:bb")
    told = shell("tools", "stats", "--json").json
    assert told["totals"]["time_saved_ms"] == 8_000.0 and told["tools"][0]["time_saved_ms"] == 8_000.0
    assert "8.0 s (an estimate)" in shell("tools", "stats").out
    one = shell("tools", "stats", "greet").out
    assert "VERSION" in one and "sha256:aa" in one and "sha256:bb" in one


def test_unused(shell, book):
    used(book, "success", 1.0, days=100)
    assert [each["name"] for each in shell("tools", "stats", "--unused", "90d", "--json").json["unused"]] == [
        "idle",
        "greet",
    ]
    said = shell("tools", "stats", "--unused", "90d").out
    assert "idle" in said and "never" in said and "forge tools retire NAME" in said
    book.retire("idle")
    assert [each["name"] for each in shell("tools", "stats", "--unused", "90d", "--json").json["unused"]] == ["greet"]
    nothing = shell("tools", "stats", "--unused", "200d")
    assert nothing.code == 0 and "was run within 200d" in nothing.err


def test_words_that_do_not_fit(shell, book):
    for words in (("--unused", "90d", "greet"), ("--unused",)):
        ended = shell("tools", "stats", *words)
        assert ended.code == 2 and ended.out == "", words


def test_without_any_tool(shell):
    told = shell("tools", "stats")
    assert told.code == 0 and told.out.splitlines()[0].split() == ["tools", "0"]
    assert shell("tools", "stats", "--json").json["tools"] == []
