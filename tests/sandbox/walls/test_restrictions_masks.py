"""Secret files and read rules in walls: what is masked, what a call lifts, and where masks are too many."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from golem_forge.core.decisions import Verdict
from golem_forge.core.effects import Verb
from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.walls import directories, landlock, planner, restrictions, scan
from golem_forge.sandbox.walls.model import Level, ProbeReport, RefusalReason
from golem_forge.sandbox.walls.restrictions import FEW
from golem_forge.sandbox.zones import AccessMode, ZoneSpec

from .house import House, path_rule

CANARY = "canary-content"


def _keys(directory: Path, count: int) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        (directory / f"{number}.pem").write_text(CANARY)


def _fifos(directory: Path, count: int) -> None:
    for number in range(count):
        os.mkfifo(directory / f"pipe{number}")


def test_many_fifos_at_the_root_hide_nothing_else(house: House) -> None:
    _fifos(house.workspace, 10 * FEW)
    (house.workspace / "plain.txt").write_text("plain\n")
    walls = house.walls()

    ran = house.run(
        "cat plain.txt; ls pipe* | wc -l; touch new && echo wrote; timeout 2 cat pipe0 pipe999; rm pipe1", walls
    )

    assert ran.text.startswith("plain\n1000\nwrote\n"), ran.text
    assert ran.text.count("Permission denied") == 2 and "busy" in ran.text
    assert walls.explain("/workspace/plain.txt").read is None and walls.explain("/workspace/x").write is None
    hidden = walls.explain("/workspace/pipe7").read
    assert hidden is not None and hidden.why is RefusalReason.SEALED


@pytest.mark.parametrize("count", [FEW - 1, FEW, FEW + 1, pytest.param(100 * FEW, marks=pytest.mark.long)])
def test_keys_in_a_test_folder_are_masked_one_by_one(house: House, count: int) -> None:
    _keys(house.workspace / "certs", count)
    (house.workspace / "certs/index.txt").write_text("index\n")
    walls = house.walls()

    ran = house.run("cat certs/index.txt; cat certs/*.pem; ls certs | wc -l; touch certs/new && echo wrote", walls)

    assert ran.text.startswith("index\n") and CANARY not in ran.text
    assert ran.text.endswith(f"\n{count + 1}\nwrote\n") and ran.text.count("Permission denied") == count
    why = walls.explain("/workspace/certs/0.pem").read
    assert why is not None and why.why is RefusalReason.SECRET, "the true reason"
    assert walls.explain("/workspace/certs").read is None


def test_what_is_masked_among_many_cannot_be_changed_moved_or_removed(house: House) -> None:
    _keys(house.workspace / "certs", 500)
    (house.workspace / "certs/.ssh").mkdir()
    (house.workspace / "certs/.ssh/id_rsa").write_text(CANARY)

    ran = house.run(
        "echo x > certs/3.pem; rm -f certs/4.pem; mv certs/5.pem certs/plain; chmod 600 certs/6.pem; mv certs c2;"
        " ln certs/7.pem linked; cp certs/8.pem copied; ls certs/.ssh; cat certs/.ssh/id_rsa; mv certs/.ssh certs/s"
    )

    assert CANARY not in ran.text
    assert all((house.workspace / f"certs/{number}.pem").read_text() == CANARY for number in range(500))
    assert (house.workspace / "certs/.ssh/id_rsa").read_text() == CANARY
    assert {path.name for path in house.workspace.iterdir()} <= {"certs", "copied"}


def test_many_unreadable_directories_hide_only_themselves(house: House) -> None:
    for number in range(300):
        (house.workspace / f"d{number}/.aws").mkdir(parents=True)
        (house.workspace / f"d{number}/.aws/credentials").write_text(CANARY)
        (house.workspace / f"d{number}/plain").write_text("p\n")

    ran = house.run("cat d*/plain | wc -l; cat d*/.aws/credentials; ls d299/.aws")

    assert ran.text.startswith("300\n") and CANARY not in ran.text


def test_an_allowed_secret_among_many_is_readable(house: House) -> None:
    _keys(house.workspace / "certs", 300)

    ran = house.run("cat certs/7.pem; cat certs/8.pem", lifted=frozenset({"/workspace/certs/7.pem"}))

    assert ran.text.count(CANARY) == 1


def test_more_than_walls_can_mask_are_refused_with_their_number(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "MOST_MASKS", 200)
    _keys(house.workspace / "certs", 150)
    _keys(house.workspace / "other", 49)
    walls = house.walls()
    assert house.run("ls certs | wc -l", walls).text == "150\n", "one below the bound"
    _keys(house.workspace / "more", 1)
    assert house.run("ls certs | wc -l", walls).text == "150\n", "the bound"

    for count in (2, 1000):
        _keys(house.workspace / "more", count)
        with pytest.raises(SandboxError) as refused:
            house.run("ls", walls)
        place = "/workspace/more" if count > 150 else "/workspace/certs"
        largest = max(count, 150)
        assert refused.value.code == "WALLS_UNAVAILABLE"
        for word in (f"{199 + count:,} ", "200", f"{largest:,} of them in {place}", f"{place}/**"):
            assert word in refused.value.message, (word, refused.value.message)

    rules = (path_rule("/workspace/more/**", Verdict.BLOCKED, Verb.READ, literal="/workspace/more"),)
    again = house.walls(rules=lambda: rules)
    assert house.run("ls certs | wc -l; ls more", again).text.startswith("150\n"), "the way out that it names"


def test_a_zone_that_cannot_be_listed_is_refused_with_the_reason(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directories, "MOST_NAMES", 50)
    _keys(house.workspace, 51)

    with pytest.raises(SandboxError) as refused:
        house.run("ls")

    assert refused.value.code == "WALLS_UNAVAILABLE" and "/workspace" in refused.value.message
    assert "51" in refused.value.message or "more than 50 names" in refused.value.message


def test_a_path_that_was_exchanged_meanwhile_stops_the_start(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    _keys(house.workspace / "certs", 300)
    (house.workspace / "real").write_text(CANARY)
    walls = house.walls()

    async def exchanged(pid: int, late: tuple[restrictions.Mask, ...]) -> None:
        (house.workspace / "certs/7.pem").unlink()
        (house.workspace / "certs/7.pem").symlink_to("../real")
        await put_up(pid, late)

    put_up = restrictions.put_up
    monkeypatch.setattr("golem_forge.sandbox.walls.walls.put_up", exchanged)
    with pytest.raises(SandboxError) as refused:
        house.run("touch ran; cat certs/7.pem", walls)

    assert refused.value.code == "WALLS_UNAVAILABLE" and "300 paths could not be hidden" in refused.value.message
    assert str(house.root) not in refused.value.message and not (house.workspace / "ran").exists()


def test_a_directory_that_became_another_one_stops_the_start(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    _keys(house.workspace / "certs", 300)
    walls = house.walls()

    async def renamed(pid: int, late: tuple[restrictions.Mask, ...]) -> None:
        (house.workspace / "certs").rename(house.workspace / "moved")
        await put_up(pid, late)

    put_up = restrictions.put_up
    monkeypatch.setattr("golem_forge.sandbox.walls.walls.put_up", renamed)
    with pytest.raises(SandboxError, match="could not be hidden"):
        house.run("cat moved/*; touch ran", walls)
    assert not (house.workspace / "ran").exists()


def test_many_keys_of_an_installed_package_hide_nothing_beside_them(house: House) -> None:
    _keys(house.workspace / "node_modules/tls/test/fixtures", 40)
    (house.workspace / "node_modules/tls/test/fixtures/run.js").write_text("run\n")

    ran = house.run("cat node_modules/tls/test/fixtures/run.js; cat node_modules/tls/test/fixtures/*.pem")

    assert ran.text.startswith("run\n") and CANARY not in ran.text


@pytest.mark.skipif(not landlock.landlock_abi(), reason="this kernel has no Landlock")
def test_read_only_walls_mask_many_one_by_one(house: House) -> None:
    _keys(house.workspace / "certs", 10 * FEW)
    (house.workspace / "certs/index.txt").write_text("index\n")
    walls = house.walls(report=ProbeReport(level=Level.LANDLOCK))

    ran = house.run("cat certs/index.txt; cat certs/1.pem certs/999.pem", walls, reads_only=True)

    assert ran.text.startswith("index\n") and ran.text.count("Permission denied") == 2


def test_the_start_says_how_many_are_masked(house: House) -> None:
    _keys(house.workspace / "certs", scan.MANY_SECRETS + 1)

    assert any(f"{scan.MANY_SECRETS + 1} secret names" in notice for notice in house.walls().check_zones())


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
