"""Git inside walls: everyday commands work, their results arrive in the person's repository, and nothing else does."""

from __future__ import annotations

import asyncio
import errno
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.deadlines import PATIENCE
from tests.sandbox.walls.house import GIT_ENVIRON, House, git, ran

from golem_forge.core.calls import Severity
from golem_forge.sandbox.git import exchange
from golem_forge.sandbox.git.directory import UNSETTLED_NS
from golem_forge.sandbox.git.repository import Repository
from golem_forge.sandbox.git.shadow import GitShadow
from golem_forge.sandbox.git.sides import SyncPhase
from golem_forge.sandbox.handles import best_opener
from golem_forge.sandbox.walls import inspection
from golem_forge.sandbox.walls.model import Job
from golem_forge.sandbox.zones import ZoneSpec, open_zone
from golem_forge.storage.home import locked


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two commits on main, and a branch `other` that changed another file."""
    (tmp_path_factory.getbasetemp() / "home").mkdir(exist_ok=True)
    where = tmp_path_factory.mktemp("template")
    git(where, "init", "-q", "-b", "main", ".")
    for sample in (where / ".git/hooks").iterdir():
        sample.unlink()
    for number in (1, 2):
        (where / "a.txt").write_text(f"{number}\n")
        git(where, "add", ".")
        git(where, "commit", "-q", "-m", f"commit {number}")
    git(where, "checkout", "-q", "-b", "other", "HEAD~1")
    (where / "b.txt").write_text("b\n")
    git(where, "add", ".")
    git(where, "commit", "-q", "-m", "on other")
    git(where, "checkout", "-q", "main")
    return where


@pytest.fixture
def repository(house: House, template: Path) -> Path:
    """A copy of it, and the person's name in their settings."""
    (house.root / "home/.gitconfig").write_text("[user]\n\tname = Ada\n\temail = ada@example.test\n")
    put_copy(template, house.workspace)
    return house.workspace


def put_copy(template: Path, place: Path) -> None:
    shutil.copytree(template, place, dirs_exist_ok=True)
    git(place, "status")  # the index knows these files by their times


def remove_tree_content(place: Path) -> None:
    for path in place.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


BRANCHES = ("branch", "--format=%(refname:short)")
SUBJECTS = ("log", "--format=%s")
LAST = (*SUBJECTS, "-1")
EVERYDAY: dict[str, tuple[str, dict[tuple[str, ...], str | None]]] = {
    "add": ("echo 3 > a.txt; git add a.txt", {("diff", "--cached", "--name-only"): "a.txt"}),
    "commit on a new branch": (
        "git checkout -q -b new; echo 3 > a.txt; git commit -qam three",
        {("symbolic-ref", "HEAD"): "refs/heads/new", LAST: "three"},
    ),
    "checkout detached": ("git checkout -q HEAD~1", {SUBJECTS: "commit 1"}),
    "switch": ("git switch -q other", {("symbolic-ref", "--short", "HEAD"): "other"}),
    "stash": (
        "echo 3 > a.txt; git stash -q; echo 4 > a.txt; git stash -q",
        {("stash", "list", "--format=%gd"): "stash@{0}\nstash@{1}"},
    ),
    "stash pop": ("echo 3 > a.txt; git stash -q; git stash pop -q", {("diff", "--name-only"): "a.txt"}),
    "rebase": ("git rebase -q other", {SUBJECTS: "commit 2\non other\ncommit 1"}),
    "rebase, stopped": (
        "echo x > b.txt; git add b.txt; git commit -qm mine; git rebase -q other",
        {("status", "--short"): "AA b.txt"},
    ),
    "merge": ("git merge -q -m joined other", {("log", "-1", "--format=%s %p"): None}),
    "merge, stopped": (
        "echo x > b.txt; git add b.txt; git commit -qm mine; git merge -q other",
        {(*LAST, "MERGE_HEAD"): "on other"},
    ),
    "cherry-pick": ("git cherry-pick other", {SUBJECTS: "on other\ncommit 2\ncommit 1"}),
    "revert": ("git revert --no-edit HEAD", {("show", "HEAD:a.txt"): "1"}),
    "tags, branches and notes": (
        "git tag v1; git tag -a -m two v2; git notes add -m seen;"
        " git branch one; git branch -m one uno; git branch -D other",
        {("tag", "--list"): "v1\nv2", BRANCHES: "main\nuno", ("notes", "show"): "seen"},
    ),
    "gc": ("git gc -q --prune=now", {("fsck",): ""}),
    "pack-refs": ("git pack-refs --all; git branch later", {BRANCHES: "later\nmain\nother"}),
    "delete a packed branch": ("git pack-refs --all; git branch -D other", {BRANCHES: "main"}),
    "reset": ("git reset -q --hard HEAD~1", {SUBJECTS: "commit 1"}),
    "worktree": (
        "git worktree add -q ../workspace/tree other",
        {("-C", "tree", *LAST): "on other", ("-C", "tree", "status", "--short"): ""},
    ),
    "a commit in a worktree": (
        "git worktree add -q tree other; cd tree; echo t > t; git add t; git commit -qm there; git mv t u",
        {("-C", "tree", *LAST): "there", ("-C", "tree", "status", "--short"): "R  t -> u"},
    ),
    "other repositories": (
        "git clone -q . copy; git init -q -b trunk fresh;"
        " git init -q up; cd up; git fetch -q .. main; cat .git/FETCH_HEAD",
        {
            ("-C", "copy", *LAST): "commit 2",
            ("-C", "fresh", "symbolic-ref", "HEAD"): "refs/heads/trunk",
            ("-C", "up", "rev-parse", "--git-dir"): ".git",
        },
    ),
    "rm and mv": ("git mv a.txt c.txt; git commit -qm moved", {("ls-files",): "c.txt"}),
    "reflog": ("git commit -q --allow-empty -m x; git reset -q HEAD@{1}", {LAST: "commit 2"}),
    "bisect": ("git bisect start -q HEAD HEAD~1", {("bisect", "log"): None}),
    "a branch where a folder of branches was": (
        "git branch x/y; git branch -D x/y; git branch x",
        {BRANCHES: "main\nother\nx"},
    ),
}


@pytest.mark.parametrize("names", [tuple(EVERYDAY)[at::4] for at in range(4)], ids=lambda names: names[0])
def test_everyday_git_works_and_the_person_sees_it(
    house: House, repository: Path, template: Path, names: tuple[str, ...]
) -> None:
    """One after the other, and in between the person puts everything back as it was."""
    for name in names:
        script, answers = EVERYDAY[name]

        ran = house.run(script)

        for question, expected in answers.items():
            answer = git(repository, *question)
            assert expected is None or (answer, ran.text) == (expected, ran.text), name
        git(repository, "fsck", "--strict")
        if "stopped" in name:
            assert house.run("git status --short").code == 0, name
        remove_tree_content(repository)
        put_copy(template, repository)
    again = house.run("git status --short")
    assert (again.code, again.text) == (0, "")


def test_a_submodule_works_and_its_settings_stay(house: House, repository: Path) -> None:
    library = house.root / "library"
    git(house.root, "init", "-q", "-b", "main", "library")
    git(library, "commit", "-q", "--allow-empty", "-m", "lib")
    git(repository, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(library), "sub")
    git(repository, "commit", "-qm", "with sub")
    settings = (repository / ".git/modules/sub/config").read_text()
    walls = house.walls()

    status = house.run("git submodule status; git submodule foreach -q git status --short", walls)
    made = house.run(
        "cd sub; echo 1 > f; git add f; git commit -qm insub; cd ..; git add sub; git commit -qm bump", walls
    )
    evil = house.run(
        "echo '[core]' >> .git/modules/sub/config; touch .git/modules/sub/hooks/x; git -C sub config a.b c", walls
    )

    assert status.code == 0 and " sub " in status.text, status.text
    assert made.code == 0, made.text
    assert git(repository / "sub", "log", "-1", "--format=%s") == "insub"
    assert git(repository, "log", "-1", "--format=%s") == "bump" and git(repository, "status", "--short") == ""
    assert (repository / ".git/modules/sub/config").read_text() == settings
    assert not (repository / ".git/modules/sub/hooks/x").exists() and evil.code != 0


@pytest.mark.parametrize("words", [["--object-format=sha256"], ["--template="]])
def test_other_kinds_of_repositories(house: House, words: list[str]) -> None:
    where = house.workspace
    git(where, "init", "-q", "-b", "main", *words, ".")

    ran = house.run("git config user.name; touch a; git add a; git -c user.name=n -c user.email=e commit -qm one")

    assert git(where, "log", "--format=%s") == "one", ran.text


def test_a_shallow_clone_and_a_split_index(house: House, repository: Path) -> None:
    git(house.root, "clone", "-q", "--depth", "1", f"file://{repository}", "shallow")
    shallow = house.root / "shallow"
    git(shallow, "update-index", "--split-index")
    walls = house.walls(ZoneSpec(name="workspace", path=shallow))
    ran = house.run(
        "git log --format=%s; echo 9 > a.txt; git add a.txt; git commit -qm nine; git status --short", walls
    )

    assert ran.text == "commit 2\n" and ran.code == 0
    assert git(shallow, "log", "--format=%s") == "nine\ncommit 2" and git(shallow, "status", "--short") == ""
    git(shallow, "fsck")


def test_what_the_person_does_between_commands_is_seen_inside(house: House, repository: Path) -> None:
    walls = house.walls()
    house.run("git status", walls)
    git(repository, "checkout", "-q", "-b", "mine")
    (repository / "c").write_text("c")
    git(repository, "add", "c")
    git(repository, "branch", "-D", "other")
    git(repository, "pack-refs", "--all")
    git(repository, "config", "alias.mine", "status --short")

    ran = house.run("git branch --format='%(refname:short)'; git mine", walls)

    assert ran.text == "main\nmine\nA  c\n"


async def test_commands_at_the_same_time_share_one_repository(house: House, repository: Path) -> None:
    walls = [house.walls() for _ in range(3)]
    scripts = [f"for i in 1 2 3; do git branch b{number}-$i; sleep 0.05; done" for number in range(3)]

    results = await asyncio.gather(*(ran(one, script) for one, script in zip(walls, scripts, strict=True)))

    assert [one.text for one in results] == ["", "", ""]
    branches = set(git(repository, "branch", "--format=%(refname:short)").split())
    assert branches == {"main", "other", *(f"b{number}-{index}" for number in range(3) for index in (1, 2, 3))}


async def test_commits_of_a_command_that_runs_for_long_arrive_meanwhile(
    house: House, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspection, "_LOOKS_PER_ROUND", 2)
    walled = await house.walls().start(Job(argv=("bash", "-c", "git commit -q --allow-empty -m early; sleep 60")))
    try:
        async with asyncio.timeout(PATIENCE):
            while (last := await asyncio.to_thread(git, repository, "log", "-1", "--format=%s")) != "early":
                await asyncio.sleep(0.02)
        assert last == "early" and walled.child.ending is None, "while the command still runs"
    finally:
        await walled.child.end()


def test_unprotected_names_are_the_person_s_own(house: House, repository: Path) -> None:
    def walls(*names: str) -> Any:
        return house.walls(ZoneSpec(name="workspace", path=repository, unprotect=names))

    hooks = house.run("touch .git/hooks/mine; echo x >> .git/config; git config a.b c", walls(".git/hooks"))
    assert (repository / ".git/hooks/mine").exists() and "config: Read-only" in hooks.text and hooks.code != 0
    settings = house.run("git config a.b c; touch .git/hooks/other", walls(".git/config"))
    assert git(repository, "config", "a.b") == "c" and settings.code != 0
    assert not (repository / ".git/hooks/other").exists()
    whole = house.run("git config a.b d && touch .git/hooks/other .git/anything", walls(".git"))
    assert git(repository, "config", "a.b") == "d" and whole.code == 0
    assert (repository / ".git/hooks/other").exists() and (repository / ".git/anything").exists()


def test_all_of_git_unprotected_holds_also_where_there_is_none_yet(house: House) -> None:
    ran = house.run("git init -q .", house.walls(ZoneSpec(name="workspace", path=house.workspace, unprotect=(".git",))))

    assert ran.code == 0 and (house.workspace / ".git/HEAD").exists()


def test_a_repository_that_cannot_be_copied_is_read_only(house: House, repository: Path) -> None:
    (house.root / "home/.cache").write_text("no directory")
    walls = house.walls()

    ran = house.run("git log -1 --format=%s; touch .git/x; touch free", walls)

    assert ran.text.startswith("commit 2\n") and "Read-only file system" in ran.text
    assert (repository / "free").exists() and not (repository / ".git/x").exists()
    assert any("/workspace/.git is read-only for commands" in notice for notice in walls.notices)


def test_shadows_of_zones_that_are_gone_go_too(house: House, repository: Path) -> None:
    house.run("git status")
    kept = house.root / "home/.cache/golem-forge/git"
    assert len(list(kept.iterdir())) == 1
    other = house.root / "other"
    shutil.copytree(repository, other)
    shutil.rmtree(repository / ".git")
    shutil.rmtree(repository)
    house.run("git status", house.walls(ZoneSpec(name="workspace", path=other)))

    assert len(list(kept.iterdir())) == 1


def test_locks_of_a_git_that_was_killed_do_not_stay(house: House, repository: Path) -> None:
    walls = house.walls()
    house.run("touch .git/index.lock .git/HEAD.lock .git/refs/heads/main.lock", walls)

    ran = house.run("git commit -q --allow-empty -m after", walls)

    assert ran.code == 0, ran.text
    assert git(repository, "log", "-1", "--format=%s") == "after"


def test_what_a_busy_git_of_the_person_keeps_back_arrives_later(house: House, repository: Path) -> None:
    walls = house.walls()
    lock = repository / ".git/refs/heads/main.lock"
    lock.touch()

    first = house.run("git commit -q --allow-empty -m inside", walls)
    assert git(repository, "log", "-1", "--format=%s") == "commit 2"
    assert any("Another git holds the lock" in one.text for one in first.after.leftovers)
    lock.unlink()
    house.run("true", walls)

    assert git(repository, "log", "-1", "--format=%s") == "inside"


def shadow_of(repository: Path, folder: Path) -> GitShadow:
    cache = folder / "cache"
    cache.mkdir(mode=0o700)
    zone = open_zone(ZoneSpec(name="workspace", path=repository), best_opener())
    shadow = GitShadow(zone, Repository(str(repository / ".git")), cache)
    shadow.prepare()
    return shadow


@pytest.mark.parametrize("asked_before", [0, 30])
def test_a_path_is_tracked_by_its_whole_name(repository: Path, tmp_path: Path, asked_before: int) -> None:
    names = ("one", "two\tthree", "three", "four/five", "five", "o", "four")
    tracked = {"one", "two\tthree", "four/five"}
    for name in tracked:
        path = repository / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("x\n")
    git(repository, "add", ".")
    is_tracked = shadow_of(repository, tmp_path).tracks()
    for _ in range(asked_before):
        assert is_tracked(("one",))
    assert {name for name in names if is_tracked(tuple(name.split("/")))} == tracked


def in_use(repository: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[GitShadow, tuple[str, ...]]:
    """The shadow of a command that runs, and the options with which `git` works in it as the command would."""
    shadow = shadow_of(repository, folder)
    shadow.begin()
    store = Path(shadow.tree).parent / "stores/root"
    monkeypatch.setitem(GIT_ENVIRON, "GIT_OBJECT_DIRECTORY", str(store))
    (store.parent / "forge").mkdir()
    (store.parent / "forge/objects").symlink_to(repository / ".git/objects")  # where walls mount it
    return shadow, (f"--git-dir={shadow.tree}", f"--work-tree={repository}")


def until_settled(shadow: GitShadow) -> None:
    """What changed in it is so old that its time tells of every later change."""
    folders = [Path(shadow.tree), *(path for path in Path(shadow.tree).rglob("*") if path.is_dir())]
    while time.time_ns() - max(path.stat().st_ctime_ns for path in folders) <= UNSETTLED_NS:
        time.sleep(0.005)


def test_a_commit_made_while_another_is_carried_over_is_carried_over_too(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shadow, inside = in_use(repository, tmp_path, monkeypatch)
    end = exchange.GitExchange._tell_of_others

    def commit_meanwhile(self: Any, standing: Any) -> None:
        monkeypatch.setattr(exchange.GitExchange, "_tell_of_others", end)
        git(repository, *inside, "commit", "-q", "--allow-empty", "-m", "C")
        until_settled(shadow)
        end(self, standing)

    monkeypatch.setattr(exchange.GitExchange, "_tell_of_others", commit_meanwhile)
    git(repository, *inside, "commit", "-q", "--allow-empty", "-m", "B")
    shadow.sync(SyncPhase.RUNNING)
    shadow.sync(SyncPhase.ENDED)
    assert git(repository, "log", "-2", "--format=%s", "main") == "C\nB"
    shadow.close()


def test_a_commit_made_before_a_path_is_skipped_is_carried_over(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another command starts, to which more is hidden, while the first one commits."""
    shadow, inside = in_use(repository, tmp_path, monkeypatch)
    (repository / "c.txt").write_text("c\n")
    git(repository, *inside, "add", "c.txt")
    git(repository, *inside, "commit", "-q", "-m", "B")
    until_settled(shadow)
    shadow.skip({("b.txt",)})
    shadow.sync(SyncPhase.ENDED)
    assert git(repository, "log", "-1", "--format=%s", "main") == "B"
    shadow.close()


def test_a_command_waits_for_another_forge_that_carries_over_a_large_commit(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("golem_forge.storage.home.LOCK_SECONDS", 0.01)
    shadow, inside = in_use(repository, tmp_path, monkeypatch)
    git(repository, *inside, "commit", "-q", "--allow-empty", "-m", "B")
    lock = Path(shadow.tree).parent / "lock"
    with ThreadPoolExecutor(1) as pool:
        with locked(lock):
            carried = pool.submit(shadow.sync, SyncPhase.ENDED)
            time.sleep(0.2)  # longer than others are waited for
            assert not carried.done()
        carried.result(PATIENCE)
        with locked(lock):
            skipped = pool.submit(shadow.skip, {("a.txt",)})
            time.sleep(0.2)
            assert not skipped.done()
        skipped.result(PATIENCE)
    assert git(repository, "log", "-1", "--format=%s", "main") == "B"
    assert shadow.skips({("a.txt",)})
    assert git(repository, *inside, "ls-files", "-v", "a.txt") == "S a.txt"
    shadow.close()


def test_a_sync_that_fails_halfway_makes_no_conflict_of_the_next_commit(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full for a moment after a commit was carried over: the one after it is carried over too."""
    shadow, inside = in_use(repository, tmp_path, monkeypatch)
    write, failed = exchange.write_side, []

    def write_once_full(side: Any, path: str, *more: Any, **options: Any) -> Any:
        if path == "COMMIT_EDITMSG" and not failed:
            failed.append(path)
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(side, path, *more, **options)

    monkeypatch.setattr(exchange, "write_side", write_once_full)
    git(repository, *inside, "commit", "-q", "--allow-empty", "-m", "B")
    with pytest.raises(OSError, match="No space"):
        shadow.sync(SyncPhase.RUNNING)
    git(repository, *inside, "commit", "-q", "--allow-empty", "-m", "C")
    shadow.sync(SyncPhase.RUNNING)
    shadow.sync(SyncPhase.ENDED)
    for where in ((), inside):
        assert git(repository, *where, "log", "-2", "--format=%s", "main") == "C\nB"
    assert [each.severity for each in shadow.leftovers()] == [Severity.NOTE]
    shadow.close()
