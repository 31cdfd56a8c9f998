"""People, roles, tokens, four eyes: what each role may do, on both databases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from golem_forge.core.decisions import Risk
from golem_forge.net.guard import secret_hash
from golem_forge.team.database import TeamError
from golem_forge.team.people import ACTIONS, OwnerStore, PersonStore, Role, add_person, find_person, token_hash
from golem_forge.team.rows import Append, Lease, NewSession
from golem_forge.team.schedules import NewSchedule
from golem_forge.team.store import Store

OFFERS = [
    {"id": "write:session", "label": "write /work", "scope": "session"},
    {"id": "write:always", "label": "write /work", "scope": "always"},
]


def started(store: Store, person: str = "bob") -> Lease:
    store.queue(NewSession(facts={"directory": "/srv/secret"}, input="go", title="go", person=person))
    lease = store.claim("runner", ())
    assert lease is not None
    return lease


def asked(store: Store, lease: Lease, id: str = "q1", *, risk: str = "high", four_eyes: bool = False) -> str:
    wire = {"requestId": id, "tool": "write_file", "risk": risk, "choices": OFFERS, "toolCallId": "c"}
    return store.ask(lease, wire, kind="approval", four_eyes=four_eyes).id


def person(store: Store, name: str, role: Role, door: str = "api") -> PersonStore:
    return PersonStore(store, secret_hash(add_person(store, name, role)), door)


def test_a_token_is_kept_as_a_hash_and_finds_its_person(store: Store) -> None:
    token = add_person(store, "ann", Role.ADMIN)
    kept = store.accounts.people()
    assert [each["name"] for each in kept] == ["ann"]
    assert token not in repr(kept)
    found = find_person(store, token_hash(token))
    assert found is not None
    assert (found.name, found.role) == ("ann", Role.ADMIN)
    for wrong in ("", token + "x", token[:-1], "x" * 1000):
        assert not (hash := token_hash(wrong)) or find_person(store, hash) is None
    with pytest.raises(TeamError, match="there is a person 'ann' already"):
        add_person(store, "ann", Role.VIEWER)
    for name in ("", "a b", "-x", "../x", "x" * 65, "a\nb"):
        with pytest.raises(TeamError, match="cannot be a name"):
            add_person(store, name, Role.VIEWER)


DOORS: dict[str, Callable[[PersonStore, str, str], Any]] = {
    "see": lambda who, session, question: (
        who.sessions(), who.find(session), who.lines(session), who.questions(), who.find_question(question),
        who.question(question), who.output(session, "out_000000000000"), who.runners(), who.counts(),
        who.workspace_of(session),
    ),
    "start": lambda who, session, question: who.queue(NewSession(facts={}, input="x")),
    "send": lambda who, session, question: who.send(session, "message", {"text": "x"}),
    "interrupt": lambda who, session, question: who.send(session, "interrupt", {}),
    "answer": lambda who, session, question: who.answer(question, {"approved": True}),
    "stop": lambda who, session, question: who.stop(session),
    "apply": lambda who, session, question: who.workspace_of(session, "apply"),
    "schedule": lambda who, session, question: (
        who.add_schedule(NewSchedule(cron="@daily", name="own", session=NewSession(facts={}, input="x"))),
        who.remove_schedule("own"),
    ),
    "remove what others schedule": lambda who, session, question: (
        who.store.schedules.add(NewSchedule(cron="@daily", name="bobs", session=NewSession(facts={}, input="x"))),
        who.remove_schedule("bobs"),
    ),
    "remember": lambda who, session, question: who.answer(question, {"approved": True, "choice": "write:always"}),
    "see host paths": lambda who, session, question: (who.facts(session), who.lines(session, private=True)),
    "see refusals": lambda who, session, question: who.refusals(),
    "see the audit": lambda who, session, question: (who.audit(), who.audit_begin()),
    "manage people": lambda who, session, question: (
        who.people(), who.new_person("new", Role.VIEWER), who.rotate_token("new"), who.remove_person("new"),
    ),
    "see rules": lambda who, session, question: who.rules(),
    "change rules": lambda who, session, question: who.remove_rule(who.store.accounts.rules()[0]["id"]),
}  # fmt: skip


def test_every_action_has_a_door_that_is_tried() -> None:
    assert set(DOORS) == set(ACTIONS)


@pytest.mark.parametrize("role", list(Role))
def test_each_role_may_what_the_table_says_and_refusals_are_recorded(store: Store, role: Role) -> None:
    who = person(store, "pat", role)
    may = {Role.VIEWER: 0, Role.OPERATOR: 1, Role.ADMIN: 2}
    expected: list[str] = []
    for number, (action, door) in enumerate(DOORS.items()):
        lease = started(store, "bob")
        question = asked(store, lease, f"q{number}")
        store.accounts.add_rule({"verdict": "blocked", "tool": "webfetch"}, "root")
        if may[role] >= may[ACTIONS[action]]:
            door(who, lease.id, question)
            continue
        with pytest.raises(TeamError, match=f"pat is {role.value} here and may not") as refused:
            door(who, lease.id, question)
        assert refused.value.code == "ROLE"
        found = store.question(question)
        assert found is not None
        assert found.state == "open"
        first = {"remember": "answer", "remove what others schedule": "schedule"} if role is Role.VIEWER else {}
        expected.append(first.get(action, action))
    recorded = store.accounts.refusals()
    assert sorted(each["action"] for each in recorded) == sorted(expected)
    assert {(each["person"], each["door"]) for each in recorded} <= {("pat", "api")}


def test_only_an_admin_is_offered_what_counts_beyond_the_session(store: Store) -> None:
    question = asked(store, started(store))
    offered = {
        role: [each["id"] for each in person(store, role.value, role).find_question(question).wire["choices"]]
        for role in Role
    }
    assert offered == {
        Role.VIEWER: ["write:session"],
        Role.OPERATOR: ["write:session"],
        Role.ADMIN: ["write:session", "write:always"],
    }


def test_what_a_person_does_is_recorded_in_their_name_whatever_the_caller_says(store: Store) -> None:
    lease = started(store)
    question = asked(store, lease)
    who = person(store, "olga", Role.OPERATOR)
    answered = who.answer(question, {"approved": True})
    assert (answered.person, answered.door) == ("olga", "api")
    who.send(lease.id, "message", {"text": "x"})
    assert {each.person for each in store.arrived(lease.id, 1)} == {"olga"}
    mine = who.queue(NewSession(facts={}, input="x", person="root", door="cli"))
    assert store.find(mine).person == "olga"


def test_a_removed_token_stops_working_at_once(store: Store) -> None:
    who = person(store, "pat", Role.ADMIN)
    assert who.sessions() == []
    store.accounts.remove_person("pat")
    for door in (who.sessions, who.people, lambda: who.queue(NewSession(facts={}, input="x"))):
        with pytest.raises(TeamError, match="not valid") as refused:
            door()
        assert refused.value.code == "NOT_A_PERSON"
    with pytest.raises(TeamError, match="no person 'pat'"):
        store.accounts.remove_person("pat")


def test_the_only_admin_is_removed_by_the_owner_of_the_database_alone(store: Store) -> None:
    ann, bob = person(store, "ann", Role.ADMIN), person(store, "bob", Role.ADMIN)
    person(store, "olga", Role.OPERATOR)
    ann.remove_person("bob")
    with pytest.raises(TeamError, match="ann is the only admin") as refused:
        ann.remove_person("ann")
    assert "Add another one first" in refused.value.message
    ann.remove_person("olga")
    with pytest.raises(TeamError, match="not valid"):
        bob.remove_person("ann")
    with pytest.raises(TeamError, match="no person 'olga'"):
        ann.remove_person("olga")
    OwnerStore(store, "root", "cli").remove_person("ann")
    assert store.accounts.people() == []


def test_host_paths_are_lines_of_their_own(store: Store) -> None:
    lease = started(store)
    lines = (b'{"n":1,"type":"run","cwd":"/srv/secret"}\n', b'{"n":2,"type":"event"}\n')
    assert store.append([Append(session=lease.id, epoch=lease.epoch, first=1, lines=lines)]) == {}
    viewer, admin = person(store, "vera", Role.VIEWER), person(store, "ann", Role.ADMIN)
    assert viewer.lines(lease.id) == [(2, lines[1])]
    assert [line for _, line in admin.lines(lease.id, private=True)] == list(lines)


def test_whoever_started_a_session_cannot_answer_its_four_eyes_questions(store: Store) -> None:
    bob, olga = person(store, "bob", Role.OPERATOR), person(store, "olga", Role.OPERATOR)
    lease = started(store, "bob")
    question = asked(store, lease, "q1", four_eyes=True)
    for door in (
        lambda: bob.answer(question, {"approved": True}),
        lambda: bob.answer(question, {"approved": False}),
        lambda: store.answer(question, {"approved": True}, "bob", "cli"),
        lambda: store.answer(question, {"approved": True}),
    ):
        with pytest.raises(TeamError, match=r"approval\.four_eyes asks for somebody else's answer") as refused:
            door()
        assert refused.value.code == "FOUR_EYES"
    still = store.question(question)
    assert still is not None
    assert still.state == "open"
    assert [(each["person"], each["action"]) for each in store.accounts.refusals()] == [
        ("bob", "answer (four eyes)")
    ] * 2
    assert olga.answer(question, {"approved": True}).person == "olga"
    assert bob.answer(asked(store, lease, "q2"), {"approved": True}).person == "bob"


def test_risks_are_those_of_the_card() -> None:
    assert [risk.value for risk in Risk] == ["low", "medium", "high", "critical"]
