"""Git's reading subcommands run unasked inside full walls, and nothing that a repository sets is changed or started.

The repository names a program in every setting that could start one. It leaves a mark wherever it can write and says
so on standard error; the zones are compared, byte by byte and with their times, before and after.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from golem_forge.core.decisions import Status
from golem_forge.policy.shell.readonly_table import EXCLUDED_SECRETS
from golem_forge.sandbox.protected import is_secret_name
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.walls.model import Level, LevelResult, ProbeReport
from golem_forge.sandbox.walls.walls import Walls, WallsHost
from golem_forge.tools.factory import ToolsetContext
from golem_forge.toolsets.exec import ExecToolset, exec_model
from golem_forge.toolsets.exec.shell import ShellToolset

PROGRAM = """#!/bin/sh
echo "STAR""TED $1" >&2
for place in "$PWD" /workspace /scratch {workspace} {scratch} {root}; do touch "$place/mark" 2>/dev/null; done
case $1 in filter) cat;; textconv) echo converted;; esac
exit 0
"""

STARTS = {
    "core.fsmonitor": "fsmonitor",
    "core.pager": "pager",
    "pager.log": "pager",
    "pager.diff": "pager",
    "diff.external": "external",
    "diff.hostile.command": "driver",
    "diff.hostile.textconv": "textconv",
    "core.sshCommand": "ssh",
    "gpg.program": "gpg",
    "gpg.ssh.program": "gpg",
    "core.editor": "editor",
    "core.askPass": "askpass",
    "credential.helper": "credential",
    "alias.log": "alias",
    "alias.st": "alias",
    "filter.hostile.clean": "filter",
    "filter.hostile.smudge": "filter",
}

PROVEN = (
    "git status", "git status -s", "git status -sb", "git status --porcelain=v2 --branch", "git status -uno -- src",
    "git log", "git log -5 --oneline", "git log -n 3 --stat", "git log -p", "git log --graph --all --decorate",
    "git log '--format=%h %s %(trailers)'", "git log --stat --follow -- a.txt", "git log -S two", "git log -Gtwo -p",
    "git log --since=2.weeks --author=person", "git log -L1,1:a.txt", "git log HEAD~1..HEAD", "git --no-pager log -1",
    "git -C src log -1", "git log | head -3", "cd src && git log --oneline -1",
    "git diff", "git diff HEAD~1", "git diff HEAD~1 -- src", "git diff --stat HEAD^", "git diff --cached",
    "git diff --name-only @~1", "git diff --word-diff -U1 a.txt", "git diff HEAD~1 HEAD a.txt",
    "git show", "git show HEAD:a.txt", "git show --stat HEAD~1", "git show -s --format=%an HEAD",
    "git log -p main --not HEAD~1 a.txt", "git log -p HEAD -- '*.txt'", "git show main -- src", "git show v1 a.txt",
    "git diff HEAD~1 HEAD '*.txt'", "git diff HEAD~1..main", "git grep -n two main a.txt", "git cat-file -p main",
    "git cat-file -p HEAD:a.txt", "git show 'HEAD^{tree}'", "git show HEAD^! -- a.txt", "git log -p '^HEAD~1' main",
    "git blame a.txt", "git blame -L 1,1 -w a.txt", "git shortlog -sn HEAD", "git describe --always --dirty",
    "git rev-parse HEAD", "git rev-parse --abbrev-ref HEAD", "git rev-parse --show-toplevel",
    "git rev-list --count HEAD", "git ls-files", "git ls-files -o --exclude-standard", "git ls-tree -r HEAD",
    "git cat-file -p HEAD", "git cat-file -t HEAD", "git rev-list HEAD | git cat-file --batch-check",
    "git grep -n two", "git grep -e one HEAD~1 -- a.txt", "git branch", "git branch -avv", "git branch --show-current",
    "git branch --list 'm*'", "git branch --contains HEAD", "git tag", "git tag -l 'v*'", "git tag -n",
    "git reflog", "git reflog -3", "git merge-base HEAD HEAD~1", "git stash list", "git stash list --stat",
    "git remote", "git remote -v", "git worktree list", "git --version",
    "git status && git diff --stat; git log -1 | cat",
)  # fmt: skip

ASKS = (
    "git log --output=x", "git log --outpu=x", "git diff --output x", "git diff --ext-diff", "git diff --ext",
    "git log -p --textconv", "git show --textconv", "git diff --no-index a.txt src/b.txt", "git diff -O order",
    "git grep -O two", "git grep --open-files-in-pager=x two", "git grep --no-index two", "git grep -f a.txt",
    "git cat-file --textconv HEAD:a.txt", "git cat-file --filters HEAD:a.txt", "git blame --contents a.txt a.txt",
    "git blame -S a.txt a.txt", "git blame --ignore-revs-file a.txt a.txt", "git log --show-signature",
    "git log --format=%G?", "git log --pretty=format:%GK", "git log --author -- --output=x", "git log -- --output=x",
    "git log --grep --output=x", "git status -v", "git status -sv", "git diff --submodule=diff", "git log --submodule",
    "git branch new", "git branch -v new", "git branch -l new", "git branch --format --list new", "git branch -D main",
    "git branch --sort=refname new", "git branch --edit-description", "git branch -u origin/main", "git tag v2",
    "git tag -d v1", "git tag -v v1", "git tag -n new", "git remote add x y", "git remote show origin",
    "git remote update", "git stash", "git stash push", "git stash show -p",
    "git stash list -p", "git log -p --follow -- a.txt", "git log --full-diff -p a.txt",
    "git cat-file --batch", "git cat-file blob HEAD", "git --literal-pathspecs log -p", "git grep -- two HEAD",
    "git diff HEAD:src HEAD~1:src", "git grep two HEAD:src", "git stash list drop --output=x",
    "git worktree add ../x", "git worktree prune", "git config --list", "git config core.pager x", "git fetch",
    "git ls-remote --upload-pack=x .", "git push", "git commit -m x", "git add a.txt", "git checkout main", "git st",
    "git rev-parse --parseopt", "git rev-parse --sq-quote x", "git log --help", "git help log", "git -p log",
    "git --git-dir=/workspace/.git log", "git --work-tree=/ status", "git --exec-path=. log", "git -c x=y log",
    "git --paginate log", "git reflog expire --all", "git reflog delete HEAD@{0}", "git reflog -p",
    "git merge-base --fork-point HEAD", "git bisect run sh", "git ls-files -X a.txt", "./git log",
    "git log && touch x", "git log > x", "git status; make",
)  # fmt: skip

OUTSIDE = (
    "git diff /etc/passwd a.txt", "git log -- ../../x", "git -C / log", "git -C .. status", "git show ../x",
    "git blame /etc/passwd", "git diff a.txt ../outside.txt", "git grep two -- /etc", "cd ..; git log -- x",
)  # fmt: skip


@pytest.fixture
def git(workspace: Path, tmp_path: Path, sandbox: Sandbox) -> Callable[..., str]:
    """Git in the workspace, without anybody's settings."""

    def run(*words: str) -> str:
        env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path / "home"), "GIT_CONFIG_NOSYSTEM": "1"}
        done = subprocess.run(["git", *words], cwd=workspace, env=env, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    return run


def setting(name: str, value: str) -> str:
    """As `git config` writes it."""
    section, _, rest = name.partition(".")
    below, _, key = rest.rpartition(".")
    return f'[{section} "{below}"]\n\t{key} = {value}\n' if below else f"[{section}]\n\t{key} = {value}\n"


@pytest.fixture
def hostile(workspace: Path, tmp_path: Path, git: Callable[..., str]) -> Path:
    """The workspace as a repository of two commits, a change in the work tree, and settings that start programs."""
    program = workspace / "start.sh"
    places = {"workspace": workspace, "scratch": tmp_path / "host-scratch", "root": tmp_path}
    program.write_text(PROGRAM.format(**places))
    program.chmod(0o755)

    git("init", "-q", "-b", "main")
    git("config", "user.name", "person")
    git("config", "user.email", "person@example.test")
    (workspace / "src").mkdir()
    (workspace / "a.txt").write_text("one\n")
    (workspace / "src" / "b.txt").write_text("b\n")
    git("add", ".")
    git("commit", "-q", "-m", "first")
    (workspace / "a.txt").write_text("one\ntwo\n")
    git("stash")
    git("stash", "apply")
    git("commit", "-q", "-a", "-m", "second")
    git("tag", "v1")
    (workspace / "a.txt").write_text("one\ntwo\nthree\n")
    (workspace / ".gitattributes").write_text("*.txt diff=hostile filter=hostile\n")
    settings = {name: f"{'!' if name.startswith('alias') else ''}{program} {what}" for name, what in STARTS.items()}
    settings |= {"log.showSignature": "true", "diff.hostile.cachetextconv": "true"}
    settings["include.path"] = str(workspace / "included")
    with (workspace / ".git" / "config").open("a") as config:
        config.writelines(setting(name, value) for name, value in settings.items())
    assert {f"{name.lower()}={value}" for name, value in settings.items()} <= set(git("config", "--list").splitlines())
    (workspace / "included").write_text(setting("core.fsmonitor", f"{program} included"))
    hooks = workspace / ".git" / "hooks"
    for name in ("post-index-change", "pre-commit", "fsmonitor-watchman", "reference-transaction", "post-checkout"):
        (hooks / name).write_text(PROGRAM.format(**places).replace("$1", name))
        (hooks / name).chmod(0o755)
    os.utime(workspace / "a.txt")  # git must look at its content
    return workspace


def scripts_of(commands: tuple[str, ...]) -> list[str]:
    """A few scripts of many commands: one of them that asks or fails, or says what it should not, does so there too."""
    alone = [cmd for cmd in commands if cmd.startswith("cd ") or ";" in cmd]
    rest = [cmd for cmd in commands if cmd not in alone]
    return [*alone, *(" && ".join(rest[at : at + 8]) for at in range(0, len(rest), 8))]


def snapshot(root: Path) -> dict[str, tuple[int, bytes]]:
    def below() -> Iterator[Path]:
        for directory, _, files in os.walk(root):
            yield Path(directory)
            yield from (Path(directory, name) for name in files)

    return {str(path): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"") for path in below()}


async def test_a14_reading_git_runs_unasked_and_changes_nothing(
    benches: Callable[..., Any], hostile: Path, tmp_path: Path
) -> None:
    places = (hostile, tmp_path / "host-scratch", tmp_path / "host-docs")
    before = [snapshot(place) for place in places]
    bench = benches(mode="auto_deny")
    for cmd in scripts_of(PROVEN):
        outcome = await bench.cmd(cmd)
        assert outcome.status is Status.SUCCESS and not outcome.truncated, (cmd, outcome.text)
        assert outcome.decision.risk == "low", cmd
        # A filter of the repository may be started, like all that nobody can switch off: it finds nothing to change.
        assert "STARTED" not in outcome.text.replace("STARTED filter", ""), (cmd, outcome.text)
    assert [snapshot(place) for place in places] == before
    assert not (tmp_path / "mark").exists()


async def test_reading_git_shows_what_git_shows(benches: Callable[..., Any], hostile: Path) -> None:
    bench = benches(mode="auto_deny")
    assert "+two" in (await bench.cmd("git diff HEAD~1 HEAD -- a.txt")).text
    assert "+three" in (await bench.cmd("git diff")).text
    assert " M a.txt" in (await bench.cmd("git status -s")).text
    assert (await bench.cmd("git log --oneline | wc -l")).text.splitlines()[-1].strip() == "2"
    shell = benches(*ShellToolset().get_tools(ToolsetContext(config=ShellToolset().config.model_validate(
        {"rules": [{"pattern": "git log", "approval": "preApproved"}]}
    ))), mode="auto_deny")  # fmt: skip
    outcome = await shell.call("shell", command="git log -p -1")
    assert "+two" in outcome.text and "STARTED" not in outcome.text
    denied = await shell.call("shell", command="git log --output=x")
    assert denied.status is Status.APPROVAL_DENIED


async def test_a28_everything_else_of_git_asks(benches: Callable[..., Any], hostile: Path) -> None:
    risks: dict[str, str] = {}

    def denied(request: Any) -> dict[str, Any]:
        risks[request.payload] = request.risk
        return {"approved": False}

    bench = benches(ask=denied)
    for cmd in (*ASKS, *OUTSIDE):
        await bench.cmd(cmd)
    assert [cmd for cmd in (*ASKS, *OUTSIDE) if cmd not in risks] == []
    assert [cmd for cmd in OUTSIDE if risks[cmd] != "critical"] == []


async def test_below_full_walls_reading_git_asks_and_still_only_reads(
    benches: Callable[..., Any], hostile: Path, sandbox: Sandbox, tmp_path: Path, asked: Any
) -> None:
    ask = asked()
    tried = (LevelResult(level=Level.FULL, cause="no bwrap here", fix="Install bubblewrap."),)
    walls = Walls(
        sandbox,
        forge_home=tmp_path / "forge_home",
        host=WallsHost(report=ProbeReport(level=Level.LANDLOCK, tried=tried)),
    )
    before = snapshot(hostile)
    bench = benches(ask=ask, walls=walls)
    for cmd in ("git status -s", "git log -5 --oneline", "git diff HEAD~1 -- src"):
        outcome = await bench.cmd(cmd)
        assert outcome.status is Status.SUCCESS, outcome.text
    assert [request.risk for request in ask] == ["high"] * 3
    assert snapshot(hostile) == before


async def test_what_a_block_sets_does_not_reach_what_is_proven(
    benches: Callable[..., Any], hostile: Path, workspace: Path
) -> None:
    start = f"{workspace}/start.sh"
    (workspace / "rg.conf").write_text(f"--pre={start}\n")
    block = exec_model().model_validate(
        {"env": {"set": {
            "GIT_EXTERNAL_DIFF": f"{start} external", "GIT_PAGER": start, "RIPGREP_CONFIG_PATH": f"{workspace}/rg.conf",
            "GREP_OPTIONS": "--nothing-like-it", "POSIXLY_CORRECT": "1", "CDPATH": "/etc", "SHELLOPTS": "xtrace",
            "PS4": f"$({start} ps4)", "TZ": "Etc/GMT-14",
        }}}
    )  # fmt: skip
    bench = benches(*ExecToolset().get_tools(ToolsetContext(config=block)), mode="auto_deny")
    for cmd in ("git diff", "git log -p -1", "rg two", "grep two a.txt", "cd src && ls", "echo hi"):
        outcome = await bench.cmd(cmd)
        said = outcome.text.replace("STARTED filter", "")
        assert (outcome.status, "STARTED" in said) == (Status.SUCCESS, False), (cmd, said)
    assert (await bench.cmd("date +%z")).text.splitlines()[-1] == "+1400"


CLOSED = "what-nobody-may-see"

NAMED = (
    "echo :.env | git cat-file --batch", "echo HEAD:.env | git cat-file --batch='%(objectname)'",
    "git cat-file --batch --batch-all-objects", "git show HEAD~1 -- ':(glob).env'",
    "git show HEAD~1 -- ':(top,icase).ENV'", "git show 'HEAD@{1 second ago}:.env'", "git show :.env",
    "git show :0:.env",
    "git log -L '/a b/,1:.env'", "git log -p -- ':!a.txt'", "git log -p :^a.txt", "git diff HEAD~1 :/",
    "git blame .env",
    "git cat-file -p HEAD~1:.env", "git cat-file blob HEAD~1:.env", "git grep . HEAD:keys", "git diff HEAD~2: HEAD:",
    "git log --full-diff -p a.txt", "git log -p --follow b.txt", "git stash list -p", "git show HEAD~1:.ssh/config",
)  # fmt: skip
"""They ask, in a repository that holds secret files."""

RANGING = (
    "git grep -h . HEAD", "git grep --cached -h .", "git grep -h . HEAD~1 HEAD~2", "git grep --untracked -h .",
    "git log -p -- '*env'", "git log -p", "git log -p --all", "git log -p -m", "git log --cc -p", "git log -U1",
    "git show HEAD~1", "git show", "git show HEAD~1 '*env'", "git diff HEAD~2", "git diff",
    "git diff --cached HEAD~2", "git diff HEAD~2 HEAD", "git log -p -S what", "git log -W", "git log -L1,1:b.txt",
    "git log -p -C --find-copies-harder", "git show --full-history HEAD~1", "git log -p -g",
    "cd src && git show HEAD~1",
    "cd src && git log -p", "git -C src grep -h . HEAD", "git log -p --reverse HEAD~2..HEAD",
)  # fmt: skip
"""They run unasked there, and leave out what is in those files."""


@pytest.fixture
def holding(workspace: Path, git: Callable[..., str]) -> Callable[..., str]:
    """Git in a workspace whose commits hold secret files, one of them renamed since, and a directory `private`."""

    def commit(message: str) -> None:
        git("add", "-A", "-f")
        git("-c", "user.name=p", "-c", "user.email=p@example.test", "commit", "-q", "--allow-empty", "-m", message)

    git("init", "-q", "-b", "main")
    closed = (".env", ".Env", "src/.env.local", "keys/id_rsa", "keys/a.PEM", ".ssh/config", "keys/secret.key")
    for name in ("a.txt", "src/b.txt", "private/x.txt", ".env.example", *closed):
        (workspace / name).parent.mkdir(exist_ok=True)
        (workspace / name).write_text(f"{CLOSED} 1\n \nthree\nfour\nfive\n" if name in closed else "open\n")
    commit("first")
    for name in closed:
        (workspace / name).write_text(f"{CLOSED} 2 \n \nthree\nfour\nfive\n")
    (workspace / "a.txt").write_text("open\nmore\n")
    commit("second")
    (workspace / ".Env").rename(workspace / "b.txt")
    (workspace / "b.txt").write_text("given free\n \nthree\nfour\nfive\n")
    commit("third")
    (workspace / ".env.example").write_text("changed\n")
    return git


async def test_what_the_person_closed_does_not_come_out_of_git_unasked(
    benches: Callable[..., Any], holding: Callable[..., str]
) -> None:
    asked: list[str] = []

    def denied(request: Any) -> dict[str, Any]:
        asked.append(request.payload)
        return {"approved": False}

    bench = benches(ask=denied)
    for cmd in NAMED:
        await bench.cmd(cmd)
    assert [cmd for cmd in NAMED if cmd not in asked] == []
    asked.clear()
    for cmd in scripts_of(RANGING):
        outcome = await bench.cmd(cmd)
        assert outcome.status is Status.SUCCESS and not outcome.truncated, (cmd, outcome.text)
        assert CLOSED not in outcome.text, (cmd, outcome.text)
    assert asked == []
    secret, tree = holding("rev-parse", "HEAD~1:.env"), holding("rev-parse", "HEAD~1:.ssh")
    other = holding("rev-parse", "HEAD~1:a.txt")
    for cmd in (
        f"git show {secret}", f"git show {secret[:7]}", f"git cat-file -p {secret}", f"git grep . {secret}",
        f"git grep . {tree}", f"git diff {other} {secret}", f"git diff {other}..{secret}", f"git show x-g{secret[:9]}",
        f"git diff {secret} a.txt", f"git log -p {secret}", f"git show '{secret}^{{}}'", f"git diff {tree} HEAD",
        f"git show '{secret}^{{blob}}'", f"git show ^{secret} {secret}", f"git show -- {secret}",
    ):  # fmt: skip
        assert CLOSED not in (await bench.cmd(cmd)).text, cmd


async def test_leaving_secrets_out_leaves_everything_else(
    benches: Callable[..., Any], holding: Callable[..., str]
) -> None:
    bench = benches(mode="auto_deny")

    async def said(cmd: str) -> str:
        outcome = await bench.cmd(cmd)
        assert outcome.status is Status.SUCCESS, (cmd, outcome.text)
        return outcome.text

    assert "+changed" in await said("git diff")
    assert "+more" in await said("git show HEAD~1") and "+given free" in await said("git show")
    commit = holding("rev-parse", "--short", "HEAD~1")
    assert "+more" in await said(f"git show {commit}") and "+more" in await said(f"git show {commit} a.txt")
    assert "more" in await said("git grep -n more main -- a.txt")
    assert "+more" in await said("git log -p main --not HEAD~2 a.txt")
    assert "+more" in await said("git diff HEAD~2..HEAD~1 -- '*.txt'")
    for cmd in ("git log --format=%s", "git log --format=%s -p -- ."):
        text = await said(cmd)
        assert [word for word in ("first", "second", "third") if word not in text] == [], cmd
    holding("-c", "user.name=p", "-c", "user.email=p@e.test", "commit", "-q", "--allow-empty", "-m", "empty one")
    assert "empty one" in await said("git log -p -1") and "empty one" in await said("git show")


async def test_a_read_rule_is_no_weaker_for_git(
    benches: Callable[..., Any], holding: Callable[..., str], own_home: Path
) -> None:
    rules = own_home / ".forge" / "rules.yaml"
    rules.parent.mkdir(exist_ok=True)
    rules.write_text(
        'version: 1\nrules:\n  - {path: "/workspace/private/**", access: [read], verdict: blocked, reason: n}\n'
    )
    bench = benches(mode="auto_deny")
    for cmd in ("git show HEAD:private/x.txt", "git show :private/gone.txt", "git cat-file -p HEAD:private/x.txt",
                "cd src && git show HEAD:private/x.txt", "cd src && git show HEAD:../private/x.txt"):  # fmt: skip
        assert (await bench.cmd(cmd)).status is Status.POLICY_DENIED, cmd
    for cmd in ("git log -p -- private", "git log -p", "echo HEAD:private/x.txt | git cat-file --batch", "git show",
                "git grep open", "git diff HEAD~1", "git log -L1,1:a.txt", "git blame a.txt"):  # fmt: skip
        assert (await bench.cmd(cmd)).status is Status.APPROVAL_DENIED, cmd
    for cmd in ("git status -s", "git log --oneline -5", "git ls-files", "git log --stat", "git cat-file -t HEAD"):
        assert (await bench.cmd(cmd)).status is Status.SUCCESS, cmd


async def test_where_the_work_tree_is_elsewhere_git_asks(
    benches: Callable[..., Any], holding: Callable[..., str], workspace: Path, tmp_path: Path
) -> None:
    bench = benches(mode="auto_deny")
    reads = ("git grep --untracked -h root etc/passwd", "git ls-files -o etc", "git status -s", "git diff")
    holding("config", "core.worktree", "..")
    for cmd in ("git status -s", "cd src && git diff"):
        assert (await bench.cmd(cmd)).status is Status.SUCCESS, cmd
    holding("config", "core.worktree", "/")
    for cmd in (*reads, "git ls-files -o :/etc", "git status -s :/etc", "cd src && git status"):
        assert (await bench.cmd(cmd)).status is Status.APPROVAL_DENIED, cmd
    (workspace / ".git" / "config").rename(workspace / ".git" / "config.worktree")
    (workspace / ".git" / "config").write_text(
        "[core]\n\trepositoryformatversion = 1\n[extensions]\n\tworktreeConfig\n"
    )
    for cmd in reads:
        assert (await bench.cmd(cmd)).status is Status.APPROVAL_DENIED, cmd
    (workspace / ".git" / "config.worktree").unlink()
    nested = workspace / "src" / "nested"
    (nested / "git").mkdir(parents=True)
    for name in ("objects", "refs"):
        (nested / "git" / name).mkdir()
    (nested / "git" / "HEAD").write_text("ref: refs/heads/main\n")
    (nested / "git" / "config").write_text("[core]\n\tworktree = /\n")
    for link in ("gitdir: git\n", "gitdir: /workspace/src/nested/git\n", f"gitdir: {tmp_path}/missing\n"):
        (nested / ".git").write_text(link)
        for cmd in ("cd src/nested && git status", "git -C src/nested ls-files -o"):
            outcome = await bench.cmd(cmd)
            assert outcome.status is Status.APPROVAL_DENIED, (link, cmd, outcome.text)
    assert (await bench.cmd("git -C src/nested/git ls-files -o")).status is Status.APPROVAL_DENIED
    assert (await bench.cmd("git status -s")).status is Status.SUCCESS


def test_git_leaves_out_exactly_the_secret_names(workspace: Path, holding: Callable[..., str]) -> None:
    names = [
        *(".env", ".ENV", ".env.", ".env.local", ".env.example", ".env.prod.example", ".env.xample", ".env.sample"),
        *(".env.templates", ".env.template", ".Env.Template", ".env.le", ".envrc", "env", ".env.e", ".env.texample"),
        *("id_rsa", "id_rsa.pub", "id_rsapub", "id_rsa.old", "ID_ECDSA", "id_ed25519.PUB", "id_ed25519b", "my_id_rsa"),
        *("a.pem", "a.PEM.txt", "b.key", "b.keys", ".netrc", "x.netrc", "service-account-1.json", "service.json"),
        *(".ssh/known", ".aws", "ssh/x", ".kube/config", "kube/config", ".docker/config.json", "config.json"),
    ]
    for name in (*names, *(f"deep/er/{each}" for each in names)):
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).touch()
    holding("add", "-A", "-f")
    every = holding("ls-files").splitlines()
    shown = holding("ls-files", "--", *EXCLUDED_SECRETS).splitlines()
    assert shown == [name for name in every if not is_secret_name(name)]
