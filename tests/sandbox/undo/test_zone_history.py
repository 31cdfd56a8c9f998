"""What is kept of a zone before a call can lose it, what is left out, and what an undo brings back or leaves alone."""

from __future__ import annotations

import errno
import hashlib
import itertools
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.sandbox.conftest import die, is_killed
from tests.sandbox.undo.tree import GIT_ENVIRONMENT, Project, git, repository_at, snapshot

from golem_forge.core.changes import ChangeSelection, PathKind, UndoSettings
from golem_forge.sandbox.undo import zone_history as engine
from golem_forge.sandbox.undo.log import SessionChangeLog
from golem_forge.sandbox.undo.restore import (
    EDITED,
    EDITED_BETWEEN,
    NothingToUndo,
    forget_session,
    preview,
    prune,
    recover,
)
from golem_forge.sandbox.undo.store import ZoneStore
from golem_forge.sandbox.walls.changes import CLOCK_NS, CLOCK_OF_FILES

MIB = 1 << 20
MANY = "i=0; while [ $i -lt 6000 ]; do : > $i; i=$((i+1)); done"
"""More files than a look takes one by one."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = repository_at(tmp_path / "project", ignores="*.sqlite3\n/uploads\n.venv\n/build\n")
    _age(made)
    return made


def _age(repository: Path) -> None:
    """Git looked at every file after its last change: what it says of them is certain."""
    later = time.time_ns() + 1_000_000_000
    os.utime(repository / ".git/index", ns=(later, later))


@pytest.fixture
def project(root: Path, tmp_path: Path) -> Project:
    return Project(root, tmp_path / "home")


def _let_the_clock_of_files_go_on() -> None:
    """What changes within a tick before a call has the time of what the call changes."""
    until = time.clock_gettime_ns(CLOCK_OF_FILES) + CLOCK_NS
    while time.clock_gettime_ns(CLOCK_OF_FILES) <= until:
        time.sleep(0.001)


def paths(project: Project, turn: int = 1) -> set[str]:
    return {one.path for each in project.log.read() if each.turn == turn for one in each.changes}


def test_what_git_ignores_and_nobody_can_make_again_is_kept(project: Project) -> None:
    (project.root / "db.sqlite3").write_bytes(os.urandom(5000))
    (project.root / "uploads").mkdir()
    (project.root / "uploads/photo").write_bytes(b"irreplaceable")
    before = snapshot(project.root)
    with project.call(1):
        (project.root / "db.sqlite3").unlink()
        shutil.rmtree(project.root / "uploads")
    assert not project.undo(turn=1)
    assert snapshot(project.root) == before


def test_a_tracked_build_directory_is_kept_and_a_virtual_environment_is_not(project: Project) -> None:
    (project.root / "build").mkdir()
    (project.root / "build/out.js").write_text("made\n")
    git(project.root, "add", "-f", "build")
    (project.root / ".venv/lib").mkdir(parents=True)
    (project.root / ".venv/pyvenv.cfg").write_text("home = /usr\n")
    (project.root / ".venv/lib/x.py").write_text("pass\n")
    call = project.begin(1)
    shutil.rmtree(project.root / "build")
    (project.root / ".venv/lib/x.py").write_text("changed\n")
    made = project.end(call)
    assert {one.path for one in made.changes if one.is_file} == {"/workspace/build/out.js"}
    project.undo(turn=1)
    assert (project.root / "build/out.js").read_text() == "made\n"
    assert made.remade == ("/workspace/.venv",)


@pytest.mark.parametrize(
    ("prepared", "command", "named"),
    [
        ("", "mkdir -p node_modules/x && echo 1 > node_modules/x/index.js", {"node_modules"}),
        (
            "",
            "mkdir -p web/node_modules && echo {} > web/package.json && echo 1 > web/node_modules/a",
            {"web/node_modules"},
        ),
        ("mkdir -p node_modules/x && echo 1 > node_modules/x/a", "rm node_modules/x/a", {"node_modules"}),
        ("mkdir -p node_modules/x && echo 1 > node_modules/x/a", "rm -r node_modules", {"node_modules"}),
        ("mkdir .venv && echo 'home = /usr' > .venv/pyvenv.cfg", "rm -r .venv", {".venv"}),
        ("mkdir -p node_modules/x && echo 1 > node_modules/x/a", "echo 2 > node_modules/x/a", {"node_modules"}),
        ("mkdir -p node_modules/x && echo 1 > node_modules/x/a", "echo 2 > a.txt; cat node_modules/x/a", set()),
        ("", "mkdir -p src/__pycache__ && echo 1 > src/__pycache__/b.pyc", set()),
        ("mkdir node_modules", f"cd node_modules && {MANY}", {"node_modules"}),
    ],
)
def test_a_directory_that_a_tool_can_make_again_is_named_if_a_call_changed_something_in_it(
    project: Project, prepared: str, command: str, named: set[str]
) -> None:
    (project.root / "package.json").write_text("{}\n")
    subprocess.run(["sh", "-c", prepared], cwd=project.root, check=True)
    project.end(project.begin(1))
    _let_the_clock_of_files_go_on()
    call = project.begin(2)
    subprocess.run(["sh", "-c", command], cwd=project.root, check=True)
    made = project.end(call)
    assert set(made.remade) == {f"/workspace/{name}" for name in named}
    assert {one.path for one in made.changes}.isdisjoint(made.remade)
    _let_the_clock_of_files_go_on()
    third = project.begin(3)
    (project.root / "a.txt").write_text("three\n")
    assert project.end(third).remade == ()


def test_the_last_turn_that_changed_something_is_not_one_that_changed_only_what_can_be_made_again(
    project: Project,
) -> None:
    (project.root / "package.json").write_text("{}\n")
    with project.call(1):
        (project.root / "a.txt").write_text("two\n")
    second = project.begin(2)
    (project.root / "node_modules").mkdir()
    (project.root / "node_modules/x").write_text("1")
    assert not project.end(second).changes
    with pytest.raises(NothingToUndo, match=r"Not taken back: /workspace/node_modules \(a tool can make it again\)\."):
        project.undo(turn=2)
    project.undo()
    assert (project.root / "a.txt").read_text() == "one\n" and (project.root / "node_modules/x").exists()


@pytest.mark.parametrize("witness", ["CACHEDIR.TAG", "pyvenv.cfg"])
def test_a_command_cannot_make_a_directory_look_regenerable_to_hide_what_it_deletes(
    project: Project, witness: str
) -> None:
    (project.root / "data").mkdir()
    (project.root / "data/thesis.txt").write_text("four years\n")
    with project.call(1):
        tag = "Signature: 8a477f597d28d172789f06886806bc55\n" if witness == "CACHEDIR.TAG" else "home = /usr\n"
        (project.root / "data" / witness).write_text(tag)
    with project.call(2):
        (project.root / "data/thesis.txt").unlink()
    assert not project.undo(turn=2)
    assert (project.root / "data/thesis.txt").read_text() == "four years\n"


@pytest.mark.parametrize(("size", "kept"), [(0, True), (MIB, True), (MIB + 1, False)])
def test_a_file_above_the_bound_is_not_kept_and_named_as_such(
    root: Path, tmp_path: Path, size: int, kept: bool
) -> None:
    project = Project(root, tmp_path / "home", settings=UndoSettings(max_file=MIB))
    with open(root / "large.bin", "wb") as file:
        file.truncate(size)
    uncovered = [one.parts for one in project.history.coverage().uncovered]
    assert uncovered == ([] if kept else [("large.bin",)])
    call = project.begin(1)
    (root / "large.bin").unlink()
    [change] = project.end(call).changes
    assert bool(change.before.lost) is not kept
    left = project.undo(turn=1)
    assert bool(left) is not kept
    assert (root / "large.bin").exists() is kept


def test_past_the_total_the_smallest_files_are_kept(root: Path, tmp_path: Path) -> None:
    project = Project(root, tmp_path / "home", settings=UndoSettings(max_total=50_000))
    for number in range(5):
        (root / f"small{number}").write_bytes(os.urandom(1_000))
    (root / "medium").write_bytes(os.urandom(48_000))
    assert [one.parts for one in project.history.coverage().uncovered] == [("medium",)]


def test_more_uncovered_files_than_mounts_are_folded_to_their_directory_or_the_zone_asks(
    root: Path, tmp_path: Path
) -> None:
    project = Project(root, tmp_path / "home", settings=UndoSettings(max_file=10))
    (root / "media").mkdir()
    for number in range(60):
        (root / "media" / f"{number}.raw").write_bytes(os.urandom(100))
    [folded] = project.history.coverage().uncovered
    assert folded.parts == ("media",) and folded.directory
    for number in range(60):
        (root / f"{number}.raw").write_bytes(os.urandom(100))
    assert "cannot be kept" in project.history.coverage().problem


def test_what_the_session_made_itself_stays_writable_however_large(root: Path, tmp_path: Path) -> None:
    project = Project(root, tmp_path / "home", settings=UndoSettings(max_file=10))
    with project.call(1):
        (root / "out.bin").write_bytes(os.urandom(1000))
    assert project.history.coverage("s1").uncovered == ()
    assert [one.parts for one in project.history.coverage("s2").uncovered] == [("out.bin",)]
    (root / "out.bin").write_bytes(os.urandom(2000))  # the person made something else of it
    assert [one.parts for one in project.history.coverage("s1").uncovered] == [("out.bin",)]


def test_a_file_with_a_second_name_outside_is_not_kept_and_one_with_two_names_inside_is(
    project: Project, tmp_path: Path
) -> None:
    (project.root / "shared").write_text("outside too\n")
    os.link(project.root / "shared", tmp_path / "elsewhere")
    os.link(project.root / "src/b.py", project.root / "again.py")
    assert [one.parts for one in project.history.coverage().uncovered] == [("shared",)]
    before = snapshot(project.root)
    call = project.begin(1)
    with open(project.root / "again.py", "a") as file:
        file.write("more\n")
    made = project.end(call)
    assert {one.path for one in made.changes} == {"/workspace/src/b.py", "/workspace/again.py"}
    assert not project.undo(turn=1)
    assert {path: what for path, what in snapshot(project.root).items() if path != "status"} == {
        path: what for path, what in before.items() if path != "status"
    }


@pytest.mark.parametrize(
    "setting",
    ["autocrlf", "filter", *(pytest.param(each, marks=pytest.mark.long) for each in ("text=auto", "lfs pointer"))],
)
def test_where_git_converts_files_their_own_bytes_come_back(project: Project, setting: str) -> None:
    root = project.root
    if setting == "autocrlf":
        git(root, "config", "core.autocrlf", "true")
    elif setting == "filter":
        (root / ".gitattributes").write_text("*.txt filter=upper\n")
        git(root, "config", "filter.upper.clean", "tr a-z A-Z")
        git(root, "config", "filter.upper.smudge", "cat")
    else:
        (root / ".gitattributes").write_text("* text=auto\n" if setting == "text=auto" else "*.bin filter=lfs -text\n")
    (root / "windows.txt").write_bytes(b"line\r\nline\r\n")
    (root / "object.bin").write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 3\n")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "converted")
    before = (root / "windows.txt").read_bytes(), (root / "object.bin").read_bytes()
    with project.call(1):
        (root / "windows.txt").unlink()
        (root / "object.bin").write_bytes(b"other")
    assert not project.undo(turn=1)
    assert ((root / "windows.txt").read_bytes(), (root / "object.bin").read_bytes()) == before


def test_a_partial_clone_has_its_missing_files_copied(root: Path, tmp_path: Path) -> None:
    git(root, "config", "uploadpack.allowFilter", "true")
    clone = tmp_path / "clone"
    subprocess.run(
        ["git", "clone", "-q", "--filter=blob:none", f"file://{root}", str(clone)], env=GIT_ENVIRONMENT, check=True
    )
    project = Project(clone, tmp_path / "home")
    with project.call(1):
        (clone / "src/b.py").unlink()
    assert not project.undo(turn=1)
    assert (clone / "src/b.py").read_text() == "print(1)\n"


def test_files_that_the_index_hides_are_kept_too(project: Project) -> None:
    git(project.root, "update-index", "--assume-unchanged", "a.txt")
    git(project.root, "update-index", "--skip-worktree", "src/b.py")
    (project.root / "a.txt").write_text("hidden edit\n")
    (project.root / "src/b.py").write_text("another\n")
    with project.call(1):
        (project.root / "a.txt").write_text("lost?\n")
        (project.root / "src/b.py").unlink()
    assert not project.undo(turn=1)
    assert (project.root / "a.txt").read_text() == "hidden edit\n"
    assert (project.root / "src/b.py").read_text() == "another\n"


def _change_unseen(root: Path, name: str, content: bytes) -> None:
    """As in the second in which git looked at the file, with its old time of writing and size: git compares whole
    seconds, and takes it for unchanged."""
    path, index = root / name, root / ".git/index"
    os.utime(path, (1_000_000_000, 1_000_000_000))
    git(root, "update-index", "--refresh")
    written = index.stat().st_mtime_ns
    path.write_bytes(content)
    os.utime(path, (1_000_000_000, 1_000_000_000))
    data = bytearray(index.read_bytes())
    entry = data.index(name.encode() + b"\0") - 62
    data[entry : entry + 4] = int(path.stat().st_ctime).to_bytes(4, "big")
    data[-20:] = hashlib.sha1(data[:-20]).digest()
    index.write_bytes(data)
    os.utime(index, ns=(written, written))
    assert git(root, "diff-files", "--name-only") == ""


def test_a_change_that_git_does_not_see_because_it_was_in_the_same_second_is_kept(project: Project) -> None:
    _change_unseen(project.root, "a.txt", b"two\n")
    with project.call(1):
        (project.root / "a.txt").write_text("three\n")

    assert not project.undo(turn=1)

    assert (project.root / "a.txt").read_text() == "two\n"


def test_what_a_call_changed_unseen_by_git_is_known_to_the_next_session(root: Path, tmp_path: Path) -> None:
    project = Project(root, tmp_path / "home")
    with project.call(1):
        _change_unseen(root, "a.txt", b"two\n")
    (root / ".git/index").touch()  # written again since
    del project
    later = Project(root, tmp_path / "home", session="s2")
    with later.call(1):
        (root / "a.txt").write_text("three\n")

    assert not later.undo(turn=1)

    assert (root / "a.txt").read_text() == "two\n"


def test_what_the_person_edits_between_the_call_and_the_undo_stays_unless_it_is_named(project: Project) -> None:
    with project.call(1):
        (project.root / "a.txt").write_text("agent\n")
        (project.root / "src/b.py").write_text("agent\n")
    (project.root / "a.txt").write_text("person\n")
    assert project.undo(turn=1) == {"/workspace/a.txt": "it was changed since"}
    assert (project.root / "a.txt").read_text() == "person\n"
    assert (project.root / "src/b.py").read_text() == "print(1)\n"
    project.undo(turn=1, also=("/workspace/a.txt",))
    assert (project.root / "a.txt").read_text() == "one\n"


def test_what_the_person_edits_between_two_calls_of_a_turn_stays_unless_it_is_named(project: Project) -> None:
    edited = project.root / "a.txt"
    for number in (1, 2):
        with project.call(1):
            edited.write_text(f"agent {number}\n")
            (project.root / "src/b.py").write_text(f"agent {number}\n")
        if number == 1:
            edited.write_text("person\n")
    assert project.undo(turn=1) == {"/workspace/a.txt": EDITED_BETWEEN}
    assert edited.read_text() == "agent 2\n" and (project.root / "src/b.py").read_text() == "print(1)\n"
    assert not project.undo(turn=1, also=("/workspace/a.txt",))
    assert edited.read_text() == "one\n"


def test_what_an_undo_left_is_no_edit_of_somebody_else(project: Project) -> None:
    with project.call(1):
        for name in ("a.txt", "src/b.py"):
            (project.root / name).write_text("agent\n")
    assert not project.undo(paths=["/workspace/a.txt"])
    with project.call(1):
        (project.root / "a.txt").write_text("agent again\n")
    assert not project.undo(turn=1)
    assert (project.root / "a.txt").read_text() == "one\n"


def test_an_empty_path_names_nothing(project: Project) -> None:
    with project.call(1):
        (project.root / "a.txt").write_text("agent\n")
    with pytest.raises(NothingToUndo):
        project.undo(paths=("",))
    (project.root / "a.txt").write_text("person\n")
    assert project.undo(also=("",)) == {"/workspace/a.txt": EDITED}


def test_the_rest_of_a_turn_can_be_undone_after_a_part_of_it(project: Project) -> None:
    first, second = project.root / "first", project.root / "second"
    for number, names in ((1, ("first",)), (2, ("a", "b", "second"))):
        with project.call(number):
            for name in names:
                (project.root / name).write_text("new\n")
    assert not project.undo(paths=["/workspace/a"]) and second.exists()
    assert not project.undo() and not (project.root / "b").exists() and not second.exists() and first.exists()
    assert not project.undo() and not first.exists()
    with pytest.raises(NothingToUndo, match="Nothing is left"):
        project.undo()


def test_a_turn_of_which_only_edited_files_are_left_does_not_stand_in_the_way(project: Project) -> None:
    for number in (1, 2):
        with project.call(number):
            for name in ("a", "b"):
                (project.root / f"{name}{number}").write_text("new\n")
    (project.root / "a2").write_text("mine\n")
    assert project.undo() == {"/workspace/a2": EDITED}
    assert not project.undo() and not (project.root / "a1").exists()
    assert project.undo() == {"/workspace/a2": EDITED}
    assert (project.root / "a2").read_text() == "mine\n"


def test_a_directory_the_call_made_stays_where_the_person_put_something_into_it(project: Project) -> None:
    with project.call(1):
        (project.root / "new").mkdir()
        (project.root / "new/x").write_text("agent\n")
    (project.root / "new/mine").write_text("person\n")
    left = project.undo(turn=1)
    assert list(left) == ["/workspace/new"]
    assert sorted(path.name for path in (project.root / "new").iterdir()) == ["mine"]


def test_a_ref_that_moved_since_is_left_alone(project: Project) -> None:
    first = git(project.root, "rev-parse", "HEAD")
    with project.call(1):
        (project.root / "a.txt").write_text("agent\n")
        git(project.root, "commit", "-qam", "agent")
    (project.root / "src/b.py").write_text("person\n")
    git(project.root, "commit", "-qam", "person")
    mine = git(project.root, "rev-parse", "HEAD")
    left = project.undo(turn=1)
    assert left["/workspace/.git/refs/heads/main"] == "it was changed since"
    assert git(project.root, "rev-parse", "HEAD") == mine != first


def test_a_commit_that_a_ref_left_survives_gc_while_it_can_come_back(project: Project) -> None:
    (project.root / "a.txt").write_text("work\n")
    git(project.root, "commit", "-qam", "work")
    work = git(project.root, "rev-parse", "HEAD").strip()
    with project.call(1):
        git(project.root, "reset", "-q", "--hard", "HEAD~1")
    git(project.root, "reflog", "expire", "--expire=now", "--all")
    git(project.root, "gc", "-q", "--prune=now")
    assert not project.undo(turn=1)
    assert git(project.root, "rev-parse", "HEAD").strip() == work
    assert git(project.root, "status", "--porcelain") == ""


@pytest.mark.parametrize("how", ["its time is over", "the session is deleted"])
def test_a_commit_that_cannot_come_back_any_more_has_no_name_of_ours(root: Path, tmp_path: Path, how: str) -> None:
    sessions = tmp_path / "home/sessions"
    sessions.mkdir(parents=True)
    for name in ("s1", "s2"):
        (sessions / f"{name}.jsonl").touch()
    one, other = Project(root, tmp_path / "home"), Project(root, tmp_path / "home", session="s2")
    (root / "a.txt").write_text("work\n")
    git(root, "commit", "-qam", "work")
    work = git(root, "rev-parse", "HEAD").strip()

    def lose_it(project: Project) -> None:
        with project.call(1):
            git(root, "reset", "-q", "--hard", "HEAD~1")

    def named() -> list[str]:
        return git(root, "for-each-ref", "--format=%(objectname)", "refs/forge/was/undo").split()

    lose_it(one)
    git(root, "reset", "-q", "--hard", work)
    lose_it(other)
    assert named() == [work]
    forget_session(one.home, "s1")
    assert named() == [work], "the other session needs it"
    if how == "its time is over":
        prune(other.home, UndoSettings(keep=3600.0), now=time.time() + 7200)
    else:
        forget_session(other.home, "s2")
    assert named() == []


def test_two_sessions_in_one_zone_each_undo_their_own(root: Path, tmp_path: Path) -> None:
    one, other = Project(root, tmp_path / "home"), Project(root, tmp_path / "home", session="s2")
    with one.call(1):
        (root / "a.txt").write_text("from one\n")
    with other.call(1):
        (root / "src/b.py").write_text("from the other\n")
    assert paths(one) == {"/workspace/a.txt"} and paths(other) == {"/workspace/src/b.py"}
    one.undo(turn=1)
    assert (root / "a.txt").read_text() == "one\n"
    assert (root / "src/b.py").read_text() == "from the other\n"


def test_calls_side_by_side_share_what_changed_and_it_is_not_preselected(root: Path, tmp_path: Path) -> None:
    one, other = Project(root, tmp_path / "home"), Project(root, tmp_path / "home", session="s2")
    first, second = one.begin(1), other.begin(1)
    (root / "a.txt").write_text("whose?\n")
    made = one.end(first)
    other.end(second)
    [change] = made.changes
    assert change.others == ("exec_command (c1)",)
    left = one.undo(turn=1)
    assert "may be the work of exec_command (c1)" in left["/workspace/a.txt"]
    assert (root / "a.txt").read_text() == "whose?\n"


def test_a_home_directory_is_too_much_and_nothing_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "someone"))
    (tmp_path / "someone").mkdir()
    history = engine.ZoneHistory(str(tmp_path / "someone"), "workspace", tmp_path / "home", UndoSettings())
    assert "home directory" in history.coverage().problem
    assert history.begin("s", "c", "c", {}) is None


def test_too_many_entries_are_said_and_nothing_is_kept(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "MOST_ENTRIES", 20)
    for number in range(30):
        (project.root / f"{number}").write_text("x")
    assert "more than 20 entries" in project.history.coverage().problem
    assert project.history.begin("s", "c", "c", {}) is None


def test_a_full_disk_ends_the_capture_and_the_next_look_tries_again(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project.root / "new").write_text("x")

    def full(self: ZoneStore, data: bytes) -> str:
        raise OSError(errno.ENOSPC, "no space")

    with monkeypatch.context() as patched:
        patched.setattr(ZoneStore, "keep", full)
        assert project.history.coverage().problem == "the disk is full"
    assert project.history.coverage().problem == ""


def test_links_put_in_the_place_of_directories_lead_nowhere(project: Project, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "b.py").write_text("not yours\n")
    call = project.begin(1)
    shutil.rmtree(project.root / "src")
    (project.root / "src").symlink_to(outside)
    made = project.end(call)
    assert all(one.after.kind is not PathKind.FILE for one in made.changes)
    project.undo(turn=1)
    assert (outside / "b.py").read_text() == "not yours\n"
    assert (project.root / "src/b.py").read_text() == "print(1)\n"
    assert not (project.root / "src").is_symlink()


def test_an_undo_through_a_link_that_somebody_put_there_writes_nothing_outside(
    project: Project, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    with project.call(1):
        (project.root / "src/b.py").write_text("agent\n")
    shutil.rmtree(project.root / "src")
    (project.root / "src").symlink_to(outside)
    project.undo(turn=1, also=("/workspace/src",))
    assert list(outside.iterdir()) == []


def test_sockets_and_fifos_are_passed_over(project: Project) -> None:
    os.mkfifo(project.root / "pipe")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(project.root / "sock"))
        call = project.begin(1)
        (project.root / "a.txt").write_text("x\n")
        assert {one.path for one in project.end(call).changes} == {"/workspace/a.txt"}


def test_a_secret_is_not_in_the_store(project: Project) -> None:
    (project.root / ".env").write_text("TOKEN=canary-0123456789\n")
    with project.call(1):
        (project.root / ".env").write_text("TOKEN=canary-9876543210\n")
    kept = b"".join(path.read_bytes() for path in (project.home / "undo").rglob("*") if path.is_file())
    assert b"canary-" not in kept
    assert project.history.coverage().uncovered == ()


def test_what_a_killed_process_changed_is_in_its_sessions_log_and_can_be_undone(root: Path, tmp_path: Path) -> None:
    def work() -> None:
        project = Project(root, tmp_path / "home")
        facts = {"session": "s1", "call": "killed", "tool": "exec_command", "turn": 1}
        project.history.begin("s1", "killed", "exec_command (killed)", facts)
        (root / "a.txt").write_text("half\n")
        (root / "src/b.py").unlink()
        die()

    before = snapshot(root)
    assert is_killed(work)
    project = Project(root, tmp_path / "home")
    [told] = recover(project.home, project.sandbox, project.settings)
    assert "cut short after it changed 2 paths" in told
    assert recover(project.home, project.sandbox, project.settings) == []
    assert not project.undo(turn=1)
    assert snapshot(root) == before


@pytest.mark.parametrize(
    "at", [pytest.param(at, marks=[] if at in (1, 6) else pytest.mark.long) for at in range(1, 10)]
)
def test_a_restore_that_is_killed_is_finished_by_the_next_session(root: Path, tmp_path: Path, at: int) -> None:
    """Killed at the `at`th change on disk."""
    before = snapshot(root)
    project = Project(root, tmp_path / "home")
    with project.call(1):
        shutil.rmtree(root / "src")
        for number in range(3):
            (root / f"n{number}").write_text("new\n")
        (root / "a.txt").write_text("agent\n")
    after = snapshot(root)

    def work() -> None:
        changes = itertools.count(1)

        def counted(function: Callable[..., Any]) -> Callable[..., Any]:
            return lambda *args, **options: die() if next(changes) == at else function(*args, **options)

        restored = Project(root, tmp_path / "home")
        for name in ("rename", "unlink", "mkdir"):
            setattr(os, name, counted(getattr(os, name)))
        restored.undo(turn=1)

    killed = is_killed(work)
    again = Project(root, tmp_path / "home")
    recover(again.home, again.sandbox, again.settings)
    assert snapshot(root) in (before, after)  # before its steps were written down, nothing had been done
    assert not again.undo(turn=1) if snapshot(root) == after else killed
    assert snapshot(root) == before


def test_old_sessions_are_forgotten_and_their_contents_go(root: Path, tmp_path: Path) -> None:
    project = Project(root, tmp_path / "home")
    sessions = tmp_path / "home/sessions"
    sessions.mkdir(parents=True, exist_ok=True)
    (sessions / "s1.jsonl").touch()
    (root / "big").write_bytes(os.urandom(MIB))
    with project.call(1):
        (root / "big").write_bytes(os.urandom(MIB))
    packs = sum(path.stat().st_size for path in (project.home / "undo").rglob("packs/*"))
    assert packs >= 2 * MIB
    prune(project.home, UndoSettings(keep=3600.0), now=time.time() + 7200)
    assert sum(path.stat().st_size for path in (project.home / "undo").rglob("packs/*")) <= MIB + 100_000
    found = preview(project.home, project.sandbox, "s1", ChangeSelection(turn=1))
    assert "not kept any more" in found.lost[0].why


def test_a_deleted_session_leaves_nothing_behind(root: Path, tmp_path: Path) -> None:
    project = Project(root, tmp_path / "home")
    with project.call(1):
        (root / "a.txt").write_text("canary of a deleted session\n")
    (root / "a.txt").write_text("one\n")
    project.history.coverage()
    forget_session(project.home, "s1")
    assert not SessionChangeLog(project.home, "s1").path.exists()
    kept = b"".join(path.read_bytes() for path in (project.home / "undo").rglob("packs/*"))
    assert b"canary of a deleted" not in kept


def test_a_turn_that_is_not_there_is_answered_by_those_that_are(project: Project) -> None:
    with project.call(3):
        (project.root / "a.txt").write_text("x\n")
    with pytest.raises(NothingToUndo, match=r"Turns that changed files: 3\."):
        project.undo(turn=9)


def test_packs_are_written_anew_without_losing_one_of_many_contents(tmp_path: Path) -> None:
    store = ZoneStore(tmp_path / "undo/zone")
    with store.locked():
        kept = [store.keep(f"content {number}\n".encode() * 50) for number in range(300)]
        store.keep_for("s1", kept[:200], 1)
        store.keep_for("s2", kept[150:], 1)
    with store.locked():
        store.forget_session("s1")
        store.collect()
    with store.locked():
        assert [store.content(one) is not None for one in kept] == [number >= 150 for number in range(300)]


def test_the_mode_of_the_zones_own_directory_comes_back(project: Project) -> None:
    project.root.chmod(0o755)
    for mode, in_git in ((0o700, False), (0o1777, True)):
        call = project.begin(1)
        project.root.chmod(mode)
        if in_git:
            git(project.root, "commit", "-q", "--allow-empty", "-m", "x")
        made = project.end(call)
        assert [(one.path, one.after.mode) for one in made.changes if not one.in_git] == [("/workspace/.", mode)]
        assert not project.undo(turn=1)
        assert project.root.stat().st_mode & 0o7777 == 0o755


def test_the_zones_own_directory_is_nothing_that_a_call_made(project: Project) -> None:
    """A table of an earlier Forge does not have it."""
    project.history.coverage()
    with project.history.store.locked():
        project.history.store.drop([b"."])
    call = project.begin(1)
    (project.root / "new").write_text("x")
    assert [one.path for one in project.end(call).changes] == ["/workspace/new"]


def test_a_bound_that_is_raised_and_a_disk_that_has_room_again_count_at_once(root: Path, tmp_path: Path) -> None:
    (root / "medium").write_bytes(os.urandom(48_000))
    for settings in (UndoSettings(max_file=10_000), UndoSettings(max_total=10_000)):
        bounded = Project(root, tmp_path / "home", settings=settings)
        assert [one.parts for one in bounded.history.coverage().uncovered] == [("medium",)]
        del bounded
        assert Project(root, tmp_path / "home").history.coverage().uncovered == ()
        shutil.rmtree(tmp_path / "home")


def test_a_content_that_is_kept_already_uses_up_nothing(root: Path, tmp_path: Path) -> None:
    project = Project(root, tmp_path / "home", settings=UndoSettings(max_total=60_000))
    data = os.urandom(20_000)
    for _ in range(5):
        (root / "medium").write_bytes(data)
        assert project.history.coverage().uncovered == ()


def test_what_free_disk_bounds_is_said(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "medium").write_bytes(os.urandom(48_000))
    real = os.statvfs(tmp_path)
    free = os.statvfs_result((real.f_bsize, 1, 0, 0, 100_000, *real[5:]))
    monkeypatch.setattr(os, "statvfs", lambda path: free)
    [lost] = Project(root, tmp_path / "home").history.coverage().uncovered
    assert lost.why == "47 KiB, past a tenth of the free disk (9.8 KiB)"
