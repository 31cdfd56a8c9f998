"""Secrets of a project: sealed where they are typed, opened by runners alone, given to sessions of that project."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import hpke
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
from tests.ready import ReadyForge
from tests.team.background import Program, ended, running

from golem_forge.config.sandbox_block import PROJECT_SECRETS
from golem_forge.core.errors import ToolFailed
from golem_forge.net.server_guard import secret_hash
from golem_forge.sandbox.walls.environment import make_env_block, resolve_env
from golem_forge.team.database import TeamError
from golem_forge.team.people import OwnerStore, PersonStore, Role, add_person
from golem_forge.team.project_secrets import fingerprint, make_key, seal
from golem_forge.team.rows import NewSession, program_id
from golem_forge.team.store import Store

CANARY = "canary-7731-of-the-bank"


def given(store: Store, home: Path, project: str = "shop", name: str = "TOKEN", value: str = CANARY) -> None:
    """As somebody with the owner's role types it."""
    who = OwnerStore(store, "ann", "cli")
    key, id = who.secrets_key(project)
    who.put_secret(project, name, seal(value, key, id, name))


@pytest.fixture
def ready(store: Store, tmp_path: Path) -> Store:
    store.secrets.publish(make_key(tmp_path))
    for name in ("shop", "bank"):
        store.projects.add(f"id-{name}", name)
    return store


def test_a_secret_opens_with_the_runners_key_in_its_project_and_nowhere_else(ready: Store, tmp_path: Path) -> None:
    given(ready, tmp_path)
    assert ready.secrets.opened("id-shop", tmp_path) == ({"TOKEN": CANARY}, [])
    assert ready.secrets.opened("id-bank", tmp_path) == ({}, [])
    (tmp_path / "other").mkdir()
    assert ready.secrets.opened("id-shop", tmp_path / "other") == ({}, ["TOKEN"])  # a page, or a runner without the key
    make_key(tmp_path / "other")
    assert ready.secrets.opened("id-shop", tmp_path / "other") == ({}, ["TOKEN"])  # of another store
    [row] = ready.secrets.of("id-shop")
    whole = f"{row} {ready.accounts.audit.records()} {ready.database.read('SELECT * FROM secrets')}"
    assert CANARY not in whole and base64.b64encode(CANARY.encode()).decode() not in whole
    with ready.database.transaction() as connection:  # whoever writes the database moves it to their own project
        connection.execute("UPDATE secrets SET project = 'id-bank'")
    assert ready.secrets.opened("id-bank", tmp_path) == ({}, ["TOKEN"])
    with ready.database.transaction() as connection:
        connection.execute("UPDATE secrets SET project = 'id-shop', name = 'OTHER'")
    assert ready.secrets.opened("id-shop", tmp_path) == ({}, ["OTHER"])


def test_what_was_sealed_by_the_older_cipher_still_opens(ready: Store, tmp_path: Path) -> None:
    suite = hpke.Suite(hpke.KEM.X25519, hpke.KDF.HKDF_SHA256, hpke.AEAD.CHACHA20_POLY1305)
    public = X25519PublicKey.from_public_bytes(base64.b64decode(ready.secrets.public_key()))
    info = b"golem-forge secret\0id-shop\0TOKEN"
    ready.secrets.put("id-shop", "TOKEN", base64.b64encode(suite.encrypt(CANARY.encode(), public, info=info)).decode())
    assert ready.secrets.opened("id-shop", tmp_path) == ({"TOKEN": CANARY}, [])


def test_the_key_is_a_private_file_and_stays_the_same(ready: Store, tmp_path: Path) -> None:
    key = tmp_path / "state" / "runner.key"
    assert key.stat().st_mode & 0o777 == 0o600
    public = ready.secrets.public_key()
    assert make_key(tmp_path) == public and len(fingerprint(public)) == 32
    assert key.read_text().strip() not in str(ready.database.read("SELECT * FROM meta"))
    key.chmod(0o666)
    given(ready, tmp_path)
    with pytest.raises(OSError, match="another user may have written it"):
        ready.secrets.opened("id-shop", tmp_path)


def test_who_may_set_which_secret(ready: Store, tmp_path: Path) -> None:
    def person(name: str, role: Role) -> PersonStore:
        return PersonStore(ready, secret_hash(add_person(ready, name, role)), "api")

    bob, pat = person("bob", Role.OPERATOR), person("pat", Role.NONE)
    ready.projects.grant("shop", "pat", "admin")
    key, id = pat.secrets_key("shop")
    sealed = seal(CANARY, key, id, "TOKEN")
    pat.put_secret("shop", "TOKEN", sealed)
    for who, project in ((bob, "shop"), (pat, "bank")):
        for act in (
            lambda who=who, project=project: who.secrets_key(project),
            lambda who=who, project=project: who.put_secret(project, "TOKEN", sealed),
            lambda who=who, project=project: who.remove_secret(project, "TOKEN"),
        ):
            with pytest.raises(TeamError) as refused:
                act()
            assert refused.value.code in ("ROLE", "PROJECT_NOT_FOUND")
    assert (bob.secrets(), [each["name"] for each in pat.secrets()]) == ([], ["TOKEN"])
    for name, wrong in (("a b", sealed), ("TOKEN", CANARY), ("TOKEN", "")):
        with pytest.raises(TeamError):
            pat.put_secret("shop", name, wrong)
    for value in ("", "two\nlines", "x" * 20_000):
        with pytest.raises(TeamError, match="one line"):
            seal(value, key, id, "TOKEN")
    pat.remove_secret("shop", "TOKEN")
    with pytest.raises(TeamError, match="has no secret"):
        pat.remove_secret("shop", "TOKEN")
    assert [each.kind for each in ready.accounts.audit.records(program="id-shop")][-2:] == [
        "secret set", "secret removed",
    ]  # fmt: skip


def test_without_a_key_of_the_runners_nothing_can_be_set(store: Store) -> None:
    store.projects.add("id-shop", "shop")
    with pytest.raises(TeamError, match="`forge secrets key`"):
        OwnerStore(store, "ann", "cli").secrets_key("shop")


async def test_two_sessions_of_one_process_see_their_own_projects_secrets() -> None:
    block = make_env_block({"secrets": {"API": "project:TOKEN"}})
    met = asyncio.Barrier(2)

    async def session(value: str) -> str:
        PROJECT_SECRETS.set({"TOKEN": value})
        await met.wait()
        return (await asyncio.to_thread(resolve_env, block, {"TOKEN": "of the account"}, None)).values["API"]

    found = await asyncio.gather(*map(asyncio.create_task, (session("of the shop"), session("of the bank"))))
    assert found == ["of the shop", "of the bank"]
    with pytest.raises(ToolFailed, match="could not be resolved from project:TOKEN"):
        resolve_env(block, {"TOKEN": "of the account"}, None)


async def test_a_command_of_the_project_has_it_and_no_record_does(tmp_path: Path, ready_forge: ReadyForge) -> None:
    """The model asks for its length, and for itself; another project's session has none."""
    program = Program(tmp_path / "shop", tmp_path / "home", ready=ready_forge, tools=False)
    (program.folder / "main.worker").write_text(
        "---\nname: main\ndescription: d\nsandbox: {zones: [{name: work, mode: rw}]}\n"
        "toolsets: {exec: {env: {secrets: {API: project:TOKEN}}}}\n---\nDo it.\n"
    )
    program.forge("trust", "--yes")
    shown = {"tool": "exec_command", "args": {"cmd": "echo ${#API}; echo $API"}}
    program.play({"say": "I look.", "calls": [shown]}, {"say": "done"})
    store = program.store()
    store.secrets.publish(make_key(program.home))
    id = program_id(program.folder)
    store.projects.add(id, "shop")
    given(store, program.home)
    async with running(program):
        lines = {}
        for whose in (id, "id-of-another"):
            facts = {"directory": str(program.folder), "approval": "approve_all"}
            session = store.queue(NewSession(facts=facts, input="go", person="bob", program=whose, project=whose))
            assert (await ended(store, session)).state == "finished"
            lines[whose] = b"".join(line for _, line in store.lines(session)).decode()
        assert CANARY not in json.dumps(lines)
        assert f"{len(CANARY)}\\n" in lines[id]
        assert "could not be resolved from project:TOKEN" in lines["id-of-another"]
