"""`forge init`: three commented files that load as they are, never over what is there."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from golem_forge.agent.files.roster import load_roster
from golem_forge.agent.files.toolset_blocks import worker_blocks
from golem_forge.agent.session_plan import sandbox_for
from golem_forge.agent.trust import covered_files
from golem_forge.cli.init import FILES, run
from golem_forge.config.program import load_program
from golem_forge.storage.home import forge_home


def test_the_program_loads_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "new" / "app"
    assert run([str(root)]) == 0
    out = capsys.readouterr().out
    assert [path.name for path in sorted(root.iterdir())] == sorted(FILES)
    assert out.count("wrote ") == 3 and "forge trust" in out
    program = load_program(root, forge_home(), trusted=lambda _: True)
    roster = load_roster(program)
    assert roster.root.name == "main" and roster.warnings == () and roster.needs_code
    [custom] = worker_blocks(roster.root).custom
    functions = {
        node.name for node in ast.parse((root / custom.module).read_bytes()).body if isinstance(node, ast.FunctionDef)
    }
    assert set(custom.tools) <= functions
    assert sandbox_for(program, roster.root, forge_home(), []).describe_zones() == "/workspace (rw)"
    assert {name for name, _ in covered_files(root)} == {"main.worker", "tools.py"}
    assert all("#" in text or '"""' in text for text in FILES.values()), "all of them are commented"


def test_nothing_is_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "main.worker").write_text("mine")
    (tmp_path / "tools.py").symlink_to(tmp_path / "nowhere")
    monkeypatch.chdir(tmp_path)
    assert run([]) == 0
    assert (tmp_path / "main.worker").read_text() == "mine"
    assert not (tmp_path / "nowhere").exists(), "a dangling link is not written through"
    out = capsys.readouterr().out
    assert (out.count("wrote "), out.count("kept ")) == (1, 2)
    assert run([]) == 0
    assert "Nothing to do" in capsys.readouterr().out


def test_the_next_command_can_be_pasted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([str(tmp_path / "my app")]) == 0
    assert f"`forge trust '{tmp_path}/my app'`" in capsys.readouterr().out


def test_an_empty_name_is_not_this_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run([""]) == 2
    assert not list(tmp_path.iterdir()) and "is empty" in capsys.readouterr().err
