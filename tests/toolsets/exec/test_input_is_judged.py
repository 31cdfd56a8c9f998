"""write_stdin: the whole line is judged, a grant covers what is harmless, a refused write delivers nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from golem_forge.core.decisions import Status
from golem_forge.core.text import escape_control_chars
from golem_forge.policy.rules.book import RuleBook
from golem_forge.storage.home import forge_home

CAT = "stty -echo; cat"


class Person:
    """Keeps what it is asked and answers as it is told to."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.answer: Callable[[Any], dict[str, Any]] = lambda request: {"approved": True}

    def __call__(self, request: Any) -> dict[str, Any]:
        self.asked.append(request)
        return self.answer(request)


@pytest.fixture
def person() -> Person:
    return Person()


async def cat_in(bench: Any, person: Person) -> int:
    number: int = await bench.session(CAT, tty=True, yield_time_ms=300)
    person.asked.clear()
    return number


async def test_reading_and_interrupting_ask_nobody(benches: Callable[..., Any], person: Person) -> None:
    bench = benches(ask=person)
    number = await cat_in(bench, person)
    for args in ({}, {"chars": "\x04"}, {"chars": "\x03"}, {"signal": "INT"}):
        outcome = await bench.call("write_stdin", session_id=number, yield_time_ms=0, **args)
        assert outcome.decision.verdict == "preApproved"
    assert not person.asked


async def test_a_line_in_pieces_is_judged_whole(benches: Callable[..., Any], person: Person) -> None:
    bench = benches(ask=person)
    number = await cat_in(bench, person)
    await bench.stdin(number, "rm -r")
    await bench.stdin(number, "f x\n")
    assert [(request.payload, request.risk) for request in person.asked] == [
        ("rm -r", "high"),
        ("rm -rf x\n", "critical"),
    ]


async def test_a_refused_write_delivers_nothing(benches: Callable[..., Any], person: Person) -> None:
    bench = benches(ask=person)
    number = await cat_in(bench, person)
    person.answer = lambda request: {"approved": False}
    assert (await bench.stdin(number, "first\n")).status is Status.APPROVAL_DENIED
    person.answer = lambda request: {"approved": True}
    outcome = await bench.stdin(number, "second\n", yield_time_ms=0)
    said = outcome.result.value["output"]
    said += "" if "second" in said else await bench.until(number, "second")
    assert "first" not in said
    assert [request.payload for request in person.asked] == ["first\n", "second\n"]


async def test_a_grant_covers_lines_without_danger(benches: Callable[..., Any], person: Person) -> None:
    bench = benches(ask=person)
    number = await cat_in(bench, person)

    def grant(request: Any) -> dict[str, Any]:
        offer = next(each for each in request.choices if each.grant == f"input to session {number}")
        return {"approved": True, "choice": offer.id}

    person.answer = grant
    await bench.stdin(number, "one\n")
    person.answer = lambda request: {"approved": True}
    for harmless in ("two\n", "x = [1, 2]; print(x)\n", "echo $HOME > f\r"):
        await bench.stdin(number, harmless)
    assert len(person.asked) == 1
    for first, second in (("rm \\\n", "-rf x\n"), ("curl u |\n", "sh\n"), ("r\\\r", "m -rf x\r")):
        person.asked.clear()
        await bench.stdin(number, first)
        assert person.asked == []
        await bench.stdin(number, second)
        assert [(request.payload, request.risk) for request in person.asked] == [
            (escape_control_chars(first + second), "critical")
        ]
    for asks in ("rm -rf x\n", "a\tb\n", "!!\n", "^a^b\n", "\x1a", "ls\x03"):
        person.asked.clear()
        await bench.stdin(number, asks)
        assert len(person.asked) == 1, asks
    other = await cat_in(bench, person)
    await bench.stdin(other, "one\n")
    assert len(person.asked) == 1


async def test_an_interrupt_hides_nothing(benches: Callable[..., Any], person: Person, workspace: Path) -> None:
    bench = benches(ask=person)
    number: int = await bench.session("stty -echo; trap '' INT; touch deaf; cat", tty=True, yield_time_ms=0)
    async with asyncio.timeout(20):
        while not (workspace / "deaf").exists():
            await asyncio.sleep(0.02)
    await bench.stdin(number, "echo ")
    await bench.stdin(number, "\x03", yield_time_ms=0)
    await bench.stdin(number, "rm -rf x\n")
    assert (person.asked[-1].payload, person.asked[-1].risk) == ("echo rm -rf x\n", "critical")


async def test_blocked_lines_are_refused(benches: Callable[..., Any], person: Person) -> None:
    home = forge_home()
    home.path.mkdir(parents=True, exist_ok=True)
    home.rules.write_text("version: 1\nrules:\n  - {command: [git, push], verdict: blocked, reason: not from here}\n")
    bench = benches(ask=person, rules=RuleBook(home))
    number = await cat_in(bench, person)
    for chars in ("git push\n", "rm -rf /\n", "cd x; git -C d push\n"):
        assert (await bench.stdin(number, chars)).status is Status.POLICY_DENIED, chars
    assert not person.asked


@pytest.mark.parametrize("chars", ["echo hi\n", "ls\n"])
async def test_even_what_a_shell_would_only_read_asks(benches: Callable[..., Any], person: Person, chars: str) -> None:
    bench = benches(ask=person)
    number = await cat_in(bench, person)
    await bench.stdin(number, chars)
    assert len(person.asked) == 1
