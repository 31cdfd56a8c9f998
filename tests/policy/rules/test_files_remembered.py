"""remembered.yaml: merged, revoked, and safe with two writers at once (A41, A42)."""

from __future__ import annotations

import multiprocessing

import pytest
from tests.deadlines import PATIENCE
from tests.tables import table

from golem_forge.core.errors import ConfigError
from golem_forge.policy.rules.book import RuleBook
from golem_forge.policy.rules.files import remember, revoke, revoke_all
from golem_forge.policy.rules.load import make_rule
from golem_forge.policy.rules.model import Rule, RuleOrigin
from golem_forge.storage import home as home_files

from .conftest import Place

RULE = {"command": ["cargo", "test"], "verdict": "preApproved", "scope": {"project": "/srv/app", "worker": "main"}}


def rule(**changes: object) -> Rule:
    return make_rule({**RULE, **changes}, RuleOrigin.SESSION)


def test_a41_always_twice_is_one_entry(place: Place) -> None:
    [first] = remember(place.home, [rule()])
    [second] = remember(place.home, [rule()])
    assert first.id == second.id and first.origin is RuleOrigin.REMEMBERED
    lines = [line for line in place.book().list() if line.rule.origin is RuleOrigin.REMEMBERED]
    assert [line.rule.id for line in lines] == [first.id]
    assert place.home.remembered.stat().st_mode & 0o777 == 0o600
    assert place.home.remembered.read_text().count("cargo") == 1


def test_a41_two_processes_at_once_keep_both(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(home_files, "LOCK_SECONDS", PATIENCE)  # the other one may stand still with the lock
    processes = multiprocessing.get_context("fork")
    both_there = processes.Barrier(2)

    def write(name: str) -> None:
        both_there.wait(PATIENCE)
        for number in range(15):
            made = make_rule({"tool": f"{name}{number}", "verdict": "preApproved"}, RuleOrigin.SESSION)
            remember(place.home, [made])

    writers = [processes.Process(target=write, args=(name,)) for name in ("a", "b")]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(PATIENCE)
        assert writer.exitcode == 0
    kept = {line.rule.tool for line in place.book().list() if line.rule.origin is RuleOrigin.REMEMBERED}
    assert kept == {f"{name}{number}" for name in "ab" for number in range(15)}
    assert sorted(path.name for path in place.home.path.iterdir()) == ["remembered.lock", "remembered.yaml"]


def test_a42_a_revoke_acts_on_the_next_call(place: Place) -> None:
    [kept] = remember(place.home, [rule()])
    book = place.book()
    facts = place.command("cargo test", project="/srv/app")
    assert place.lifted(book, facts) == "runs"
    assert revoke(place.home, [kept.id, "unknown"]) == (kept.id,)
    assert place.lifted(book, facts) == "asks"
    assert revoke(place.home, [kept.id]) == ()
    remember(place.home, [rule()])
    assert place.lifted(book, facts) == "runs"
    assert revoke_all(place.home) == 1
    assert place.lifted(book, facts) == "asks"


@table("odd", ["é\u2028\x7f\x85", 'it\'s "x": #y', "\U0001f600", "- [a]", "a\nb\tc", "\ufeff"])
def test_any_word_survives_the_file(place: Place, odd: str) -> None:
    remember(place.home, [rule(command=["tool", odd], exact=True)])
    [line] = [line for line in place.book().list() if line.rule.origin is RuleOrigin.REMEMBERED]
    assert line.rule.command == (("tool",), (odd,))
    revoke_all(place.home)


@pytest.mark.parametrize(
    "changes",
    [{"command": ["git"]}, {"accept": ["rm_force"]}, {"verdict": "ask"}, {"command": ["python3", "-c"]}],
)
def test_what_may_not_be_saved_is_refused_and_nothing_changes(place: Place, changes: dict[str, object]) -> None:
    remember(place.home, [rule()])
    before = place.home.remembered.read_bytes()
    with pytest.raises(ConfigError):
        remember(place.home, [make_rule({**RULE, **changes}, RuleOrigin.USER)])
    assert place.home.remembered.read_bytes() == before


def test_what_an_older_forge_saved_and_nobody_may_save_now_is_left_out_with_a_warning(place: Place) -> None:
    place.home.ensure()
    wide, good = "{command: [csh], verdict: preApproved}", "{command: [pytest], verdict: preApproved}"
    place.home.remembered.write_text(f"version: 1\nrules:\n  - {wide}\n  - {good}\n")
    book = RuleBook(place.home)
    assert [rule.command for rule in book.current().rules] == [(("pytest",),)]
    [warning] = book.warnings
    assert "csh" in warning and warning.endswith("Forge ignores it now")


def test_a_file_that_cannot_be_read_is_never_overwritten(place: Place) -> None:
    place.write(place.home.remembered, "rules: [")
    with pytest.raises(ConfigError):
        remember(place.home, [rule()])
    with pytest.raises(ConfigError):
        revoke_all(place.home)
    assert place.home.remembered.read_text() == "rules: ["
