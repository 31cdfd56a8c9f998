"""A session's own clone of a repository: it goes on elsewhere, and nothing that its agent wrote runs on the host."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.deadlines import PATIENCE
from tests.usertools.share.git_server import GitBackend

from golem_forge.core.errors import ConfigError
from golem_forge.team import checkpoint as checkpoints
from golem_forge.team import workspace as workspaces
from golem_forge.team.changes import Change, apply_plan, changes, diff, read_change_set
from golem_forge.team.checkpoint import LeftOut, checkpoint, push_checkpoint
from golem_forge.team.workspace import (
    Clone,
    Workspace,
    WorkspaceError,
    fetch_history,
    make_clone,
    open_clone,
    read_workspace,
    restore,
)

SESSION = "5e55104" * 4 + "beef"
REF = f"refs/forge/{SESSION}"
AUTHOR = {"GIT_AUTHOR_NAME": "Ada", "GIT_AUTHOR_EMAIL": "a@a.test", "GIT_CONFIG_GLOBAL": "/dev/null"}
AUTHOR |= {"GIT_COMMITTER_NAME": "Ada", "GIT_COMMITTER_EMAIL": "a@a.test"}


def git(*words: str | Path, cwd: Path, stdin: bytes = b"") -> str:
    """A person's own git."""
    ran = subprocess.run(
        ["git", *map(str, words)], cwd=cwd, env=os.environ | AUTHOR, input=stdin, capture_output=True, timeout=PATIENCE
    )
    assert ran.returncode == 0, ran.stderr.decode()
    return ran.stdout.decode().strip()


def commit_all(folder: Path, message: str = "more") -> str:
    git("add", "-A", cwd=folder)
    git("commit", "-q", "-m", message, cwd=folder)
    return git("rev-parse", "HEAD", cwd=folder)


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Project, origin and clone as every test begins with them: made by git once, then copied."""
    base = tmp_path_factory.mktemp("made_once")
    folder = base / "project"
    (folder / "src").mkdir(parents=True)
    git("init", "-q", "-b", "main", ".", cwd=folder)
    (folder / "readme.md").write_text("one\ntwo\nthree\nfour\nfive\nsix\nseven\n")
    (folder / "src" / "app.py").write_text("print('hello')\n")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / ".gitignore").write_text("*.log\nbuild/\n")
    commit_all(folder, "first")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(base))  # git reads nothing of this machine's person
        make_clone(_publish(base), base / "place", SESSION)
    return base


def _publish(folder: Path) -> Workspace:
    git("clone", "-q", "--bare", folder / "project", folder / "origin.git", cwd=folder)
    return Workspace(git=str(folder / "origin.git"), ref="main")


@pytest.fixture
def project(tmp_path: Path, made_once: Path) -> Path:
    """A person's checkout."""
    return Path(shutil.copytree(made_once / "project", tmp_path / "project"))


@pytest.fixture
def publish(tmp_path: Path, project: Path) -> Callable[[], Workspace]:
    """Makes the bare origin from the project as it stands."""
    return lambda: _publish(tmp_path)


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    return tmp_path / "origin.git"


@pytest.fixture
def workspace(origin: Path, made_once: Path) -> Workspace:
    shutil.copytree(made_once / "origin.git", origin)
    return Workspace(git=str(origin), ref="main")


@pytest.fixture
def clone(workspace: Workspace, tmp_path: Path, made_once: Path) -> Clone:
    shutil.copytree(made_once / "place", tmp_path / "place")
    found = open_clone(workspace, tmp_path / "place", SESSION)
    assert found is not None
    return found


@pytest.fixture
def mark(tmp_path: Path) -> Iterator[str]:
    """A command that must never run."""
    yield f"touch {tmp_path}/pwned"
    assert not (tmp_path / "pwned").exists(), "something of the agent's ran on the host"


def in_checkpoint(origin: Path, path: str) -> str:
    return git("show", f"{REF}:{path}", cwd=origin)


def files_of(tree: Path) -> dict[str, str]:
    found = (path for path in tree.rglob("*") if ".git" not in path.relative_to(tree).parts)
    return {str(path.relative_to(tree)): path.read_text() for path in found if path.is_file()}


# ---- the story


def test_a_session_works_in_its_own_clone_and_a_successor_goes_on(
    workspace: Workspace, clone: Clone, origin: Path, project: Path, tmp_path: Path
) -> None:
    assert files_of(clone.tree) == files_of(project)
    assert git("status", "--short", "--branch", cwd=clone.tree) == "## forge/5e551045e551"
    assert git("log", "--format=%s", cwd=clone.tree) == "first"
    assert checkpoint(clone, "nothing yet").commit is None
    assert git("for-each-ref", "refs/forge", cwd=origin) == ""

    (clone.tree / "readme.md").write_text("new words\n")
    (clone.tree / "notes").mkdir()
    (clone.tree / "notes" / 'odd "name"\n.txt').write_text("kept")
    (clone.tree / "debug.log").write_text("ignored")
    (clone.tree / "src" / "app.py").unlink()
    (clone.tree / "run.sh").chmod(0o644)
    (clone.tree / "link").symlink_to("readme.md")
    first = checkpoint(clone, "turn 1")
    assert first.commit and first.pushed and not first.problem and not first.left_out
    assert git("rev-parse", REF, cwd=origin) == first.commit
    assert git("log", "-1", "--format=%an <%ae>|%cn|%G?|%s", REF, cwd=origin) == (
        "Golem Forge <forge@localhost>|Golem Forge|N|turn 1"
    )
    again = checkpoint(clone, "turn 2")
    assert (again.commit, again.pushed) == (None, True)

    git("commit", "-q", "--allow-empty", "-m", "the person goes on", cwd=project)
    git("push", "-q", origin, "main", cwd=project)
    shutil.rmtree(clone.place)
    later = restore(workspace, tmp_path / "elsewhere", SESSION)
    assert later.base == clone.base
    assert (later.tree / "notes" / 'odd "name"\n.txt').read_text() == "kept"
    assert os.readlink(later.tree / "link") == "readme.md"
    assert not (later.tree / "src").exists() and not (later.tree / "debug.log").exists()
    assert os.stat(later.tree / "run.sh").st_mode & 0o111 == 0
    assert "M readme.md" in git("status", "--short", cwd=later.tree), "the agent's git compares with the base"
    (later.tree / "readme.md").write_text("newer words\n")
    second = checkpoint(later, "turn 3")
    assert git("rev-parse", f"{REF}^", cwd=origin) == first.commit and second.pushed
    assert open_clone(workspace, tmp_path / "elsewhere", SESSION) == later
    assert open_clone(workspace, tmp_path / "nowhere", SESSION) is None
    assert open_clone(workspace, tmp_path / "elsewhere", "another") is None


def test_a_successor_without_a_checkpoint_starts_from_the_base(workspace: Workspace, tmp_path: Path) -> None:
    clone = restore(workspace, tmp_path / "place", SESSION)
    assert (clone.tree / "readme.md").read_text().startswith("one")
    assert restore(workspace, tmp_path / "place", SESSION) == clone
    (clone.tree / "unsaved").write_text("kept")
    with pytest.raises(WorkspaceError):
        restore(Workspace(git="http://127.0.0.1:1/gone"), tmp_path / "place", SESSION)
    assert (clone.tree / "unsaved").exists(), "an origin that is away costs nothing"


def test_a_push_that_fails_is_told_and_tried_again(clone: Clone, origin: Path, tmp_path: Path) -> None:
    origin.rename(tmp_path / "away")
    (clone.tree / "readme.md").write_text("offline\n")
    offline = checkpoint(clone, "turn 1")
    assert offline.commit and not offline.pushed
    assert "could not push" in offline.problem and str(tmp_path) not in offline.problem
    (tmp_path / "away").rename(origin)
    assert push_checkpoint(clone) == ""
    assert checkpoint(clone, "turn 2").pushed
    assert in_checkpoint(origin, "readme.md") == "offline"


def test_a_checkpoint_of_another_runner_is_never_overwritten(
    workspace: Workspace, clone: Clone, origin: Path, tmp_path: Path
) -> None:
    other = make_clone(workspace, tmp_path / "other", SESSION)
    (other.tree / "readme.md").write_text("successor\n")
    (clone.tree / "readme.md").write_text("too late\n")
    assert checkpoint(other, "turn 1").pushed
    late = checkpoint(clone, "turn 1")
    assert not late.pushed and "rejected" in late.problem
    assert in_checkpoint(origin, "readme.md") == "successor"


def test_what_git_ignores_is_no_part_of_a_checkpoint_unless_tracked(
    project: Path, publish: Callable[[], Workspace], origin: Path, tmp_path: Path
) -> None:
    (project / "build").mkdir()
    (project / "build" / "kept.txt").write_text("old")
    (project / "src" / ".gitignore").write_text("/secret\n!*.log\n")
    git("add", "-f", "build/kept.txt", cwd=project)
    commit_all(project)
    clone = make_clone(publish(), tmp_path / "place", SESSION)
    for name in ("build/kept.txt", "build/new.txt", "src/secret", "src/a.log", "a.log", "src/sub/secret"):
        (clone.tree / name).parent.mkdir(exist_ok=True)
        (clone.tree / name).write_text("written")
    checkpoint(clone, "turn")
    assert {one.path for one in changes(clone)} == {"build/kept.txt", "src/a.log", "src/sub/secret"}
    assert in_checkpoint(origin, "build/kept.txt") == "written"


@pytest.mark.parametrize("format", ["sha1", pytest.param("sha256", marks=pytest.mark.long)])
def test_every_kind_of_ref(tmp_path: Path, format: str) -> None:
    folder = tmp_path / "plain"
    folder.mkdir()
    git("init", "-q", "-b", "trunk", f"--object-format={format}", ".", cwd=folder)
    (folder / "file").write_text("old")
    old = commit_all(folder)
    git("tag", "-a", "-m", "v1", "v1", cwd=folder)
    (folder / "file").write_text("new")
    new = commit_all(folder)
    for number, (ref, base) in enumerate((("", new), ("trunk", new), ("v1", old), ("refs/tags/v1", old), (new, new))):
        clone = make_clone(Workspace(git=f"file://{folder}", ref=ref), tmp_path / f"place{number}", SESSION)
        assert clone.base == base
    (clone.tree / "file").write_text("newest")
    made = checkpoint(clone, "turn")
    assert made.pushed and git("rev-parse", REF, cwd=folder) == made.commit
    with pytest.raises(WorkspaceError, match="no branch, tag or commit 'gone'"):
        make_clone(Workspace(git=str(folder), ref="gone"), tmp_path / "place", SESSION)
    with pytest.raises(WorkspaceError, match="not the id of a session"):
        make_clone(Workspace(git=str(folder)), tmp_path / "place", "../up")


def test_an_origin_that_is_empty_or_missing_is_one_sentence(tmp_path: Path) -> None:
    git("init", "-q", "--bare", "empty", cwd=tmp_path)
    with pytest.raises(WorkspaceError, match="no default branch"):
        make_clone(Workspace(git=str(tmp_path / "empty")), tmp_path / "place", SESSION)
    with pytest.raises(WorkspaceError, match="could not read the repository") as refused:
        make_clone(Workspace(git=str(tmp_path / "missing")), tmp_path / "place", SESSION)
    assert str(tmp_path) not in refused.value.message
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(WorkspaceError, match="Forge could not make a clone: ") as refused:
        make_clone(Workspace(git=str(tmp_path / "empty")), tmp_path / "file" / "place", SESSION)
    assert str(tmp_path) not in refused.value.message


def test_of_a_large_repository_the_agents_git_has_the_last_commit_only(
    project: Path, publish: Callable[[], Workspace], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "readme.md").write_text("later\n")
    commit_all(project, "second")
    workspace = publish()
    whole = make_clone(workspace, tmp_path / "place", SESSION)
    assert git("log", "--format=%s", cwd=whole.tree).split() == ["second", "first"]
    shared = [path for path in (whole.tree / ".git").rglob("*") if path.is_file() and path.stat().st_nlink > 1]
    assert not shared, "the agent could write into the runner's objects"
    monkeypatch.setattr(workspaces, "_MOST_HISTORY", 10)
    cut = make_clone(workspace, tmp_path / "cut", SESSION)
    assert git("log", "--format=%s", cwd=cut.tree) == "second"
    assert git("status", "--short", cwd=cut.tree) == ""


# ---- what is read from a file


@pytest.mark.parametrize(
    "address",
    [
        "https://host.test/team/app.git",
        "https://host.test:8443/app",
        "http://127.0.0.1:8000/app",
        "http://localhost/app",
        "http://[::1]:80/app",
        "ssh://git@host.test:22/app",
        "git@host.test:team/app.git",
        "file:///srv/app",
        "/srv/app",
    ],
)
def test_an_address_that_forge_reads(address: str) -> None:
    assert read_workspace({"git": address, "ref": "feature/x"}) == Workspace(git=address, ref="feature/x")


@pytest.mark.parametrize(
    "address",
    [
        "ext::sh -c touch% pwned",
        "fd::17",
        "--upload-pack=touch pwned",
        "-oProxyCommand=touch pwned",
        "git://host.test/app",
        "ftp://host.test/app",
        "http://host.test/app",
        "http://127.0.0.1.evil.test/app",
        "EXT::x",
        "transport::https://host.test",
        "https://user:canary-4711@host.test/app",
        "https://canary-4711@host.test/app",
        "https://host.test/app?token=canary-4711",
        "ssh://-oProxyCommand=touch/app",
        "ssh://-x@host.test/app",
        "ssh://git:canary-4711@host.test/app",
        "git@host.test:-x",
        "git@-host:app",
        "git@host::app",
        "file://host/app",
        "https:///app",
        "https://host.test/a b",
        "https://host.test/a\nb",
        "/srv/\x1b[2J",
        " /srv/app",
        "relative/path",
        "",
        7,
        None,
    ],
)
def test_an_address_that_forge_refuses(address: object) -> None:
    with pytest.raises(ConfigError) as refused:
        read_workspace({"git": address}, where="app.worker:3: workspace")
    assert str(refused.value).startswith("app.worker:3: workspace.git: ")
    assert "canary" not in str(refused.value) and "\x1b" not in str(refused.value)


@pytest.mark.parametrize("ref", ["--upload-pack=x", "-x", "a..b", "a b", "a:b", "+a", "a\nb", "*", 3, "refs/heads/a~1"])
def test_a_ref_that_forge_refuses(ref: object) -> None:
    if ref == "+a":  # git takes it for a name; the refspec is built from the origin's own list
        assert read_workspace({"git": "/srv/app", "ref": ref}).ref == "+a"
        return
    with pytest.raises(ConfigError, match=r"workspace\.ref: write the name of a branch"):
        read_workspace({"git": "/srv/app", "ref": ref})


def test_every_problem_of_a_block_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        read_workspace({"gti": "/srv", "ref": "-x"})
    assert len(refused.value.problems) == 3 and "did you mean 'git'?" in refused.value.problems[0]
    with pytest.raises(ConfigError, match=r"write \{git: URL-or-path"):
        read_workspace("/srv/app")
    assert read_workspace({"git": "../app"}, folder=tmp_path / "x").git == str(tmp_path / "app")


# ---- attacks: the agent has the tree


def hostile_config(mark: str) -> str:
    """Everything in a git configuration that starts a program or leads elsewhere."""
    return f"""
[core]
    fsmonitor = {mark}
    sshCommand = {mark}
    hooksPath = .evil
    editor = {mark}
    pager = {mark}
    askPass = {mark}
    gitProxy = {mark}
    alternateRefsCommand = {mark}
    attributesFile = .evil/attributes
    excludesFile = .evil/everything
[filter "evil"]
    clean = {mark}
    smudge = {mark}
    process = {mark}
    required = true
[diff "evil"]
    textconv = {mark}
    command = {mark}
[diff]
    external = {mark}
[merge "evil"]
    driver = {mark}
[credential]
    helper = !{mark}
[gpg]
    program = {mark}
[commit]
    gpgSign = true
[push]
    gpgSign = if-asked
[uploadpack]
    packObjectsHook = {mark}
[gc]
    recentObjectsHook = {mark}
[remote "origin"]
    url = ext::sh -c {mark.replace(" ", "% ")}
    uploadpack = {mark}
    receivepack = {mark}
[url "ext::sh -c {mark.replace(" ", "% ")} "]
    insteadOf = /
[protocol "ext"]
    allow = always
"""


HOOKS = "pre-commit commit-msg post-commit pre-push reference-transaction post-index-change post-checkout pre-auto-gc"
HOOKS += " pre-receive update post-receive post-update proc-receive push-to-checkout fsmonitor-watchman"


def write_hooks(folder: Path, mark: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in HOOKS.split():
        (folder / name).write_text(f"#!/bin/sh\n{mark}\n")
        (folder / name).chmod(0o755)


def make_hostile(repository: Path, mark: str) -> None:
    with open(repository / "config", "a") as config:
        config.write(hostile_config(mark))
    write_hooks(repository / "hooks", mark)


def test_the_traps_of_these_tests_catch_an_ordinary_git(clone: Clone, origin: Path, tmp_path: Path) -> None:
    caught = tmp_path / "caught"

    def falls_for_it(*words: str, cwd: Path) -> bool:
        subprocess.run(["git", *words], cwd=cwd, env=os.environ | AUTHOR, capture_output=True, timeout=PATIENCE)
        found = caught.exists()
        caught.unlink(missing_ok=True)
        return found

    mark = f"touch {caught}"
    inner = clone.tree / "lib"
    inner.mkdir()
    git("init", "-q", ".", cwd=inner)
    git("commit", "-q", "--allow-empty", "-m", "x", cwd=inner)
    git("add", "lib", cwd=clone.tree)
    make_hostile(inner / ".git", mark)
    assert falls_for_it("status", cwd=clone.tree), "a repository inside the tree"
    shutil.rmtree(inner)
    (clone.tree / ".gitattributes").write_text("*.md filter=evil\n")
    (clone.tree / "readme.md").write_text("changed")
    (clone.tree / ".git" / "info" / "attributes").unlink()
    assert falls_for_it("-c", f"filter.evil.clean={mark}", "add", "-A", cwd=clone.tree), "a filter"
    git("push", "-q", origin, "HEAD:refs/heads/x", cwd=clone.tree)
    write_hooks(origin / "hooks", mark)
    assert falls_for_it("push", str(origin), "HEAD:refs/heads/y", cwd=clone.tree), "a hook of the origin"
    make_hostile(clone.tree / ".git", mark)
    assert falls_for_it("status", cwd=clone.tree), "a setting"


def use_everything(clone: Clone, tmp_path: Path) -> Clone:
    """Every function of a runner that meets what an agent left."""
    assert checkpoint(clone, "turn").pushed
    changes(clone)
    diff(clone)
    apply_plan(read_change_set(clone), clone.tree, clone)
    later = restore(clone.workspace, tmp_path / "later", SESSION)
    (later.tree / "readme.md").write_text("from a successor\n")
    assert checkpoint(later, "turn").pushed
    assert open_clone(clone.workspace, clone.place, SESSION) == clone
    return later


def test_hooks_and_settings_of_the_agents_git_never_run(clone: Clone, origin: Path, tmp_path: Path, mark: str) -> None:
    make_hostile(clone.tree / ".git", mark)
    with open(clone.tree / ".git" / "config", "a") as config:
        config.write(f"[core]\n\tworktree = {tmp_path}\n[include]\n\tpath = {tmp_path}/included\n")
    (tmp_path / "included").write_text(hostile_config(mark))
    write_hooks(clone.tree / ".evil", mark)
    (clone.tree / ".evil" / "everything").write_text("*\n")
    (clone.tree / ".git" / "objects" / "info").mkdir(exist_ok=True)
    (clone.tree / ".git" / "objects" / "info" / "alternates").write_text("/\n")
    (clone.tree / "readme.md").write_text("changed\n")
    use_everything(clone, tmp_path)
    assert in_checkpoint(origin, "readme.md") == "from a successor"
    assert in_checkpoint(origin, ".evil/everything") == "*"


def test_filters_of_the_tree_never_run_though_the_runner_has_them(
    clone: Clone, origin: Path, tmp_path: Path, own_home: Path, mark: str
) -> None:
    """As with git-lfs: the account has a filter of that name, and the tree says which files and which server."""
    (own_home / ".gitconfig").write_text(hostile_config(mark).partition("[credential]")[0])
    (clone.tree / ".gitattributes").write_text(
        "* filter=evil diff=evil merge=evil text eol=crlf ident working-tree-encoding=UTF-16\n"
    )
    (clone.tree / ".lfsconfig").write_text("[lfs]\n\turl = http://evil.test/\n")
    (clone.tree / "readme.md").write_bytes(b"mixed\r\nline $Id$\nends\r\n\xff\xfe")
    later = use_everything(clone, tmp_path)
    first = subprocess.run(["git", "show", f"{REF}^:readme.md"], cwd=origin, capture_output=True, check=True)
    assert first.stdout == b"mixed\r\nline $Id$\nends\r\n\xff\xfe"
    assert (later.tree / ".gitattributes").read_text().startswith("* filter=evil")


def test_a_pointer_of_lfs_is_a_file_like_any_other(
    project: Path, publish: Callable[[], Workspace], tmp_path: Path, own_home: Path, mark: str
) -> None:
    """Nothing is downloaded. A checkout that has the content in its place is not written over."""
    lfs = f'[filter "lfs"]\n\tclean = {mark}\n\tsmudge = {mark}\n\tprocess = {mark}\n\trequired = true\n'
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'1' * 64}\nsize 12\n"
    (project / ".gitattributes").write_text("*.bin filter=lfs diff=lfs merge=lfs -text\n")
    (project / "big.bin").write_text(pointer)
    commit_all(project, "lfs")
    clone = make_clone(publish(), tmp_path / "place", SESSION)
    (own_home / ".gitconfig").write_text(lfs)
    assert (clone.tree / "big.bin").read_text() == pointer
    (clone.tree / "big.bin").write_text(pointer.replace("size 12", "size 13"))
    later = use_everything(clone, tmp_path)
    assert (later.tree / "big.bin").read_text().endswith("size 13\n")
    (project / "big.bin").write_bytes(b"real content")
    [conflict] = apply_plan(read_change_set(clone), project, clone).conflicts
    assert conflict.path == "big.bin"


def test_refs_with_odd_names_and_odd_objects(project: Path, publish: Callable[[], Workspace], tmp_path: Path) -> None:
    workspace, origin = publish(), tmp_path / "origin.git"
    first = git("rev-parse", "main", cwd=origin)
    blob = git("rev-parse", "main:readme.md", cwd=origin)
    for name in ("heads/--upload-pack=x", "heads/-x", "heads/HEAD", "tags/main", "heads/a;b`c`", "heads/\u202emain"):
        git("update-ref", f"refs/{name}", first, cwd=origin)
    git("update-ref", "refs/tags/file", blob, cwd=origin)
    assert make_clone(workspace, tmp_path / "plain", SESSION).base == first
    assert make_clone(Workspace(git=workspace.git, ref="a;b`c`"), tmp_path / "odd", SESSION).base == first
    for ref in ("--upload-pack=x", "-x", "\u202emain"):
        with pytest.raises(ConfigError, match=r"workspace\.ref"):
            read_workspace({"git": workspace.git, "ref": ref})
    for target in (blob, git("rev-parse", "main^{tree}", cwd=origin)):
        git("update-ref", REF, target, cwd=origin)
        with pytest.raises(WorkspaceError):
            restore(workspace, tmp_path / "object", SESSION)
    git("symbolic-ref", REF, "refs/heads/main", cwd=origin)
    with pytest.raises(WorkspaceError, match="not a checkpoint of Forge"):
        restore(workspace, tmp_path / "symbolic", SESSION)


def test_more_files_than_anybody_means_are_refused(
    clone: Clone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workspaces, "MOST_FILES", 3)
    with pytest.raises(WorkspaceError, match="more than 3 files"):
        make_clone(clone.workspace, tmp_path / "second", SESSION)
    monkeypatch.undo()
    monkeypatch.setattr(checkpoints, "MOST_FILES", 3)
    for number in range(5):
        (clone.tree / f"n{number}").write_text(str(number))
    with pytest.raises(WorkspaceError, match=r"wrote more than 3 files; add some to \.gitignore"):
        checkpoint(clone, "turn")


@pytest.mark.parametrize(
    "replaced", ["file", "link", "bare", *(pytest.param(odd, marks=pytest.mark.long) for odd in ("gone", "fifo"))]
)
def test_a_git_directory_that_was_replaced_leads_nowhere(
    clone: Clone, origin: Path, tmp_path: Path, mark: str, replaced: str
) -> None:
    evil = tmp_path / "evil"
    git("init", "-q", "--bare", evil, cwd=tmp_path)
    make_hostile(evil, mark)
    shutil.rmtree(clone.tree / ".git")
    if replaced == "file":
        (clone.tree / ".git").write_text(f"gitdir: {evil}\n")
    elif replaced == "link":
        (clone.tree / ".git").symlink_to(evil)
    elif replaced == "bare":  # the tree itself looks like a bare repository
        shutil.copytree(evil, clone.tree, dirs_exist_ok=True)
    elif replaced == "fifo":
        os.mkfifo(clone.tree / ".git")
    (clone.tree / "readme.md").write_text("changed\n")
    use_everything(clone, tmp_path)
    assert git("rev-list", "--count", f"main..{REF}", cwd=origin) == "2"
    assert ".git\n" not in git("ls-tree", "--name-only", REF, cwd=origin) + "\n"


def test_repositories_inside_the_tree_are_named_and_not_entered(
    project: Path, publish: Callable[[], Workspace], origin: Path, tmp_path: Path, mark: str
) -> None:
    """`git add` and `git status` would start a git in each of them, which obeys its `core.fsmonitor`."""
    inner = git("rev-parse", "HEAD", cwd=project)
    (project / ".gitmodules").write_text(
        f'[submodule "lib"]\n\tpath = lib\n\turl = --upload-pack={mark}\n\tupdate = !{mark}\n'
        f'[submodule "two"]\n\tpath = two\n\turl = ext::sh -c {mark.replace(" ", "% ")}\n'
    )
    for name in ("lib", "two"):
        git("update-index", "--add", "--cacheinfo", f"160000,{inner},{name}", cwd=project)
        (project / name).mkdir()
    git("add", ".gitmodules", cwd=project)
    git("commit", "-q", "-m", "submodules", cwd=project)
    clone = make_clone(publish(), tmp_path / "place", SESSION)
    assert os.listdir(clone.tree / "lib") == []
    for name in ("lib", "vendor/mine", "src"):
        (clone.tree / name).mkdir(parents=True, exist_ok=True)
        git("init", "-q", ".", cwd=clone.tree / name)
        make_hostile(clone.tree / name / ".git", mark)
        (clone.tree / name / "file").write_text("inside")
    made = checkpoint(clone, "turn")
    assert made.pushed and [one.path for one in made.left_out] == ["vendor/mine/"]
    assert "repository of its own" in made.left_out[0].why
    assert {one.path for one in changes(clone)} == {"src/file"}, "a directory with tracked files stays one"
    assert git("ls-tree", REF, "lib", cwd=origin).startswith(f"160000 commit {inner}")
    use_everything(clone, tmp_path)


def test_names_that_some_systems_take_for_git_are_left_out(clone: Clone, tmp_path: Path, mark: str) -> None:
    odd = (".GIT", ".Git", "git~1", "GIT~1", ".git ", ".git.", ".g\u200cit", "src/.GIT", ".git::$INDEX_ALLOCATION")
    for name in (*odd, "a\\.git"):
        (clone.tree / name).mkdir()
        (clone.tree / name / "config").write_text(hostile_config(mark))
    (clone.tree / "src" / ".git").mkdir()
    (clone.tree / ".gitmodules").symlink_to("readme.md")
    (clone.tree / ".gitfoo").write_text("an ordinary name")
    made = checkpoint(clone, "turn")
    assert made.pushed
    assert {one.path.rstrip("/") for one in made.left_out} == {*odd, "a\\.git", ".gitmodules"}
    assert [one.path for one in changes(clone)] == [".gitfoo"]
    assert (restore(clone.workspace, tmp_path / "later", SESSION).tree / ".gitfoo").exists()


@pytest.mark.parametrize("path", [".GIT/config", "../outside", ".git/hooks/post-checkout", "a/../../b", "git~1/config"])
def test_an_origin_with_hostile_names_is_not_checked_out(
    workspace: Workspace, origin: Path, tmp_path: Path, path: str
) -> None:
    blob = git("hash-object", "-w", "--stdin", cwd=origin, stdin=b"[core]\n")
    kind, mode = "blob", "100644"
    for part in reversed(path.split("/")):
        entry = f"{mode} {part}\0".encode() + bytes.fromhex(blob)
        blob = git("hash-object", "-w", "-t", "tree", "--literally", "--stdin", cwd=origin, stdin=entry)
        kind, mode = "tree", "40000"
    assert kind == "tree"
    commit = git("commit-tree", "-m", "x", blob, cwd=origin)
    git("update-ref", "refs/heads/main", commit, cwd=origin)
    with pytest.raises(WorkspaceError, match="could not check out"):
        make_clone(workspace, tmp_path / "place", SESSION)
    assert not (tmp_path / "place" / "tree").exists() and not (tmp_path / "outside").exists()


def test_links_are_never_followed_even_if_they_appear_in_mid_walk(clone: Clone, origin: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "app.py").write_text("canary-4711")
    (outside / ".gitignore").write_text("canary-4711")
    src, aside = clone.tree / "src", clone.tree.parent / "aside"
    src.rename(aside)
    src.symlink_to(outside)
    checkpoint(clone, "a link")
    assert git("ls-tree", REF, "src", cwd=origin).startswith("120000 blob")
    over = threading.Event()

    def swap() -> None:
        while not over.is_set():
            src.unlink()
            aside.rename(src)
            src.rename(aside)
            src.symlink_to(outside)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for _ in range(8):
            checkpoint(clone, "a race")
    finally:
        over.set()
        thread.join()
    everything = git("log", "-p", "--all", "--root", cwd=origin)
    assert "canary" not in everything


def test_files_that_are_too_large_are_named_and_the_rest_is_kept(
    clone: Clone, origin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("model.bin", "readme.md"):
        with open(clone.tree / name, "wb") as file:
            file.truncate((100 << 20) + 1)
    (clone.tree / "small").write_text("kept")
    os.mkfifo(clone.tree / "pipe")
    made = checkpoint(clone, "turn")
    assert made.pushed and [one.path for one in made.left_out] == ["model.bin", "readme.md"]
    assert made.left_out[0] == LeftOut("model.bin", "it is larger than 100 MB; add it to .gitignore")
    assert [one.path for one in changes(clone)] == ["small"], "a tracked file keeps what it had"
    monkeypatch.setattr(checkpoints, "MOST_BYTES", 1000)
    (clone.tree / "more").write_text("x" * 1001)
    with pytest.raises(WorkspaceError, match=r"add what git should not keep to \.gitignore"):
        checkpoint(clone, "turn")
    assert git("rev-parse", REF, cwd=origin) == made.commit


def test_a_tree_or_directory_that_cannot_be_read_loses_nothing(clone: Clone, monkeypatch: pytest.MonkeyPatch) -> None:
    real = checkpoints.best_opener()

    def refusing(root: int, parts: tuple[str, ...], flags: int) -> int:
        if tuple(parts) in (("src",), ("readme.md",)):
            raise PermissionError(13, "no")
        return real(root, parts, flags)

    monkeypatch.setattr(checkpoints, "best_opener", lambda: refusing)
    made = checkpoint(clone, "turn")
    assert made.commit is None and [one.path for one in made.left_out] == ["readme.md", "src/"]
    shutil.rmtree(clone.tree)
    with pytest.raises(WorkspaceError, match="restore the clone"):
        checkpoint(clone, "turn")


# ---- attacks: the origin, the runner's surroundings


def test_hooks_and_settings_of_a_local_origin_never_run(
    workspace: Workspace, origin: Path, tmp_path: Path, mark: str
) -> None:
    """A project can bring along a bare repository and name it in a worker file."""
    git("clone", "-q", "--bare", origin, "alternate.git", cwd=tmp_path)
    make_hostile(origin, mark)
    (origin / "objects" / "info" / "alternates").write_text(f"{tmp_path}/alternate.git/objects\n")
    clone = make_clone(workspace, tmp_path / "place", SESSION)
    (clone.tree / "readme.md").write_text("changed\n")
    assert checkpoint(clone, "turn").pushed
    restore(workspace, tmp_path / "later", SESSION)


def test_hooks_templates_and_variables_of_the_account_never_count(
    workspace: Workspace, tmp_path: Path, own_home: Path, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_hooks(tmp_path / "template" / "hooks", mark)
    (own_home / ".gitconfig").write_text(
        f"[core]\n\thooksPath = {tmp_path}/template/hooks\n[init]\n\ttemplateDir = {tmp_path}/template\n"
        f"[core]\n\tsshCommand = {mark}\n\tfsmonitor = {mark}\n"
    )
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_EXEC_PATH"):
        monkeypatch.setenv(name, "/nowhere")
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", mark)
    clone = make_clone(workspace, tmp_path / "place", SESSION)
    (clone.tree / "readme.md").write_text("changed\n")
    assert checkpoint(clone, "turn").pushed and "+changed" in diff(clone).text
    with pytest.raises(WorkspaceError, match="could not read the repository"):
        make_clone(Workspace(git="ssh://git@127.0.0.1:1/app"), tmp_path / "ssh", SESSION)


@contextmanager
def http_origin(root: Path, password: str) -> Iterator[str]:
    expected = "Basic " + base64.b64encode(f"runner:{password}".encode()).decode()

    class Guarded(GitBackend):
        def do_GET(self) -> None:
            if self.headers.get("Authorization") != expected:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                self.send_response(401)
                self.send_header("WWW-Authenticate", 'Basic realm="git"')
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            super().do_GET()

        do_POST = do_GET

    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Rooted", (Guarded,), {"root": str(root)}))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_over_http_with_the_runners_credentials_which_the_session_never_sees(
    workspace: Workspace, origin: Path, tmp_path: Path, own_home: Path
) -> None:
    git("config", "http.receivepack", "true", cwd=origin)
    with http_origin(tmp_path, "canary-4711") as address:
        remote = read_workspace({"git": f"{address}/origin.git", "ref": "main"})
        with pytest.raises(WorkspaceError, match="could not read the repository"):
            make_clone(remote, tmp_path / "place", SESSION)
        (own_home / ".gitconfig").write_text("[credential]\n\thelper = store\n")
        host = address.removeprefix("http://")
        (own_home / ".git-credentials").write_text(f"http://runner:canary-4711@{host}\n")
        clone = make_clone(remote, tmp_path / "place", SESSION)
        (clone.tree / "readme.md").write_text("over http\n")
        assert checkpoint(clone, "turn").pushed
        assert (restore(remote, tmp_path / "later", SESSION).tree / "readme.md").read_text() == "over http\n"
    for place in ("place", "later"):
        for file in (path for path in (tmp_path / place).rglob("*") if path.is_file()):
            assert b"canary-4711" not in file.read_bytes() and b"127.0.0.1" not in file.read_bytes(), file
    assert str(tmp_path) not in (clone.tree / ".git" / "config").read_text()
    assert not checkpoint(clone, "again").problem


def test_git_has_a_time_limit_and_its_words_hold_no_credentials_and_no_path(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "git"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho 'fatal: https://me:canary-4711@host.test {tmp_path}/place no' >&2; exit 128\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    with pytest.raises(WorkspaceError, match=r"://…@host\.test the workspace no") as refused:
        make_clone(workspace, tmp_path / "place", SESSION)
    assert "canary" not in refused.value.message
    program.write_text("#!/bin/sh\nsleep 60\n")
    monkeypatch.setattr(workspaces, "_LISTED", workspaces.GitLimits(seconds=0.2, output=1000))
    with pytest.raises(WorkspaceError, match=r"within 0\.2 seconds"):
        make_clone(workspace, tmp_path / "place", SESSION)


# ---- what a session changed


def test_changes_and_diff_show_renames_binary_files_and_bounds(
    clone: Clone, workspace: Workspace, tmp_path: Path
) -> None:
    (clone.tree / "readme.md").rename(clone.tree / "guide.md")
    (clone.tree / "picture.png").write_bytes(b"\x89PNG\0\1")
    (clone.tree / "src" / "app.py").write_text("print('bye')\nprint('now')\n")
    (clone.tree / "run.sh").unlink()
    checkpoint(clone, "turn")
    assert changes(clone) == (
        Change(path="guide.md", status="renamed", old_path="readme.md"),
        Change(path="picture.png", status="added", binary=True),
        Change(path="run.sh", status="deleted", deleted=1),
        Change(path="src/app.py", status="modified", added=2, deleted=1),
    )
    far = fetch_history(workspace, tmp_path / "far", SESSION)
    assert changes(far) == changes(clone) and not far.tree.exists()
    whole = diff(far)
    assert not whole.cut and "rename from readme.md\nrename to guide.md\n" in whole.text
    assert "Binary files /dev/null and b/picture.png differ" in whole.text
    assert "-print('hello')\n+print('bye')\n" in whole.text
    short = diff(far, limit=300)
    assert short.cut and len(short.text) <= 300 and whole.text.startswith(short.text) and short.text.endswith("\n")


def test_a_plan_says_what_applying_writes_and_merges_with_the_checkout(clone: Clone, project: Path) -> None:
    lines = (project / "readme.md").read_text().splitlines()
    (clone.tree / "readme.md").write_text("\n".join(["ONE", *lines[1:]]) + "\n")
    (clone.tree / "src" / "app.py").rename(clone.tree / "src" / "main.py")
    (clone.tree / "new.txt").write_text("new")
    (clone.tree / "same.txt").write_text("same")
    (clone.tree / "run.sh").unlink()
    (clone.tree / "run.sh").mkdir()
    (clone.tree / "run.sh" / "inner").write_text("a directory now")
    (clone.tree / "link").symlink_to("/etc/passwd")
    checkpoint(clone, "turn")
    (project / "readme.md").write_text("\n".join([*lines[:-1], "SEVEN"]) + "\n")
    (project / "same.txt").write_text("same")
    before = files_of(project)
    plan = apply_plan(read_change_set(clone), project, clone)
    assert files_of(project) == before, "a plan writes nothing"
    assert {one.path: one.content for one in plan.writes} == {
        "new.txt": b"new",
        "readme.md": "\n".join(["ONE", *lines[1:-1], "SEVEN"]).encode() + b"\n",
        "run.sh/inner": b"a directory now",
        "src/main.py": b"print('hello')\n",
    }
    merged = next(one for one in plan.writes if one.path == "readme.md")
    assert merged.merged and merged.before == before["readme.md"].encode()
    assert {one.path for one in plan.deletes} == {"run.sh", "src/app.py"}
    assert plan.unchanged == ("same.txt",)
    assert [(one.path, one.why) for one in plan.conflicts] == [("link", "it is a link; make it by hand")]


def test_what_both_sides_changed_is_a_conflict_by_name(clone: Clone, project: Path, tmp_path: Path) -> None:
    (clone.tree / "readme.md").write_text("mine\n")
    (clone.tree / "src" / "app.py").unlink()
    (clone.tree / "both.txt").write_text("mine")
    (clone.tree / "run.sh").write_text("#!/bin/sh\necho mine\n")
    (clone.tree / "docs").mkdir()
    (clone.tree / "docs" / "page").write_text("through a link")
    checkpoint(clone, "turn")
    (project / "readme.md").write_text("yours\n")
    (project / "src" / "app.py").write_text("yours\n")
    (project / "both.txt").write_text("yours")
    (project / "run.sh").unlink()
    (project / "docs").symlink_to(tmp_path)
    plan = apply_plan(read_change_set(clone), project, clone)
    assert not plan.writes and not plan.deletes
    assert {one.path: one.why for one in plan.conflicts} == {
        "readme.md": "the session and the checkout changed the same lines",
        "src/app.py": "the session deleted it, and the checkout has changed it",
        "both.txt": "the session and the checkout both added it, with different contents",
        "run.sh": "the session changed it, and the checkout does not have it",
        "docs/page": "a link or a file of the checkout stands at its path or on the way",
    }
