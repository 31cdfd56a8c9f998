"""A server runs no program of a zone that it does not name by its path, whatever stands first on the person's PATH."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.agent.conftest import let_servers_start

from golem_forge.agent.mcp_servers import without_zones
from golem_forge.agent.session import open_session
from golem_forge.config.sandbox_block import ZoneEntry
from golem_forge.core.errors import ForgeError
from golem_forge.mcp.client.resources import ServerAccess
from golem_forge.sandbox.walls.bubblewrap import find_bwrap
from golem_forge.storage.home import ForgeHome

SERVER = """#!/bin/sh
touch "$HOME/it-ran"
read line
"""


def _zone(name: str, path: Path) -> ZoneEntry:
    return ZoneEntry(name=name, path=path, mode="rw")


def test_path_entries_in_zones_that_were_not_given(tmp_path: Path) -> None:
    for name in ("work/.venv/bin", "work/given/bin", "elsewhere/bin"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "work" / ".venv")
    zones = (_zone("workspace", tmp_path / "work"), _zone("given", tmp_path / "work/given"))
    entries = [str(tmp_path / name) for name in ("work/.venv/bin", "link/bin", "work/given/bin", "elsewhere/bin")]
    environ = {"PATH": os.pathsep.join(entries), "LANG": "C"}
    assert without_zones(environ, zones, {"given"}) == {"PATH": os.pathsep.join(entries[2:]), "LANG": "C"}
    assert without_zones(environ, zones, {"workspace", "given"}) == environ


@pytest.mark.skipif(find_bwrap() is None, reason="walls around servers need bubblewrap")
@pytest.mark.parametrize("zones", [{}, {"workspace": "ro"}], ids=["no zone", "the zone"])
async def test_a_program_that_a_worker_put_into_the_projects_environment_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zones: dict[str, str]
) -> None:
    root, home = tmp_path / "program", ForgeHome(tmp_path / "home")
    home.ensure()
    binaries = root / ".venv" / "bin"
    binaries.mkdir(parents=True)
    (root / ".venv" / "pyvenv.cfg").touch()
    (binaries / "clock").write_text(SERVER)
    (binaries / "clock").chmod(0o755)
    (root / "forge.yaml").write_text(json.dumps({"mcp": {"servers": {"clock": {"command": "clock", "zones": zones}}}}))
    monkeypatch.setenv("PATH", f"{binaries}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    let_servers_start(root, home)
    async with open_session(root, home=home) as session:
        pool = session.state.parts.get(ServerAccess).pool
        assert pool is not None
        with pytest.raises(ForgeError, match="command 'clock' is not on the PATH that servers get"):
            await pool.wait_connected("clock")
    assert not list(tmp_path.rglob("it-ran"))
