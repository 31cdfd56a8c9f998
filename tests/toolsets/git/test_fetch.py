"""git_fetch: what others pushed arrives in the person's remote-tracking branches, verified; a pull merges inside."""

from __future__ import annotations

from tests.git_remotes import git

from golem_forge.core.decisions import Status

from .conftest import Project


async def test_a_fetch_moves_remote_tracking_branches_and_follows_tags(project: Project) -> None:
    await project.push()
    project.others_push("by another")
    git(project.remote, "tag", "v1", "main")
    project.git("branch", "mine")
    outcome = await project.fetch()
    assert outcome.status is Status.SUCCESS, outcome.text
    assert project.git("log", "-1", "--format=%s", "origin/main") == "by another"
    assert project.git("log", "-1", "--format=%s", "v1") == "by another"
    assert project.git("log", "-1", "--format=%s", "main") == "first"
    assert "main" in outcome.text and "v1 new" in outcome.text
    assert project.asked[-1].payload == f"git fetch {project.url}\n  +refs/heads/*:refs/remotes/origin/*"
    assert "nothing new" in (await project.fetch("main")).text
    assert "+refs/heads/main:refs/remotes/origin/main" in project.asked[-1].payload
    project.git("fsck", "--strict")
    asked, refs = len(project.asked), project.git("for-each-ref")
    listed = await project.bench.cmd("git ls-remote origin")
    assert (listed.tool, listed.status) == ("git_fetch", Status.SUCCESS)
    assert f"{project.git('rev-parse', 'origin/main')}\trefs/heads/main" in listed.text
    assert project.git("for-each-ref") == refs and len(project.asked) == asked + 1


async def test_a_pull_is_one_call_with_one_card_and_merges_or_rebases_inside(project: Project) -> None:
    await project.push(set_upstream=True)
    project.others_push("by another")
    asked = len(project.asked)
    outcome = await project.bench.cmd("git pull")
    assert (outcome.tool, outcome.status) == ("git_fetch", Status.SUCCESS), outcome.text
    (request,) = project.asked[asked:]
    assert request.payload.endswith("then, inside the walls:\ngit merge --ff-only FETCH_HEAD")
    assert "exec git merge --ff-only FETCH_HEAD" in request.effects
    assert project.git("log", "-1", "--format=%s", "main") == "by another"
    assert project.git("status", "--porcelain") == ""
    project.others_push("theirs")
    project.commit("mine")
    plain = await project.bench.cmd("git pull")
    assert plain.status is Status.EXECUTION_FAILED and project.git("log", "-1", "--format=%s") == "mine"
    rebased = await project.bench.cmd("git pull --rebase")
    assert rebased.status is Status.SUCCESS, rebased.text
    assert project.git("log", "--format=%s") == "mine\ntheirs\nby another\nfirst"


async def test_a_fetch_into_a_branch_of_the_person_is_refused(project: Project) -> None:
    await project.push()
    asked = len(project.asked)
    for spec in ("main:refs/heads/other", "main:refs/replace/x", "refs/heads/*:refs/heads/*", "main:--x"):
        outcome = await project.fetch(spec)
        assert outcome.status is Status.EXECUTION_FAILED, spec
    assert len(project.asked) == asked
    assert project.git("branch", "--format=%(refname:short)") == "main"


async def test_a_commit_of_a_running_command_is_pushed_too(project: Project) -> None:
    """Carried over first: the command that made it has not ended."""
    session = await project.bench.session(
        "git commit -q --allow-empty -m running; echo made; read x", tty=True, yield_time_ms=0
    )
    await project.bench.until(session, "made")
    outcome = await project.push("main")
    assert outcome.status is Status.SUCCESS, outcome.text
    assert project.served("log", "-1", "--format=%s", "main") == "running"
    await project.bench.stdin(session, "x\n")
