"""Secret paths under real walls: empty and unreadable, unless this very call was granted them."""

from __future__ import annotations

import os

import pytest

from golem_forge.core.decisions import Verdict
from golem_forge.core.effects import Verb
from golem_forge.sandbox.zones import AccessMode, ZoneSpec

from .house import House, path_rule

CANARY = "canary-content"
READ = "python3 -c \"print(open('.env').read())\""


@pytest.fixture
def secrets(house: House) -> House:
    for name in (".env", "a/b/c/key.pem", ".ssh/config", ".aws/credentials", "a/.env.example", "plain"):
        (house.workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (house.workspace / name).write_text(CANARY)
    return house


@pytest.mark.parametrize("mode", [AccessMode.RW, AccessMode.RO])
def test_secrets_are_masked_in_every_zone(secrets: House, mode: AccessMode) -> None:
    walls = secrets.walls(ZoneSpec(name="workspace", path=secrets.workspace, mode=mode))

    ran = secrets.run(
        "cat .env a/b/c/key.pem .ssh/config .aws/credentials; ls -A .ssh .aws; wc -c < a/.env.example; cat plain;"
        " ln .env hard; mv a moved; cat moved/b/c/key.pem; chmod 777 .env; rm -f .env; cp .env copy",
        walls,
    )

    assert ran.text.count(CANARY) == 1
    assert {(one["kind"], one["target"]) for one in ran.after.denials} >= {
        ("secret", "/workspace/.env"),
        ("secret", "/workspace/a/b/c/key.pem"),
    }
    assert (secrets.workspace / ".env").read_text() == CANARY


def test_a_grant_holds_for_one_call_and_one_path(secrets: House) -> None:
    walls = secrets.walls()

    assert CANARY not in secrets.run(READ, walls).text
    assert secrets.run(READ, walls, lifted=frozenset({"/workspace/.env"})).text == f"{CANARY}\n"
    assert CANARY not in secrets.run("cat a/b/c/key.pem", walls, lifted=frozenset({"/workspace/.env"})).text
    assert CANARY not in secrets.run(READ, walls).text


def test_a_grant_inside_a_masked_directory_shows_that_file_only(secrets: House) -> None:
    (secrets.workspace / ".ssh/id_rsa").write_text("canary-key")

    ran = secrets.run(
        "cat .ssh/config; cat .ssh/id_rsa; touch .ssh/new; ls .ssh", lifted=frozenset({"/workspace/.ssh/config"})
    )

    assert ran.text.startswith(CANARY) and "canary-key" not in ran.text and ran.text.endswith("config\n")
    assert sorted(os.listdir(secrets.workspace / ".ssh")) == ["config", "id_rsa"]


def test_a_rule_of_the_person_s_own_lifts_the_mask(secrets: House) -> None:
    rules = (
        path_rule("/workspace/.env", Verdict.PRE_APPROVED, Verb.READ, literal="/workspace/.env", accepts=True),
        path_rule("/workspace/.ssh/**", Verdict.PRE_APPROVED, Verb.READ, literal="/workspace/.ssh", accepts=True),
    )

    ran = secrets.run("cat .env .ssh/config; cat .aws/credentials", secrets.walls(rules=lambda: rules))

    assert ran.text.count(CANARY) == 2


@pytest.mark.parametrize("verdict", [Verdict.ASK, Verdict.BLOCKED])
def test_read_rules_mask_and_only_ask_can_be_lifted(secrets: House, verdict: Verdict) -> None:
    (secrets.workspace / "data/deep").mkdir(parents=True)
    (secrets.workspace / "data/deep/x").write_text(CANARY)
    (secrets.workspace / "a/one.csv").write_text(CANARY)
    rules = (
        path_rule("/workspace/data/**", verdict, Verb.READ, literal="/workspace/data"),
        path_rule("/workspace/**/*.csv", verdict, Verb.READ),
        path_rule("/workspace/.env", verdict, Verb.READ, literal="/workspace/.env"),
    )
    walls = secrets.walls(rules=lambda: rules)

    assert CANARY not in secrets.run("cat data/deep/x a/one.csv .env; ls data", walls).text
    lifted = frozenset({"/workspace/.env", "/workspace/a/one.csv", "/workspace/data/deep/x"})
    seen = secrets.run("cat data/deep/x a/one.csv .env", walls, lifted=lifted).text.count(CANARY)
    assert seen == (3 if verdict is Verdict.ASK else 0)


def test_rules_are_written_for_the_program_s_zone_not_the_worker_s(secrets: House) -> None:
    rules = (path_rule("/workspace/a/b/**", Verdict.BLOCKED, Verb.READ, literal="/workspace/a/b"),)
    (secrets.workspace / "a/b/plain").write_text(CANARY)
    inner = secrets.walls(ZoneSpec(name="workspace", path=secrets.workspace, subpath="a"), rules=lambda: rules)
    whole = secrets.walls(ZoneSpec(name="workspace", path=secrets.workspace, subpath="a/b"), rules=lambda: rules)

    assert CANARY not in secrets.run("cat b/plain", inner).text
    assert secrets.run("cat plain; ls -A", whole).text == "cat: plain: No such file or directory\n"


def test_a_link_does_not_make_a_secret_readable(secrets: House) -> None:
    (secrets.workspace / "settings").write_text(CANARY)
    (secrets.workspace / "a/.env").symlink_to("../settings")

    assert CANARY not in secrets.run("cat a/.env settings").text


def test_what_appears_after_a_rule_was_written_is_held_back_too(secrets: House) -> None:
    (secrets.workspace / "data").mkdir()
    rules = (path_rule("/workspace/data/**", Verdict.ASK, Verb.READ, literal="/workspace/data"),)
    walls = secrets.walls(rules=lambda: rules)
    secrets.run("true", walls)

    (secrets.workspace / "data/later").write_text(CANARY)

    assert CANARY not in secrets.run("cat data/later", walls).text


def test_more_secrets_than_descriptors_are_masked(house: House) -> None:
    for index in range(170):
        (house.workspace / f"{index}.key").write_text(CANARY)

    ran = house.run("cat *.key 2>&1 | grep -c 'Permission denied'; cat *.key 2>/dev/null")

    assert ran.text == "170\n"


def test_names_that_are_hard_to_write(house: House) -> None:
    for name in (b"new\nline.key", b"sp ace.key", b"\xff.key", b"-dash.key", b"quote'.key"):
        with open(os.path.join(os.fsencode(house.workspace), name), "w") as file:
            file.write(CANARY)

    ran = house.run('for f in ./*.key; do cat "$f" 2>/dev/null; echo done; done')

    assert ran.text == "done\n" * 5
