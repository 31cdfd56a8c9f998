"""Ways in which a command destroyed something for good, or undo something of the person's. Each was found by trying."""

from __future__ import annotations

import json
import mmap
import os
import posix
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.deadlines import PATIENCE
from tests.sandbox.conftest import die, in_child, is_killed
from tests.sandbox.undo.tree import Project, git, remove, repository_at, snapshot

from golem_forge.core.changes import ChangeSet, UndoSettings
from golem_forge.sandbox.undo import git_baseline
from golem_forge.sandbox.undo import restore as restoring
from golem_forge.sandbox.undo import zone_history as engine
from golem_forge.sandbox.undo.restore import EDITED, PENDING, SPECIAL, finish_restores, preview, recover
from golem_forge.sandbox.walls.changes import CLOCK_OF_FILES


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return repository_at(tmp_path / "project")


@pytest.fixture
def project(root: Path, tmp_path: Path) -> Project:
    return Project(root, tmp_path / "home")


@pytest.fixture
def on_disk() -> Iterator[Path]:
    """Beside these files: one in memory has no new time after it was written through a mapping."""
    with tempfile.TemporaryDirectory(prefix=".tests-", dir=Path(__file__).parents[3]) as directory:
        yield Path(directory)


def bound_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


def again(project: Project, session: str = "s2") -> Project:
    """The same zone in another process."""
    engine._histories.clear()
    return Project(project.root, project.home, session=session, settings=project.settings)


@dataclass(frozen=True)
class Commands:
    """`forge WORD…` in a directory, with a home of the test's own; see the fixture `ready_forge`."""

    ready: Any
    home: Path

    def forge(self, root: Path, *words: str) -> str:
        """What it said, on both streams."""
        ran = self.ready(*words, cwd=root, env={**os.environ, "FORGE_HOME": str(self.home)})
        return str(ran.stdout + ran.stderr)

    def contained(self, root: Path, command: str, words: str = ".git/words.yaml") -> str:
        """A session in which the model runs one command."""
        calls = [{"tool": "exec_command", "args": {"cmd": command}}]
        (root / words).write_text(json.dumps({"turns": [{"say": "x", "calls": calls}, {"say": "done"}]}))
        return self.forge(root, "run", "--model", f"scripted:{words}", "--approval", "contained", "go")


@pytest.fixture
def commands(ready_forge: Any, tmp_path: Path) -> Commands:
    return Commands(ready_forge, tmp_path / "home")


# a flood of files makes the look fail, and what the command deleted is gone
def test_what_a_command_deletes_comes_back_although_it_made_too_many_files(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "MOST_ENTRIES", 100)
    monkeypatch.setattr(engine, "_TARGETED", 50)
    (project.root / "thesis.txt").write_text("four years\n")
    with project.call(1):
        (project.root / "thesis.txt").unlink()
        (project.root / "flood").mkdir()
        for number in range(101):
            (project.root / "flood" / str(number)).touch()
    assert "/workspace/thesis.txt" in {one.path for each in project.log.read() for one in each.changes}
    shutil.rmtree(project.root / "flood")
    project.undo(turn=1)
    assert (project.root / "thesis.txt").read_text() == "four years\n"


# more tracked bytes than git may write in one answer
def test_deleting_more_tracked_bytes_than_one_answer_of_git_is_recorded(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        (project.root / f"big{number}").write_text(f"{number}" * 200_000)
    git(project.root, "add", "-A")
    git(project.root, "commit", "-qm", "big")
    (project.root / "thesis.txt").write_text("four years\n")
    before = snapshot(project.root)
    monkeypatch.setattr(git_baseline, "_LIMITS", git_baseline.GitLimits(seconds=60, output=500_000))
    monkeypatch.setattr(git_baseline, "_BATCH_BYTES", 300_000)
    call = project.begin(1)
    for number in range(4):
        (project.root / f"big{number}").unlink()
    (project.root / "thesis.txt").unlink()
    project.end(call)  # raises GitUnusable
    assert not project.undo(turn=1)
    assert snapshot(project.root) == before


# `.GIT` is no repository, and nothing in it or through it is seen
def test_a_directory_whose_name_is_git_in_capitals_is_seen(project: Project) -> None:
    (project.root / ".GIT").mkdir()
    (project.root / ".GIT/notes").write_text("precious\n")
    with project.call(1):
        (project.root / ".GIT/notes").write_text("junk\n")
    assert not project.undo(turn=1)
    assert (project.root / ".GIT/notes").read_text() == "precious\n"


def test_a_file_is_not_changed_unseen_through_a_link_in_such_a_directory(project: Project) -> None:
    many = project.root / "many"
    many.mkdir()
    for number in range(2500):
        (many / str(number)).write_text(f"{number}\n")
    (project.root / ".GIT").mkdir()
    git(project.root, "add", "many")
    git(project.root, "commit", "-qm", "many")
    for _ in range(3):
        project.end(project.begin(1))
    with project.call(2):
        os.link(many / "7", project.root / ".GIT/x")
        (project.root / ".GIT/x").write_text("junk\n")
        (project.root / ".GIT/x").unlink()
    assert {one.path for each in project.log.read() for one in each.changes} >= {"/workspace/many/7"}


# one odd path in a change set, and nothing of it can be undone
def test_forge_undo_takes_back_a_call_that_made_odd_names_in_a_linked_worktree(
    root: Path, tmp_path: Path, commands: Commands
) -> None:
    tree = tmp_path / "tree"
    git(root, "worktree", "add", "-q", "-b", "side", str(tree))
    (tree / "thesis.txt").write_text("four years\n")
    odd = """touch "$(printf 'q\\nr')" "$(printf '\\377\\376')" """
    deep = "p=d; for i in $(seq 1 75); do p=$p/d; done; mkdir -p $p; touch $p/x"
    commands.contained(tree, f"rm thesis.txt src/b.py; git commit -qam gone; {odd}; {deep}", words=".words.yaml")
    assert not (tree / "thesis.txt").exists()
    said = commands.forge(tree, "undo", "--yes")
    assert (tree / "thesis.txt").exists() and (tree / "src/b.py").exists(), said
    assert git(tree, "log", "-1", "--format=%s") == "first\n", said


# no session was opened since Forge was killed, and `forge undo` says that nothing changed
def test_forge_undo_takes_back_a_call_whose_forge_was_killed(root: Path, project: Project, commands: Commands) -> None:
    commands.contained(root, "true")
    [journal] = (project.home / "sessions").glob("*.jsonl")

    def work() -> None:
        Project(root, project.home, session=journal.stem).begin(1)
        (root / "src/b.py").unlink()
        (root / "made").write_text("x")
        die()

    assert is_killed(work)
    said = commands.forge(root, "changes")
    assert "deleted  /workspace/src/b.py" in said
    assert said.count("created ") == 1  # /workspace/made, and by no other name
    commands.forge(root, "undo", "--yes")
    assert git(root, "status", "--porcelain") == ""


# a FIFO hangs every later session
def test_attributes_that_lead_to_a_fifo_do_not_hang_the_look(project: Project) -> None:
    os.mkfifo(project.root / "p")
    (project.root / "x.gitattributes").symlink_to("p")
    looked = threading.Thread(target=project.history.coverage, daemon=True)
    looked.start()
    looked.join(PATIENCE)
    hangs = looked.is_alive()
    if hangs:  # let it end
        os.close(os.open(project.root / "p", os.O_WRONLY | os.O_NONBLOCK))
        looked.join(PATIENCE)
    assert not hangs


# what the person did after Forge was killed is taken for the call's
def test_work_after_a_kill_is_not_the_work_of_the_killed_call(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project.root / "mine.txt").write_text("mine\n")

    def work() -> None:
        again(project, "s1").begin(1)
        (project.root / "made").write_text("x")
        die()

    assert is_killed(work)
    [busy] = (project.home / "undo").glob("*/busy")
    os.utime(busy, (0, 0))  # it was ended long ago
    (project.root / "mine.txt").write_text("a day of work\n")
    (project.root / "chapter.txt").write_text("new\n")
    recover(project.home, project.sandbox, project.settings)
    found = preview(project.home, project.sandbox, "s1", settings=project.settings)
    assert not {"/workspace/mine.txt", "/workspace/chapter.txt"} & {one.path for one in found.selected}


# a merge that is not committed survives its undo
def test_an_open_merge_is_taken_back(project: Project) -> None:
    root = project.root
    git(root, "checkout", "-q", "-b", "topic")
    (root / "t.txt").write_text("t\n")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "t")
    git(root, "checkout", "-q", "main")
    with project.call(1):
        git(root, "merge", "-q", "--no-commit", "--no-ff", "topic")
    assert not project.undo(turn=1)
    assert not (root / ".git/MERGE_HEAD").exists()


def test_a_merge_in_conflict_is_the_same_state_in_another_process(project: Project) -> None:
    root = project.root
    diverge(root)
    call = project.begin(1)
    git(root, "merge", "-q", "topic", check=False)
    after = next(one.after for one in project.end(call).changes if one.path.endswith(".git/index"))

    def digest() -> str:
        history = again(project).history
        history.coverage()
        return history.state((".git", "index")).digest

    assert in_child(digest, plain=False) == after.digest


def diverge(root: Path) -> None:
    """`topic` and `main`, which change the same line."""
    git(root, "checkout", "-q", "-b", "topic")
    (root / "a.txt").write_text("t\n")
    git(root, "commit", "-qam", "t")
    git(root, "checkout", "-q", "main")
    (root / "a.txt").write_text("m\n")
    git(root, "commit", "-qam", "m")


@pytest.mark.parametrize(
    ("before", "commands"),
    [
        ("merge topic", ("merge --abort", "commit -qam resolved")),
        ("status", ("rebase topic",)),
        pytest.param("merge topic", ("reset --hard",), marks=pytest.mark.long),
        pytest.param("cherry-pick topic", ("reset",), marks=pytest.mark.long),
        pytest.param("rebase topic", ("rebase --abort", "rebase --skip"), marks=pytest.mark.long),
        pytest.param("status", ("merge topic",), marks=pytest.mark.long),
    ],
)
def test_what_is_in_conflict_comes_back_as_it_was(project: Project, before: str, commands: tuple[str, ...]) -> None:
    """Else a person who commits after the undo leaves one side out without a word."""
    diverge(project.root)
    git(project.root, *before.split(), check=False)
    was = snapshot(project.root)
    for turn, command in enumerate(commands, 1):
        with project.call(turn):
            git(project.root, *command.split(), check=False)
        then = snapshot(project.root)
        assert then != was, command
        assert (project.undo(turn=turn), snapshot(project.root)) == ({}, was), command
        assert (project.undo(redo=True), snapshot(project.root)) == ({}, then), command
        assert (project.undo(turn=turn), snapshot(project.root)) == ({}, was), command


def test_a_branch_that_moved_while_head_came_to_be_on_it_goes_back_with_it(project: Project) -> None:
    git(project.root, "checkout", "-q", "--detach")
    was = snapshot(project.root)
    with project.call(1):
        git(project.root, "checkout", "-q", "main")
        git(project.root, "commit", "-q", "--allow-empty", "-m", "second")
    assert (project.undo(turn=1), snapshot(project.root)) == ({}, was)


def test_a_staged_file_may_have_the_name_of_a_mark_of_ours(project: Project) -> None:
    for name in ("flags", "stages"):
        (project.root / name).write_text("x\n")
    git(project.root, "add", "-A")
    was = snapshot(project.root)
    with project.call(1):
        git(project.root, "reset", "-q", "--hard")
    assert (project.undo(turn=1), snapshot(project.root)) == ({}, was)


# flags of the index
def test_flags_of_the_index_survive_an_undo(project: Project) -> None:
    root = project.root
    git(root, "update-index", "--skip-worktree", "a.txt")
    git(root, "update-index", "--assume-unchanged", "src/b.py")
    before = git(root, "ls-files", "-s", "-v")
    with project.call(1):
        (root / "n").write_text("n\n")
        git(root, "add", "n")
    project.undo(turn=1)
    assert git(root, "ls-files", "-s", "-v") == before


# repositories that are not the one at the zone's root
def test_a_zone_with_submodules_asks_because_their_history_is_not_kept(project: Project, tmp_path: Path) -> None:
    root = project.root
    other = tmp_path / "other"
    git(tmp_path, "clone", "-q", str(root), str(other))
    git(root, "-c", "protocol.file.allow=always", "submodule", "-q", "add", str(other), "sub")
    assert "submodules" in project.history.coverage().problem


def test_a_commit_from_a_zone_below_the_root_of_a_repository_comes_back(root: Path, commands: Commands) -> None:
    before = git(root, "rev-parse", "HEAD")
    commands.contained(root / "src", "echo q >> b.py; git commit -qam q", words=".words.yaml")
    said = commands.forge(root / "src", "undo", "--yes")
    assert git(root, "rev-parse", "HEAD") == before or "git" in said


# large files of another session are writable unasked
def test_what_another_session_made_is_not_writable_without_a_question(root: Path, tmp_path: Path) -> None:
    project = Project(root, tmp_path / "home", settings=UndoSettings(max_file=10))
    with project.call(1):
        (root / "model.bin").write_bytes(os.urandom(1000))
    later = again(project)
    # `coverage` has to be told whose call asks; as it is, no session sees it.
    assert [one.parts for one in later.history.coverage().uncovered] == [("model.bin",)]


# what was once regenerable stays so, and what is moved into such a directory is not kept
def test_a_directory_that_is_no_environment_any_more_is_kept(project: Project) -> None:
    (project.root / "env").mkdir()
    (project.root / "env/pyvenv.cfg").write_text("home = /usr\n")
    project.end(project.begin(1))
    shutil.rmtree(project.root / "env")
    later = again(project)
    (project.root / "env").mkdir()
    (project.root / "env/settings.yaml").write_text("precious\n")
    with later.call(1):
        shutil.rmtree(project.root / "env")
    later.undo(turn=1)
    assert (project.root / "env/settings.yaml").exists()


def test_files_that_are_moved_into_a_directory_with_a_tag_are_still_kept(project: Project) -> None:
    (project.root / "data").mkdir()
    (project.root / "data/thesis.txt").write_text("four years\n")
    written = (project.root / "data/thesis.txt").stat().st_ctime_ns
    while time.clock_gettime_ns(CLOCK_OF_FILES) <= written:  # it is older than the look before the call
        time.sleep(0.001)
    with project.call(1):
        (project.root / "data").rename(project.root / "data2")
        (project.root / "data2/CACHEDIR.TAG").write_text("Signature: 8a477f597d28d172789f06886806bc55\n")
    with project.call(2):
        shutil.rmtree(project.root / "data2")
    project.undo(turn=2)
    assert (project.root / "data2/thesis.txt").exists()


# a kill between the first table and the version
def test_a_table_whose_making_was_cut_short_is_made_again(project: Project) -> None:
    import sqlite3

    folder = engine.zone_folder(project.home, str(project.root))
    folder.mkdir(parents=True)
    with sqlite3.connect(folder / "table.db") as db:
        db.execute("CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID")
    db.close()
    assert not project.history.coverage().problem


@pytest.mark.parametrize("name", ["db.sqlite3", "__pycache__", "node_modules"])
def test_a_file_whose_place_a_directory_takes_that_could_be_made_again_comes_back(project: Project, name: str) -> None:
    (project.root / "package.json").write_text("{}")
    (project.root / name).write_text("four years\n")
    before = snapshot(project.root)
    with project.call(1):
        (project.root / name).unlink()
        (project.root / name).mkdir()
        (project.root / name / "pyvenv.cfg").touch()
    assert not project.undo(turn=1)
    assert snapshot(project.root) == before


def wait_for_the_clock(path: Path) -> None:
    """Until its time of change is none of just now: then Forge believes it."""
    while time.time_ns() - path.stat().st_ctime_ns < 100_000_000:
        time.sleep(0.01)


def test_a_process_that_goes_on_and_writes_through_a_mapping_is_seen(
    on_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page that is written again before it was on disk gives its file no new time, and nobody is told."""
    monkeypatch.setattr(os, "fdatasync", posix.fdatasync)  # the real one, for which tests need not wait otherwise
    project = Project(repository_at(on_disk / "project"), on_disk / "home")
    path = project.root / "work.txt"
    path.write_text("four years\n")
    span, facts = project.begin(1)
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapping:
        mapping[0:1] = mapping[0:1]
        wait_for_the_clock(path)
        assert not project.history.end(span, goes_on=True)
        mapping[:] = b"X" * len(mapping)
        made = project.end((span, facts))
    assert [one.path for one in made.changes] == ["/workspace/work.txt"]
    assert not project.undo(turn=1, also=["/workspace/work.txt"])
    assert path.read_text() == "four years\n"


def test_a_process_that_goes_on_and_writes_by_a_name_that_is_gone_is_seen_in_a_large_zone(project: Project) -> None:
    for number in range(260):  # enough for the zone to be watched
        (project.root / f"many/{number}").mkdir(parents=True)
    path = project.root / "work.txt"
    path.write_text("four years\n")
    for _ in range(2):
        project.end(project.begin(1))
    span, facts = project.begin(2)
    os.link(path, path.with_suffix(".2"))
    file = os.open(path.with_suffix(".2"), os.O_RDWR)
    path.with_suffix(".2").unlink()
    project.history.end(span, goes_on=True)
    os.pwrite(file, b"gone", 0)
    os.close(file)
    assert [one.path for one in project.end((span, facts)).changes] == ["/workspace/work.txt"]


def test_a_large_file_that_appears_while_a_process_goes_on_is_not_its_own(root: Path, tmp_path: Path) -> None:
    """It may be the person's: a later call must ask before it is lost."""
    project = Project(root, tmp_path / "home", settings=UndoSettings(max_file=1000))
    span, facts = project.begin(1)
    project.history.end(span, goes_on=True)
    (project.root / "thesis.bin").write_bytes(b"x" * 5000)
    assert [one.parts for one in project.history.coverage(project.session).uncovered] == [("thesis.bin",)]
    project.end((span, facts))


@pytest.mark.parametrize("ends", ["by itself", "with Forge"])
def test_what_changed_while_a_server_of_a_call_went_on_is_listed_and_left_alone(project: Project, ends: str) -> None:
    """It may be the person's, who works beside it."""
    span, facts = project.begin(1)
    (project.root / "a.txt").write_text("the call\n")
    project.log.append(ChangeSet(**facts, changes=tuple(project.history.end(span, goes_on=True))))  # type: ignore[arg-type]
    (project.root / "mine.txt").write_text("mine\n")
    (project.root / "src/b.py").write_text("mine\n")
    if ends == "by itself":
        project.end((span, facts))
    else:
        with project.history.store.locked():
            project.history.store.abandon_span(span)
        recover(project.home, project.sandbox, project.settings)
    left = project.undo(turn=1)
    assert set(left) == {"/workspace/mine.txt", "/workspace/src/b.py"}
    assert all("while a process of the call went on" in why for why in left.values())
    assert (project.root / "a.txt").read_text() == "one\n"
    assert (project.root / "mine.txt").read_text() == (project.root / "src/b.py").read_text() == "mine\n"


def test_what_the_person_wrote_through_a_mapping_is_left_alone(project: Project) -> None:
    path = project.root / "a.txt"
    call = project.begin(1)
    path.write_text("two\n")
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapping:
        mapping[0:1] = mapping[0:1]
        wait_for_the_clock(path)
        project.end(call)
        mapping[:] = b"new\n"
    assert project.undo(turn=1)
    assert path.read_text() == "new\n"


def test_an_undo_that_was_cut_short_takes_nothing_that_the_person_staged_since(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    with project.call(1):
        (project.root / "a.txt").write_text("two\n")
        git(project.root, "add", "a.txt")

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(engine.ZoneHistory, "restore_git", die)
        with pytest.raises(KeyboardInterrupt):
            project.undo(turn=1)
    store = project.history.store
    with store.locked():
        said = json.loads(store.get(PENDING))
        store.set(PENDING, json.dumps(said | {"owner": [1 << 22, "0"]}))  # as if that process had been killed
    (project.root / "mine.txt").write_text("mine\n")
    git(project.root, "add", "mine.txt")
    finish_restores(project.history)
    assert git(project.root, "ls-files", "mine.txt").strip() == "mine.txt"


# a FIFO, a socket or a device is nothing that is kept: undo took it for an empty place and put a file over it
@pytest.mark.parametrize("make", [os.mkfifo, bound_socket], ids=["fifo", "socket"])
def test_what_is_no_file_and_stands_in_the_place_of_one_is_left_alone_and_listed(
    project: Project, make: Callable[[Path], object]
) -> None:
    with project.call(1):
        (project.root / "a.txt").unlink()
        (project.root / "src/b.py").write_text("agent\n")
        (project.root / "made.txt").write_text("agent\n")
    for name in ("a.txt", "src/b.py", "made.txt"):
        (project.root / name).unlink(missing_ok=True)
        make(project.root / name)
    left = project.undo(turn=1)
    assert left == {f"/workspace/{name}": SPECIAL for name in ("a.txt", "src/b.py", "made.txt")}
    assert not any((project.root / name).is_file() for name in ("a.txt", "src/b.py", "made.txt"))
    assert all((project.root / name).exists() for name in ("a.txt", "src/b.py", "made.txt"))
    assert not project.undo(turn=1, also=("/workspace",)), "whoever names it means it"
    assert (project.root / "a.txt").read_text() == "one\n" and (project.root / "src/b.py").read_text() == "print(1)\n"
    assert not (project.root / "made.txt").exists()


@pytest.mark.parametrize("did", ["deleted", "changed", "made"])
def test_what_the_person_saves_while_an_undo_is_carried_out_stays(
    project: Project, monkeypatch: pytest.MonkeyPatch, did: str
) -> None:
    if did == "made":
        (project.root / "a.txt").unlink()
        git(project.root, "commit", "-qam", "gone")
    with project.call(1):
        if did == "deleted":
            (project.root / "a.txt").unlink()
        else:
            (project.root / "a.txt").write_text("agent\n")

    def saved_meanwhile() -> str:
        (project.root / "a.txt").write_text("mine!\n")
        return ".forge-0123456789abcdef.tmp"

    monkeypatch.setattr(restoring, "temp_name", saved_meanwhile)
    assert project.undo(turn=1) == {"/workspace/a.txt": EDITED}
    assert (project.root / "a.txt").read_text() == "mine!\n"
    assert sorted(os.listdir(project.root)) == [".git", "a.txt", "src"]


@pytest.mark.parametrize("did", ["a new mode", "a file instead of a directory", "a fifo instead of a file"])
def test_what_the_person_saves_between_the_look_of_an_undo_and_its_step_stays(
    project: Project, monkeypatch: pytest.MonkeyPatch, did: str
) -> None:
    path = project.root / ("src" if "directory" in did else "a.txt")
    with project.call(1):
        if did == "a new mode":
            path.chmod(0o600)
        else:
            remove(path)
            path.write_text("agent\n")
    if "fifo" in did:
        path.unlink()
        os.mkfifo(path)
    put = restoring._put

    def saved_meanwhile(history: engine.ZoneHistory, parts: tuple[str, ...], *rest: Any) -> None:
        if parts == (path.name,):
            if not path.is_file():
                path.unlink()
            path.write_text("mine!\n")
        put(history, parts, *rest)

    monkeypatch.setattr(restoring, "_put", saved_meanwhile)
    left = project.undo(turn=1, also=("/workspace",))
    assert left[f"/workspace/{path.name}"] == EDITED
    assert path.read_text() == "mine!\n"
    assert did != "a new mode" or path.stat().st_mode & 0o777 == 0o600
    assert sorted(os.listdir(project.root)) == [".git", "a.txt", "src"]


@pytest.mark.parametrize("made", [1, 250], ids=["one file", "more than are looked at at once"])
def test_an_undo_that_is_killed_before_it_removed_what_it_replaced_leaves_nothing_behind(
    project: Project, monkeypatch: pytest.MonkeyPatch, made: int
) -> None:
    before = snapshot(project.root)
    with project.call(1):
        (project.root / "a.txt").write_text("agent\n")
        for number in range(made):
            (project.root / f"src/made{number}").write_text("agent\n")

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(restoring, "_remove_all", lambda names: None)
        patched.setattr(engine.ZoneFiles, "sync", die)
        with pytest.raises(KeyboardInterrupt):
            project.undo(turn=1)
    assert any(name.startswith(".forge-") for name in os.listdir(project.root))
    store = project.history.store
    with store.locked():
        said = json.loads(store.get(PENDING))
        store.set(PENDING, json.dumps(said | {"owner": [1 << 22, "0"]}))  # as if that process had been killed
    finish_restores(project.history)
    assert snapshot(project.root) == before
