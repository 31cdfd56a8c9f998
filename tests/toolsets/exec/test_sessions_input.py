"""write_stdin: the whole line is judged, a grant covers what is harmless, a refused write delivers nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.deadlines import PATIENCE

from golem_forge.core.decisions import Status
from golem_forge.core.text import escape_control_chars
from golem_forge.policy.rules.book import RuleBook
from golem_forge.storage.home import forge_home


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
    number: int = await bench.session("stty -echo; cat", tty=True, yield_time_ms=0)
    person.asked.clear()
    return number


async def typed(bench: Any, number: int, chars: str) -> Any:
    """Nobody waits for what the program makes of it."""
    return await bench.stdin(number, chars, yield_time_ms=0)


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
    for piece in ("rm -r", "f x\n"):
        await typed(bench, number, piece)
    judged = [(request.payload, request.risk) for request in person.asked]
    assert judged == [("rm -r", "high"), ("rm -rf x\n", "critical")]


async def test_a_refused_write_delivers_nothing(benches: Callable[..., Any], person: Person) -> None:
    bench = benches(ask=person)
    number = await cat_in(bench, person)
    person.answer = lambda request: {"approved": False}
    assert (await typed(bench, number, "first\n")).status is Status.APPROVAL_DENIED
    person.answer = lambda request: {"approved": True}
    outcome = await typed(bench, number, "second\n")
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
    await typed(bench, number, "one\n")
    person.answer = lambda request: {"approved": True}
    for harmless in ("two\n", "x = [1, 2]; print(x)\n", "echo $HOME > f\r"):
        await typed(bench, number, harmless)
    assert len(person.asked) == 1
    for first, second in (("rm \\\n", "-rf x\n"), ("curl u |\n", "sh\n"), ("r\\\r", "m -rf x\r")):
        person.asked.clear()
        await typed(bench, number, first)
        assert person.asked == []
        await typed(bench, number, second)
        assert [(request.payload, request.risk) for request in person.asked] == [
            (escape_control_chars(first + second), "critical")
        ]
    for asks in ("rm -rf x\n", "a\tb\n", "!!\n", "^a^b\n", "\x1a", "ls\x03"):
        person.asked.clear()
        await typed(bench, number, asks)
        assert len(person.asked) == 1, asks
    other = await cat_in(bench, person)
    await typed(bench, other, "one\n")
    assert len(person.asked) == 1


async def test_an_interrupt_hides_nothing(benches: Callable[..., Any], person: Person, workspace: Path) -> None:
    bench = benches(ask=person)
    number: int = await bench.session("stty -echo; trap '' INT; touch deaf; cat", tty=True, yield_time_ms=0)
    async with asyncio.timeout(PATIENCE):
        while not (workspace / "deaf").exists():
            await asyncio.sleep(0.02)
    for piece in ("echo ", "\x03", "rm -rf x\n"):
        await typed(bench, number, piece)
    assert (person.asked[-1].payload, person.asked[-1].risk) == ("echo rm -rf x\n", "critical")


async def test_blocked_lines_are_refused(benches: Callable[..., Any], person: Person) -> None:
    home = forge_home()
    home.path.mkdir(parents=True, exist_ok=True)
    home.rules.write_text("version: 1\nrules:\n  - {command: [git, push], verdict: blocked, reason: not from here}\n")
    bench = benches(ask=person, rules=RuleBook(home))
    number = await cat_in(bench, person)
    for chars in ("git push\n", "rm -rf /\n", "cd x; git -C d push\n"):
        assert (await typed(bench, number, chars)).status is Status.POLICY_DENIED, chars
    assert not person.asked


async def test_even_what_a_shell_would_only_read_asks(benches: Callable[..., Any], person: Person) -> None:
    bench = benches(ask=person)
    number = await cat_in(bench, person)
    for chars in ("echo hi\n", "ls\n"):
        await typed(bench, number, chars)
    assert [request.payload for request in person.asked] == ["echo hi\n", "ls\n"]
