"""People, roles, tokens, four eyes: what each role may do, on both databases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.team.conftest import on_stores

from golem_forge.core.decisions import Risk
from golem_forge.net.server_guard import secret_hash
from golem_forge.team.accounts import StoreRules
from golem_forge.team.database import TeamError
from golem_forge.team.people import (
    ACTIONS,
    STORE_WIDE,
    OwnerStore,
    PersonStore,
    Role,
    add_person,
    find_person,
    token_hash,
)
from golem_forge.team.rows import Append, Lease, NewSession, QuestionFilter
from golem_forge.team.schedules import NewSchedule
from golem_forge.team.store import Store

OFFERS = [
    {"id": "write:session", "label": "write /work", "scope": "session"},
    {"id": "write:always", "label": "write /work", "scope": "always"},
]


def started(store: Store, person: str = "bob", program: str = "") -> Lease:
    facts = {"directory": "/srv/secret"}
    new = NewSession(facts=facts, input="go", title="go", person=person, program=program, project=program)
    lease = store.leases.claim("runner", (), session_id=store.queue(new))
    assert lease is not None
    return lease


def asked(store: Store, lease: Lease, id: str = "q1", *, risk: str = "high", four_eyes: bool = False) -> str:
    wire = {"requestId": id, "tool": "write_file", "risk": risk, "choices": OFFERS, "toolCallId": "c"}
    return store.questions.ask(lease, wire, kind="approval", four_eyes=four_eyes).id


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
    for name in ("ann", "aNN"):
        with pytest.raises(TeamError, match="there is a person 'ann' already") as refused:
            add_person(store, name, Role.VIEWER)
        assert refused.value.code == "PERSON_EXISTS"
    for name in ("", "a b", "-x", "../x", "x" * 65, "a\nb"):
        with pytest.raises(TeamError, match="cannot be a name"):
            add_person(store, name, Role.VIEWER)


DOORS: dict[str, Callable[[PersonStore, str, str], Any]] = {
    "see": lambda who, session, question: (
        who.sessions(), who.find(session), who.lines(session), who.questions(), who.find_question(question),
        who.question(question), who.output(session, "out_000000000000"), who.runners(), who.schedules(), who.projects(),
        who.workspace_of(session),
    ),
    "start": lambda who, session, question: who.queue(NewSession(facts={}, input="x", program=of(who, session))),
    "send": lambda who, session, question: who.send(session, "message", {"text": "x"}),
    "interrupt": lambda who, session, question: who.send(session, "interrupt", {}),
    "answer": lambda who, session, question: who.answer(question, {"approved": True}),
    "stop": lambda who, session, question: who.stop(session),
    "apply": lambda who, session, question: who.workspace_of(session, "apply"),
    "schedule": lambda who, session, question: (
        who.add_schedule(NewSchedule(cron="@daily", name="own", session=scheduled(who, session))),
        who.remove_schedule("own"),
    ),
    "remove what others schedule": lambda who, session, question: (
        who.store.schedules.add(NewSchedule(cron="@daily", name=session, session=scheduled(who, session))),
        who.remove_schedule(session),
    ),
    "remember": lambda who, session, question: who.answer(question, {"approved": True, "choice": "write:always"}),
    "see host paths": lambda who, session, question: (who.facts(session), who.lines(session, private=True)),
    "see refusals": lambda who, session, question: who.refusals(),
    "see the audit": lambda who, session, question: (who.audit(), who.audit_begin()),
    "manage people": lambda who, session, question: (
        who.people(), who.new_person("new", Role.VIEWER), who.rotate_token("new"), who.remove_person("new"),
    ),
    "see rules": lambda who, session, question: who.rules(),
    "change rules": lambda who, session, question: who.remove_rule(
        who.store.accounts.add_rule({"verdict": "ask", "tool": session}, "root", of(who, session))
    ),
    "manage the project": lambda who, session, question: (
        who.grant(of(who, session) or "shop", "bob", Role.VIEWER),
        who.grant(of(who, session) or "shop", "bob", Role.NONE),
    ),
}  # fmt: skip


def of(who: PersonStore, session: str) -> str:
    return who.store.find(session).program


def scheduled(who: PersonStore, session: str) -> NewSession:
    return NewSession(facts={}, input="x", program=of(who, session))


def test_every_action_has_a_door_that_is_tried() -> None:
    assert set(DOORS) == set(ACTIONS)


ORDER = {Role.NONE: -1, Role.VIEWER: 0, Role.OPERATOR: 1, Role.ADMIN: 2}


@on_stores(
    "role, by",
    [*((role, "name") for role in Role), (Role.OPERATOR, "group")],
    [(Role.ADMIN, "name"), (Role.OPERATOR, "group")],
)
def test_a_role_in_one_project_counts_there_and_nowhere_else(store: Store, role: Role, by: str) -> None:
    """Every action × role × own and other project. What is in another project is not there."""
    who = person(store, "pat", Role.NONE)
    person(store, "bob", Role.OPERATOR)
    for program in ("shop", "bank"):
        started(store, "bob", program)
    if by == "group":
        store.projects.join("crew", "pat")
    if role is not Role.NONE:
        store.projects.grant("shop", "@crew" if by == "group" else "pat", role.value)
    for number, (action, door) in enumerate(DOORS.items()):
        for program in ("shop", "bank", ""):
            lease = started(store, "bob", program)
            question = asked(store, lease, f"q{number}{program}")
            if program == "shop" and ORDER[role] >= ORDER[ACTIONS[action]] and action not in STORE_WIDE:
                door(who, lease.id, question)
                continue
            if program != "shop" and action in ("see", "see rules"):
                continue  # lists are looked at below
            if not program and action == "manage the project":
                continue  # there is none
            before = len(store.accounts.refusals())
            with pytest.raises(TeamError) as refused:
                door(who, lease.id, question)
            assert refused.value.code in ("ROLE", *NOT_THERE), (action, program, refused.value.message)
            first = ACTIONS[{"remember": "answer", "remove what others schedule": "schedule"}.get(action, action)]
            hidden = program != "shop" and ORDER[role] >= ORDER[first] and action not in ("start", "schedule")
            assert (refused.value.code in NOT_THERE) == (hidden and action not in STORE_WIDE), (action, program)
            assert len(store.accounts.refusals()) > before or refused.value.code == "RULE_NOT_FOUND", (action, program)
            kept = store.questions.get(question)
            assert kept is not None and kept.state == "open" and store.find(lease.id).state == "running"
    if role is Role.NONE:
        return
    store.accounts.add_rule({"verdict": "ask", "tool": "x"}, "root", "bank")
    seen = (who.sessions(), who.questions(), who.schedules())
    assert [{row.program for row in rows} <= {"shop"} for rows in seen] == [True] * 3
    assert seen[0] and seen[1] and {each["project"] for each in who.rules()} <= {"", "shop"}
    assert [each.name for each in who.projects()] == ["shop"]
    bank = next(row for row in store.sessions() if row.program == "bank")
    for look in (lambda: who.find(bank.id[:12]), lambda: who.lines(bank.id), lambda: who.find_question("q0bank")):
        with pytest.raises(TeamError) as refused:
            look()
        assert refused.value.code in NOT_THERE


NOT_THERE = ("SESSION_NOT_FOUND", "QUESTION_NOT_FOUND", "SCHEDULE_NOT_FOUND", "PROJECT_NOT_FOUND", "RULE_NOT_FOUND")


def test_a_name_that_another_project_has_is_told_by_no_more_than_that_it_cannot_be_used(store: Store) -> None:
    """Threat: guesses would say which schedules and projects others have. Each guess is recorded."""
    for name in ("shop", "bank"):
        store.projects.add(name, name)
    pat = person(store, "pat", Role.NONE)
    store.projects.grant("bank", "pat", "admin")
    owner = OwnerStore(store, "ann", "cli")
    mode: dict[str, Any] = {"facts": {}, "input": "go", "mode": "single"}
    shops, banks = (NewSession(program=name, **mode) for name in ("shop", "bank"))
    owner.add_schedule(NewSchedule(cron="@daily", name="payroll", session=shops))
    pat.add_schedule(NewSchedule(cron="@daily", name="mine", session=banks))
    for name, known in (("payroll", False), ("mine", True)):
        with pytest.raises(TeamError) as refused:
            pat.add_schedule(NewSchedule(cron="@daily", name=name, session=banks))
        assert ("there is a schedule" in refused.value.message) == known
    with pytest.raises(TeamError) as refused:
        pat.rename_project("bank", "Shop")
    assert refused.value.message == "the name 'Shop' cannot be used here; choose another one"
    tried = [each["what"] for each in store.accounts.refusals() if each["action"] == "see (another project)"]
    assert sorted(tried) == ["project Shop", "schedule payroll"]


def test_a_guess_at_a_name_is_answered_and_recorded_alike_whether_or_not_it_is_there(store: Store) -> None:
    """Threat: the record of a guess takes time, so what is not there would be answered sooner."""
    for name in ("payroll", "bank"):
        store.projects.add(name, name)
    pat, ann = person(store, "pat", Role.NONE), person(store, "ann", Role.ADMIN)
    store.projects.grant("bank", "pat", "admin")
    hers = NewSession(facts={}, input="go", mode="single", program="payroll")
    ann.add_schedule(NewSchedule(cron="@daily", name="payroll", session=hers))
    guesses: list[Callable[[PersonStore, str], Any]] = [
        lambda who, name: who.remove_schedule(name),
        lambda who, name: who.questions(wanted=QuestionFilter(project=name)),
        lambda who, name: who.secrets_key(name),
        lambda who, name: who.put_secret(name, "TOKEN", "x"),
        lambda who, name: who.remove_secret(name, "TOKEN"),
        lambda who, name: who.set_quota(name, "nobody", 1.0, 1),
        lambda who, name: who.grant(name, "nobody", Role.VIEWER),
        lambda who, name: who.rename_project(name, "bank"),
    ]
    said: dict[str, list[tuple[str, str]]] = {}
    for name in ("payroll", "nothing"):
        for guess in guesses:
            with pytest.raises(TeamError) as refused:
                guess(pat, name)
            said.setdefault(name, []).append((refused.value.code, refused.value.message.replace(name, "it")))
    assert said["payroll"] == said["nothing"]
    told = [each["what"] for each in store.accounts.refusals() if each["action"] == "see (another project)"]
    assert sorted(told) == sorted(f"{kind} {name}" for name in said for kind in ("schedule", *["project"] * 7))
    with pytest.raises(TeamError, match="no project"):
        ann.secrets_key("nothing")
    assert len(store.accounts.refusals()) == len(told), "a slip of somebody who sees everything is no refusal"


def test_a_role_that_is_taken_back_or_was_a_removed_persons_counts_no_more(store: Store) -> None:
    who, lease = person(store, "pat", Role.NONE), started(store, "bob", "shop")
    store.projects.join("crew", "pat")
    store.projects.grant("shop", "@crew", "operator")
    assert who.session(lease.id, "send").id == lease.id
    store.projects.leave("crew", "pat")
    with pytest.raises(TeamError, match="pat has no role here and may not see"):
        who.sessions()
    store.projects.join("crew", "pat")
    store.projects.grant("shop", "pat", "admin")
    store.accounts.remove_person("pat")
    again = person(store, "pat", Role.NONE)
    with pytest.raises(TeamError, match="pat has no role"):
        again.sessions()


def test_two_directories_of_one_name_are_two_projects(store: Store) -> None:
    for program in ("p1", "p2"):
        store.queue(NewSession(facts={}, input="x", program=program, project="my shop"))
    assert [(each.id, each.name) for each in store.projects.all()] == [("p1", "my-shop"), ("p2", "my-shop-2")]
    store.projects.rename("my-shop-2", "other")
    assert store.projects.find("OTHER").id == "p2"
    with pytest.raises(TeamError, match="there is a project 'other' already"):
        store.projects.rename("my-shop", "other")


def test_a_rule_of_a_projects_admin_counts_in_that_project_alone(store: Store) -> None:
    person(store, "ann", Role.ADMIN), person(store, "pat", Role.NONE)
    started(store, "bob", "shop")
    store.projects.grant("shop", "pat", "admin")
    rules = StoreRules(store)
    rules.refresh()
    assert [rules.scope(author, "shop") for author in ("ann", "pat", "root")] == ["", "shop", "shop"]
    store.accounts.add_rule({"verdict": "preApproved", "tool": "x"}, "pat", "shop")
    store.accounts.add_rule({"verdict": "preApproved", "tool": "y"}, "ann")
    rules.refresh()
    assert [len(rules.content(each).rules) for each in ("shop", "bank", "")] == [2, 1, 1]


@on_stores("role", [each for each in Role if each is not Role.NONE], [Role.VIEWER, Role.ADMIN])
def test_each_role_may_what_the_table_says_and_refusals_are_recorded(store: Store, role: Role) -> None:
    who = person(store, "pat", role)
    person(store, "bob", Role.OPERATOR)
    store.projects.add("shop", "shop")
    expected: list[str] = []
    for number, (action, door) in enumerate(DOORS.items()):
        lease = started(store, "bob")
        question = asked(store, lease, f"q{number}")
        store.accounts.add_rule({"verdict": "blocked", "tool": "webfetch"}, "root")
        if ORDER[role] >= ORDER[ACTIONS[action]]:
            door(who, lease.id, question)
            continue
        with pytest.raises(TeamError, match=f"pat is {role.value} here and may not") as refused:
            door(who, lease.id, question)
        assert refused.value.code == "ROLE"
        found = store.questions.get(question)
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
        if role is not Role.NONE
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
        lambda: bob.answer(question, {"approved": True, "args": {"path": "/work/b"}}),
        lambda: store.questions.answer(question, {"approved": True}, "bob", "cli"),
        lambda: store.questions.answer(question, {"approved": True}),
    ):
        with pytest.raises(TeamError, match=r"approval\.four_eyes asks for somebody else's answer") as refused:
            door()
        assert refused.value.code == "FOUR_EYES"
    assert store.questions.find(question).state == "open"
    assert [(each["person"], each["action"]) for each in store.accounts.refusals()] == [
        ("bob", "answer (four eyes)")
    ] * 2
    assert olga.answer(question, {"approved": True}).person == "olga"
    assert bob.answer(asked(store, lease, "q2"), {"approved": True}).person == "bob"
    denied = bob.answer(asked(store, lease, "q3", four_eyes=True), {"approved": False})
    assert (denied.person, denied.state) == ("bob", "answered")


AUTHORED: dict[str, Callable[[PersonStore, Store, Lease], Any]] = {
    "sends a message": lambda olga, store, lease: olga.send(lease.id, "message", {"text": "delete y"}),
    "edits a call": lambda olga, store, lease: olga.answer(
        asked(store, lease, "q0", four_eyes=True), {"approved": True, "args": {"path": "/work/y"}}
    ),
    "denies with words for the model": lambda olga, store, lease: olga.answer(
        asked(store, lease, "q0", four_eyes=True), {"approved": False, "reason": "delete y"}
    ),
    "answers a form": lambda olga, store, lease: olga.answer(
        store.questions.ask(lease, {"requestId": "f0", "fields": []}, kind="form").id,
        {"action": "accept", "values": {"a": "y"}},
    ),
}


@on_stores("done", [*AUTHORED], ["sends a message", "edits a call"])
def test_whoever_said_something_to_a_session_cannot_approve_what_came_of_it(store: Store, done: str) -> None:
    person(store, "bob", Role.OPERATOR)
    olga, vera = person(store, "olga", Role.OPERATOR), person(store, "vera", Role.VIEWER)
    lease = started(store, "bob")
    AUTHORED[done](olga, store, lease)
    assert store.questions.authors(lease.id) == {"bob", "olga"}
    question = asked(store, lease, "q1", four_eyes=True)
    assert "nobody is left who can. Add an operator" in vera.find_question(question).wire["warnings"][-1]
    with pytest.raises(TeamError, match="olga is an author of this session"):
        olga.answer(question, {"approved": True})
    ann = person(store, "ann", Role.ADMIN)
    assert vera.questions(session=lease.id)[-1].wire["warnings"][-1].endswith("cannot approve; ann can.")
    with pytest.raises(TeamError, match="approves this call once"):
        ann.answer(question, {"approved": True, "choice": "write:session"})
    assert ann.answer(question, {"approved": True}).person == "ann"


def test_whoever_only_looks_denies_without_a_word_or_interrupts_is_no_author(store: Store) -> None:
    olga = person(store, "olga", Role.OPERATOR)
    lease = started(store, "bob")
    olga.answer(asked(store, lease, "q0", four_eyes=True), {"approved": False})
    olga.answer(asked(store, lease, "q1", four_eyes=True), {"approved": True})
    olga.send(lease.id, "interrupt", {})
    assert store.questions.authors(lease.id) == {"bob"}


def test_risks_are_those_of_the_card() -> None:
    assert [risk.value for risk in Risk] == ["low", "medium", "high", "critical"]


def like(number: int, **changed: Any) -> dict[str, Any]:
    """A question as a runner asks it, about a call that another session makes too."""
    wire = {"requestId": f"q{number}", "tool": "write_file", "risk": "medium", "toolCallId": "c", "fingerprint": "f1"}
    return {**wire, "payload": "a.txt", "diff": "+one", "effects": ["write /work/a.txt"], "choices": OFFERS, **changed}


def test_an_inbox_of_many_is_filtered_searched_and_read_in_pages(store: Store) -> None:
    who = person(store, "pat", Role.VIEWER)
    for number, (starter, program, changed) in enumerate(
        (
            ("pat", "shop", {}), ("bob", "shop", {"risk": "high"}), ("bob", "bank", {"tool": "exec_command"}),
            ("bob", "bank", {"workerPath": [{"name": "main"}, {"name": "helper"}], "effects": ["read /work/Übung"]}),
        )
    ):  # fmt: skip
        store.questions.ask(started(store, starter, program), like(number, **changed), kind="approval")

    def found(**wanted: Any) -> list[str]:
        return [each.id for each in who.questions(wanted=QuestionFilter(**wanted))]

    assert found() == ["q0", "q1", "q2", "q3"]
    assert (found(mine=True), found(risk="high"), found(tool="exec_command")) == (["q0"], ["q1"], ["q2"])
    assert (found(worker="helper"), found(project="bank")) == (["q3"], ["q2", "q3"])
    assert (found(words="BOB exec"), found(words="100% _"), found(words="'; DROP")) == (["q2"], [], [])
    assert found(words="Übung") == ["q3"], "as it is written, also where the database knows no case but that of ASCII"
    assert found(project="bank", words="bob", tool="write_file") == ["q3"]
    with store.database.transaction() as connection:
        connection.execute("UPDATE questions SET asked = asked - 7200 WHERE id = 'q1'")
    assert (found(older_s=3600), found()[0]) == (["q1"], "q1")
    pages, after = [], ""
    while page := [each.id for each in who.questions(limit=2, wanted=QuestionFilter(after=after))]:
        pages.append(page)
        after = page[-1]
    assert pages == [["q1", "q0"], ["q2", "q3"]]
    kim = person(store, "kim", Role.NONE)
    store.projects.grant("shop", "kim", "viewer")
    assert [each.id for each in kim.questions()] == ["q1", "q0"]
    for project in ("bank", "nowhere"):
        with pytest.raises(TeamError, match="no project"):
            kim.questions(wanted=QuestionFilter(project=project))
    store.projects.grant("shop", "kim", "none")
    store.projects.grant("bank", "kim", "viewer")
    for after in ("q1", "nowhere"):
        assert kim.questions(wanted=QuestionFilter(after=after)) == [], "nobody learns which ids other projects have"
    store.projects.grant("bank", "kim", "none")
    store.projects.grant("shop", "kim", "viewer")
    assert [(each.starter, each.task, each.program) for each in kim.questions(limit=1)] == [("bob", "go", "shop")]


def test_questions_that_are_alike_are_answered_together_and_each_is_judged(store: Store) -> None:
    """One answer row each. What shows something else is not alike; what four eyes forbid stays open."""
    who = person(store, "pat", Role.OPERATOR)
    sessions = [started(store, starter, "shop") for starter in ("bob", "eve", "pat")]
    for number, lease in enumerate(sessions):
        store.questions.ask(lease, like(number), kind="approval", four_eyes=1)
    others: list[dict[str, Any]] = [
        {"diff": "+two"}, {"fingerprint": "f2"}, {"payload": "b.txt"}, {"risk": "high"}, {"warnings": ["new"]},
        {"tool": "edit_file"}, {"fingerprint": ""},
    ]  # fmt: skip
    for number, changed in enumerate(others, start=10):
        store.questions.ask(started(store, "bob", "shop"), like(number, **changed), kind="approval")
    store.questions.ask(started(store, "bob", "bank"), like(30), kind="approval")
    first = who.find_question("q0")
    assert [each.id for each in who.questions(wanted=QuestionFilter(same=first.same))] == ["q0", "q1", "q2"]
    for answer in ({"approved": True, "args": {}}, {"approved": True, "choice": "write:session"}):
        with pytest.raises(TeamError, match="answered with yes or no"):
            who.answer_alike("q0", answer)
    with pytest.raises(TeamError, match="may not answer"):
        person(store, "vic", Role.VIEWER).answer_alike("q0", {"approved": True})
    said = who.answer_alike("q1", {"approved": True})
    assert [(each.question, each.state) for each in said] == [("q1", "answered"), ("q0", "answered"), ("q2", "")]
    assert "pat is an author of this session" in said[2].problem
    assert {each.id for each in store.questions.rows(state="open")} == {"q2", "q30", *(f"q{n}" for n in range(10, 17))}
    told = store.accounts.audit.records()
    answers = [(each.data["question"], each.session) for each in told if each.kind == "answer"]
    assert answers == [("q1", sessions[1].id), ("q0", sessions[0].id)]
    assert [each["action"] for each in store.accounts.refusals()] == ["answer (four eyes)", "answer"]
    with pytest.raises(TeamError, match="was answered already by pat"):
        who.answer_alike("q0", {"approved": False})
    with pytest.raises(TeamError, match="author of this session"):
        who.answer_alike("q2", {"approved": True})
    assert [each.state for each in who.answer_alike("q2", {"approved": False})] == ["answered"]


def test_the_sessions_of_a_project_are_found_behind_any_number_of_others(store: Store) -> None:
    who = person(store, "pat", Role.VIEWER)
    old, *_ = (started(store, "bob", program) for program in ("shop", "bank", "bank"))
    assert [each.id for each in who.sessions(project="Shop", limit=1)] == [old.id]
    kim = person(store, "kim", Role.NONE)
    store.projects.grant("bank", "kim", "viewer")
    for project in ("shop", "nowhere"):
        with pytest.raises(TeamError, match="no project"):
            kim.sessions(project=project)


def test_nobody_answers_what_is_alike_in_a_project_that_is_not_theirs(store: Store) -> None:
    """Also where a runner says that it is the same call."""
    kim = person(store, "kim", Role.NONE)
    for number, program in enumerate(("shop", "bank")):
        store.questions.ask(started(store, "bob", program), like(number), kind="approval")
    store.projects.grant("shop", "kim", "operator")
    store.projects.grant("bank", "kim", "viewer")
    with store.database.transaction() as connection:
        connection.execute("UPDATE questions SET same = 'x'")
    said = kim.answer_alike("q0", {"approved": True})
    assert [(each.question, each.state) for each in said] == [("q0", "answered"), ("q1", "")]
    assert "may not answer" in said[1].problem
    store.projects.grant("bank", "kim", "none")
    with pytest.raises(TeamError, match="no question"):
        kim.answer_alike("q1", {"approved": True})
    assert [each.id for each in store.questions.rows()] == ["q1"]
