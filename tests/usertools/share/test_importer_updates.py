"""Update: the diff first, then one swap; what changed during the update is never lost."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from golem_forge.storage.home import ForgeHome
from golem_forge.usertools import folder as staging
from golem_forge.usertools import share
from golem_forge.usertools.diagnostics import SharingError, Unusable
from golem_forge.usertools.folder import FolderFiles, read_folder
from golem_forge.usertools.share import GitAccess, read_lock, verify_tools
from golem_forge.usertools.share.importer import apply_update, import_tool, prepare_update

FILE = GitAccess(transports=frozenset({"file"}))
MakeTool = Callable[..., Path]


class Kept(list[tuple[str, str]]):
    def __call__(self, name: str, files: FolderFiles) -> None:
        self.append((name, files.digest))


@pytest.fixture
def imported(home: ForgeHome, make_tool: MakeTool, repository: Any) -> Any:
    """A tool imported as `hello` from a repository that has moved on since."""
    folder = make_tool(at=repository.folder / "greet")
    repository.first = repository.commit()
    import_tool(repository.source(repository.first, "greet"), home=home, rename="hello", access=FILE)
    (folder / "greet.py").write_text("print('newer')\n")
    (folder / "tool.yaml").write_text((folder / "tool.yaml").read_text().replace('"1.2"', '"1.3"'))
    repository.second = repository.commit()
    return repository


def test_an_edit_is_shown_and_replaced_by_the_newest(home: ForgeHome, imported: Any) -> None:
    live = home.path / "tools" / "hello"
    (live / "greet.py").write_text("print('mine')\n")
    edited = read_folder(live).digest
    assert [drift.name for drift in verify_tools(home)] == ["hello"]
    update = prepare_update("hello", home=home, access=FILE)
    assert update.old.files["greet.py"] == b"print('mine')\n" and update.new.files["greet.py"] == b"print('newer')\n"
    assert read_folder(live).digest == edited, "nothing changes before it was seen"
    kept = Kept()
    result = apply_update(update, home=home, seen=kept)
    assert kept == [("hello", edited)]
    assert read_folder(live).digest == result.digest == update.new.digest
    record = read_lock(home)["hello"]
    assert (record.commit, record.version, record.digest) == (imported.second, "1.3", result.digest)
    assert record.source == imported.source(imported.second, "greet") and verify_tools(home) == []
    assert not list(home.path.glob(".staging-*"))


def test_a_named_commit_is_taken(home: ForgeHome, imported: Any) -> None:
    for commit in (imported.first, f"@{imported.first}"):
        update = prepare_update("hello", home=home, commit=commit, access=FILE)
        assert update.new.digest == update.old.digest and update.imported.commit == imported.first
    for commit in ("main", imported.first[:12]):
        with pytest.raises(SharingError, match="pin a full commit id"):
            prepare_update("hello", home=home, commit=commit, access=FILE)


def test_a_folder_is_read_again(home: ForgeHome, make_tool: MakeTool) -> None:
    folder = make_tool()
    import_tool(str(folder), home=home)
    (folder / "greet.py").write_text("print('newer')\n")
    apply_update(prepare_update("greet", home=home), home=home, seen=Kept())
    assert (home.path / "tools" / "greet" / "greet.py").read_text() == "print('newer')\n"
    with pytest.raises(SharingError, match="no commits"):
        prepare_update("greet", home=home, commit="1" * 40)


def test_a_tool_that_was_not_imported(home: ForgeHome) -> None:
    with pytest.raises(SharingError, match="was not imported"):
        prepare_update("nobody", home=home)


def test_an_edit_after_the_diff_is_kept(home: ForgeHome, imported: Any) -> None:
    live, before = home.path / "tools" / "hello", read_lock(home)
    update = prepare_update("hello", home=home, access=FILE)
    (live / "greet.py").write_text("print('written meanwhile')\n")
    with pytest.raises(SharingError, match="changed during the update"):
        apply_update(update, home=home, seen=Kept())
    assert (live / "greet.py").read_text() == "print('written meanwhile')\n" and read_lock(home) == before


@pytest.mark.parametrize("step", ["seen", "swap", "record"])
def test_a_failure_in_the_middle_leaves_the_old_version(
    home: ForgeHome, imported: Any, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    live, before = home.path / "tools" / "hello", read_lock(home)
    update = prepare_update("hello", home=home, access=FILE)

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    if step == "swap":
        monkeypatch.setattr(staging, "_exchange_names", fail)
    elif step == "record":
        monkeypatch.setattr(share.os, "replace", fail)
    with pytest.raises(KeyboardInterrupt):
        apply_update(update, home=home, seen=fail if step == "seen" else Kept())
    assert read_folder(live).digest == update.old.digest and read_lock(home) == before
    assert not list(home.path.glob(".staging-*"))


def test_where_names_cannot_be_exchanged_it_goes_in_steps(
    tmp_path: Path, make_tool: MakeTool, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = make_tool("one"), make_tool("other", more="x")
    digests = read_folder(one).digest, read_folder(other).digest
    staging._swap_in_steps(one, other)
    assert (read_folder(other).digest, read_folder(one).digest) == digests
    real = os.rename

    def fail_second(source: Any, target: Any) -> None:
        if Path(source) == one:
            raise PermissionError
        real(source, target)

    monkeypatch.setattr(staging.os, "rename", fail_second)
    with pytest.raises(PermissionError):
        staging._swap_in_steps(one, other)
    assert (read_folder(other).digest, read_folder(one).digest) == digests


def test_a_new_version_that_is_no_tool_changes_nothing(home: ForgeHome, imported: Any) -> None:
    live = home.path / "tools" / "hello"
    before = read_folder(live).digest
    (imported.folder / "greet" / "tool.yaml").write_text("name: greet\n")
    imported.commit()
    with pytest.raises(Unusable):
        prepare_update("hello", home=home, access=FILE)
    assert read_folder(live).digest == before
