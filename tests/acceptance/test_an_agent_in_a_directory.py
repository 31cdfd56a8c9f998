"""An agent works in a project: it runs commands inside walls, and what the walls promise holds end to end."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests import known_walls
from tests.acceptance.conftest import marked, until
from tests.deadlines import PATIENCE, ROOM, within

from golem_forge import open_session
from golem_forge.sandbox.walls.model import Level, LevelResult, ProbeReport
from golem_forge.storage.home import forge_home

CANARY = "canary-7f3a91c25d"


@pytest.fixture
def project(tmp_path: Path, own_home: Path, tried_walls: Path) -> Path:
    known_walls.put(tried_walls, own_home / ".forge")
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "a.txt").write_text("alpha\n")
    return folder


async def run(session: Any, cmd: str, **args: Any) -> Any:
    return await session.call("exec_command", {"cmd": cmd, **args})


async def test_reading_needs_no_question_and_changing_does(project: Path, asked: Any) -> None:
    person = asked()
    async with open_session(project, approval_callback=person, approval="interactive") as session:
        assert (await run(session, "cat a.txt | wc -l")).text.endswith("1\n")
        assert not person
        assert (await run(session, "tr a-z A-Z < a.txt > b.txt")).ok
    assert (project / "b.txt").read_text() == "ALPHA\n"
    [request] = person
    assert request.payload == "tr a-z A-Z < a.txt > b.txt"


async def test_the_rest_of_the_machine_is_not_there(project: Path, tmp_path: Path) -> None:
    outside = tmp_path / "elsewhere.txt"
    outside.write_text(CANARY)
    async with open_session(project, approval="approve_all") as session:
        for cmd in (
            f"cat {outside}",
            f"ln -s {outside} link && cat link",
            f"ln {outside} hard",
            "cat /etc/shadow",
            "ls ~/../.. && cat ~root/.bashrc",
            "echo x > /usr/x",
            f"cat /proc/{os.getpid()}/environ",
            "mount -t tmpfs x /mnt",
            "unshare -Ur true",
            "mknod null c 1 3",
            "getent hosts example.test",
            "python3 -c \"import socket; socket.create_connection(('127.0.0.1', 22), 2)\"",
            "read -t 0.1 line < /dev/udp/127.0.0.1/53",
        ):
            outcome = await run(session, cmd, yield_time_ms=30_000)
            assert outcome.status in ("execution_failed", "sandbox_denied"), (cmd, outcome.text)
            assert CANARY not in outcome.text
        await run(session, f"echo x > {outside}")  # succeeds where a private /tmp is in the place of the real one
    assert outside.read_text() == CANARY


async def test_a_canary_in_the_environment_reaches_nobody(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVICE_API_TOKEN", CANARY)
    (tmp_path / "outside.env").write_text(CANARY)
    (project / "says.py").write_text(f"print('{CANARY[:10]}' + '{CANARY[10:]}')\n")
    seen: list[str] = []
    async with open_session(project, approval="approve_all") as session:
        session.bus.on("*", lambda event: seen.append(str(event.to_json())))
        cmds = ("env", "cat /proc/*/environ", f"cat {tmp_path}/outside.env", "python3 says.py", "set; export -p")
        seen += [(await run(session, cmd)).text for cmd in cmds]
        seen.append((await session.call("grep_files", {"pattern": "canary", "path": "/"})).text)
        number = (await run(session, "sleep 0.3; python3 says.py", tty=True, yield_time_ms=0)).result.value[
            "session_id"
        ]
        seen.append((await session.call("write_stdin", {"session_id": number, "yield_time_ms": 20000})).text)
    kept = [file.read_bytes() for file in forge_home().path.rglob("*") if file.is_file()]
    assert any("[secret" in text for text in seen), "the program itself said it, and it was taken out"
    assert not [text for text in seen if CANARY in text]
    assert not [data for data in kept if CANARY.encode() in data]


STAYS = "setsid sleep 600 & (setsid sleep 600 &) ; trap '' TERM INT HUP; sleep 600 & while :; do sleep 0.1; done"


def test_forge_is_killed_and_nothing_stays(project: Path, marker: str, ready_forge: Any) -> None:
    """Invariant 7: the kernel ends what Forge no longer can, sessions of their own and who ignores signals too."""
    cmd = f": {marker}; echo up > up; {STAYS}"
    command = ["forge", "call", "exec_command", "--approval", "approve_all", "--cmd", cmd]
    with ready_forge.start(command, cwd=project, env=os.environ) as forge:
        until((project / "up").exists, "the command runs")
        forge.kill()

    assert marked(marker, 1 + ROOM) == []


async def test_an_interrupt_ends_the_whole_tree_and_keeps_what_was_said(
    project: Path, marker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("golem_forge.orchestrator.limits.GRACE", PATIENCE)  # a busy machine: it is not left behind
    async with open_session(project, approval="approve_all") as session:
        await run(session, "true")  # the walls were tried before
        cmd = f": {marker}; echo so far; setsid sleep 600 & trap '' TERM; touch up; sleep 600; sleep 600"
        heard = asyncio.Event()
        session.bus.on("toolOutput", lambda event: heard.set())
        call = asyncio.create_task(run(session, cmd))
        async with asyncio.timeout(90):
            await heard.wait()
            while not (project / "up").exists():
                await asyncio.sleep(0.02)
        with within(1):
            session.interrupt()
            outcome = await call
        assert outcome.status == "interrupted"
        assert "so far" in outcome.text
        assert marked(marker, 1 + ROOM) == []


async def test_s34_without_walls_nothing_runs_and_files_go_on(project: Path, asked: Any) -> None:
    person = asked()
    none = LevelResult(level=Level.FULL, cause="bubblewrap (bwrap) is not installed", fix="install it")
    async with open_session(project, approval_callback=person, approval="interactive") as session:
        session.path.walls._report = ProbeReport(level=Level.NONE, tried=(none,))
        refused = await run(session, "cat a.txt")
        assert (refused.status, refused.code) == ("execution_failed", "WALLS_UNAVAILABLE")
        assert "bubblewrap" in refused.text
        assert (await session.call("read_file", {"path": "a.txt"})).ok
        found = await session.call("grep_files", {"pattern": "alpha"})
        assert found.result.value["engine"] == "python"
    assert not person


def test_s37_a_project_cannot_switch_the_walls_off(project: Path, ready_forge: Any) -> None:
    (project / "forge.yaml").write_text("sandbox: {walls: off}\n")
    assert ready_forge("trust", "--yes", cwd=project, env=os.environ).returncode == 0
    command = ("call", "exec_command", "--cmd", "echo $FORGE_WALLS", "--approval", "approve_all")
    ran = ready_forge(*command, cwd=project, env=os.environ, timeout=PATIENCE)
    assert "full" in ran.stdout
    assert "sandbox.walls" in ran.stderr


def test_a_person_looks_inside_with_their_own_shell(project: Path, ready_forge: Any) -> None:
    forge = partial(ready_forge, cwd=project, env=os.environ, timeout=PATIENCE)
    ran = forge("sandbox", "exec", "--", "sh", "-c", "cat; pwd; exit 7", stdin="piped\n")
    assert (ran.returncode, ran.stdout) == (7, "piped\n/workspace\n")
    assert forge("sandbox", "exec", "--timeout", "0.5", "--", "sleep", "60").returncode == 124
    assert "sandbox exec" in forge("log").stdout
    said = forge("sandbox", "explain", "--json", ".env").stdout
    assert '"read": "ask: /workspace/.env looks like a secret"' in said
    assert not (project / ".git").exists(), "looking and running leave no placeholder behind"


async def test_s38_approved_hosts_and_no_others(project: Path, asked: Any) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nserved")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    home = forge_home()
    home.ensure("")
    home.rules.write_text(
        f"version: 1\nrules:\n  - {{host: 127.0.0.1, ports: [{port}], private: true, verdict: ask}}\n"
    )
    fetch = (
        "import sys, urllib.request as u\n"
        "for url in sys.argv[1:]:\n"
        f"    try: print(u.urlopen(url, timeout={PATIENCE}).read().decode())\n"
        "    except Exception as e: print(getattr(e, 'code', type(e).__name__))\n"
        "sys.exit(3)\n"
    )
    (project / "fetch.py").write_text(fetch)
    person = asked()
    async with server, open_session(project, approval_callback=person, approval="interactive") as session:
        cmd = f"python3 fetch.py http://127.0.0.1:{port}/ http://127.0.0.1:9/ http://other.test/"
        allowed = await run(session, cmd, network=[f"127.0.0.1:{port}"])
        off = await run(session, f"python3 fetch.py http://127.0.0.1:{port}/")
    assert "served\nURLError\n403" in allowed.text  # nothing else of this computer is there at all
    assert allowed.status == "sandbox_denied"
    assert [(denial["kind"], denial["target"]) for denial in allowed.denials] == [
        ("host", "other.test:80"),
    ]
    assert f"net 127.0.0.1:{port}" in person[0].effects
    assert "served" not in off.text
