"""The audit: what it says and does not say, its hash chain, the share of each person, its retention."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.deadlines import PATIENCE
from tests.team.conftest import on_stores

from golem_forge.team import audit
from golem_forge.team.accounts import SignedIn
from golem_forge.team.audit import Actor, AuditHead, exported, imported, verify_records
from golem_forge.team.database import TeamError
from golem_forge.team.people import PersonStore, Role, add_person, find_person, rotate_token, token_hash
from golem_forge.team.rows import Append, Lease, NewSession
from golem_forge.team.schema import pruning
from golem_forge.team.store import Store

ANN = Actor("ann", "cli")
RULE = {"verdict": "blocked", "tool": "webfetch"}


def filled(store: Store) -> None:
    """One of each kind."""
    add_person(store, "bob", Role.OPERATOR, by=ANN)
    rotate_token(store, "bob", by=ANN)
    store.accounts.log_in("bob", "page", "token")
    store.accounts.refuse("bob", "page", "manage people", "list")
    store.queue(NewSession(facts={}, input="go", title="go", person="bob", program="shop"))
    lease = store.leases.claim("runner", ())
    assert lease is not None
    wire = {"requestId": "q1", "tool": "exec_command", "risk": "high", "toolCallId": "c", "args": {"cmd": "cat /a"}}
    wire |= {"type": "command", "payload": "cat /a"}
    for number, answer in enumerate(
        ({"approved": True}, {"approved": True, "args": {"path": "s3cret"}}, {"approved": False})
    ):
        store.questions.ask(lease, {**wire, "requestId": f"q{number}"}, kind="approval")
        store.questions.answer(f"q{number}", answer, "olga", "page")
    store.accounts.remove_rule(store.accounts.add_rule(RULE, "ann"), by=ANN)
    store.accounts.remove_person("bob", by=ANN)
    store.leases.end(lease, "finished")


def started(store: Store) -> Lease:
    lease = store.leases.claim("runner", (), session_id=store.queue(NewSession(facts={}, input="go", person="bob")))
    assert lease is not None
    return lease


KINDS = [
    "person added", "token rotated", "login", "refused", "question", "answer", "question", "edit", "question", "answer",
    "rule added", "rule removed", "person removed",
]  # fmt: skip


def test_the_audit_says_who_did_what_and_no_argument(store: Store) -> None:
    filled(store)
    records = store.accounts.audit.records()
    assert [each.kind for each in records] == KINDS
    assert [each.n for each in records] == list(range(1, len(KINDS) + 1))
    assert {each.person for each in records} == {"ann", "bob", "olga"}
    edit = records[7]
    assert (edit.person, edit.door, edit.program) == ("olga", "page", "shop")
    assert (edit.data["edited"], edit.data["starter"], edit.data["approved"]) == (["path"], "bob", True)
    assert "s3cret" not in repr(records) and "/a" not in repr(records)
    assert [each.kind for each in store.accounts.audit.records(program="shop")] == KINDS[4:10]
    assert store.accounts.audit.records(since=store.now() + 10) == []
    assert not list(verify_records(records, AuditHead()))


def test_many_who_write_at_once_wait_for_nobody_in_a_circle(
    store_url: str, store: Store, tmp_path: Path, is_long: bool
) -> None:
    """Answers, questions, rules of runners and of admins, roles, people and refusals all end in one chain. Seen before:
    two runners that kept the same two rules in another order each waited for the other's."""
    rounds = 30 if is_long else 6
    leases = [started(store) for _ in range(4)]
    rules = [{"verdict": "ask", "tool": f"tool{number}"} for number in range(6)]
    for name in ("bob", "eve"):
        add_person(store, name, Role.OPERATOR)
    store.projects.add("shop", "shop")

    def keep_rules(own: Store, lease: Lease, number: int) -> None:
        ordered = rules if lease is leases[0] else rules[::-1]
        given = tuple((rule, "ann", f"p{number}") for rule in ordered)
        line = f'{{"n":{number + 1}}}\n'.encode()
        append = Append(session=lease.id, epoch=lease.epoch, first=number + 1, lines=(line,), rules=given)
        assert own.append([append]) == {}

    def take_rules(own: Store, number: int) -> None:
        for each in own.accounts.rules():
            with contextlib.suppress(TeamError):  # another took it
                own.accounts.remove_rule(each["id"], by=ANN)

    def ask_and_answer(own: Store, lease: Lease, number: int) -> None:
        wire = {"requestId": f"{lease.id[:8]}{number}", "tool": "x", "risk": "low", "toolCallId": "c"}
        question = own.questions.ask(lease, wire, kind="approval")
        assert own.questions.answer(question.id, {"approved": True}, "bob", "api").state == "answered"

    def change_people(own: Store, number: int) -> None:
        own.projects.grant("shop", "eve", ("viewer", "none")[number % 2], by=ANN)
        own.projects.join("crew", "eve", by=ANN)
        own.accounts.refuse("eve", "api", "stop", "x")
        own.projects.leave("crew", "eve", by=ANN)

    works: list[Callable[[Store, int], None]] = [
        lambda own, number: keep_rules(own, leases[0], number),
        lambda own, number: keep_rules(own, leases[1], number),
        take_rules,
        lambda own, number: ask_and_answer(own, leases[2], number),
        lambda own, number: ask_and_answer(own, leases[3], number),
        change_people,
    ]
    together = threading.Barrier(len(works))

    def run(work: Callable[[Store, int], None]) -> None:
        own = Store.open(store_url, tmp_path)
        try:
            for number in range(rounds):
                together.wait(PATIENCE)
                work(own, number)
        except BaseException:
            together.abort()
            raise
        finally:
            own.close()

    with ThreadPoolExecutor(len(works)) as pool:
        for done in [pool.submit(run, work) for work in works]:
            done.result()
    told = store.accounts.audit.records(limit=100_000)
    assert list(verify_records(told, AuditHead())) == []
    assert Counter(each.kind for each in told)["answer"] == 2 * rounds


@on_stores("format", ["jsonl", "csv"], ["csv"])
def test_an_export_can_be_checked_by_itself_and_shows_what_was_changed(store: Store, format: str) -> None:
    filled(store)
    lines = list(exported(store.accounts.audit.records(), format))
    first = int(format == "csv")

    def problems(*changed: str) -> list[tuple[int, str]]:
        return list(verify_records(imported(changed)))

    assert problems(*lines) == []
    assert problems(*lines[:first], *lines[first + 3 :]) == [], "it begins where --since says"
    cut = problems(*lines[: first + 5], *lines[first + 7 :])
    assert cut == [(8, "the records from 6 to 7 are missing")], "only an export of one project leaves records out"
    of_shop = list(exported(store.accounts.audit.records(program="shop"), format))
    assert problems(*of_shop[: first + 1], *of_shop[first + 2 :]) == []
    changed = [line.replace("olga", "oleg") for line in lines]
    assert {number for number, _ in problems(*changed)} == {6, 8, 10}
    doubled = problems(*lines[: first + 2], *lines[first:])
    assert doubled[0] == (1, "it comes after number 2")
    with pytest.raises(TeamError, match="after 2 records comes something else"):
        problems(*lines[: first + 2], "what is this?\n")


def rewritten(store: Store, statement: str) -> None:
    """As the owner of the tables could."""
    with store.database.transaction() as connection, pruning(connection, store.database):
        if store.database.kind != "sqlite":
            connection.execute("ALTER TABLE audit DISABLE TRIGGER USER")
        connection.execute(statement)
        if store.database.kind != "sqlite":
            connection.execute("ALTER TABLE audit ENABLE TRIGGER USER")


def test_the_audit_says_who_changed_a_project_or_a_group(store: Store) -> None:
    store.projects.add("p1", "shop")
    who = PersonStore(store, token_hash(add_person(store, "ada", Role.ADMIN)), "api")
    pat = PersonStore(store, token_hash(add_person(store, "pat", Role.NONE)), "api")
    before = len(store.accounts.audit.records())
    for _ in range(2):  # what changes nothing is no change
        who.join("crew", "pat")
        who.grant("shop", "@crew", Role.OPERATOR)
    who.grant("shop", "@crew", Role.NONE)
    who.grant("shop", "pat", Role.VIEWER)
    with pytest.raises(TeamError, match="may not manage the project"):
        pat.grant("shop", "pat", Role.ADMIN)
    who.rename_project("shop", "store")
    who.leave("crew", "pat")
    records = store.accounts.audit.records()[before:]
    assert [(each.kind, each.person, each.program) for each in records] == [
        ("group joined", "ada", ""), *[("project role changed", "ada", "p1")] * 3, ("refused", "pat", ""),
        ("project renamed", "ada", "p1"), ("group left", "ada", ""),
    ]  # fmt: skip
    assert records[2].data == {"project": "shop", "name": "@crew", "role": "none", "was": "operator"}
    assert list(verify_records(store.accounts.audit.records(), AuditHead())) == []


CHANGED = [
    ("UPDATE audit SET person = 'eve' WHERE n = 4", "4: its hash"),
    ("UPDATE audit SET data = 'x' WHERE n = 4", "4: its hash"),
    ("UPDATE audit SET at = at + 60 WHERE n = 4", "4: its hash"),
    ("DELETE FROM audit WHERE n IN (3, 4)", "5: the records from 3 to 4 are missing"),
    ("DELETE FROM audit WHERE n < 3", "3: the records from 1 to 2 are missing"),
]


@on_stores("statement, found", CHANGED, [CHANGED[0], CHANGED[-1]])
def test_what_the_owner_of_the_tables_changes_is_found(store: Store, statement: str, found: str) -> None:
    filled(store)
    rewritten(store, statement)
    told = list(verify_records(store.accounts.audit.records(), store.accounts.audit.pruned()))
    assert [f"{number}: {what}"[: len(found)] for number, what in told] == [found]


def test_nobody_changes_or_deletes_a_record(store: Store) -> None:
    filled(store)
    for statement in ("DELETE FROM audit", "UPDATE audit SET person = 'eve'"):
        with pytest.raises(TeamError, match="append only"), store.database.transaction() as connection:
            connection.execute(statement)


def test_whoever_is_refused_cannot_wash_out_what_was_refused_to_them(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "REFUSALS_KEPT", 5)
    store.accounts.refuse("eve", "api", "manage people", "add eve as admin")
    store.accounts.refuse("bob", "api", "stop", "session 1")
    for number in range(20):
        store.accounts.refuse("eve", "api", "see refusals", f"{number}")
    store.accounts.refuse("eve", "api", "answer", "question 7")
    store.accounts.refuse("eve", "page", "see refusals", "at another door")
    told = [(each["person"], each["action"], each["what"]) for each in store.accounts.refusals()]
    assert told == [
        ("eve", "see refusals", "at another door"),
        ("eve", "answer", "question 7"),
        ("eve", "see refusals", audit.NOT_LISTED),
        *(("eve", "see refusals", str(number)) for number in (3, 2, 1, 0)),
        ("bob", "stop", "session 1"),
        ("eve", "manage people", "add eve as admin"),
    ]
    monkeypatch.setattr(audit, "_SHARE_S", 0.0)  # the hour is over
    store.accounts.refuse("eve", "api", "see refusals", "later")
    assert store.accounts.refusals(1)[0]["what"] == "later"


def test_records_are_deleted_after_their_own_time_and_the_chain_goes_on(store: Store) -> None:
    filled(store)
    assert store.prune(-1) == 1
    before = store.accounts.audit.records()
    assert [each.kind for each in before] == KINDS, "they outlive their sessions"
    assert store.prune_audit(3600, ANN) == 0
    assert store.prune_audit(-1, ANN) == len(KINDS) - 1
    begin, left = store.accounts.audit.pruned(), store.accounts.audit.records()
    assert (begin.n, begin.hash) == (before[-2].n, before[-2].hash)
    assert [(each.n, each.kind) for each in left] == [(13, "person removed"), (14, "audit pruned")]
    assert not list(verify_records(left, begin))
    rewritten(store, "DELETE FROM audit WHERE n = 13")
    assert [number for number, _ in verify_records(store.accounts.audit.records(), begin)] == [14]


def test_a_token_expires_or_is_renewed_and_it_is_known_whose_it_was(store: Store) -> None:
    old, short, stays = (
        token_hash(add_person(store, name, Role.VIEWER, expires_in=lasts))
        for name, lasts in (("ann", 3600.0), ("bob", 1e-9), ("eve", 0.0))
    )
    new = token_hash(rotate_token(store, "ann"))

    def found(hash: str) -> str:
        person = find_person(store, hash)
        return person.name if person is not None else ""

    assert [found(each) for each in (old, short, stays, new)] == ["", "", "eve", "ann"]
    assert [store.accounts.whose_was(each) for each in (old, short, token_hash("x"))] == ["ann", "bob", ""]
    assert found(token_hash(rotate_token(store, "bob"))) == "bob"
    with pytest.raises(TeamError, match="no person 'nobody'"):
        rotate_token(store, "nobody")


def test_people_who_sign_in_are_known_by_issuer_and_subject_alone(store: Store) -> None:
    add_person(store, "bob", Role.ADMIN)
    store.queue(NewSession(facts={}, input="go", person="root"))
    store.questions.ask(started(store), {"requestId": "q1", "tool": "x", "toolCallId": "c"}, kind="approval")
    store.questions.answer("q1", {"approved": True}, "dora", "cli")
    numbers = itertools.count()

    def signed(name: str, role: str = "viewer", issuer: str = "https://a", subject: str = "") -> str:
        return store.accounts.sign_in(SignedIn(issuer, subject or f"s{next(numbers)}", name, role))

    assert signed("ada", subject="1") == "ada"
    assert signed("renamed", "operator", subject="1") == "ada"
    names = [signed("ADA", subject="2"), signed("ada", issuer="https://b", subject="1"), signed("Bob"), signed("root")]
    names.append(signed("Dora"))  # an account of that name answered
    assert len({name.lower() for name in names} | {"ada", "bob", "root", "dora"}) == 9
    people = {each["name"]: each for each in store.accounts.people()}
    assert (people["ada"]["role"], people["bob"]["role"], people["bob"]["issuer"]) == ("operator", "admin", "")
    store.accounts.remove_person("ada", by=ANN)
    with pytest.raises(TeamError, match="You were removed from this team") as refused:
        signed("ada", subject="1")
    assert refused.value.code == "REMOVED"
    store.accounts.restore_person("ada", ANN)
    assert signed("ada", subject="1") == "ada"
    with pytest.raises(TeamError, match="nobody who signs in"):
        store.accounts.restore_person("bob")


def test_who_was_removed_and_comes_back_has_their_name_and_no_role_but_that_of_their_groups(store: Store) -> None:
    """Seen before: whoever had started a session came back under another name, and was no author of it any more."""
    ada = SignedIn("https://a", "1", "ada", "viewer")
    assert store.accounts.sign_in(ada) == "ada"
    store.projects.add("shop", "shop")
    store.projects.grant("shop", "ada", "admin", by=ANN)
    store.projects.join("crew", "ada", by=ANN)
    store.projects.grant("shop", "@crew", "operator", by=ANN)
    store.queue(NewSession(facts={}, input="go", person="ada", program="shop"))
    store.accounts.remove_person("ada", by=ANN)
    for _ in range(2):  # also a second time
        store.accounts.restore_person("ada", ANN)
        assert store.accounts.sign_in(ada) == "ada"
        found = find_person(store, ada.key)
        assert found is not None
        assert (found.role, found.projects) == (Role.VIEWER, {})
        assert store.accounts.sign_in(SignedIn("https://a", "2", "ada", "viewer")).startswith("ada-")
        store.accounts.remove_person("ada", by=ANN)
        with pytest.raises(TeamError, match="You were removed"):
            store.accounts.sign_in(ada)
    store.accounts.restore_person("ada", ANN)
    add_person(store, "ada", Role.ADMIN)  # somebody else has the name by now
    assert store.accounts.sign_in(ada).startswith("ada-")


def test_whoever_signs_in_has_their_token_as_the_same_person(store: Store) -> None:
    """Four eyes by one person: a token of a second name would approve what the first name began."""
    ada = SignedIn("https://a", "1", "ada", "operator")
    assert store.accounts.sign_in(ada) == "ada"
    first, second = (token_hash(rotate_token(store, "ada")) for _ in range(2))

    def found(key: str) -> str:
        person = find_person(store, key)
        return f"{person.name} {person.role.value}" if person is not None else ""

    assert [found(each) for each in (ada.key, first, second)] == ["ada operator", "", "ada operator"]
    page, laptop = PersonStore(store, ada.key, "page"), PersonStore(store, second, "api")
    lease = store.leases.claim("runner", (), session_id=page.queue(NewSession(facts={}, input="go", program="shop")))
    assert lease is not None
    wire = {"requestId": "q1", "tool": "x", "risk": "high", "toolCallId": "c"}
    store.questions.ask(lease, wire, kind="approval", four_eyes=1)
    with pytest.raises(TeamError, match="ada is an author of this session"):
        laptop.answer("q1", {"approved": True})
    assert {each["own_token"] for each in page.store.accounts.people()} == {second}
    expired = token_hash(rotate_token(store, "ada", expires_in=1e-9))
    assert [found(each) for each in (ada.key, second, expired)] == ["ada operator", "", ""]
    assert store.projects.approvers(["shop"]) == {"shop": ["ada"]}, "the token has expired, not the person"
    third = token_hash(rotate_token(store, "ada"))
    store.accounts.log_out("ada", "sign-in", "not known there any more")
    assert [found(each) for each in (ada.key, third)] == ["ada operator", ""]
    fourth = token_hash(rotate_token(store, "ada", expires_in=0.0))
    store.accounts.remove_person("ada", by=ANN)
    assert [found(each) for each in (ada.key, fourth)] == ["", ""]
    assert {store.accounts.whose_was(each) for each in (first, second, expired, third, fourth)} == {"ada"}
    store.accounts.restore_person("ada", ANN)
    assert store.accounts.sign_in(ada) == "ada" and found(fourth) == ""
