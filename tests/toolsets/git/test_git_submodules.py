"""A submodule whose git directory lies in the person's own is pushed and fetched as the repository is."""

from __future__ import annotations

import pytest
from tests.git_remotes import bare, git

from golem_forge.core.decisions import Status

from .conftest import Project


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
