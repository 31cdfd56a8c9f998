"""Every fixture: `input/` and `patch.txt` give `expected/`, and the failure in `error.txt` or the notes in `notes.txt`.

A fixture is plain files, so that another implementation can be held to the same cases. A folder that is not there is
an empty one; a failure leaves the input as it was.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.tables import table

from golem_forge.core.decisions import Status
from golem_forge.core.errors import ForgeError
from golem_forge.sandbox.sandbox import open_sandbox
from golem_forge.sandbox.zones import ZoneSpec
from golem_forge.tools.context import ToolContext
from golem_forge.toolsets.edit import create_apply_patch_tool

FIXTURES = sorted(path for path in (Path(__file__).parent / "fixtures").iterdir() if path.is_dir())


def tree(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_there_are_enough() -> None:
    assert len(FIXTURES) >= 45


@table("fixture", FIXTURES)
async def test_fixture(fixture: Path, tmp_path: Path) -> None:
    workspace = tmp_path / fixture.name
    if (fixture / "input").is_dir():
        shutil.copytree(fixture / "input", workspace)
    else:
        workspace.mkdir()
    sandbox = open_sandbox([ZoneSpec(name="workspace", path=workspace)])
    ctx = ToolContext(sandbox=sandbox)
    before = tree(workspace)
    args: dict[str, Any] = {"input": (fixture / "patch.txt").read_bytes().decode()}
    tool = create_apply_patch_tool()
    if (fixture / "error.txt").exists():
        with pytest.raises(ForgeError) as failed:
            await tool.execute(args, ctx)
        assert failed.value.message + "\n" == (fixture / "error.txt").read_text()
        grammar = failed.value.code == "PATCH_INVALID"
        assert failed.value.status is (Status.INPUT_INVALID if grammar else Status.EXECUTION_FAILED)
        assert tree(workspace) == before
        return
    result = await tool.execute(args, ctx)
    assert tree(workspace) == tree(fixture / "expected")
    told = [line for line in result.text.split("\n")[1:] if line[:2] not in ("A ", "M ", "D ", "R ")]
    notes = fixture / "notes.txt"
    assert told == (notes.read_text().splitlines() if notes.exists() else [])
