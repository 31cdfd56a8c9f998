"""git clone and git ls-remote of an address, with the person's credentials, also where there is no repository."""

from __future__ import annotations

import pytest
from tests.git_remotes import PASSWORD

from golem_forge.core.decisions import Status

from .conftest import Project
from .test_push import rules


@pytest.fixture
async def served(project: Project) -> Project:
    """The remote has two commits on main, one on side, and a tag."""
    project.commit("second")
    project.git("tag", "v1")
    project.git("branch", "side", "HEAD~1")
    await project.push("main", "side", "v1")
    project.asked.clear()
    return project


async def test_a_clone_is_one_call_with_one_card_and_is_checked_out_inside(served: Project) -> None:
    outcome = await served.bench.cmd(f"git clone {served.url}")
    assert outcome.status is Status.SUCCESS, outcome.text
    assert [request.tool for request in served.asked] == ["git_fetch"]
    (request,) = served.asked
    assert request.payload.startswith(f"git clone {served.url} project\n") and "inside the walls" in request.payload
    made = served.root / "project"
    assert (made / "a.txt").read_text() == "second\n"
    there = await served.bench.cmd(
        "cd project && git remote -v && git log --format=%s --all && git tag && git branch -a"
    )
    for said in (served.url, "second\nfirst\n", "v1\n", "remotes/origin/side"):
        assert said in there.text
    assert "/forge/clone" not in (made / ".git/config").read_text()
    assert not [path for path in made.rglob("*") if path.is_file() and PASSWORD.encode() in path.read_bytes()]


async def test_a_clone_may_be_short_and_of_one_branch_and_covered_by_a_rule(served: Project) -> None:
    rules(f'  - {{tool: git_fetch, args: {{url: "{served.url}", ref: {{glob: "**"}}}}, verdict: preApproved}}\n')
    outcome = await served.bench.cmd(f"git clone --depth 1 -b side {served.url} here")
    assert outcome.status is Status.SUCCESS and served.asked == [], outcome.text
    assert (served.root / "here/a.txt").is_file()
    there = await served.bench.cmd(
        "git -C here log --format=%s; git -C here branch -a; git -C here rev-parse --is-shallow-repository"
    )
    assert "first\n" in there.text and "main" not in there.text and there.text.endswith("true\n")


async def test_a_clone_that_cannot_be_is_said_in_words_and_an_address_is_listed_without_a_repository(
    served: Project,
) -> None:
    served.answers = lambda request: {"approved": False}
    denied = await served.bench.cmd(f"git clone {served.url} here")
    assert denied.status is Status.APPROVAL_DENIED and not (served.root / "here").exists()
    served.answers = lambda request: {"approved": True}
    outcome = await served.bench.cmd(f"git clone -b gone {served.url} here")
    assert outcome.status is Status.EXECUTION_FAILED and "has no branch or tag 'gone'" in outcome.text
    outcome = await served.bench.call("git_fetch", remote="origin", clone_to="here")
    assert outcome.status is Status.EXECUTION_FAILED and "the address to clone" in outcome.text
    outcome = await served.bench.call(
        "git_fetch", remote=served.url.replace("://", f"://ada:{PASSWORD}@"), clone_to="x"
    )
    assert outcome.status is Status.EXECUTION_FAILED and PASSWORD not in outcome.text
    assert not (served.root / "here").exists()
    served.asked.clear()
    (served.root / ".git").rename(served.root.parent / "elsewhere.git")
    outcome = await served.bench.cmd(f"git ls-remote {served.url}")
    assert outcome.status is Status.SUCCESS, outcome.text
    assert "refs/heads/side" in outcome.text and [request.tool for request in served.asked] == ["git_fetch"]
