"""Rules that an admin made by an answer: they count at once, and are kept with the decision or not at all."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from golem_forge.policy.rules.load import make_rule
from golem_forge.policy.rules.model import Rule, RuleOrigin
from golem_forge.team.accounts import SessionRules, StoreRules
from golem_forge.team.journal import CommitThread, StoredJournals
from golem_forge.team.rows import Append, Lease, NewSession
from golem_forge.team.store import Store

RULE: dict[str, Any] = {"verdict": "preApproved", "tool": "write_file"}


def rule() -> Rule:
    return make_rule(dict(RULE), RuleOrigin.SESSION)


def claimed(store: Store) -> Lease:
    lease = store.leases.claim("r1", (), session_id=store.queue(NewSession(facts={}, input="go")))
    assert lease is not None
    return lease


async def test_a_new_rule_is_written_with_the_lines_of_its_session(store: Store, tmp_path: Path) -> None:
    commits, rules, lost = CommitThread(store), StoreRules(store), list[str]()
    lease = claimed(store)
    journals = StoredJournals(store, commits, lease, tmp_path / "copies", lambda: time.monotonic() + 60, lost.append)
    journal = journals.create(lease.id, None)
    journals.journal.writer.started = True  # type: ignore[union-attr]
    SessionRules(rules, journals).remember([rule()], "ann")
    assert [each.verdict.value for each in rules.content("").rules] == ["preApproved"]
    assert store.accounts.rules() == []
    journal.append("decided", {"remembered": "always"})
    await journals.journal.committed()  # type: ignore[union-attr]
    [kept] = store.accounts.rules()
    assert (kept["person"], kept["rule"]["tool"]) == ("ann", "write_file")
    rules.refresh()
    assert "by ann" in rules.content("").rules[0].file
    store.accounts.remove_rule(kept["id"])
    rules.refresh()
    assert rules.content("").rules == ()
    commits.close()


def test_a_rule_approves_nothing_in_sessions_of_its_author_under_four_eyes(store: Store) -> None:
    """Threat: an admin answers `always` to somebody else's call, and then starts that call without anybody's look."""
    for author, tool in (("ann", "write_file"), ("bob", "edit_file")):
        store.accounts.add_rule(RULE | {"tool": tool}, author)
    rules = StoreRules(store)
    rules.refresh()

    def counting(*authors: str) -> set[str]:
        return {str(each.tool) for each in rules.content("shop", frozenset(authors)).rules}

    assert counting() == counting("eve") == {"write_file", "edit_file"}
    assert (counting("ann"), counting("ann", "bob")) == ({"edit_file"}, set())
    assert rules.content("shop", frozenset({"ann"})) is rules.content("shop", frozenset({"ann"}))


async def test_a_runner_that_lost_the_session_keeps_neither_the_decision_nor_the_rule(
    store: Store, tmp_path: Path
) -> None:
    commits, rules, lost = CommitThread(store), StoreRules(store), list[str]()
    lease = claimed(store)
    journals = StoredJournals(store, commits, lease, tmp_path / "copies", lambda: time.monotonic() + 60, lost.append)
    journal = journals.create(lease.id, None)
    await journals.journal.committed()  # type: ignore[union-attr]
    store.leases.give_back(lease)
    assert store.leases.claim("r2", (), session_id=lease.id) is not None
    SessionRules(rules, journals).remember([rule()], "ann")
    journal.append("decided", {"remembered": "always"})
    with pytest.raises(Exception, match="Nothing can be recorded"):
        await journals.journal.committed()  # type: ignore[union-attr]
    assert store.accounts.rules() == []
    rules.refresh()
    assert rules.content("").rules == ()
    commits.close()


def test_lines_that_are_refused_take_their_rules_with_them(store: Store) -> None:
    lease = claimed(store)
    old = Append(session=lease.id, epoch=lease.epoch - 1, first=1, lines=(b"x\n",), rules=((RULE, "ann"),))
    assert set(store.append([old])) == {lease.id}
    assert store.accounts.rules() == []


def test_a_rule_is_found_by_the_id_that_decisions_name_and_by_that_of_earlier_versions(store: Store) -> None:
    """Whoever reads in `forge log` which rule decided takes that one back by its id."""
    for of_earlier_versions in (False, True):
        store.accounts.add_rule(RULE, "ann")
        rules = StoreRules(store)
        rules.refresh()
        [counts] = rules.content("").rules
        assert [each["id"] for each in store.accounts.rules()] == [counts.id]
        [listed] = store.database.read_one("SELECT id FROM rules")
        store.accounts.remove_rule(listed if of_earlier_versions else counts.id)
        assert store.accounts.rules() == []
