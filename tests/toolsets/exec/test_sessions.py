"""Commands that go on as sessions: what is read of them, typed into them, and what ends them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.deadlines import PATIENCE, within
from tests.tables import table

from golem_forge.core.decisions import Status
from golem_forge.core.text import escape_control_chars
from golem_forge.policy.rules.book import RuleBook
from golem_forge.storage.home import forge_home
from golem_forge.toolsets.exec import sessions
from golem_forge.toolsets.exec.sessions import PendingInput


async def test_t19_a_question_is_answered_in_a_terminal(bench: Any) -> None:
    started = await bench.cmd("read x; echo got $x", tty=True, yield_time_ms=50)
    assert "\nRunning: session 1\n" in started.text and started.status is Status.SUCCESS
    outcome = await bench.stdin(1, "ok\n", yield_time_ms=20000)
    assert "got ok" in outcome.text and "\nExited: code 0\n" in outcome.text


async def test_t20_it_is_a_real_terminal(bench: Any) -> None:
    assert "tty" in (await bench.cmd("test -t 0 && echo tty", tty=True)).text
    assert "40 120" in (await bench.cmd("stty size", tty=True)).text
    assert "said" in (await bench.cmd("echo said > /dev/tty", tty=True)).text


async def test_t20_job_control(bench: Any, runs: Callable[..., Any]) -> None:
    number = await bench.session("bash --norc -i", tty=True, yield_time_ms=0)
    await bench.stdin(number, "sleep 61.27\n", yield_time_ms=0)
    await runs("sleep\x0061.27")  # Ctrl+Z throws away what is typed and not read yet
    assert "Stopped" in await bench.until(number, "Stopped", after="\x1a")
    assert "Stopped" in await bench.until(number, "that is all", after="jobs; echo th''at is all\n")
    await bench.stdin(number, signal="KILL")


async def test_t21_without_a_terminal_input_is_empty(bench: Any) -> None:
    assert "\nExited: code 0\nOutput (0 bytes):" in (await bench.cmd("cat")).text
    number = await bench.session("sleep 60")
    outcome = await bench.stdin(number, "x")
    assert (outcome.status, outcome.text) == (
        Status.EXECUTION_FAILED,
        f"Session {number} has no terminal; start it with tty=true.",
    )


async def test_a_later_call_returns_only_what_is_new(bench: Any) -> None:
    started = await bench.cmd("echo one; read x; echo two", tty=True, yield_time_ms=50)
    number = started.result.value["session_id"]
    if "one" not in started.result.value["output"]:
        await bench.until(number, "one")
    outcome = await bench.stdin(number, "\n", yield_time_ms=20000)
    assert "one" not in outcome.text and "two" in outcome.text
    again = await bench.stdin(number, "late", yield_time_ms=0)
    assert "\nExited: code 0\n" in again.text and "ignored" in again.text
    assert again.text.endswith("Output (0 bytes):")


async def test_t25_a_session_belongs_to_its_worker(benches: Callable[..., Any]) -> None:
    one = benches(worker="main/a")
    other = benches(worker="main/b", parts=one.path.parts)
    assert (await one.stdin(999)).text == "Session 999 not found."
    number = await one.session("sleep 60")
    assert (await other.stdin(number)).text == f"Session {number} not found."
    assert (await other.stdin(0)).text == "Session 0 not found."


async def test_t24_at_most_64_run_and_none_is_ended_for_another(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sessions.MAX_RUNNING == 64
    monkeypatch.setattr(sessions, "MAX_RUNNING", 4)
    assert [await bench.session("sleep 60", yield_time_ms=0) for _ in range(4)] == [1, 2, 3, 4]

    refused = await bench.cmd("echo one more")

    assert (refused.status, refused.text) == (Status.EXECUTION_FAILED, "too many running sessions (4); end one first")
    for number in (1, 4):
        assert f"Running: session {number}" in (await bench.stdin(number, yield_time_ms=0)).text
    ended = await bench.stdin(1, signal="KILL", yield_time_ms=20000)
    assert "Ended by signal: SIGKILL (9)" in ended.text
    assert await bench.session("sleep 60", yield_time_ms=0) == 5


async def test_t28_interrupting(bench: Any, runs: Callable[..., Any]) -> None:
    """By Ctrl-C in a terminal, by a signal there, by a signal without one."""
    ways = ((True, {"chars": "\x03"}, "61.33"), (True, {"signal": "INT"}, "61.34"), (False, {"signal": "INT"}, "61.35"))
    for tty, how, seconds in ways:
        number = await bench.session(f"sleep {seconds}", tty=tty)
        await runs(f"sleep\0{seconds}")

        outcome = await bench.stdin(number, **how, yield_time_ms=20000)

        assert "Ended by signal: SIGINT (2)" in outcome.text, how


async def test_all_end_with_the_forge_session(bench: Any, gone: Callable[..., Any]) -> None:
    await bench.session("sleep 61.31")
    await bench.session("trap '' TERM HUP; sleep 61.31; sleep 61.31", tty=True)
    with within(3):
        await bench.path.parts.close()
    await gone("61.31")


async def test_ctrl_d_ends_the_input(bench: Any) -> None:
    number = await bench.session("cat; echo done", tty=True)
    outcome = await bench.stdin(number, "\x04", yield_time_ms=20000)
    assert "done" in outcome.text and "Exited: code 0" in outcome.text


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


def test_pieces_of_a_line_are_judged_together_until_it_is_submitted() -> None:
    pending = PendingInput()
    pending.commit("rm -r")
    assert pending.preview("f x\n").line == "rm -rf x\n"
    pending.commit("f x\nnext")
    assert pending.preview("!").line == "next!"
    pending.commit("\r")
    assert pending.preview("a").line == "a"


def test_a_refused_write_leaves_the_buffer_as_it_was() -> None:
    pending = PendingInput()
    pending.commit("ab")
    pending.preview("c\n")
    assert pending.preview("d").line == "abd"


@table("chars", ["\t", "\x1b[A", "ls\x03", "\x7f", "\x15", "\x1a", "\x9b", "\b"])
def test_control_characters_make_the_line_opaque(chars: str) -> None:
    assert PendingInput().preview(chars).opaque
    assert not PendingInput().preview("plain é\r\n").opaque


def test_an_interrupt_empties_nothing_and_leaves_two_readings() -> None:
    pending = PendingInput()
    pending.commit("echo ")
    pending.commit("\x03")
    judged = pending.preview("rm -rf x\n")
    assert judged.line == "echo rm -rf x\n"
    assert judged.readings == ("echo rm -rf x\n", "rm -rf x\n")
    assert judged.opaque
    pending.commit("rm -rf x\n")
    assert pending.preview("y").readings == ("y",)


def test_an_interrupt_of_an_empty_line_changes_nothing() -> None:
    pending = PendingInput()
    pending.commit("\x03")
    assert not pending.preview("ls\n").opaque


@table(
    ("first", "second", "whole"),
    [
        ("rm \\\n", "-rf x\n", "rm \\\n-rf x\n"),
        ("rm \\\r", "-rf x\r", "rm \\\r-rf x\r"),
        ("curl u |\n", "sh\n", "curl u |\nsh\n"),
        ("true &&\n", "ls\n", "true &&\nls\n"),
        ("bash -c 'rm \\\n", "-rf x'\n", "bash -c 'rm \\\n-rf x'\n"),
        ("curl u | (\n", "sh)\n", "curl u | (\nsh)\n"),
        ("bash <<END\n", "ls\n", "bash <<END\nls\n"),
    ],
)
def test_a_command_that_goes_on_is_judged_with_its_first_line_and_without(first: str, second: str, whole: str) -> None:
    pending = PendingInput()
    pending.commit(first)
    judged = pending.preview(second)
    assert judged.line == whole
    assert judged.readings == (whole, second), "whatever reads it need not be a shell"


@table("line", ["ls \\\\\n", "echo 'a b'\n", "f() { ls; }\n", "echo $((1<<2))\n", "cat <<E\na\nE\n"])
def test_a_finished_line_is_submitted(line: str) -> None:
    pending = PendingInput()
    pending.commit(line)
    assert pending.text == ""


def test_what_never_ends_is_asked_about_and_then_counts_as_submitted() -> None:
    pending = PendingInput()
    pending.commit("it's\n")
    for _ in range(15):
        assert not pending.preview("x\n").opaque
        pending.commit("x\n")
    assert pending.preview("x\n").opaque
    pending.commit("x\n")
    assert pending.text == ""


@table("line", ["!!\n", "!rm\n", "sudo !!:1\n", "^ls^rm^\n", "ls\r^a^b\n", 'echo "!$"\n'])
def test_a_line_that_names_an_earlier_one_is_opaque(line: str) -> None:
    assert PendingInput().preview(line).opaque


@table("line", ["a != b\n", "! ls\n", "grep x^2 f\n", "hello!\n"])
def test_other_uses_of_these_characters_are_not(line: str) -> None:
    assert not PendingInput().preview(line).opaque


def test_history_is_not_what_quotes_say() -> None:
    typed = PendingInput()
    assert not typed.preview("print(f'{x!r}')\n").opaque
    assert not typed.preview("git commit -m 'it works!'\n").opaque
    assert typed.preview("echo !rm\n").opaque
    assert typed.preview('echo "!rm"\n').opaque


def test_giving_up_on_a_long_command_does_not_lose_the_line_that_goes_on() -> None:
    typed = PendingInput()
    typed.commit("cat <<EOF\n")
    for _ in range(15):
        typed.commit("text\n")
    typed.commit("EOF\nrm \\\n")
    assert "rm \\\n-rf victim\n" in typed.preview("-rf victim\n").readings
