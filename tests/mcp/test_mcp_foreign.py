"""What `foreign` installs is there. Its servers introduce themselves inside walls in test_mcp_config.py and
test_mcp_life.py of tests/acceptance, its clients call tools in test_mcp_serving.py."""

from __future__ import annotations

import subprocess

from . import foreign


def test_node_is_new_enough() -> None:
    said = subprocess.run([*foreign.node(), "--version"], capture_output=True, text=True, check=True).stdout
    assert int(said.removeprefix("v").split(".")[0]) >= 22


def test_the_clients_are_installed() -> None:
    """To import them takes seconds."""
    look = "from importlib.util import find_spec; print(*map(bool, map(find_spec, ('mcp', 'fastmcp', 'pydantic_ai'))))"
    done = subprocess.run([*foreign.python(), "-c", look], capture_output=True, text=True)
    assert done.stdout.split() == ["True"] * 3, done.stderr
