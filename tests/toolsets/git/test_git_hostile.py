"""A repository, a remote or a model that wants a program run, another destination, or the person's credentials."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from tests.deadlines import PATIENCE
from tests.git_remotes import LOGIN, PASSWORD, bare, git
from tests.usertools.share.git_server import git_server

from golem_forge.core.decisions import Status

from .conftest import Project

PROGRAMS = {
    "core.sshCommand": "{evil}",
    "credential.helper": "!{evil}",
    "remote.origin.uploadpack": "{evil}",
    "http.proxy": "http://127.0.0.1:9",
    "http.sslVerify": "false",
    "core.askPass": "{evil}",
    "core.gitProxy": "{evil}",
    "core.fsmonitor": "{evil}",
    "core.hooksPath": "{hooks}",
    "core.alternateRefsCommand": "{evil}",
    "remote.origin.receivepack": "{evil}",
    "remote.origin.vcs": "evil",
    "remote.origin.proxy": "http://127.0.0.1:9",
    "gpg.program": "{evil}",
    "push.gpgSign": "true",
    "push.recurseSubmodules": "on-demand",
    "fetch.recurseSubmodules": "true",
    "protocol.allow": "always",
    "uploadpack.packObjectsHook": "{evil}",
}


@pytest.fixture
def evil(tmp_path: Path) -> tuple[Path, Path]:
    """A program that leaves a mark, also as every hook of a push; and the mark."""
    mark = tmp_path / "mark"
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    for name in ("evil", "pre-push", "reference-transaction", "post-checkout", "pre-receive", "proc-receive"):
        path = hooks / name
        path.write_text(f"#!/bin/sh\ntouch {mark}\n")
        path.chmod(0o755)
    return hooks / "evil", mark


async def test_a_setting_of_the_repository_runs_nothing(project: Project, evil: tuple[Path, Path]) -> None:
    """All of them at once: one that had an effect would run its program, or keep git from the remote."""
    program, mark = evil
    for name in ("pre-push", "reference-transaction"):
        hook = project.root / ".git/hooks" / name
        hook.write_bytes(program.read_bytes())
        hook.chmod(0o755)
    with (project.root / ".git/config").open("a") as config:
        for key, value in PROGRAMS.items():
            section, _, name = key.rpartition(".")
            header = section.replace("remote.origin", 'remote "origin"')
            config.write(f"[{header}]\n\t{name} = {value.format(evil=program, hooks=program.parent)}\n")
    assert project.git("config", "remote.origin.vcs") == "evil"
    pushed = await project.push("main")
    assert pushed.status is Status.SUCCESS, pushed.text
    assert (await project.push("main", set_upstream=True)).status is Status.SUCCESS
    project.others_push("by another")
    fetched = await project.fetch()
    assert fetched.status is Status.SUCCESS, fetched.text
    assert not mark.exists()
    assert project.git("log", "-1", "--format=%s", "origin/main") == "by another"
    warnings = str(project.asked[0].warnings).lower()
    for key in list(PROGRAMS)[:5]:
        assert key.lower() in warnings


async def test_a_setting_of_the_repository_does_not_change_the_destination(project: Project, tmp_path: Path) -> None:
    """All at once: each alone would lead to the trap."""
    trap = bare(tmp_path / "trap")
    with git_server(trap.parent, login=LOGIN) as (address, _):
        other = tmp_path / "included"
        other.write_text(f'[remote "origin"]\n\turl = {address}/project.git\n\tpushurl = {address}/project.git\n')
        project.git("config", "include.path", str(other))
        for how in ("insteadOf", "pushInsteadOf"):
            project.git("config", f"url.{address}/.{how}", project.url.removesuffix("project.git"))
        outcome = await project.push("main")
    assert outcome.status is Status.SUCCESS, outcome.text
    assert git(trap, "for-each-ref") == ""
    assert project.served("log", "-1", "--format=%s", "main") == "first"
    (request,) = project.asked
    assert request.payload.startswith(f"git push {project.url}\n")
    for setting in ("include.path", ".insteadof", ".pushinsteadof"):
        assert setting in str(request.warnings).lower()


async def test_settings_that_the_person_has_for_all_repositories_count_and_are_shown(
    project: Project, tmp_path: Path
) -> None:
    real = project.url
    project.git("remote", "set-url", "origin", "https://short.example.test/project.git")
    base = real.removesuffix("project.git")
    with (project.home / ".gitconfig").open("a") as file:
        file.write(f'[url "{base}"]\n\tpushInsteadOf = https://short.example.test/\n')
    assert (await project.push("main")).status is Status.SUCCESS
    assert project.asked[0].payload.startswith(f"git push {real}\n")


async def test_settings_that_the_person_has_for_this_directory_count(project: Project) -> None:
    """By `includeIf`: Forge reaches the remote from a repository that stands elsewhere."""
    project.git("remote", "add", "other", project.url)
    project.git("remote", "set-url", "origin", "https://git.invalid/project.git")
    only_here = project.home / "only-here"
    only_here.write_text(f"{project.elsewhere.settings}[remote]\n\tpushDefault = other\n")
    condition = f"gitdir:{project.root}/"
    settings = f'[user]\n\tname = Ada\n\temail = ada@example.test\n[includeIf "{condition}"]\n\tpath = {only_here}\n'
    (project.home / ".gitconfig").write_text(settings)
    outcome = await project.push()
    assert outcome.status is Status.SUCCESS, outcome.text
    assert project.git("rev-parse", "other/main") == project.git("rev-parse", "main")


async def test_a_remote_that_leads_elsewhere_is_not_followed(project: Project, tmp_path: Path) -> None:
    trap = bare(tmp_path / "trap")
    with (
        git_server(trap.parent, login=LOGIN) as (address, _),
        git_server(tmp_path / "elsewhere", moved_to=address) as (moved, environ),
    ):
        os.environ.update(environ)  # `project` puts the old ones back
        project.git("remote", "set-url", "origin", f"{moved}/project.git")
        pushed = await project.push("main")
        fetched = await project.fetch()
    assert pushed.status is Status.EXECUTION_FAILED and "does not follow" in pushed.text
    assert fetched.status is Status.EXECUTION_FAILED and "does not follow" in fetched.text
    assert git(trap, "for-each-ref") == ""


NO_REMOTES = (
    *("--upload-pack=touch mark", "--receive-pack=x", "-x", "ext::sh -c touch% mark", "fd::7", "nobody"),
    *("git://git.example.test/x", "http://git.example.test/x", "ftp://git.example.test/x"),
    *("https://-oProxyCommand=x/y", "ssh://-oProxyCommand=touch/y", "-oProxyCommand=touch:y"),
    *("git@-oProxyCommand=touch:y", "https://user:secret-pass@git.example.test/x"),
    *("https://git.example.test/a b", "https://git.example.test/\u202e"),
)
NO_REFSPECS = (
    *("--force", "-f", "--all", "refs/heads/*:refs/heads/*", "main:refs/replace/x", "main:refs/forge/x", "x y"),
    *("main:HEAD~1", "main:refs/heads/HEAD", "main:refs/heads/-x", "@{-1}", "", ":", "+", "main:refs/stash"),
    *("main..other", "no-such-branch", "main:refs/heads/a.lock"),
)


async def test_no_such_remote_is_reached_and_no_such_refspec_is_pushed(project: Project) -> None:
    for remote in NO_REMOTES:
        for outcome in (await project.push("main", remote=remote), await project.fetch("main", remote=remote)):
            assert outcome.status is Status.EXECUTION_FAILED, (remote, outcome.text)
            assert "secret-pass" not in outcome.text
    for spec in NO_REFSPECS:
        outcome = await project.push(spec)
        assert outcome.status is Status.EXECUTION_FAILED, (spec, outcome.text)
    assert project.asked == [] and project.served("for-each-ref") == ""
    config = project.root / ".git/config"
    text = config.read_text()
    for url in ("ext::sh -c touch% mark", "-oProxyCommand=touch:y", "ssh://-oProxyCommand=touch/y", "git://x/y"):
        config.write_text(text.replace(project.url, url))
        assert (await project.push("main")).status is Status.EXECUTION_FAILED, url
        assert (await project.fetch()).status is Status.EXECUTION_FAILED, url
    assert project.asked == []
    assert not list(project.root.rglob("mark"))


async def test_replaced_objects_are_shown_and_pushed_as_they_are(project: Project) -> None:
    real = project.commit("what is there")
    lie = project.git("commit-tree", "-m", "what git shows", "HEAD^{tree}")
    project.git("replace", real, lie)
    assert (await project.push("main")).status is Status.SUCCESS
    assert "what is there" in project.asked[0].payload and "what git shows" not in project.asked[0].payload
    assert project.served("log", "-1", "--format=%s", "main") == "what is there"
    assert "refs/replace" not in project.served("for-each-ref")


async def test_objects_are_not_borrowed_from_where_commands_write(project: Project) -> None:
    lender = bare(project.root, "lender.git")
    (project.root / ".git/objects/info/alternates").write_text(f"{lender}/objects\n")
    outcome = await project.push("main")
    assert outcome.status is Status.EXECUTION_FAILED and "borrows objects" in outcome.text
    assert project.asked == []


async def test_a_repository_inside_the_repository_is_not_reached(project: Project) -> None:
    inner = project.root / "inner"
    inner.mkdir()
    git(inner, "init", "-q", ".")
    git(inner, "remote", "add", "origin", "https://evil.example.test/x")
    outcome = await project.push(workdir="inner")
    assert outcome.status is Status.EXECUTION_FAILED and "another repository inside this one" in outcome.text
    assert project.asked == []


async def test_a_command_cannot_change_where_a_push_goes(project: Project) -> None:
    """The shadow's config is the person's own, read-only; what a command leaves elsewhere is not read."""
    script = (
        "git remote set-url origin https://evil.example.test/x; git config --global url.https://evil/.insteadOf https://;"
        "echo '[url \"https://evil/\"] insteadOf = https://' > ~/.gitconfig; GIT_CONFIG_GLOBAL=x true; "
        "git config --worktree remote.origin.url https://evil.example.test/x; true"
    )
    await project.bench.cmd(script)
    await project.push("main")
    assert project.asked[-1].payload.startswith(f"git push {project.url}\n")
    assert project.served("log", "-1", "--format=%s", "main") == "first"


async def test_a_command_cannot_write_the_settings_that_the_person_keeps_here(project: Project, tmp_path: Path) -> None:
    """`~/.gitconfig` is a link to a file of this very repository, as people have it who keep their dotfiles in one."""
    mark = tmp_path / "mark"
    own = project.home / ".gitconfig"
    (project.root / "gitconfig").write_text(own.read_text())
    own.unlink()
    own.symlink_to(project.root / "gitconfig")
    wrote = await project.bench.cmd(f"printf '[credential]\\nhelper = !touch {mark}\\n' >> gitconfig")
    assert wrote.status is Status.SANDBOX_DENIED, wrote.text
    pushed = await project.push("main")
    assert pushed.status is Status.SUCCESS, pushed.text
    assert not mark.exists()


async def test_a_password_in_the_address_is_shown_to_nobody(project: Project) -> None:
    with_password = project.url.replace("https://", f"https://{LOGIN}@")
    project.git("remote", "set-url", "origin", with_password)
    (project.home / ".gitconfig").write_text("[user]\n\tname = Ada\n\temail = ada@example.test\n")
    pushed = await project.push("main")
    assert pushed.status is Status.SUCCESS, pushed.text
    project.git("remote", "set-url", "origin", with_password.replace("project.git", "missing.git"))
    failed = await project.fetch()
    assert failed.status is Status.EXECUTION_FAILED
    said = f"{pushed.text}{failed.text}{project.asked!r}{[request.to_wire() for request in project.asked]}"
    assert PASSWORD not in said
    assert "holds a password" in str(project.asked[0].warnings)


HUNT = r"""
env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' '\n'
ls -la /proc/[0-9]*/fd 2>/dev/null; cat ~/.gitconfig .git/config ~/.ssh/* ~/.git-credentials 2>/dev/null
git config --list --show-origin; git credential fill <<< $'protocol=https\nhost=127.0.0.1\n' 2>&1
find / -xdev \( -name 'agent*' -o -name '*credential*' \) -not -path '/usr/*' -not -path '/proc/*' 2>/dev/null
echo "agent: $SSH_AUTH_SOCK"; ssh-add -l 2>&1; true
"""


async def test_no_child_finds_a_credential_before_during_or_after_a_push(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Canaries in the environment and in the helper; a command searches while git asks the helper for the password."""
    monkeypatch.setenv("SSH_AUTH_SOCK", "/canary/agent.socket")
    gate, asks = tmp_path / "gate", tmp_path / "asks"
    os.mkfifo(gate)
    helper = tmp_path / "elsewhere/credential-helper"
    helper.write_text(helper.read_text().replace("echo username", f"touch {asks}; read x < {gate}; echo username", 1))
    found: list[Any] = [await project.bench.cmd(HUNT)]

    import asyncio

    pushing = asyncio.create_task(project.push("main"))
    while not asks.exists():
        assert not pushing.done(), pushing.result().text
        await asyncio.sleep(0.01)
    session = await project.bench.path.walls.start(_hunting())  # beside the path: a writer of ours waits for another
    await session.child.wait(PATIENCE)
    with gate.open("w") as file:
        file.write("go\n")
    assert (await pushing).status is Status.SUCCESS
    found.append(await project.bench.cmd(HUNT))
    text = "".join(one.text for one in found) + session.child.output.read().decode()
    assert "agent: " in text
    for canary in (PASSWORD, "/canary/agent.socket", "credential-helper"):
        assert canary not in text
    kept = b"".join(path.read_bytes() for path in project.root.rglob("*") if path.is_file())
    assert PASSWORD.encode() not in kept


def _hunting() -> Any:
    from golem_forge.sandbox.walls.model import Job

    return Job(argv=("bash", "-c", HUNT))


async def test_a_command_that_moves_remote_tracking_refs_takes_no_commit_off_the_card(project: Project) -> None:
    assert (await project.push("main")).status is Status.SUCCESS
    hides = (
        "echo x > hidden.txt && git add hidden.txt && git commit -qm hidden"
        " && git update-ref refs/remotes/origin/seen HEAD && git update-ref refs/remotes/origin/main HEAD"
    )
    ran = await project.bench.call("exec_command", cmd=hides, yield_time_ms=30_000)
    assert ran.status is Status.SUCCESS, ran.text
    assert "only git_fetch and git_push do" in ran.text
    assert project.git("log", "-1", "--format=%s", "main") == "hidden"
    assert project.git("log", "-1", "--format=%s", "origin/main") == "first"
    project.git("branch", "feature")
    assert (await project.push("feature")).status is Status.SUCCESS
    card = project.asked[-1].payload
    assert ": hidden\n" in card and "hidden.txt" in card


async def test_a_remote_that_is_a_path_is_followed_inside(project: Project) -> None:
    project.git("remote", "add", "near", "./near.git")
    push = "git init -q --bare near.git && git push -q near main"
    ran = await project.bench.call("exec_command", cmd=push, yield_time_ms=30_000)
    assert ran.status is Status.SUCCESS, ran.text
    assert project.git("log", "-1", "--format=%s", "near/main") == "first"
