"""History: what was there comes back byte for byte, also of a deleted tool, and nothing is lost on the way."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.sandbox.conftest import die, is_killed
from tests.tables import table

from golem_forge.core.decisions import Status
from golem_forge.storage.content_store import ContentStore
from golem_forge.storage.home import ForgeHome
from golem_forge.usertools import folder as staging
from golem_forge.usertools.folder import FolderFiles, read_folder
from golem_forge.usertools.store import ToolStore, history
from golem_forge.usertools.store.history import HistoryError, prune_versions, remove_tool, undo, version_log
from golem_forge.usertools.store.queries import Author, AuthorKind

AGENT = Author(AuthorKind.AGENT, "s1", "coder")


class Shop:
    """A home with one tool folder, its book and its store, as a session has them."""

    def __init__(self, path: Path) -> None:
        self.home = ForgeHome(path)
        self.book = ToolStore(self.home)
        self.store = ContentStore(self.home)
        self.folder = self.home.ensure("tools") / "x"

    def write(self, text: str, *, author: Author | None = None) -> str:
        """One edit, seen as the registry sees it."""
        self.fill(text)
        return self.see(author)

    def fill(self, text: str) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        (self.folder / "lib").mkdir(parents=True)
        (self.folder / "tool.yaml").write_text(f"# {text}\n")
        (self.folder / "lib" / "part.py").write_text(text)
        (self.folder / "run").write_text("#!/bin/sh\n")
        (self.folder / "run").chmod(0o755)

    def see(self, author: Author | None = None) -> str:
        found = read_folder(self.folder)
        self.store.put(found.files, executable=found.executable)
        self.book.record_version("x", found.digest, author)
        return found.digest

    def keep_with_clutter(self) -> str:
        """The folder as an earlier Forge kept it: with what is no part of a tool now."""
        found = read_folder(self.folder)
        files = FolderFiles({**found.files, ".DS_Store": b"layout"}, found.executable)
        self.store.put(files.files, executable=files.executable)
        self.book.record_version("x", files.digest)
        return files.digest

    def old_files(self, digest: str) -> FolderFiles | None:
        snapshot = self.store.known(digest)
        return FolderFiles(*self.store.read(snapshot)) if snapshot else None

    def undo(self, wanted: str = "") -> history.VersionChange:
        return undo(home=self.home, store=self.book, name="x", wanted=wanted, files_of=self.old_files)

    @property
    def present(self) -> str:
        return read_folder(self.folder).digest

    @property
    def digests(self) -> list[str]:
        return [version.digest for version in self.book.versions("x")]


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path / "home")
    yield made
    made.book.close()


def test_undo_after_two_edits_brings_the_previous_bytes_and_the_log_shows_three_versions(shop: Shop) -> None:
    first = shop.write("one")
    second = shop.write("two", author=AGENT)
    third = shop.write("three")
    assert shop.undo() == history.VersionChange(digest=second)
    assert shop.present == second
    assert (shop.folder / "lib" / "part.py").read_text() == "two"
    rows = version_log(shop.book, "x", shop.present)
    assert [row.digest for row in rows] == [second, third, first]
    assert [row.author.describe() for row in rows] == ["agent (session s1, worker coder)", "manual", "manual"]
    assert [row.restored for row in rows] == [1, 0, 0]
    assert [row.current for row in rows] == [True, False, False]
    assert rows[0].to_json()["author"] == {"kind": "agent", "session": "s1", "worker": "coder"}


def test_undo_is_itself_a_version_and_a_second_one_goes_a_second_step_back(shop: Shop) -> None:
    first, second, third = (shop.write(text) for text in ("one", "two", "three"))
    assert [shop.undo().digest, shop.undo().digest] == [second, first]
    assert shop.digests == [first, second, third, second, first]
    with pytest.raises(HistoryError, match=r"no earlier version.*forge tools undo x DIGEST"):
        shop.undo()
    assert shop.undo(third).digest == third, "forward again, by its name"
    assert shop.undo().digest == first, "what was there before that"


def test_versions_that_an_earlier_forge_kept_with_clutter_are_steps_back_too(shop: Shop) -> None:
    plain = {}
    for text in ("one", "two"):
        shop.fill(text)
        plain[text] = shop.present
        assert shop.keep_with_clutter() != plain[text]
    asked: list[tuple[str, str]] = []

    def yes(current: str, digest: str) -> bool:
        asked.append((current, digest))
        return True

    back = undo(home=shop.home, store=shop.book, name="x", files_of=shop.old_files, agreed=yes)
    assert back.digest == shop.present == plain["one"], "not to the same files with clutter beside them"
    assert asked == [(plain["two"], plain["one"])], "asked about the bytes that come back"
    with pytest.raises(HistoryError, match="no earlier version"):
        shop.undo()
    assert shop.present == plain["one"], "a second undo is no redo"


def test_an_edit_after_an_undo_is_undone_to_what_it_was_made_from(shop: Shop) -> None:
    first, second = shop.write("one"), shop.write("two")
    shop.write("three")
    shop.undo()
    shop.write("four")
    assert [shop.undo().digest, shop.undo().digest] == [second, first]


def test_bytes_that_came_back_by_hand_are_where_they_were(shop: Shop) -> None:
    first, second = shop.write("one"), shop.write("two")
    shop.write("three")
    assert shop.write("two") == second
    assert shop.undo().digest == first


def test_a_version_nobody_agrees_to_is_not_brought_back(shop: Shop) -> None:
    first, second = shop.write("one"), shop.write("two")
    asked: list[tuple[str, str]] = []

    def no(current: str, digest: str) -> bool:
        asked.append((current, digest))
        return False

    with pytest.raises(HistoryError, match="was not changed"):
        undo(home=shop.home, store=shop.book, name="x", files_of=shop.old_files, agreed=no)
    assert asked == [(second, first)] and shop.present == second and shop.digests == [second, first]


def test_an_edit_nobody_has_seen_yet_is_a_version_before_it_is_undone(shop: Shop) -> None:
    first = shop.write("one")
    (shop.folder / "tool.yaml").write_text("not even: [yaml")
    unseen = shop.present
    assert shop.undo().digest == first
    assert shop.undo(unseen).digest == unseen
    assert (shop.folder / "tool.yaml").read_text() == "not even: [yaml"


def test_modes_are_the_owners_alone_and_executables_stay_so(shop: Shop) -> None:
    shop.write("one")
    shop.write("two")
    shop.undo()
    modes = {str(path.relative_to(shop.folder)): stat.S_IMODE(path.stat().st_mode) for path in shop.folder.rglob("*")}
    assert modes == {"lib": 0o700, "lib/part.py": 0o600, "run": 0o700, "tool.yaml": 0o600}
    assert stat.S_IMODE(shop.folder.stat().st_mode) == 0o700
    assert sorted(os.listdir(shop.home.path / "tools")) == ["x"]
    assert not (shop.home.path / "staging").exists()


def test_only_an_exec_bit_is_undone_too(shop: Shop) -> None:
    first = shop.write("one")
    (shop.folder / "run").chmod(0o600)
    assert shop.see() != first
    shop.undo()
    assert shop.present == first


def test_a_deleted_tool_comes_back_as_it_was_last(shop: Shop) -> None:
    first, second = shop.write("one"), shop.write("two")
    shutil.rmtree(shop.folder)
    assert shop.undo().digest == second
    assert shop.present == second
    shutil.rmtree(shop.folder)
    assert shop.undo(first[7:15]).digest == first
    assert shop.present == first


def test_trust_in_the_bytes_comes_back_with_them(shop: Shop) -> None:
    first = shop.write("one")
    shop.book.trust("x", first, who="person")
    shop.write("two")
    shop.undo()
    assert shop.book.find_trust("x", shop.present) is not None
    assert [row.trusted for row in version_log(shop.book, "x")] == [True, False]


def test_remove_keeps_it_for_undo(shop: Shop) -> None:
    shop.write("one")
    last = shop.write("two", author=AGENT)
    shop.book.retire("x")
    assert remove_tool(home=shop.home, store=shop.book, name="x") == history.VersionChange(digest=last)
    assert not shop.folder.exists() and not shop.book.is_retired("x")
    assert shop.undo().digest == last
    assert shop.present == last and shop.book.provenance("x") == AGENT and shop.book.is_agent_made("x")
    assert shop.book.rows("SELECT count(*) FROM creations") == [(1,)]


def test_undo_to_what_is_there_changes_nothing(shop: Shop) -> None:
    shop.write("one")
    second = shop.write("two")
    inode = shop.folder.stat().st_ino
    assert shop.undo(second).digest == second
    assert shop.folder.stat().st_ino == inode and len(shop.digests) == 2


@table("name", ["", ".", "..", "../x", "a/b", ".hidden", "never", "a\0b", "x\x1b[2J"])
def test_names_that_are_no_tool(shop: Shop, name: str) -> None:
    for attempt in (
        lambda: undo(home=shop.home, store=shop.book, name=name, files_of=shop.old_files),
        lambda: remove_tool(home=shop.home, store=shop.book, name=name),
    ):
        with pytest.raises(HistoryError, match="not found") as refused:
            attempt()
        assert refused.value.status is Status.TOOL_NOT_FOUND and "\x1b" not in refused.value.message


@table(
    ("wanted", "words"),
    [
        ("abc12", "at least 6 hex"),
        ("zzzzzzz", "at least 6 hex"),
        ("sha256:", "at least 6 hex"),
        ("%", "at least 6 hex"),
        ("0" * 64, "has no version 000000000000; `forge tools log x`"),
    ],
)
def test_versions_that_are_not_there(shop: Shop, wanted: str, words: str) -> None:
    shop.write("one")
    with pytest.raises(HistoryError, match=words) as refused:
        shop.undo(wanted)
    assert refused.value.status is Status.INPUT_INVALID


def test_a_prefix_of_several_versions_names_none(shop: Shop) -> None:
    shop.write("one")
    for end in "ab":
        shop.book.record_version("x", "sha256:" + "c" * 63 + end)
    shop.see()
    with pytest.raises(HistoryError, match="several versions of tool 'x' start with it"):
        shop.undo("cccccc")


def test_a_tool_without_an_earlier_version(shop: Shop) -> None:
    shop.write("one")
    with pytest.raises(HistoryError, match="has no earlier version"):
        shop.undo()


def test_a_version_whose_files_are_gone_or_changed_is_not_written(shop: Shop) -> None:
    first = shop.write("one")
    second = shop.write("two")
    shop.store.remove(first)
    with pytest.raises(HistoryError, match="no longer kept"):
        shop.undo()
    with pytest.raises(HistoryError, match="no longer kept"):
        undo(
            home=shop.home,
            store=shop.book,
            name="x",
            files_of=lambda digest: FolderFiles({"tool.yaml": b"something else"}, frozenset()),
        )
    assert shop.present == second


def test_a_folder_that_cannot_be_a_version_is_set_aside_and_not_deleted(shop: Shop) -> None:
    first = shop.write("one")
    (shop.folder / "link").symlink_to("/etc/passwd")
    (shop.folder / "tool.yaml").write_text("my hour of work")
    found = shop.undo()
    assert found.digest == first == shop.present
    assert found.set_aside is not None and found.set_aside.is_relative_to(shop.home.path / "state")
    assert (found.set_aside / "tool.yaml").read_text() == "my hour of work"
    assert (found.set_aside / "link").is_symlink()


@pytest.mark.parametrize("kind", ["link", "file"])
def test_a_link_or_file_in_its_place_is_moved_and_never_followed(shop: Shop, tmp_path: Path, kind: str) -> None:
    first = shop.write("one")
    shutil.rmtree(shop.folder)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("canary")
    if kind == "link":
        shop.folder.symlink_to(outside)
    else:
        shop.folder.write_text("canary")
    found = shop.undo()
    assert shop.present == first and not shop.folder.is_symlink()
    assert (outside / "precious").read_text() == "canary" and os.listdir(outside) == ["precious"]
    assert found.set_aside is not None and os.path.lexists(found.set_aside)


def test_what_is_written_in_the_moment_of_undo_is_set_aside(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    first = shop.write("one")
    shop.write("two")
    exchange = staging.exchange

    def late(home: ForgeHome, name: str, folder: Path) -> None:
        (shop.folder / "tool.yaml").write_text("a late edit")
        exchange(home, name, folder)

    monkeypatch.setattr(staging, "exchange", late)
    found = shop.undo()
    assert shop.present == first
    assert found.set_aside is not None and (found.set_aside / "tool.yaml").read_text() == "a late edit"


def test_where_two_names_cannot_be_swapped_two_renames_do(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    first = shop.write("one")
    shop.write("two")

    def refused(one: Path, other: Path) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(staging, "_exchange_names", refused)
    assert shop.undo() == history.VersionChange(digest=first)
    assert shop.present == first


def test_a_full_disk_leaves_the_folder_as_it_was(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.write("one")
    second = shop.write("two")

    def full(home: ForgeHome, name: str, folder: Path) -> None:
        raise OSError(28, "No space left on device", "/host/path")

    monkeypatch.setattr(staging, "exchange", full)
    with pytest.raises(HistoryError, match="not brought back: No space left on device") as refused:
        shop.undo()
    assert "/host" not in refused.value.message
    assert shop.present == second


@pytest.mark.parametrize("moment", ["before", "after"])
def test_killed_in_the_middle_it_is_the_old_folder_or_the_new_one(
    shop: Shop, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = shop.write("one"), shop.write("two")
    exchange = staging.exchange

    def dying(*given: Any) -> None:
        if moment == "after":
            exchange(*given)
        die()

    with monkeypatch.context() as patched:
        patched.setattr(staging, "exchange", dying)
        assert is_killed(lambda: Shop(shop.home.path).undo())
    assert shop.present == (second if moment == "before" else first)
    assert shop.old_files(first) is not None and shop.old_files(second) is not None
    shop.see()
    back = shop.undo() if moment == "before" else shop.undo(second)
    assert back.digest == (first if moment == "before" else second)


# pruning


def test_pruning_keeps_the_last_fifty_and_the_trusted_ones(shop: Shop) -> None:
    digests = [f"sha256:{number:064x}" for number in range(60)]
    for digest in digests:
        shop.book.record_version("x", digest)
    shop.book.trust("x", digests[3], who="person")
    shop.book.mark_built("x", digests[0])
    shop.book.mark_built("x", digests[59])
    shop.book.record_version("y", digests[1])
    removed: list[str] = []
    assert prune_versions(shop.book, "x", removed.append) == 9
    assert shop.digests == [*reversed(digests[10:]), digests[3]]
    assert removed == [digests[number] for number in (0, 2, 4, 5, 6, 7, 8, 9)]
    assert not shop.book.build_status("x", digests[0]).built and shop.book.build_status("x", digests[59]).built
    assert prune_versions(shop.book, "x", removed.append) == 0
    assert [version.digest for version in shop.book.versions("y")] == [digests[1]]


def test_pruning_keeps_what_came_back_and_an_agents_hand(shop: Shop) -> None:
    digests = [f"sha256:{number:064x}" for number in range(5)]
    shop.book.record_version("x", digests[0], AGENT)
    for digest in (*digests[1:], digests[0]):
        shop.book.record_version("x", digest, Author(AuthorKind.MANUAL))
    removed: list[str] = []
    prune_versions(shop.book, "x", removed.append, keep=2)
    assert shop.digests == [digests[0], digests[4]]
    assert removed == digests[1:4]
    assert shop.book.is_agent_made("x")


def test_a_snapshot_that_cannot_be_removed_is_tried_again(shop: Shop) -> None:
    for number in range(4):
        shop.book.record_version("x", f"sha256:{number:064x}")

    def refuse(digest: str) -> None:
        raise PermissionError

    assert prune_versions(shop.book, "x", refuse, keep=2) == 0
    assert len(shop.digests) == 4
    assert prune_versions(shop.book, "x", lambda digest: None, keep=2) == 2


def test_fifty_real_snapshots_remain(shop: Shop) -> None:
    digests = [shop.write(f"{number}") for number in range(53)]
    prune_versions(shop.book, "x", shop.store.remove)
    assert [shop.store.known(digest) is not None for digest in digests] == [False] * 3 + [True] * 50


def test_a_repository_in_the_folder_outlives_undo_and_removal(shop: Shop) -> None:
    """It is in no version, so nothing could bring it back."""
    first = shop.write("1")
    (shop.folder / "tool.yaml").write_text("# 2\n")
    shop.see()
    (shop.folder / ".git").mkdir()
    (shop.folder / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (shop.folder / "tool.yaml~").write_text("# 1\n")
    done = shop.undo()
    assert (done.digest, done.set_aside) == (first, None) and shop.present == first
    assert (shop.folder / ".git" / "HEAD").exists() and (shop.folder / "tool.yaml~").exists()
    removed = remove_tool(home=shop.home, store=shop.book, name="x")
    assert removed.set_aside is not None and (removed.set_aside / ".git" / "HEAD").exists()
    assert shop.undo().digest == first and not (shop.folder / ".git").exists()


def test_undo_moves_nothing_out_of_where_a_link_leads(shop: Shop, tmp_path: Path) -> None:
    shop.write("1")
    shop.write("2")
    shutil.rmtree(shop.folder)
    (tmp_path / "elsewhere" / ".git").mkdir(parents=True)
    shop.folder.symlink_to(tmp_path / "elsewhere")
    shop.undo()
    assert (tmp_path / "elsewhere" / ".git").is_dir() and not (shop.folder / ".git").exists()
