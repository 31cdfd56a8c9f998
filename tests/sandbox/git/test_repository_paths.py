"""Paths in a zone that git's config names: whatever git would run or obey there is found, whether it exists or not."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.tables import table

from golem_forge.sandbox.git.repository import GitPaths
from golem_forge.sandbox.sandbox import open_sandbox
from golem_forge.sandbox.zones import Zone, ZoneSpec


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name in ("repo/workspace", "home", "forge"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path / "repo/workspace"


@pytest.fixture
def zone(place: Path, tmp_path: Path) -> Iterator[Zone]:
    opened = open_sandbox([ZoneSpec(name="workspace", path=place)], forge_home=tmp_path / "forge", home=tmp_path)
    yield opened.zones["workspace"]
    opened.close()


@pytest.fixture
def paths(zone: Zone, tmp_path: Path) -> GitPaths:
    environ = {"GIT_CONFIG_NOSYSTEM": "1"}
    return GitPaths(zone, home=str(tmp_path / "home"), environ=environ)


def init(where: Path) -> None:
    subprocess.run(["git", "init", "-q", str(where)], check=True)


def found(paths: GitPaths) -> set[str]:
    paths.refresh()
    return {"/".join(one.parts) + ("/" if one.directory else "") for one in paths.paths}


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as opened:
        opened.write(text)


@table(
    ("text", "named"),
    [
        ("[core]\nhooksPath = .githooks\n", {".githooks/"}),
        ("[core]\nhooksPath = PLACE/tools/hooks\n", {"tools/hooks/"}),
        ("[core]\nhooksPath = ../workspace/x\n", {"x/"}),
        ("[core]\nhooksPath = /elsewhere\n", set()),
        ("[core]\nhooksPath = .git/more-hooks\n", set()),
        ("[include]\npath = ../shared.inc\n", {"shared.inc"}),
        ('[includeIf "onbranch:x"]\npath = PLACE/deep/x.inc\n', {"deep/x.inc"}),
        ("[core]\nattributesFile = attrs\nexcludesFile = sub/ignore\n", {"attrs", "sub/ignore"}),
        ("[core]\nfsmonitor = tools/fsm\n", {"tools/fsm"}),
        ("[core]\nfsmonitor = true\n", set()),
        ("[core]\nfsmonitor = python3 -I tools/fsm.py --x\n", {"tools/fsm.py"}),
        ("[core]\nfsmonitor = \"sh -c 'tools/fsm'\"\n", {"tools/fsm"}),
        ("[core]\nfsmonitor = PLACE/fsm\n", {"fsm"}),
        ("[core]\npager = less -R\neditor = vim\nsshCommand = ssh -F ./ssh.cfg\n", set()),
        ("[core]\nsshCommand = ssh -F there.cfg\n", {"there.cfg"}),
        ('[filter "x"]\nclean = ./clean %f\nsmudge = tools/smudge\n', {"clean", "tools/smudge"}),
        ('[diff "x"]\ntextconv = PLACE/conv\n', {"conv"}),
        ('[merge "x"]\ndriver = tools/merge %O %A %B\n', {"tools/merge"}),
        ("[alias]\nx = !./script.sh\ny = log origin/main\nz = !git log origin/main\n", {"script.sh"}),
        ('[alias]\nx = "!f() { make x && tools/run; }; f"\n', {"tools/run"}),
        ("[alias]\nx = !$(git rev-parse --show-toplevel)/tools/x\n", {"tools/x"}),
        (
            "[gpg]\nprogram = ./sign\n[pager]\nlog = tools/page\n[sequence]\neditor = ./seq\n",
            {"sign", "tools/page", "seq"},
        ),
        ('[credential "https://x.test"]\nhelper = !tools/cred\n', {"tools/cred"}),
        ("[unheard]\nof = ./tool --x\nother = origin/main\nthird = there.cfg\n", {"tool", "there.cfg"}),
        ('[remote "o"]\nurl = ../x\nfetch = +refs/heads/*:refs/x/*\n[branch "m"]\nmerge = refs/heads/m\n', set()),
        (
            '[branch "m"]\nvscode-merge-base = origin/main\n[gui]\nrecentrepo = PLACE/sub\n[safe]\ndirectory = PLACE\n',
            set(),
        ),
        ('[url "git@x.test:"]\ninsteadOf = https://x.test/\n', set()),
    ],
)
def test_what_the_repository_s_config_names(
    place: Path, zone: Zone, tmp_path: Path, text: str, named: set[str]
) -> None:
    if not (place / ".git").exists():
        init(place)
        (place / "sub").mkdir()
        (place / "there.cfg").touch()
    (place / ".git/config").write_text(text.replace("PLACE", str(place)))
    environ = {"GIT_CONFIG_NOSYSTEM": "1"}
    assert found(GitPaths(zone, home=str(tmp_path / "home"), environ=environ)) == named


@pytest.mark.parametrize("file", [".gitconfig", ".config/git/config"])
def test_the_person_s_own(place: Path, paths: GitPaths, tmp_path: Path, file: str) -> None:
    write(tmp_path / "home" / file, f"[core]\nhooksPath = .hooks\nexcludesFile = ~/x\n[include]\npath = {place}/inc\n")
    assert found(paths) == {".hooks/", "inc"}
    init(place)
    assert found(paths) == {".hooks/", "inc"}


@pytest.mark.parametrize("file", [".gitconfig", ".config/git/config", ".ssh/config"])
def test_settings_that_the_person_keeps_in_the_zone(place: Path, paths: GitPaths, tmp_path: Path, file: str) -> None:
    """`~/.gitconfig` is a link to their dotfiles, and Forge is started there."""
    write(place / "kept", "[user]\nname = Ada\n")
    (tmp_path / "home" / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "home" / file).symlink_to(place / "kept")
    assert found(paths) == {"kept"}


def test_other_files_by_the_environment(place: Path, zone: Zone, tmp_path: Path) -> None:
    for name in ("system", "global", "xdg/git/config"):
        write(tmp_path / name, f"[core]\nfsmonitor = ./{name[:3]}\n")
    environ = {"GIT_CONFIG_SYSTEM": str(tmp_path / "system"), "XDG_CONFIG_HOME": str(tmp_path / "xdg")}
    assert found(GitPaths(zone, home=str(tmp_path / "home"), environ=environ)) == {"sys", "xdg"}
    environ |= {"GIT_CONFIG_GLOBAL": str(tmp_path / "global")}
    assert found(GitPaths(zone, home=str(tmp_path / "home"), environ=environ)) == {"sys", "glo"}


def test_includes_are_followed(place: Path, paths: GitPaths, tmp_path: Path) -> None:
    init(place)
    write(tmp_path / "home/.gitconfig", "[include]\npath = parts/a.inc\n")
    write(tmp_path / "home/parts/a.inc", f"[include]\npath = b.inc\n[include]\npath = {place}/in.inc\n")
    write(
        tmp_path / "home/parts/b.inc", '[includeIf "gitdir:/nowhere/"]\npath = ~/parts/a.inc\n[core]\neditor = ./ed\n'
    )
    write(place / "in.inc", "[core]\npager = ./page\n")
    assert found(paths) == {"in.inc", "ed", "page"}


def test_a_worktree_s_own_config(place: Path, paths: GitPaths) -> None:
    init(place)
    write(place / ".git/config.worktree", "[core]\nhooksPath = h\n")
    assert found(paths) == {"h/"}


def test_a_linked_worktree_and_a_repository_above(place: Path, paths: GitPaths, tmp_path: Path) -> None:
    init(place.parent)
    write(place.parent / ".git/config", '[core]\nhooksPath = workspace/h\n[filter "x"]\nclean = workspace/c\n')
    assert found(paths) == {"h/", "c"}
    init(tmp_path / "main")
    (tmp_path / "main/.git/worktrees/w").mkdir(parents=True)
    write(tmp_path / "main/.git/worktrees/w/commondir", "../..\n")
    write(tmp_path / "main/.git/worktrees/w/config.worktree", "[core]\neditor = ./e\n")
    write(tmp_path / "main/.git/config", "[core]\nhooksPath = k\n")
    write(place / ".git", f"gitdir: {tmp_path}/main/.git/worktrees/w\n")
    assert found(paths) == {"k/", "e"}


def test_nested_ones(place: Path, paths: GitPaths) -> None:
    init(place)
    init(place / "lib")
    write(place / "lib/.git/config", "[core]\nhooksPath = .hooks\n")
    assert paths.refresh() is False and paths.paths == ()
    assert paths.refresh([("lib",)]) is True
    assert [(one.parts, one.directory) for one in paths.paths] == [(("lib", ".hooks"), True)]


def test_linked_hooks(place: Path, paths: GitPaths, tmp_path: Path) -> None:
    init(place)
    (place / "tools").mkdir()
    (place / "tools/real").touch()
    os.symlink("../../tools/check", place / ".git/hooks/pre-commit")
    os.symlink(place / "tools/real", place / ".git/hooks/pre-push")
    os.symlink("/bin/true", place / ".git/hooks/post-merge")
    write(place / ".git/config", f"[core]\nhooksPath = {tmp_path}/home/hooks\n")
    (tmp_path / "home/hooks").mkdir()
    os.symlink(place / "tools/third", tmp_path / "home/hooks/commit-msg")
    assert found(paths) == {"tools/check", "tools/real", "tools/third"}


def test_a_path_through_a_link(place: Path, paths: GitPaths) -> None:
    """The link and what it leads to: neither may be exchanged."""
    init(place)
    (place / "tools").mkdir()
    os.symlink("tools", place / "link")
    write(place / ".git/config", "[core]\nhooksPath = link\nfsmonitor = link/fsm\n")
    assert found(paths) == {"link/", "tools/", "link/fsm", "tools/fsm"}
    (place / "link").unlink()
    os.symlink("other", place / "link")
    assert found(paths) == {"link/", "other/", "link/fsm", "other/fsm"}


def test_looked_at_again_only_when_something_changed(
    place: Path, paths: GitPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    init(place)
    write(place / ".git/config", "[core]\nhooksPath = h\n[include]\npath = ../inc\n")
    monkeypatch.setattr("golem_forge.sandbox.git.repository._SETTLED_NS", 0)
    assert paths.refresh() is True
    reads: list[str] = []
    text = GitPaths._text
    monkeypatch.setattr(GitPaths, "_text", lambda self, path: reads.append(path) or text(self, path))
    assert paths.refresh() is False and reads == []

    write(tmp_path / "home/.gitconfig", "[core]\neditor = ./e\n")
    assert paths.refresh() is True and ("e",) in [one.parts for one in paths.paths]
    write(place / "inc", "[core]\npager = ./p\n")
    assert paths.refresh() is True and ("p",) in [one.parts for one in paths.paths]
    os.symlink("../../t", place / ".git/hooks/pre-commit")
    assert paths.refresh() is True and ("t",) in [one.parts for one in paths.paths]
    (place / ".git/config").unlink()
    assert paths.refresh() is True and ("h",) not in [one.parts for one in paths.paths]


def test_a_file_that_git_refuses(place: Path, paths: GitPaths) -> None:
    init(place)
    write(place / ".git/config", "[core\nhooksPath = h\n")
    assert found(paths) == set()
