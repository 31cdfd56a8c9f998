"""Without the extra, what uses MCP says how to get it; any other failed import is said as it is."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.tables import table

from golem_forge.cli.main import main
from golem_forge.core.errors import ForgeError
from golem_forge.mcp import missing, need_sdk


@table(
    ("module", "package"),
    [("mcp", "mcp"), ("mcp.client.session", "mcp"), ("mcp_types", "mcp-types"), ("uvicorn", "uvicorn")],
)
def test_it_names_the_package_and_the_command(module: str, package: str) -> None:
    error = missing(ModuleNotFoundError(f"No module named {module!r}", name=module))
    assert isinstance(error, ForgeError)
    assert error.message == f"MCP needs the package {package}: pip install 'golem-forge[mcp]'"


def test_another_failure_is_not_dressed_up() -> None:
    problem = ImportError("cannot import name 'x'", name="golem_forge.mcp.sdk")
    assert missing(problem) is problem


def test_it_is_said_before_anything_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("golem_forge.mcp.find_spec", lambda name: None)
    with pytest.raises(ForgeError, match="pip install 'golem-forge\\[mcp\\]'"):
        need_sdk()


def test_trying_a_server_says_it_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "forge.yaml").write_text("mcp: {servers: {clock: {command: 'true'}}}\n")
    monkeypatch.setenv("FORGE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    assert main(["mcp", "approve", "clock", "--yes"]) == 0
    monkeypatch.setattr("golem_forge.mcp.find_spec", lambda name: None)
    monkeypatch.setattr("golem_forge.mcp.client.managed_server._SDK", "golem_forge.mcp.absent")
    monkeypatch.setitem(sys.modules, "golem_forge.mcp.sdk", None)
    assert main(["mcp", "test", "clock"]) == 1
    assert "MCP needs the package mcp: pip install 'golem-forge[mcp]'" in capsys.readouterr().err
