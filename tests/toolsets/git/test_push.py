"""git_push: what the card shows is what is pushed, a loss is covered by no rule; submodules, which are fetched, too."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.git_remotes import bare, git
from tests.toolsets.exec.conftest import gone as gone

from golem_forge.core.decisions import Status

from .conftest import Project


def rules(text: str) -> None:
    from golem_forge.storage.home import forge_home

    home = forge_home().path
    home.mkdir(parents=True, exist_ok=True)
    (home / "rules.yaml").write_text(f"version: 1\nrules:\n{text}")


async def test_the_card_shows_the_address_the_refs_the_commits_and_the_files(project: Project) -> None:
    project.commit("second", "b.txt")
    outcome = await project.push("main", remote="origin")
    assert outcome.status is Status.SUCCESS, outcome.text
    (request,) = project.asked
    for text in (
        f"git push {project.url}",
        "refs/heads/main → refs/heads/main   new..",
        "Ada: first",
        "Ada: second",
        "b.txt | 1 +",
        "2 files changed, 2 insertions(+)",
    ):
        assert text in request.payload
    assert request.effects[0] == f"net {project.url} refs/heads/main:refs/heads/main"
    assert request.risk == "high"
    assert project.served("log", "--format=%s", "main") == "second\nfirst"
    assert project.git("rev-parse", "origin/main") == project.git("rev-parse", "main")
    assert "update by push" in project.git("reflog", "origin/main")
    assert [path.name for path in (project.root.parent / "cache").glob("git-*")] == []
    again = await project.push()
    assert again.status is Status.SUCCESS and again.text.startswith("Everything up to date")
    assert len(project.asked) == 1


async def test_without_arguments_the_branch_goes_where_git_would_push_it(project: Project) -> None:
    project.git("checkout", "-q", "-b", "work")
    assert (await project.push()).status is Status.SUCCESS
    assert project.served("for-each-ref", "--format=%(refname)") == "refs/heads/work"
    project.git("config", "branch.work.remote", "origin")
    project.git("config", "branch.work.merge", "refs/heads/elsewhere")
    project.commit("second")
    outcome = await project.push()
    assert "name the refspec" in outcome.text and len(project.asked) == 1
    project.git("config", "push.default", "upstream")
    assert (await project.push()).status is Status.SUCCESS
    assert project.served("log", "-1", "--format=%s", "elsewhere") == "second"


async def test_a_branch_that_is_there_already_can_still_be_followed(project: Project) -> None:
    """`git push`, then `git push -u`: what the remote has is not sent again, and a pull knows where to look."""
    await project.push("main")
    followed = await project.push("main", set_upstream=True)
    assert followed.status is Status.SUCCESS, followed.text
    assert "main follows origin" in project.asked[-1].payload.replace("refs/remotes/", "")
    assert project.git("rev-parse", "--symbolic-full-name", "main@{upstream}") == "refs/remotes/origin/main"
    again = await project.push("main", set_upstream=True)
    assert again.text.startswith("Everything up to date") and len(project.asked) == 2
    assert (await project.fetch(then="ff-only")).status is Status.SUCCESS


async def test_a_tag_that_the_remote_has_already_is_for_the_user_to_move(project: Project) -> None:
    project.git("tag", "v1")
    await project.push("main", "v1")
    project.commit("second")
    project.git("tag", "-f", "v1")
    for outcome in (await project.push("v1"), await project.push("v1", force=True)):
        assert outcome.status is Status.EXECUTION_FAILED
        assert "the user moves or deletes in their own terminal" in outcome.text
    assert "the user moves one in their own terminal" in project.asked[-1].payload
    assert project.served("log", "-1", "--format=%s", "v1") == "first"


async def test_a_commit_made_while_the_card_is_open_is_not_pushed_unseen(project: Project) -> None:
    def answer(request: object) -> object:
        if len(project.asked) == 1:
            project.commit("behind your back")
        return {"approved": True}

    project.answers = answer
    outcome = await project.push()
    assert outcome.status is Status.SUCCESS
    assert "behind your back" not in project.asked[0].payload
    assert "behind your back" in project.asked[1].payload


async def test_a_force_shows_what_is_lost_and_no_rule_covers_it(project: Project) -> None:
    await project.push()
    project.others_push("precious")
    await project.fetch()
    project.commit("mine")
    rules(f"  - {{tool: git_push, args: {{url: '{project.url}', ref: refs/heads/main}}, verdict: preApproved}}\n")
    project.asked.clear()
    outcome = await project.push()
    assert outcome.status is Status.EXECUTION_FAILED and "only `force` would overwrite" in outcome.text
    assert project.asked == []
    deleted = await project.push(":refs/heads/main")
    assert deleted.status is Status.EXECUTION_FAILED  # the server itself refuses to lose its HEAD
    assert project.served("log", "-1", "--format=%s", "main") == "precious"
    forced = await project.push("main", force=True)
    assert forced.status is Status.SUCCESS, forced.text
    assert project.served("log", "--format=%s", "main") == "mine\nfirst"
    project.git("commit", "-q", "--amend", "-m", "mine again")
    forced = await project.push("+main:main")
    assert forced.status is Status.SUCCESS, forced.text
    assert project.served("log", "--format=%s", "main") == "mine again\nfirst"
    for request, lost in zip(project.asked, ("B: precious", "B: precious", "Ada: mine"), strict=True):
        assert request.risk == "critical" and "git_rewrite" in str(request.risk_reasons)
        assert "LOST" in request.payload and lost in request.payload
        assert [choice.scope for choice in request.choices] == ["session"] and request.choices[0].exact


async def test_a_force_never_loses_what_nobody_was_shown(project: Project) -> None:
    await project.push()
    await project.fetch()
    project.others_push("arrived since")
    project.git("commit", "-q", "--amend", "-m", "rewritten")
    outcome = await project.push("main", force=True)
    assert outcome.status is Status.EXECUTION_FAILED and "call git_fetch" in outcome.text
    assert project.served("log", "-1", "--format=%s", "main") == "arrived since"
    unseen = await project.push("main:other", force=True)
    assert unseen.status is Status.SUCCESS
    project.others_push("on other", "third")
    unseen = await project.push("main:third", force=True)
    assert unseen.status is Status.EXECUTION_FAILED
    assert "nobody here has seen that ref" in project.asked[-1].payload
    assert project.served("log", "-1", "--format=%s", "third") == "on other"


async def test_a_branch_and_a_tag_are_deleted_only_as_they_were_seen(project: Project) -> None:
    project.git("branch", "gone")
    project.git("tag", "v1")
    assert (await project.push("gone", "v1")).status is Status.SUCCESS
    outcome = await project.push(":gone", ":refs/tags/v1")
    assert outcome.status is Status.SUCCESS, outcome.text
    assert project.served("for-each-ref", "--format=%(refname)") == ""
    assert project.git("for-each-ref", "--format=%(refname)", "refs/remotes") == ""
    outcome = await project.push(":never-seen")
    assert "call git_fetch first" in outcome.text
    await project.push("refs/tags/v1")
    assert (await project.push(":v1")).status is Status.SUCCESS  # no branch is called so
    assert project.served("for-each-ref", "--format=%(refname)") == ""


async def test_a_rule_covers_an_address_and_a_ref_and_nothing_else(project: Project) -> None:
    rules("  - {tool: git_push, args: {ref: refs/heads/main}, verdict: blocked, reason: by review only}\n")
    several = await project.push("main:other", "main")
    assert several.status is Status.POLICY_DENIED and "by review only" in several.text
    ref = "{glob: 'refs/heads/**'}"
    rules(f"  - {{tool: git_push, args: {{url: '{project.url}', ref: {ref}}}, verdict: preApproved}}\n")
    project.git("tag", "v1")
    assert (await project.push("main")).status is Status.SUCCESS
    assert project.asked == []
    assert (await project.push("main:other", "v1")).status is Status.SUCCESS
    assert len(project.asked) == 1  # the tag is not in the rule


async def test_a_rule_about_a_host_does_not_cover_a_push_but_blocks_it(project: Project) -> None:
    port = project.url.split(":")[2].split("/")[0]
    rules(f"  - {{host: 127.0.0.1, ports: [{port}], verdict: preApproved}}\n")
    await project.push()
    assert len(project.asked) == 1
    rules(f"  - {{host: 127.0.0.1, ports: [{port}], verdict: blocked, reason: not this host}}\n")
    project.commit("second")
    assert (await project.push()).status is Status.POLICY_DENIED


async def test_what_is_remembered_is_the_address_and_the_ref(project: Project) -> None:
    project.answers = lambda request: {"approved": False}
    assert (await project.push()).status is Status.APPROVAL_DENIED
    assert project.served("for-each-ref") == ""
    project.asked.clear()
    project.answers = lambda request: {"approved": True, "choice": request.choices[-1].id}
    await project.push()
    assert project.asked[0].choices[-1].label == f"git_push {project.url} refs/heads/main"
    project.commit("second")
    assert (await project.push()).status is Status.SUCCESS
    assert len(project.asked) == 1
    await project.push("main:other")
    assert len(project.asked) == 2


async def test_pointers_of_lfs_are_told(project: Project) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 5"
    project.commit(pointer, "large.bin")
    outcome = await project.push()
    assert "1 file is kept by git-lfs" in str(project.asked[0].warnings)
    assert "git lfs push" in outcome.text


async def test_an_interrupt_ends_git_and_all_that_it_started(
    project: Project, tmp_path: Path, gone: Callable[..., Awaitable[None]]
) -> None:
    helper = tmp_path / "elsewhere/credential-helper"
    asks, gate = tmp_path / "asks", tmp_path / "gate"
    os.mkfifo(gate)
    helper.write_text(f"#!/bin/sh\ntouch {asks}; read x < {gate}\n")
    pushing = asyncio.ensure_future(project.push())
    while not asks.exists():
        assert not pushing.done(), pushing.result().text
        await asyncio.sleep(0.01)
    pushing.cancel()
    await asyncio.wait([pushing])
    await gone(str(helper))
    assert project.served("for-each-ref") == ""


async def test_a_helper_that_hangs_is_ended_with_all_that_it_started(
    project: Project, tmp_path: Path, gone: Callable[..., Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also what it put into a session of its own."""
    monkeypatch.setattr("golem_forge.sandbox.git.host_repository.IDLE_SECONDS", 3.0)
    helper = tmp_path / "elsewhere/credential-helper"
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    helper.write_text(f"#!/bin/sh\nsetsid -w sh -c 'read x < {gate}'\n")
    outcome = await project.push()
    assert outcome.status is Status.EXECUTION_FAILED
    assert "which said nothing, and was ended" in outcome.text and "your own terminal" in outcome.text
    await gone(str(gate))
    assert project.served("for-each-ref") == ""


async def test_a_server_that_never_answers_ends_with_clear_words(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("golem_forge.sandbox.git.host_repository.IDLE_SECONDS", 0.5)
    for scheme in ("https", "ssh"):
        with socket.create_server(("127.0.0.1", 0)) as silent:  # the system accepts, and nobody ever says a word
            project.git("remote", "set-url", "origin", f"{scheme}://127.0.0.1:{silent.getsockname()[1]}/x.git")
            outcome = await project.push()
        assert outcome.status is Status.EXECUTION_FAILED and "The remote said nothing for 0.5 s" in outcome.text


@pytest.fixture
async def parent(project: Project) -> Project:
    """The project with a submodule `lib`, which has a remote of its own behind the same login."""
    library = bare(project.remote.parent, "library.git")
    maker = project.root.parent / "maker"
    git(project.root.parent, "clone", "-q", str(library), str(maker))
    git(maker, "-c", "user.name=B", "-c", "user.email=b@x.test", "commit", "-q", "--allow-empty", "-m", "library")
    git(maker, "push", "-q", "origin", "HEAD:refs/heads/main")
    project.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", "-b", "main", str(library), "lib")
    git(project.root / "lib", "remote", "set-url", "origin", project.url.replace("project.git", "library.git"))
    project.git("commit", "-q", "-m", "with a library")
    return project


async def test_the_agent_commits_in_a_submodule_and_pushes_it(parent: Project) -> None:
    for how, args in (("git -C lib push origin main", {}), ("git push origin main", {"workdir": "lib"})):
        made = await parent.bench.cmd(f"cd lib && echo '{how}' > x && git add x && git commit -qm '{how}'")
        assert made.status is Status.SUCCESS, made.text
        outcome = await parent.bench.cmd(how, **args)
        assert outcome.status is Status.SUCCESS, outcome.text
        assert git(parent.remote.parent / "library.git", "log", "-1", "--format=%s", "main") == how
        assert git(parent.root / "lib", "log", "-1", "--format=%s", "origin/main") == how
        assert "library.git" in parent.asked[-1].payload and parent.served("for-each-ref") == ""


async def test_a_submodule_is_fetched_and_merged(parent: Project) -> None:
    maker = parent.root.parent / "maker"
    git(maker, "-c", "user.name=B", "-c", "user.email=b@x.test", "commit", "-q", "--allow-empty", "-m", "newer")
    git(maker, "push", "-q", "origin", "HEAD:refs/heads/main")
    outcome = await parent.bench.cmd("git pull", workdir="lib")
    assert outcome.status is Status.SUCCESS, outcome.text
    assert git(parent.root / "lib", "log", "-1", "--format=%s") == "newer"


async def test_a_directory_that_only_claims_to_be_one_is_refused(parent: Project) -> None:
    """A `.git` file that names the git directory of a submodule which lies elsewhere."""
    (parent.root / "false").mkdir()
    (parent.root / "false/.git").write_text("gitdir: ../.git/modules/lib\n")
    outcome = await parent.bench.call("git_push", workdir="false")
    assert outcome.status is Status.EXECUTION_FAILED and "another repository" in outcome.text
    assert parent.asked == []
