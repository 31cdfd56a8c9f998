"""Nested repositories that a command leaves: harmless ones stay, others are set aside before any git of the person's
enters them. Real git is asked, and a canary says whether it ran something."""

from __future__ import annotations

import atexit
import functools
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.sandbox.walls.house import House, git

from golem_forge.core.calls import Severity
from golem_forge.sandbox.git import nested
from golem_forge.sandbox.git.nested import vet_repositories
from golem_forge.sandbox.git.rules import ReadBudget
from golem_forge.sandbox.sandbox import open_sandbox
from golem_forge.sandbox.zones import Zone, ZoneSpec


def everything(place: Path) -> list[tuple[str, ...]]:
    """What a change log holds if all of it is new."""
    return [path.relative_to(place).parts for path in place.rglob("*") if path.relative_to(place).parts[0] != ".git"]


def repository(where: Path) -> Path:
    shutil.copytree(_template(), where, dirs_exist_ok=True)
    return where


@functools.cache
def _template() -> Path:
    """A repository of one commit."""
    root = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    (root / "home").mkdir()
    where = root / "repository"
    where.mkdir()
    git(where, "init", "-q")
    (where / "file").write_text("x")
    git(where, "add", "file")
    git(where, "commit", "-qm", "one")
    return where


def evil(where: Path, canary: Path) -> Path:
    """A repository that runs a program at every `git status`."""
    repository(where)
    git(where, "config", "core.fsmonitor", f"touch {shlex.quote(str(canary))}; false")
    return where


def restored(place: Path, text: str) -> None:
    command = text.partition("`")[2].rpartition("` in /workspace")[0]
    assert command.startswith("mv ")
    subprocess.run(["bash", "-c", command], cwd=place, check=True)


def test_a_repository_that_runs_a_program_is_set_aside(place: Path, zone: Zone, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    lib = evil(place / "lib", canary)
    canary.unlink(missing_ok=True)
    git(lib, "status")
    assert canary.exists()  # what would happen to a shell prompt in this directory
    canary.unlink()

    (told,) = vet_repositories(zone, everything(place))

    assert told.severity is Severity.CRITICAL and told.kind == "nested_repository"
    assert "core.fsmonitor" in told.text and "/workspace/lib" in told.text and str(tmp_path) not in told.text
    assert told.paths == ("/workspace/lib/.git", "/workspace/lib/.git.set-aside-by-forge-1")
    for where in (lib, lib / ".git.set-aside-by-forge-1", place):
        assert "not a git repository" in git(where, "status", check=False)
        assert "not a git repository" in git(where, "log", check=False)
    assert not canary.exists()

    restored(place, told.text)
    assert "one" in git(lib, "log", "--oneline")


def test_git_status_at_the_root_enters_no_gitlink_that_runs_a_program(place: Path, zone: Zone, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    repository(place)
    evil(place / "deep/er/lib", canary)
    git(place, "add", "deep/er/lib")
    canary.unlink(missing_ok=True)
    git(place, "status")
    assert canary.exists()
    canary.unlink()

    assert len(vet_repositories(zone, everything(place))) == 1

    git(place, "status")
    git(place, "diff")
    git(place / "deep/er/lib", "log")  # the outer one's by now
    assert not canary.exists()


def test_a_gitlink_is_looked_at_although_nothing_was_noticed(place: Path, zone: Zone, tmp_path: Path) -> None:
    evil(place / "lib", tmp_path / "canary")
    assert vet_repositories(zone, []) == ()
    assert len(vet_repositories(zone, [], gitlinks=[("lib",), ("gone",)])) == 1


HOOK = "echo '#!/bin/sh' > .git/hooks/post-checkout"
LINKED_LOG = "ln -sf /nowhere .git/logs/HEAD"
INCLUDE = "printf '[include]\\n\\tpath = ../x\\n' >> .git/config"
SPOILED = {
    "a hook": (HOOK, "hook 'post-checkout'"),
    "a linked hook": ("ln -sf /bin/sh .git/hooks/pre-commit.sample", "link at 'hooks/pre-commit.sample'"),
    "linked hooks": ("rm -r .git/hooks; ln -s ../../other .git/hooks", "link at 'hooks'"),
    "a linked config": ("mv .git/config other; ln -s ../other .git/config", "link at 'config'"),
    "a fifo as config": ("rm .git/config; mkfifo .git/config", "not a regular file"),
    "a large config": ("(echo '[core]'; yes '# much' | head -50000) > .git/config", "too large"),
    "an include": (INCLUDE, "include.path"),
    "a worktree's config": (
        "git config extensions.worktreeConfig true; printf '[alias]\\nx = !y\\n' > .git/config.worktree",
        "alias.x",
    ),
    "a common directory": ("echo ../../other > .git/commondir", "commondir"),
    "a worktree outside": ("git config core.worktree /", "core.worktree"),
    "a linked message": ("ln -sf /nowhere .git/COMMIT_EDITMSG", "COMMIT_EDITMSG"),
    "a linked log": (LINKED_LOG, "logs/HEAD"),
    "a config that git refuses": ("echo '[core' > .git/config", "not understood"),
    "a remote's file": ("mkdir .git/remotes; echo 'URL: ext::x' > .git/remotes/origin", "remotes/origin"),
    "another worktree's config": (
        "git worktree add -q ../lib-two; printf '[core]\\nfsmonitor = x\\n' > .git/worktrees/lib-two/config.worktree",
        "core.fsmonitor",
    ),
}


def spoiled(lib: Path, script: str) -> Path:
    subprocess.run(["bash", "-ec", script], cwd=lib, check=True, capture_output=True)
    return lib


@pytest.mark.parametrize(("script", "said"), SPOILED.values(), ids=SPOILED)
def test_what_is_not_left_standing(place: Path, zone: Zone, script: str, said: str) -> None:
    lib = spoiled(repository(place / "a/b/c/d/e/f/lib"), script)

    told = vet_repositories(zone, everything(place))

    assert any(said in one.text for one in told), told
    assert not (lib / ".git").exists()
    assert all(one.severity is Severity.CRITICAL and "\n" not in one.text for one in told)


def test_a_person_s_own_is_left_alone(place: Path, zone: Zone, tmp_path: Path) -> None:
    """Also when a command commits in it, changes branches and looks at it."""
    lib = spoiled(evil(place / "lib", tmp_path / "canary"), HOOK)
    before = {path: path.lstat().st_ctime_ns for path in place.rglob("*")}
    (lib / "file").write_text("y")
    git(lib, "commit", "-qam", "two")
    git(lib, "checkout", "-qb", "other")

    changed = [
        path.relative_to(place).parts
        for path in place.rglob("*")
        if before.get(path) != path.lstat().st_ctime_ns and not path.is_dir()
    ]

    assert (("lib", ".git", "HEAD")) in changed
    assert vet_repositories(zone, changed) == ()
    assert vet_repositories(zone, [("lib", ".git", "hooks", "post-checkout")]) != ()


def test_a_link_in_a_person_s_own_counts(place: Path, zone: Zone, tmp_path: Path) -> None:
    spoiled(evil(place / "lib", tmp_path / "canary"), LINKED_LOG)
    (told,) = vet_repositories(zone, [("lib", ".git", "logs", "HEAD")])
    assert "logs/HEAD" in told.text


@pytest.mark.parametrize("where", ["", "x", "vendor/x.git"])
def test_a_bare_layout_is_a_repository_too(place: Path, zone: Zone, tmp_path: Path, where: str) -> None:
    canary = tmp_path / "canary"
    bare = place / where
    git(place, "init", "-q", "--bare", str(bare))
    assert vet_repositories(zone, everything(place)) == ()
    git(bare, "config", "alias.log", "x")
    git(bare, "config", "core.worktree", str(bare))
    git(bare, "config", "core.bare", "false")
    git(bare, "config", "core.fsmonitor", f"touch {shlex.quote(str(canary))}; false")
    git(bare, "status")
    assert canary.exists()
    canary.unlink()

    (told,) = vet_repositories(zone, [(*bare.relative_to(place).parts, "config")])

    assert "not a git repository" in git(bare, "status", check=False) and not canary.exists()
    restored(place, told.text)
    git(bare, "status")
    assert canary.exists()


@pytest.mark.parametrize("last", ["HEAD", "objects", "refs"])
def test_whatever_makes_it_a_repository(place: Path, zone: Zone, last: str) -> None:
    """A command may make one over several calls: as long as it is none, nobody looks at its config."""
    bare = place / "x"
    git(place, "init", "-q", "--bare", str(bare))
    git(bare, "config", "core.fsmonitor", "x")
    (bare / last).rename(place / "away")
    assert vet_repositories(zone, [("x", "config")]) == ()
    (place / "away").rename(bare / last)
    assert len(vet_repositories(zone, [("x", last)])) == 1


def test_pointers(place: Path, zone: Zone, tmp_path: Path) -> None:
    repository(place)
    outside = evil(tmp_path / "outside", tmp_path / "canary")
    harmless = repository(place / "harmless")
    own = evil(place / "own", tmp_path / "canary")
    cases = {
        "a": f"gitdir: {outside}/.git\n",
        "b": "gitdir: ../../outside/.git\n",
        "c": f"gitdir: {place}/own/.git\n",
        "d": "gitdir: ../harmless/../own/.git\n",
        "e": "gitdir: ../nothing\n",
        "f": "no pointer\n",
        "g": "gitdir: ../harmless/.git\n",
        "h": f"gitdir: {harmless}/.git\n",
        "i": "gitdir: ../.git/worktrees/i\n",
        "j": "gitdir: ../link/.git\n",
    }
    os.symlink("own", place / "link")
    for name, text in cases.items():
        (place / name).mkdir()
        (place / name / ".git").write_text(text)

    told = vet_repositories(zone, [(name, ".git") for name in cases])

    assert sorted(one.paths[0].split("/")[2] for one in told) == list("abcdefij")
    assert (own / ".git").is_dir()  # the person's: only what leads to it was set aside


def test_a_git_that_is_a_link(place: Path, zone: Zone, tmp_path: Path) -> None:
    evil(tmp_path / "outside", tmp_path / "canary")
    (place / "x").mkdir()
    os.symlink(tmp_path / "outside/.git", place / "x/.git")
    (told,) = vet_repositories(zone, [("x", ".git")])
    assert "a link" in told.text and not os.path.lexists(place / "x/.git")
    assert (tmp_path / "outside/.git/HEAD").exists()


def test_other_spellings(place: Path, zone: Zone, tmp_path: Path) -> None:
    evil(place / "x", tmp_path / "canary").joinpath(".git").rename(place / "x/.Git")
    (told,) = vet_repositories(zone, [("x", ".Git", "CONFIG"), ("x", ".Git", "config")])
    assert told.paths[1].endswith("/x/.Git.set-aside-by-forge-1")


def test_submodules_and_worktrees_of_a_nested_one(place: Path, zone: Zone, tmp_path: Path) -> None:
    repository(tmp_path / "source")
    lib = repository(place / "lib")
    git(lib, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(tmp_path / "source"), "deep/sub")
    git(lib, "worktree", "add", "-q", "../two")
    assert vet_repositories(zone, everything(place)) == ()

    git(lib / "deep/sub", "config", "core.fsmonitor", "x")
    (told,) = vet_repositories(zone, [("lib", ".git", "modules", "deep", "sub", "config")])
    assert told.paths[0] == "/workspace/lib/.git/modules/deep/sub/HEAD"
    assert "not a git repository" in git(lib / "deep/sub", "status", check=False)

    (lib / ".git/worktrees/two/commondir").write_text("../../../../elsewhere\n")
    (told,) = vet_repositories(zone, [("lib", ".git", "worktrees", "two", "commondir")])
    assert "commondir" in told.text


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({".hg/hgrc": "[paths]\ndefault = https://example.test/x\n# said\n[ui]\nusername = A\n"}, ""),
        ({".hg/hgrc": "[hooks]\nupdate = touch x\n"}, "hooks.update"),
        ({".hg/hgrc": "[paths]\ndefault = x\n%include ../x\n"}, "line 3"),
        ({".hg/hgrc": "[ui]\nusername = x\n  more\n"}, "line 3"),
        ({".hg/hgrc": "[extensions]\nx = ../x.py\n"}, "extensions.x"),
        ({".hg/hgrc-not-shared": "[alias]\nst = !x\n"}, "alias.st"),
        ({".hg/sharedpath": "/elsewhere"}, "sharedpath"),
        ({".jj/repo/config.toml": "[user]\nname = 'A'\n"}, ""),
        ({".jj/repo/config.toml": "[ui]\neditor = 'x'\n"}, "ui.editor"),
        ({".jj/workspace-config.toml": "signing.backends.gpg.program = 'x'\n"}, "signing.backends"),
        ({".jj/repo/config.toml": "= x"}, "not understood"),
        ({".jj/repo": "/elsewhere"}, "leads out"),
        ({".svn/wc.db": "data"}, ""),
    ],
)
def test_other_systems(place: Path, zone: Zone, files: dict[str, str], said: str) -> None:
    for name, text in files.items():
        file = place / "x" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    told = vet_repositories(zone, everything(place))

    assert len(told) == bool(said)
    if said:
        assert said in told[0].text and not (place / "x" / next(iter(files)).split("/")[0]).exists()


def test_many_are_set_aside_unread(place: Path, zone: Zone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nested, "_MOST_TOLD", 4)
    evil(place / "r0", tmp_path / "canary")
    for number in range(1, 10):
        shutil.copytree(place / "r0", place / f"r{number}")

    told = vet_repositories(zone, everything(place), budget=ReadBudget(repositories=2))

    assert len(told) == 4 + 1 and "6 more" in told[-1].text
    assert not list(place.glob("*/.git"))


def test_more_than_can_be_moved_are_told(place: Path, zone: Zone, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nested, "_MOST_SET_ASIDE", 2)
    for number in range(4):
        spoiled(repository(place / f"r{number}"), HOOK)
    told = vet_repositories(zone, everything(place))
    assert "2 more repositories were made or changed, and Forge did not check" in told[-1].text


def test_a_directory_without_the_right_to_write(place: Path, zone: Zone) -> None:
    lib = spoiled(repository(place / "lib"), HOOK)
    lib.chmod(0o555)
    vet_repositories(zone, everything(place))
    assert not (lib / ".git").exists()


def test_names_that_are_taken(place: Path, zone: Zone) -> None:
    lib = spoiled(repository(place / "lib"), HOOK)
    (lib / ".git.set-aside-by-forge-1").mkdir()
    (told,) = vet_repositories(zone, everything(place))
    assert told.paths[1].endswith(".git.set-aside-by-forge-2")


def test_names_that_would_steer_a_terminal(place: Path, zone: Zone) -> None:
    lib = repository(place / "a\x1b[2J\nb")
    with (lib / ".git/config").open("a") as file:
        file.write('[filter "\x1b[2J"]\n\tclean = x\n')
    (told,) = vet_repositories(zone, everything(place))
    assert "\x1b" not in told.text and "\n" not in told.text
    restored(place, told.text)
    git(lib, "log")


STOPPED = {
    "git-rebase-todo": "pick 1234\nexec touch x\n",
    "strategy": "/../build/x\n",
    "gpg_sign_opt": "-S$(touch x)\n",
    "unknown": "x",
}


@pytest.mark.parametrize("name", STOPPED)
def test_a_rebase_that_will_run_something_is_set_aside(place: Path, zone: Zone, name: str) -> None:
    lib = repository(place / "lib")
    (lib / ".git/rebase-merge").mkdir()
    (lib / ".git/rebase-merge" / name).write_text(STOPPED[name])
    (told,) = vet_repositories(zone, [("lib", ".git", "rebase-merge", name)])
    assert told.severity is Severity.CRITICAL and "stopped rebase" in told.text
    assert not (lib / ".git").exists()


def test_unprotected_means_unprotected(place: Path) -> None:
    lib = spoiled(repository(place / "lib"), HOOK)
    free = ZoneSpec(name="workspace", path=place, unprotect=(".git/hooks",))
    box = open_sandbox([free], forge_home=place.parent / "forge", home=place.parent / "home")
    assert vet_repositories(box.zones["workspace"], everything(place)) == ()
    spoiled(lib, INCLUDE)
    assert len(vet_repositories(box.zones["workspace"], everything(place))) == 1
    box.close()


def test_what_git_makes_inside_walls_is_harmless(house: House, tmp_path: Path) -> None:
    source = repository(tmp_path / "workspace/source")
    script = """
        set -e
        git clone -q source one
        git clone -q --bare source two.git
        git clone -q --depth 1 --filter=blob:none "file://$PWD/source" three
        git clone -q --mirror source four.git
        git init -q five; git init -q --bare six.git
        cd one
        git worktree add -q ../wt
        git -C ../three sparse-checkout set --cone docs
        git -c protocol.file.allow=always submodule add -q ../source sub
        git commit -qm sub
        git checkout -qb topic; git branch -u origin/HEAD
        git gc -q
        cd ..; git clone -q one seven; cd seven
        git -c protocol.file.allow=always submodule update -q --init
    """
    (house.root / "home/.gitconfig").write_text("[user]\nname = A\nemail = a@b.test\n")
    ran = house.run(script)
    assert ran.code == 0, ran.text
    zone = house.sandbox().zones["workspace"]

    assert vet_repositories(zone, everything(house.workspace)) == ()

    for name in ("one", "two.git", "three", "four.git", "five", "wt", "seven", "seven/sub"):
        git(house.workspace / name, "rev-parse", "--git-dir")
    assert source.joinpath(".git/HEAD").exists()


def test_names_that_are_exchanged_meanwhile(place: Path, zone: Zone, tmp_path: Path) -> None:
    """Whatever is moved is in the zone: a link is moved itself, never what it leads to."""
    outside = evil(tmp_path / "outside", tmp_path / "canary")
    before = sorted(path.name for path in (outside / ".git").iterdir())
    spoiled(repository(place / "x/one"), HOOK)
    swap = f"""
import os
while True:
    for step in ("os.symlink({str(outside)!r}, 'two')", "os.rename('two', 'three')", "os.rename('one', 'two')",
                 "os.rename('two', 'one')", "os.unlink('three')", "os.symlink({str(outside)!r}, 'three')",
                 "os.rename('one', 'four')", "os.rename('three', 'one')", "os.unlink('one')",
                 "os.rename('four', 'one')"):
        try:
            eval(step)
        except OSError:
            pass
"""
    with subprocess.Popen([sys.executable, "-c", swap], cwd=place / "x") as swapping:
        try:
            for _ in range(300):
                vet_repositories(zone, [("x", name, ".git", "config") for name in ("one", "two", "three", "four")])
        finally:
            swapping.kill()

    assert sorted(path.name for path in (outside / ".git").iterdir()) == before
    assert not list(outside.glob(".git.set-aside*"))


@pytest.mark.parametrize("mode", [0o000, 0o111, 0o333])
def test_what_an_ordinary_person_cannot_read(plain_user: Callable[..., Any], mode: int) -> None:
    """Its owner could open it again, so it does not stay."""

    def action(private: Path) -> object:
        house = House(private)
        lib = house.workspace / "lib"
        (lib / ".git/objects").mkdir(parents=True)
        (lib / ".git/HEAD").write_text("ref: refs/heads/main\n")
        (lib / ".git").chmod(mode)
        zone = house.sandbox().zones["workspace"]
        told = vet_repositories(zone, [("lib", ".git"), ("lib", ".git", "config")])
        return [[one.text for one in told], sorted(os.listdir(lib))]

    texts, left = plain_user(action)
    assert len(texts) == 1 and "cannot be read" in texts[0] and left == [".git.set-aside-by-forge-1"]


def test_a_command_in_walls_leaves_none(house: House, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    repository(house.workspace)
    places = ("lib", "a/b/c/d/e/f/g/lib", "node_modules/x/lib")

    ran = house.run(
        " && ".join(
            f"git init -q {where} && git -C {where} config core.fsmonitor 'touch {canary}; false'"
            f" && git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),{where}"
            for where in places
        )
    )

    assert ran.code == 0, ran.text
    told = [one for one in ran.after.leftovers if one.kind == "nested_repository"]
    assert {one.paths[0] for one in told} == {f"/workspace/{where}/.git" for where in places} and len(told) == 3
    assert all(one.severity is Severity.CRITICAL and "core.fsmonitor" in one.text for one in told)
    for where in ("", *places):
        git(house.workspace / where, "status")
    assert not canary.exists()
