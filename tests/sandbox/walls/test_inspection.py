"""A guarded file that is replaced from outside while a command runs: the mount on it is gone, so the command is too."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import descriptors
from tests.deadlines import PATIENCE

from golem_forge.sandbox.process.monitor import ExitStatus
from golem_forge.sandbox.walls.inspection import AT_A_LOOK, MountCheck, guarded_paths, secrets_made
from golem_forge.sandbox.walls.model import Job, RefusalReason, Restriction
from golem_forge.sandbox.walls.restrictions import ZoneRestrictions
from golem_forge.sandbox.walls.scan import ZoneScan
from golem_forge.sandbox.zones import AccessMode, ZoneSpec
from golem_forge.toolsets.exec.result import command_status

from .house import House

SAID = "Ended: a guarded file was replaced from outside while the command ran"


def replaced(path: Path, text: str) -> None:
    """As editors save."""
    fresh = path.with_name(path.name + "~")
    fresh.write_text(text)
    fresh.rename(path)


async def meanwhile(house: House, script: str, change: Any, **job: Any) -> tuple[ExitStatus, str]:
    """`change` is made once the script says that it runs."""
    child = (await house.walls().start(Job(argv=("bash", "-c", f"echo runs; {script}"), **job))).child
    try:
        assert await child.output.more(0, PATIENCE)
        change()
        ending = await child.wait(PATIENCE)
    finally:
        await child.end()
    assert ending is not None
    return ending, child.output.read().decode()


def is_ended(house: House, change: Any, script: str = "sleep 60", **job: Any) -> str:
    """Asserts that the change ends the command; what it said until then."""
    ending, text = asyncio.run(meanwhile(house, script, change, **job))
    assert ending.code == "WALLS_CHANGED"
    return text


@pytest.mark.parametrize("reads_only", [False, True])
def test_a_secret_saved_over_ends_the_command(house: House, reads_only: bool) -> None:
    secret = house.workspace / ".env"
    secret.write_text("CANARY-OLD")
    script = "sleep 60; cat .env"
    ending, text = asyncio.run(meanwhile(house, script, lambda: replaced(secret, "CANARY-NEW"), reads_only=reads_only))
    assert ending.code == "WALLS_CHANGED"
    assert "CANARY" not in text
    assert command_status(ending, session=1, timeout_s=1).line == SAID
    assert command_status(ending, session=1, timeout_s=1).code == "WALLS_CHANGED"


def test_a_secret_removed_and_written_again_ends_the_command(house: House) -> None:
    """The new file may well get the number of the old one."""
    secret = house.workspace / ".env"
    secret.write_text("CANARY-OLD")

    def change() -> None:
        secret.unlink()
        secret.write_text("CANARY-NEW")

    assert "CANARY" not in is_ended(house, change, "sleep 60; cat .env")


def test_nothing_stays_open_after_the_end(house: House) -> None:
    (house.workspace / ".env").write_text("CANARY-OLD")
    walls = house.walls()

    async def let_go() -> bool:
        before = descriptors.held()
        walled = await walls.start(Job(argv=("sleep", "0.1")))
        assert await walled.child.wait(PATIENCE) is not None
        return descriptors.no_more_than(before)

    assert asyncio.run(let_go())


def test_git_config_of_the_person_disturbs_no_command(house: House) -> None:
    subprocess.run(["git", "init", "-q", house.workspace], check=True)
    setting = ["git", "-C", str(house.workspace), "config", "user.name", "me"]
    script = "until [ -e go ]; do sleep 0.02; done; echo '#evil' >> .git/config; rm .git/config; true"

    def change() -> None:
        subprocess.run(setting, check=True)
        (house.workspace / "go").touch()

    ending, text = asyncio.run(meanwhile(house, script, change))
    assert (ending.code, ending.exit_code) == ("", 0) and "Read-only file system" in text
    assert "me" in (house.workspace / ".git/config").read_text()
    assert "evil" not in (house.workspace / ".git/config").read_text()


def test_a_repository_made_anew_by_the_person_ends_the_command(house: House) -> None:
    """The private `.git` stands on the directory that was there."""
    subprocess.run(["git", "init", "-q", house.workspace], check=True)
    anew = f"rm -rf {house.workspace}/.git; git init -q {house.workspace}"
    script = "while sleep 0.01; do echo '#evil' >> .git/config; touch .git/hooks/evil; done 2>/dev/null"
    assert is_ended(house, lambda: subprocess.run(["sh", "-c", anew], check=True), script)


def test_written_in_place_everything_goes_on(house: House) -> None:
    secret = house.workspace / ".env"
    secret.write_text("CANARY-OLD")
    (house.workspace / "plain").write_text("old")

    def change() -> None:
        secret.write_text("CANARY-NEW")
        replaced(house.workspace / "plain", "new")
        (house.workspace / "go").touch()

    script = "until [ -e go ]; do sleep 0.02; done; sleep 0.4; cat .env; cat plain"
    ending, text = asyncio.run(meanwhile(house, script, change))
    assert (ending.code, ending.exit_code) == ("", 0)
    assert text.endswith("new")
    assert "CANARY" not in text


def test_a_directory_that_the_command_itself_would_move_is_no_reason(house: House) -> None:
    (house.workspace / "sub").mkdir()
    (house.workspace / "sub" / ".env").write_text("CANARY-OLD")
    ran = house.run("mv sub other; sleep 0.3; cat other/.env sub/.env")
    assert ran.ending.code == ""
    assert "CANARY" not in ran.text


def test_a_repository_made_in_the_place_of_a_placeholder_ends_the_command(house: House) -> None:
    place = house.workspace / ".git"

    def change() -> None:
        place.rmdir()
        place.mkdir()

    ending = asyncio.run(_later(house, change))
    assert ending.code == "WALLS_CHANGED"


async def _later(house: House, change: Any) -> ExitStatus:
    """After the first look, which learns what the walls themselves made."""
    child = (await house.walls().start(Job(argv=("sleep", "60")))).child
    try:
        async with asyncio.timeout(PATIENCE):
            while child._watcher is None or child._watcher._looks < 2:
                await asyncio.sleep(0.02)
        change()
        ending = await child.wait(PATIENCE)
    finally:
        await child.end()
    assert ending is not None
    return ending


def test_more_paths_than_one_look_asks_for_have_their_turn(house: House) -> None:
    names = [f"f{number:04}" for number in range(AT_A_LOOK + 50)]
    for name in names:
        (house.workspace / name).write_text("x")
    zone = house.sandbox(ZoneSpec(name="workspace", path=house.workspace)).zones["workspace"]
    found = tuple(Restriction(parts=(name,), why=RefusalReason.RULE, masked=True) for name in names)
    look = MountCheck(guarded_paths([zone], {"workspace": ZoneRestrictions(writable=True, found=found)}, (), ()))
    assert [look(), look(), look()] == [True, True, True]
    replaced(house.workspace / names[-1], "y")
    assert False in (look(), look())


def test_a_masked_path_outside_of_zones_is_guarded_too(house: House, tmp_path: Path) -> None:
    zone = house.sandbox(ZoneSpec(name="workspace", path=house.workspace)).zones["workspace"]
    token = tmp_path / "token"
    token.write_text("x")
    look = MountCheck(guarded_paths([zone], {"workspace": ZoneRestrictions(writable=True)}, (), (str(token),)))
    assert look()
    replaced(token, "y")
    assert not look()


def test_what_was_replaced_between_two_looks_is_found_at_the_end(house: House) -> None:
    """A child that waits for the moment is quicker than any look; its call does not pass for a success."""
    env = house.workspace / ".env"
    env.write_text("old")

    def change() -> None:
        replaced(env, "new")
        (house.workspace / "go").touch()

    assert is_ended(house, change, "until [ -e go ]; do sleep 0.001; done")


class TestThingsMadeLater:
    """While a command runs somebody makes a secret or a socket in its zone, where no mount stands."""

    @pytest.fixture
    def bind(self) -> Iterator[Callable[[Path], None]]:
        bound = []

        def listen(path: Path) -> None:
            path.parent.mkdir(parents=True, exist_ok=True)
            bound.append(socket.socket(socket.AF_UNIX))
            bound[-1].bind(str(path))
            bound[-1].listen()

        yield listen
        for one in bound:
            one.close()

    @pytest.mark.parametrize("name", [".env", "a/b/c/d/e/f/.env", "node_modules/x/id_rsa", "made/prod.pem"])
    def test_a_secret_in_a_zone_that_the_command_cannot_write(self, house: House, name: str) -> None:
        def change() -> None:
            (house.workspace / name).parent.mkdir(parents=True, exist_ok=True)
            (house.workspace / name).write_text("CANARY")

        script = f"until [ -e {name} ]; do sleep 0.01; done; cat {name}; sleep 60"
        assert is_ended(house, change, script, reads_only=True)

    def test_a_file_that_becomes_one_by_its_name(self, house: House) -> None:
        plain = house.workspace / "deep/er/plain"
        plain.parent.mkdir(parents=True)
        plain.write_text("CANARY")
        assert is_ended(house, lambda: plain.rename(plain.with_name(".env")), reads_only=True)

    def test_a_fifo_in_a_zone_that_the_command_cannot_write(self, house: House) -> None:
        assert is_ended(house, lambda: os.mkfifo(house.workspace / "line"), reads_only=True)

    def test_one_that_was_there_is_masked(self, house: House) -> None:
        os.mkfifo(house.workspace / "line")
        reader = os.open(house.workspace / "line", os.O_RDONLY | os.O_NONBLOCK)
        try:
            ran = house.run("timeout 5 bash -c 'echo hello > line'", reads_only=True)
            assert ran.code not in (0, 124)
            assert os.read(reader, 10) == b""
        finally:
            os.close(reader)

    @pytest.mark.parametrize("name", ["s", "node_modules/x/y/s", "a/b/c/d/e/f/s"])
    @pytest.mark.parametrize("reads_only", [False, True])
    def test_a_socket_of_the_host(self, house: House, bind: Any, name: str, reads_only: bool) -> None:
        assert is_ended(house, lambda: bind(house.workspace / name), reads_only=reads_only)

    def test_a_socket_that_was_bound_elsewhere_and_moved_in(self, house: House, bind: Any) -> None:
        def change() -> None:
            bind(house.root / "outside")
            (house.root / "outside").rename(house.workspace / "inside")

        assert is_ended(house, change)

    def test_a_socket_of_its_own_is_left_alone(self, house: House) -> None:
        lines = (
            "import os, socket, time; names = ('own', 'a/b/c/d/e/f/own'); os.makedirs('a/b/c/d/e/f')",
            "bound = [socket.socket(socket.AF_UNIX) for _ in names]",
            "[(one.bind(name), one.listen()) for one, name in zip(bound, names)]",
            "d = socket.socket(socket.AF_UNIX); d.bind('a/b/c/d/e/f/dead'); d.close()",
            "os.mkfifo('a/b/c/d/e/f/line'); time.sleep(0.4)",
            "[socket.socket(socket.AF_UNIX).connect(name) for name in names]; print('connected')",
        )
        ran = house.run(f'python3 -c "{"; ".join(lines)}"')
        assert (ran.ending.code, ran.code) == ("", 0), ran.text
        assert "connected" in ran.text

    def test_a_secret_of_its_own_is_left_alone(self, house: House) -> None:
        (house.workspace / ".env.example").write_text("A=1")
        ran = house.run("cp .env.example .env; mkdir -p k/e/y; echo x > k/e/y/id_rsa; sleep 0.3; cat .env k/e/y/id_rsa")
        assert (ran.ending.code, ran.code) == ("", 0)
        assert ran.text.endswith("A=1x\n")

    def test_and_told(self, house: House) -> None:
        zone = house.sandbox(ZoneSpec(name="workspace", path=house.workspace)).zones["workspace"]
        scan = ZoneScan(str(house.workspace))
        scan.refresh()
        before = scan.findings
        (house.workspace / "x").mkdir()
        (house.workspace / "x" / ".env").write_text("A=1")
        scan.refresh()
        (told,) = secrets_made(zone, before, scan.findings)
        assert told.paths == ("/workspace/x/.env",)
        assert told.text.endswith("could read or use it: /workspace/x/.env")
        assert list(secrets_made(zone, scan.findings, scan.findings)) == []
        (house.workspace / "a\nb\tc.key").touch()
        scan.refresh()
        (told,) = secrets_made(zone, before, scan.findings)
        assert "/workspace/a\\nb\\tc.key" in told.text and "\n" not in told.text

    def test_a_socket_that_one_command_left_the_next_can_remove(self, house: House) -> None:
        bind = "python3 -c \"import socket, time; socket.socket(socket.AF_UNIX).bind('s.sock'); time.sleep(0.1)\""
        for walls in (house.walls(), house.walls()):
            assert house.run(bind, walls).code == 0
            ran = house.run(f"rm -f s.sock && {bind}", walls)
            assert ran.code == 0, ran.text
            (house.workspace / "s.sock").unlink()

    def test_a_socket_bound_in_another_network_stays_masked(self, house: House) -> None:
        bind = (
            "import socket; s = socket.socket(socket.AF_UNIX); s.bind('s'); s.listen(); print(flush=True); s.accept()"
        )
        argv = ["unshare", "-r", "-n", "python3", "-c", f"{bind}; s.accept()"]
        with subprocess.Popen(argv, cwd=house.workspace, stdout=subprocess.PIPE) as server:
            try:
                assert server.stdout is not None and server.stdout.readline()
                connect = "import socket; socket.socket(socket.AF_UNIX).connect('s'); print('connected')"
                ran = house.run(f'sleep 0.1; python3 -c "{connect}"')
                assert ran.code != 0 and "connected\n" not in ran.text
            finally:
                server.kill()

    def test_a_fifo_that_one_command_left_the_next_can_remove(self, house: House) -> None:
        walls = house.walls()
        assert house.run("mkfifo line", walls).code == 0
        ran = house.run("(echo hello > line &) ; cat line", walls)
        assert ran.text.endswith("hello\n"), ran.text
        ran = house.run("rm -f line && mkfifo line && rm line", walls)
        assert ran.code == 0, ran.text
        os.mkfifo(house.workspace / "line")
        assert house.run("rm -f line", walls).code != 0, "somebody else's, of the same name"

    def test_a_read_only_zone_beside_a_writable_one(self, house: House) -> None:
        docs = house.root / "docs"
        docs.mkdir()
        walls = house.walls(
            ZoneSpec(name="workspace", path=house.workspace), ZoneSpec(name="docs", path=docs, mode=AccessMode.RO)
        )

        async def run() -> ExitStatus | None:
            child = (await walls.start(Job(argv=("sleep", "60")))).child
            try:
                (docs / "deep").mkdir()
                (docs / "deep" / "server.key").write_text("CANARY")
                return await child.wait(PATIENCE)
            finally:
                await child.end()

        ending = asyncio.run(run())
        assert ending is not None and ending.code == "WALLS_CHANGED"


CERTIFICATE = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
KEY = "-----BEGIN PRIVATE KEY-----\nCANARY\n-----END PRIVATE KEY-----\n"


class TestDependencies:
    def _write(self, house: House, name: str, text: str) -> None:
        (house.workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (house.workspace / name).write_text(text)

    def test_certificates_can_be_read_and_keys_cannot(self, house: House) -> None:
        packages = ".venv/lib/python3.12/site-packages"
        self._write(house, f"{packages}/certifi/cacert.pem", CERTIFICATE)
        self._write(house, f"{packages}/tornado/test/test.key", KEY)
        self._write(house, "node_modules/a/b/c/d/e/.env", KEY)
        self._write(house, "src/a/b/c/d/e/f/.env", KEY)
        ran = house.run(
            f"cat {packages}/certifi/cacert.pem; cat {packages}/tornado/test/test.key; cat $(find . -name .env)"
        )
        assert "BEGIN CERTIFICATE" in ran.text and "CANARY" not in ran.text

    def test_hundreds_of_keys_leave_the_zone_writable(self, house: House) -> None:
        for number in range(200):
            self._write(house, f"node_modules/p{number % 97}/test/fix/{number}.pem", KEY)
        ran = house.run(
            "touch x node_modules/p1/y && rm -rf node_modules/new && mkdir node_modules/new && echo wrote;"
            " cat node_modules/*/test/fix/*"
        )
        assert "wrote" in ran.text and "CANARY" not in ran.text

    def test_a_package_with_a_key_in_it_can_be_exchanged(self, house: House) -> None:
        self._write(house, "node_modules/a/test/a.key", KEY)
        script = (
            "mv node_modules/a node_modules/.a-old && mkdir -p node_modules/a/test"
            " && echo new > node_modules/a/test/a.key && sleep 0.3 && echo exchanged;"
            " cat node_modules/.a-old/test/a.key"
        )
        walls = house.walls()
        ran = house.run(script, walls)
        assert ran.ending.code == "" and "exchanged" in ran.text and "CANARY" not in ran.text
        assert "CANARY" not in house.run("cat node_modules/.a-old/test/a.key", walls).text

    def test_and_cannot_be_taken_where_nobody_looks(self, house: House) -> None:
        places = ("d/e/e/p/er", "x/.git/objects", "y/.git/refs/heads", "node_modules/b/c", "target")
        for number in range(len(places)):
            self._write(house, f"node_modules/a{number}/test/a.key", KEY)
        walls = house.walls()
        moves = (f"mkdir -p {place} && mv node_modules/a{number} {place}/a" for number, place in enumerate(places))
        assert house.run(" && ".join(moves), walls).code == 0
        ran = house.run("find . -name a.key; cat $(find . -name a.key)", walls)
        assert all(f"{place}/a/test/a.key" in ran.text for place in places) and "CANARY" not in ran.text
