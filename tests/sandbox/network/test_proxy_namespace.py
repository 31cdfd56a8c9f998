"""The proxy inside a child's network namespace, alone and in full walls."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.deadlines import PATIENCE
from tests.sandbox.walls.house import House, ran

import golem_forge
from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.network.proxy import (
    PROXY_PORT,
    HostProxy,
    open_listener,
    open_listeners_blocking,
    proxy_environment,
)
from golem_forge.sandbox.walls.bubblewrap import find_bwrap
from golem_forge.sandbox.walls.model import HostGrant

needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
in_walls = pytest.mark.skipif(
    find_bwrap() is None or shutil.which("curl", path="/usr/bin:/bin") is None, reason="needs bubblewrap and curl"
)


async def here(host: str, port: int) -> tuple[str, ...]:
    return ("127.0.0.1",)


def test_both_spellings_name_the_proxy_and_nothing_goes_round_it() -> None:
    address = f"http://127.0.0.1:{PROXY_PORT}"
    names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")
    names += ("YARN_HTTPS_PROXY",)  # yarn from version 2 on reads no other
    assert proxy_environment() == {**dict.fromkeys(names, address), "NO_PROXY": "", "no_proxy": ""}


@needs_curl
async def test_granted_https_and_http_through_the_proxy_and_nothing_else(
    inside: Callable[..., Any], server: Any, tls_server: Any, certificate: Path
) -> None:
    script = f"""
curl -sS --cacert {certificate}.crt https://ok.test:{tls_server.port}/; echo " =$?"
curl -sS http://ok.test:{server.port}/; echo " =$?"
curl -sS https://other.test/; echo " =$?"
curl -sS --noproxy '*' --max-time 5 http://127.0.0.1:{server.port}/ >/dev/null 2>&1; echo "direct $?"
getent hosts example.com; echo "dns $?"
"""
    grants = (HostGrant("ok.test", tls_server.port, private=True), HostGrant("ok.test", server.port, private=True))
    proxy = HostProxy(grants, lookup=here)
    child = inside(script, proxy_environment())
    await proxy.serve(await open_listener(child.pid))
    try:
        lines = (await child.go()).splitlines()
    finally:
        proxy.close()
    assert lines[0] == lines[1] == "hello from outside =0"
    assert "403" in lines[2] and not lines[3].endswith("=0")
    assert "direct 7" in lines and "dns 2" in lines
    assert proxy.refused == ({"host": "other.test", "port": 443, "why": "not among the approved hosts"},)
    assert len(server.heads) == len(tls_server.heads) == 1


async def test_the_socket_is_in_the_namespace_and_not_on_this_machine(inside: Callable[..., Any]) -> None:
    child = inside("cat /proc/net/tcp", {})
    with open_listeners_blocking(child.pid, ["127.0.0.1:4321"])[0] as listener:
        assert listener.getsockname() == ("127.0.0.1", 4321)
        with pytest.raises(SandboxError):  # taken, in there
            open_listeners_blocking(child.pid, ["127.0.0.1:4321"])
        assert f":{4321:04X} " not in Path("/proc/self/net/tcp").read_text()
        assert f":{4321:04X} " in await child.go()


@pytest.mark.parametrize("pid", [os.getpid(), 2**22 + 1], ids=["no namespace of its own", "no such process"])
async def test_what_cannot_be_opened_is_said_before_anything_runs(pid: int) -> None:
    with pytest.raises(SandboxError) as caught:
        await open_listener(pid)
    assert caught.value.code == "WALLS_UNAVAILABLE"
    assert "The command was not run." in caught.value.message
    assert "/proc" not in caught.value.message and "namespace_child" not in caught.value.message


AS_PLAIN_USER = """
import asyncio, json, os, subprocess, sys
from golem_forge.sandbox.network.proxy import open_listener
read, write = os.pipe()
script = ["/bin/sh", "-c", "echo ready; sleep 30"]
child = subprocess.Popen([*sys.argv[1:], "--info-fd", str(write), *script], pass_fds=[write], stdout=subprocess.PIPE)
os.close(write)
pid = json.load(os.fdopen(read))["child-pid"]
child.stdout.readline()
print(os.getuid(), asyncio.run(open_listener(pid)).getsockname())
child.kill()
child.wait()
"""


@pytest.mark.skipif(os.getuid() != 0, reason="the other tests run as a plain user already")
def test_it_works_for_a_plain_user(walls: list[str]) -> None:
    interpreter = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable
    version = subprocess.run([interpreter, "-c", "import sys; print(sys.version_info >= (3, 11))"], capture_output=True)
    if version.stdout.strip() != b"True":
        pytest.skip("no interpreter that another user can start")
    done = subprocess.run(
        [interpreter, "-c", AS_PLAIN_USER, *walls],
        user=65534,
        group=65534,
        extra_groups=[],
        env={"PYTHONPATH": str(Path(golem_forge.__file__).parents[1]), "PYTHONDONTWRITEBYTECODE": "1"},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.stdout == f"65534 ('127.0.0.1', {PROXY_PORT})\n", done.stderr


@in_walls
async def test_a_granted_host_is_reached_and_others_become_denials(tmp_path: Path, server: Any) -> None:
    script = (
        "env | grep -c '^[a-z]*_proxy=http://127'; env | grep -c '^[A-Z]*_PROXY=http://127';"
        f' curl -sS http://localhost:{server.port}/; echo; curl -sS https://other.test/; echo " =$?"'
    )
    done = await ran(House(tmp_path).walls(), script, hosts=(HostGrant("localhost", server.port, private=True),))
    assert done.text.startswith("3\n3\nhello from outside\n") and "403" in done.text and "=0" not in done.text
    [denial] = done.after.denials
    assert (denial["kind"], denial["target"]) == ("host", "other.test:443")
    assert denial["why"] == "not among the approved hosts"


@in_walls
async def test_s39_a_granted_name_of_this_machine_is_refused_without_private(tmp_path: Path, server: Any) -> None:
    script = f"curl -sS http://localhost:{server.port}/"
    done = await ran(House(tmp_path).walls(), script, hosts=(HostGrant("localhost", server.port),))
    assert "Blocked by the sandbox" in done.text and server.heads == []
    [denial] = done.after.denials
    assert denial["why"] == "resolves to a private address"


@in_walls
async def test_without_hosts_there_is_no_proxy(tmp_path: Path, server: Any) -> None:
    script = "env | grep -ic proxy; curl -sS --proxy http://127.0.0.1:3128 http://x.test/"
    done = await ran(House(tmp_path).walls(), script)
    assert done.text.startswith("0\n") and "3128" in done.text
    assert done.after.denials == () and server.heads == []
