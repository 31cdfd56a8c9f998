"""`forge web`: links for whoever comes later, at its terminal or from another command, and its end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import stat
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.deadlines import PATIENCE

from golem_forge.cli.web_server import in_system_journal
from golem_forge.storage.home import ForgeHome
from golem_forge.ui.web.listen import ControlSocket, ask_server, running_servers

from .conftest import Shell

LINK = r"#code=(\S{20,})\s"


def test_enter_prints_another_link_and_ctrl_c_ends_it(on_terminal: Callable[..., tuple[int, str]]) -> None:
    code, screen = on_terminal(["web", "--no-open"], (f"{LINK}+Enter prints another link", ""), (LINK, "\x03"))
    assert code == 0, screen
    links = re.findall(LINK, screen)
    assert len(set(links)) == len(links) >= 2, "each lets in once, so each is another one"


class Served:
    """`forge web` with nothing on its standard input, as a service would run it."""

    def __init__(self, shell: Shell, *words: str, **environ: str) -> None:
        self.shell = shell
        self.process = shell.forge.start(
            ["forge", "web", "--no-open", *words], cwd=shell.project, env=shell.environ | environ
        )
        self.said = self.process.stdout.readline()
        self.port = int(re.search(r"127\.0\.0\.1:(\d+)/", self.said)[1])

    def end(self, with_signal: int = signal.SIGTERM) -> None:
        self.process.send_signal(with_signal)
        self.process.wait(timeout=PATIENCE)


@pytest.fixture
def serve(shell: Shell) -> Iterator[Callable[..., Served]]:
    started: list[Served] = []

    def start(*words: str, **environ: str) -> Served:
        started.append(Served(shell, *words, **environ))
        return started[-1]

    yield start
    for one in started:
        one.end(signal.SIGKILL)


def enters(link: str) -> int:
    """Opens the page with a link, as its script does; gives the status of the answer."""
    address, _, code = link.strip().partition("#code=")
    request = urllib.request.Request(
        f"{address}api/login",
        json.dumps({"code": code}).encode(),
        {"Content-Type": "application/json", "Origin": address.rstrip("/")},
    )
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refused:
        return refused.code


def test_link_and_status_reach_servers_that_have_no_terminal(
    shell: Shell, in_process: Shell, serve: Callable[..., Served]
) -> None:
    none = in_process("web", "status", "--json")
    assert none.code == 1 and none.json == {"running": False, "servers": []}
    assert in_process("web", "link").code == 1 and "`forge web` starts one" in in_process("web", "link").err

    one = serve()
    places = shell.forge_home / "state" / "web"
    [place] = places.iterdir()
    assert stat.S_IMODE(places.stat().st_mode) == 0o700 and stat.S_IMODE(place.stat().st_mode) == 0o600
    status = in_process("web", "status", "--json")
    [known] = status.json["servers"]
    assert status.code == 0 and known["port"] == one.port and known["address"] == f"http://127.0.0.1:{one.port}/"
    assert os.path.exists(f"/proc/{known['pid']}") and known["since"] and known["sessions"] == []
    assert f"http://127.0.0.1:{one.port}/" in in_process("web", "status").out

    first, second = in_process("web", "link"), in_process("web", "link")
    assert first.code == second.code == 0 and first.out != second.out
    assert [enters(link.out) for link in (first, first, second)] == [204, 401, 204], "each lets in, once"
    code = first.out.strip().partition("#code=")[2]
    assert code and not any(code.encode() in file for file in shell.everything().values()), "it is written nowhere"

    other = serve()
    several = in_process("web", "link")
    assert several.code == 2 and f"--port {one.port}" in several.err and f"--port {other.port}" in several.err
    assert f":{other.port}/#code=" in in_process("web", "link", "--port", str(other.port)).out
    assert in_process("web", "status", "--port", "1").code == 1

    one.end(signal.SIGKILL)
    assert [known["port"] for known in in_process("web", "status", "--json").json["servers"]] == [other.port]
    assert f":{other.port}/#code=" in in_process("web", "link").out, "the one that died is not known any more"
    inside = shell("sandbox", "exec", "--", "python3", "-c", REACH, str(places))
    assert inside.code == 125 or inside.out.startswith("not reached"), inside
    other.end()
    assert in_process("web", "status").code == 1 and list(places.iterdir()) == []


REACH = """
import os, socket, sys
try:
    os.chdir(sys.argv[1])
    for name in os.listdir("."):
        socket.socket(socket.AF_UNIX).connect(name)
        print("reached", name)
except OSError as error:
    print("not reached:", error)
"""


async def test_only_a_link_is_printed_and_sockets_that_never_got_a_name_go(shell: Shell) -> None:
    places = shell.forge_home / "state" / "web"
    places.mkdir(parents=True, mode=0o700)
    for name, age in ((".1-dead.sock", 3600), (".2-new.sock", 0)):
        with socket.socket(socket.AF_UNIX) as unnamed, contextlib.chdir(places):
            unnamed.bind(name)
            os.utime(name, (time.time() - age,) * 2)
    said: dict[str, object] = {"link": ""}
    server = ControlSocket(ForgeHome(shell.forge_home), 1, {"status": lambda: {"port": 1}, "link": lambda: said})
    await server.open()
    assert [place.name for place in sorted(places.iterdir())][:-1] == [".2-new.sock"], "that one may be starting"
    for lie in ("\x1b]0;mine\x07http://x/#code=a", "javascript:x#code=a", "http://x/#code=a\nb", ["http://x/#code=a"]):
        said["link"] = lie
        answer = await asyncio.to_thread(shell, "web", "link")
        assert (answer.code, answer.out) == (1, "") and "did not answer with a link" in answer.err, lie
    said["link"] = "http://[::1]:1/#code=a-B_9"
    assert (await asyncio.to_thread(shell, "web", "link")).out == "http://[::1]:1/#code=a-B_9\n"
    await server.close()


def test_a_home_with_a_long_name_and_one_that_nobody_can_write_to(shell: Shell, serve: Callable[..., Served]) -> None:
    long = shell.home / ("x" * 150) / "forge"
    server = serve(FORGE_HOME=str(long))
    link = shell.forge("web", "link", cwd=shell.project, env=shell.environ | {"FORGE_HOME": str(long)}).stdout
    assert f":{server.port}/#code=" in link
    server.end()

    shell.write_home("state", "a file in the place of the directory, as on a disk that takes no directory")
    server = serve()
    assert "#code=" in server.said, "the page is served all the same"
    server.end()
    assert "`forge web link` cannot reach this server: Not a directory" in server.process.stderr.read()


async def test_only_the_same_user_is_answered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = ForgeHome(tmp_path / "forge")
    served = ControlSocket(home, 8100, {"status": lambda: {"port": 8100}, "link": lambda: {"link": "secret"}})
    await served.open()
    try:
        [server] = await asyncio.to_thread(running_servers, home)
        assert await asyncio.to_thread(ask_server, home, server, "link") == {"link": "secret"}
        me = os.getuid()
        asking = threading.get_ident()
        # The server, in this thread, takes itself for somebody else; the one who asks, in another, does not.
        monkeypatch.setattr(os, "getuid", lambda: me + 1 if threading.get_ident() == asking else me)
        assert await asyncio.to_thread(ask_server, home, server, "link") is None
    finally:
        monkeypatch.undo()
        await served.close()
    assert running_servers(home) == []


def test_it_is_known_when_systemd_keeps_what_is_printed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with (tmp_path / "journal").open("w") as out:
        monkeypatch.setattr(sys, "stdout", out)
        about = os.fstat(out.fileno())
        assert not in_system_journal()
        monkeypatch.setenv("JOURNAL_STREAM", f"{about.st_dev}:{about.st_ino}")
        assert in_system_journal()
