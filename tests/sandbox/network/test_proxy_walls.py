"""The whole way: a job with granted hosts in real full walls, and what becomes of a refused host (S38, S39)."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.sandbox.walls.house import House, ran

from golem_forge.sandbox.walls.bubblewrap import find_bwrap
from golem_forge.sandbox.walls.model import HostGrant

pytestmark = pytest.mark.skipif(
    find_bwrap() is None or shutil.which("curl", path="/usr/bin:/bin") is None, reason="needs bubblewrap and curl"
)


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


async def test_s39_a_granted_name_of_this_machine_is_refused_without_private(tmp_path: Path, server: Any) -> None:
    script = f"curl -sS http://localhost:{server.port}/"
    done = await ran(House(tmp_path).walls(), script, hosts=(HostGrant("localhost", server.port),))
    assert "Blocked by the sandbox" in done.text and server.heads == []
    [denial] = done.after.denials
    assert denial["why"] == "resolves to a private address"


async def test_without_hosts_there_is_no_proxy(tmp_path: Path, server: Any) -> None:
    script = "env | grep -ic proxy; curl -sS --proxy http://127.0.0.1:3128 http://x.test/"
    done = await ran(House(tmp_path).walls(), script)
    assert done.text.startswith("0\n") and "3128" in done.text
    assert done.after.denials == () and server.heads == []
