"""The row of marks: one pass names exactly the folders that changed, wherever they stand in it."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest
from tests.tables import table

from golem_forge.storage.content_store import ContentStore
from golem_forge.storage.home import ForgeHome
from golem_forge.usertools import registry as registry_row
from golem_forge.usertools.registry import FolderScan, MarkIndex, scan_folder

NAMES = ("a", "b", "c", "d", "e")


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    return laid_out(tmp_path)


def laid_out(root: Path) -> Path:
    for name in NAMES:
        folder = root / "tools" / name
        folder.mkdir(parents=True)
        (folder / "tool.yaml").write_text(f"name: {name}\ndescription: d\nversion: 1.0.0\nentrypoint: run.sh\n")
        (folder / "run.sh").write_text("echo hi\n")
    (root / "tools" / "d" / "tool.yaml").unlink()  # no tool, and of this folder only the folder is looked at
    return root / "tools"


def looks(tools: Path) -> dict[str, FolderScan]:
    store = ContentStore(ForgeHome(tools.parent / "home"))
    found = {name: scan_folder(str(tools), name, store) for name in NAMES}
    return {name: look for name, look in found.items() if look is not None}


@table("wanted", [(), ("a",), ("c",), ("e",), ("a", "b"), ("a", "e"), ("d",), NAMES])
@table("how", ["first file", "last file", "file gone", "folder gone", "file added"])
def test_it_names_the_folders_that_changed(tmp_path: Path, wanted: tuple[str, ...], how: str) -> None:
    tools = laid_out(tmp_path / how / "".join(wanted))
    row = MarkIndex(looks(tools))
    time.sleep(0.012)
    for name in wanted:
        folder = tools / name
        if how == "folder gone":
            shutil.rmtree(folder)
        elif how == "file added" or name == "d":
            (folder / "more").touch()
        elif how == "file gone":
            (folder / "tool.yaml").unlink()
        else:
            (folder / ("run.sh" if how == "first file" else "tool.yaml")).write_text("other")
    assert row.changed() == set(wanted)
    assert row.changed() == set(wanted)  # it keeps nothing of having been asked


def test_everything_is_looked_at_once(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = MarkIndex(looks(tools))
    time.sleep(0.012)
    (tools / "b" / "run.sh").write_text("other")
    shutil.rmtree(tools / "e")
    seen: list[str] = []

    def lstat(path: str) -> os.stat_result:
        seen.append(path)
        return os.stat(path, follow_symlinks=False)

    monkeypatch.setattr(registry_row.os, "lstat", lstat)
    assert row.changed() == {"b", "e"}
    assert len(seen) == len(set(seen)) and {Path(path).name for path in seen} >= set(NAMES)


def test_an_empty_row_has_no_changes() -> None:
    assert MarkIndex({}).changed() == frozenset()
