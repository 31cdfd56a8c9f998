"""What a command does and holds grows no faster than what it is about (invariant 8). Work is counted, not timed."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from golem_forge.agent import resume as resuming
from golem_forge.agent.history import History
from golem_forge.agent.model.interface import AssistantMessage, CallResult, RequestedCall, ResultsMessage, UserMessage
from golem_forge.agent.resume import resume
from golem_forge.agent.session_state import RunFacts, record_run
from golem_forge.cli import log as log_calls
from golem_forge.cli.log import run_calls, run_verify
from golem_forge.config import yaml_file
from golem_forge.core.decisions import Decision, Status, Verdict
from golem_forge.core.effects import Effect, Verb
from golem_forge.core.errors import ConfigError
from golem_forge.events import index, journal_records
from golem_forge.events.index import SessionIndex
from golem_forge.events.journal import Journal
from golem_forge.events.journal_records import CallRecord
from golem_forge.policy.facts import CallFacts
from golem_forge.policy.risk import EffectVerdict
from golem_forge.policy.rules.book import RuleBook
from golem_forge.policy.rules.model import path_glob
from golem_forge.storage.home import ForgeHome
from golem_forge.tools.tool import SourceKind

ALLOWED = Decision(verdict=Verdict.PRE_APPROVED)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FORGE_HOME", str(tmp_path / "forge"))
    return tmp_path / "forge"


class Counter:
    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.count = 0

    def __call__(self, *args: Any, **more: Any) -> Any:
        self.count += 1
        return self.function(*args, **more)


def counted(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> Counter:
    counter = Counter(getattr(owner, name))
    monkeypatch.setattr(owner, name, counter)
    return counter


def live_call_records() -> int:
    gc.collect()
    return sum(type(each) is CallRecord for each in gc.get_objects())


def run_call(journal: Journal, call_id: str) -> None:
    journal.propose(call_id, "count", {"what": call_id}, "llm", "main")
    journal.decide(call_id, ALLOWED)
    journal.start(call_id, "count", {"what": call_id})
    journal.finish(call_id, "success", 1.0, value={"kind": "text", "text": f"counted {call_id}"})


def test_verify_looks_at_the_index_once_and_at_each_journal_once(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(12):
        with Journal.create(home, f"s{number:02}") as journal:
            run_call(journal, "c")
    refreshed, scanned = counted(monkeypatch, index, "refresh"), counted(monkeypatch, journal_records, "scan")
    assert run_verify([]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 12
    assert (refreshed.count, scanned.count) == (1, 12)


@pytest.mark.parametrize("words", [[], ["--json"], ["--status", "success"], ["--status", "may_have_run"]])
def test_log_reads_only_the_calls_that_it_shows(
    home: Path, words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = Journal.create(home, "s1")
    for number in range(300):
        run_call(journal, f"c{number}")
    journal.propose("open", "count", {"what": "open"}, "llm", "main")
    journal.start("open", "count", {"what": "open"})
    journal.release()
    SessionIndex(home).refresh()
    parsed = counted(monkeypatch, journal_records, "parse_body")
    assert run_calls(words) == 0
    shown = capsys.readouterr().out
    assert " open " in shown or '"open"' in shown if "success" not in words else " c299 " in shown
    assert 0 < parsed.count <= 3 * 4 * 20, "of the calls shown, at most three times"


def test_log_holds_one_call_at_a_time_however_many_it_shows(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(index, "_PAGE_ROWS", 50)
    with Journal.create(home, "s1") as journal:
        for number in range(120):  # more than two pages
            run_call(journal, f"c{number}")
    held: list[int] = []
    as_json = log_calls.call_json

    def watched(each: Any) -> Any:
        if each.call.id in ("c3", "c70", "c119"):
            held.append(live_call_records())
        return as_json(each)

    before = live_call_records()
    monkeypatch.setattr(log_calls, "call_json", watched)
    assert run_calls(["--json", "--limit", "115"]) == 0
    assert [each["id"] for each in json.loads(capsys.readouterr().out)] == [f"c{number}" for number in range(5, 120)]
    assert len(held) == 2 and max(held) <= before + 3


def turns(journal: Journal, history: History, count: int) -> None:
    """Each with a call; the history is compacted whenever it has forty messages."""
    for number in range(count):
        history.add(UserMessage(text=f"And {number}?"))
        asked = RequestedCall(id=f"c{number}", name="count", args={"what": number})
        history.add(AssistantMessage(text="I count.", calls=(asked,)))
        run_call(journal, asked.id)
        result = CallResult(id=asked.id, name="count", status=Status.SUCCESS, text="counted")
        history.add(ResultsMessage(results=(result,)))
        if len(history.messages) > 40:
            history.replace_all([UserMessage(text="So far.", kind="summary"), *history.messages[-6:]])


def test_a_resumed_session_holds_what_still_counts(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal.create(home, "s1")
    record_run(journal, RunFacts(name="main", worker_id="w1", directory=str(home), root=str(home)))
    history = History(journal, "w1")
    turns(journal, history, 200)
    last = [RequestedCall(id=name, name="count", args={}) for name in ("told", "open", "never")]
    history.add(AssistantMessage(text="And these.", calls=tuple(last)))
    run_call(journal, "told")
    journal.propose("open", "count", {}, "llm", "main")
    journal.start("open", "count", {})
    said = list(history.messages)
    journal.release()
    SessionIndex(home).refresh()
    held: list[int] = []
    completed, before = resuming.complete_results, live_call_records()

    def watched(*args: Any) -> Any:
        held.append(live_call_records())
        return completed(*args)

    monkeypatch.setattr(resuming, "complete_results", watched)
    read = counted(monkeypatch, journal_records, "_whole_lines")
    resumed = resume(home, "s1")
    resumed.journal.release()
    assert read.count == 1, "the journal is read once"
    assert held[0] <= before + 4, "calls whose results the history has are not held"
    assert list(resumed.history[:-1]) == said
    results = resumed.history[-1]
    assert isinstance(results, ResultsMessage)
    assert [each.status for each in results.results] == [Status.SUCCESS, Status.INTERRUPTED, Status.INTERRUPTED]
    assert "counted told" in results.results[0].text and "may have run" in results.results[1].text
    assert resumed.calls == 202 and {"c0", "c199", "told", "open", "never"} <= resumed.call_ids


RULE = "  - {{path: /workspace/p{0}/*.txt, access: [read], verdict: preApproved, match: [/workspace/p{0}/a.txt]}}\n"
RULES = "rules:\n" + "".join(map(RULE.format, range(200)))


def written(home: Path, text: str) -> ForgeHome:
    home.mkdir(exist_ok=True)
    (home / "rules.yaml").write_text(text)
    return ForgeHome(home)


def test_rules_are_read_as_yaml_once_and_checked_at_every_start(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = RULES[:18_000].rpartition("  -")[0]  # enough for its values to be kept
    first = RuleBook(written(home, small)).current().rules
    parsed = counted(monkeypatch, yaml_file, "read_document")
    again = RuleBook(ForgeHome(home)).current().rules
    assert parsed.count == 0
    assert again == first and [rule.line for rule in again] == list(range(2, 2 + len(first)))
    assert [rule.written for rule in again] == [rule.written for rule in first]
    (kept,) = (home / "cache").glob("rules-*")
    assert kept.stat().st_mode & 0o777 == 0o600
    # What is kept is values alone: a rule that its example contradicts is refused, whoever wrote it there.
    sound = kept.read_text()
    kept.write_text(sound.replace('["/workspace/p7/a.txt"]', '["/workspace/other"]'))
    with pytest.raises(ConfigError, match=r"rules\.yaml:9: rules\[7\].*does not match this rule"):
        RuleBook(ForgeHome(home))
    for broken in ("", sound[:-40], "[]\n", sound.replace("\n", "\n7\n", 1)):
        kept.write_text(broken)
        assert RuleBook(ForgeHome(home)).current().rules == first
    kept.write_text(sound.replace("/workspace/p7/", "/workspace/p0/"))
    kept.chmod(0o666)
    assert RuleBook(ForgeHome(home)).current().rules == first, "a file that others may write is not used"
    assert len(RuleBook(written(home, small.replace("p1/", "q1/"))).current().rules) == len(first)
    assert parsed.count > 0, "another text is read anew"


def test_a_call_is_held_against_hundreds_of_paths_without_compiling_them(home: Path) -> None:
    book = RuleBook(written(home, RULES))
    path_glob.cache_clear()
    target = Effect(verb=Verb.READ, target="/workspace/p77/b.txt")
    facts = CallFacts(tool="read_file", args={}, worker="main", source=SourceKind.NATIVE, effects=(target,))
    outcome = book.evaluate(facts, (EffectVerdict(effect=target, base=Verdict.ASK),))
    assert [rule.path for rule in outcome.matched] == ["/workspace/p77/*.txt"]
    assert path_glob.cache_info().misses <= 1
