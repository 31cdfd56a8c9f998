"""The whole way: a job with granted hosts in real full walls, and what becomes of a refused host (S38, S39)."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from golem_forge.sandbox.sandbox import open_sandbox
from golem_forge.sandbox.walls.bubblewrap import find_bwrap
from golem_forge.sandbox.walls.model import HostGrant, Job, Level, ProbeReport
from golem_forge.sandbox.walls.walls import Walls
from golem_forge.sandbox.zones import ZoneSpec

pytestmark = pytest.mark.skipif(
    find_bwrap() is None or shutil.which("curl", path="/usr/bin:/bin") is None, reason="needs bubblewrap and curl"
)


async def ran(tmp_path: Path, script: str, *hosts: HostGrant) -> tuple[str, Any]:
    for name in ("workspace", "home", "forge"):
        (tmp_path / name).mkdir()
    sandbox = open_sandbox(
        (ZoneSpec(name="workspace", path=tmp_path / "workspace"),),
        forge_home=tmp_path / "forge",
        home=tmp_path / "home",
    )
    walls = Walls(
        sandbox,
        forge_home=tmp_path / "forge",
        home=tmp_path / "home",
        environ={"PATH": "/usr/bin:/bin"},
        report=ProbeReport(level=Level.FULL),
    )
    walled = await walls.start(Job(argv=("bash", "-c", script), hosts=hosts))
    try:
        assert await walled.child.wait(30) is not None
        return walled.child.output.read().decode(), walled.aftermath()
    finally:
        await walled.child.end()


async def test_a_granted_host_is_reached_and_others_become_denials(tmp_path: Path, server: Any) -> None:
    script = f'curl -sS http://localhost:{server.port}/; echo; curl -sS https://other.test/; echo " =$?"'
    text, after = await ran(tmp_path, script, HostGrant("localhost", server.port, private=True))
    assert text.startswith("hello from outside\n") and "403" in text and "=0" not in text
    [denial] = after.denials
    assert (denial["kind"], denial["target"]) == ("host", "other.test:443")
    assert denial["why"] == "not among the approved hosts"


async def test_s39_a_granted_name_of_this_machine_is_refused_without_private(tmp_path: Path, server: Any) -> None:
    text, after = await ran(tmp_path, f"curl -sS http://localhost:{server.port}/", HostGrant("localhost", server.port))
    assert "Blocked by the sandbox" in text and server.heads == []
    [denial] = after.denials
    assert denial["why"] == "resolves to a private address"


async def test_without_hosts_there_is_no_proxy(tmp_path: Path, server: Any) -> None:
    text, after = await ran(tmp_path, "env | grep -ic proxy; curl -sS --proxy http://127.0.0.1:3128 http://x.test/")
    assert text.startswith("0\n") and "3128" in text
    assert after.denials == () and server.heads == []
