"""Which commands are handed over to git_push and git_fetch, and which stay commands."""

from __future__ import annotations

from typing import Any

from tests.tables import table

from golem_forge.core.decisions import Status
from golem_forge.toolsets.exec import redirect_command
from golem_forge.toolsets.git import git_tools

from .conftest import Project
from .test_push import rules

TOOLS = {tool.name: tool for tool in git_tools()}


@table(
    ("cmd", "tool", "args"),
    [
        ("git push", "git_push", {}),
        ("git push origin main", "git_push", {"remote": "origin", "refspecs": ["main"]}),
        ("git push -u origin HEAD", "git_push", {"remote": "origin", "refspecs": ["HEAD"], "set_upstream": True}),
        ("git push --force-with-lease", "git_push", {"force": True}),
        ("git push origin --delete old", "git_push", {"remote": "origin", "refspecs": [":old"]}),
        ("bash -lc 'git push origin main'", "git_push", {"remote": "origin", "refspecs": ["main"]}),
        ("git fetch -q upstream", "git_fetch", {"remote": "upstream"}),
        ("git pull", "git_fetch", {"then": "ff-only"}),
        ("git pull --rebase origin main", "git_fetch", {"remote": "origin", "refspecs": ["main"], "then": "rebase"}),
        ("git ls-remote origin", "git_fetch", {"remote": "origin", "list_only": True}),
        ("git clone https://x.test/a/b.git", "git_fetch", {"remote": "https://x.test/a/b.git", "clone_to": "b"}),
        ("git clone git@x.test:b.git", "git_fetch", {"remote": "git@x.test:b.git", "clone_to": "b"}),
        (
            "git clone -q --depth=1 -b v1 https://x.test/a/b/ c",
            "git_fetch",
            {"remote": "https://x.test/a/b/", "clone_to": "c", "refspecs": ["v1"], "depth": 1},
        ),
    ],
)
def test_handed_over(cmd: str, tool: str, args: dict[str, Any]) -> None:
    assert redirect_command(TOOLS, {"cmd": cmd}) == (TOOLS[tool], args)
    given = {"command": cmd, "working_dir": "sub"}
    assert redirect_command(TOOLS, given) == (TOOLS[tool], {"workdir": "sub", **args})


@table(
    "cmd",
    [
        "git push && ls",
        "cd sub && git push",
        "git push > log",
        "git push origin $BRANCH",
        "git -c core.sshCommand=evil push",
        "git -C sub -C .. push",
        "git -C sub",
        "git push --receive-pack=evil origin",
        "git fetch --upload-pack evil origin",
        "git push --mirror",
        "git push --all origin",
        "GIT_SSH_COMMAND=evil git push",
        "/tmp/git push",
        "git status",
        "git clone ../beside",
        "git clone /workspace/other here",
        "git clone --recurse-submodules https://git.example.test/a/b",
        "git clone --template=evil https://git.example.test/a/b",
        "git clone -u evil git@git.example.test:a/b",
        "git clone --depth many https://git.example.test/a/b",
        "echo git push",
    ],
)
def test_a_command_stays_a_command(cmd: str) -> None:
    assert redirect_command(TOOLS, {"cmd": cmd}) is None


def test_another_directory_is_where_it_starts() -> None:
    assert redirect_command(TOOLS, {"cmd": "git -C lib push"}) == (TOOLS["git_push"], {"workdir": "lib"})
    found = redirect_command(TOOLS, {"cmd": "git -C lib fetch", "workdir": "sub"})
    assert found == (TOOLS["git_fetch"], {"workdir": "sub/lib"})


def test_a_call_that_names_hosts_reaches_them_itself() -> None:
    assert redirect_command(TOOLS, {"cmd": "git fetch origin", "network": ["git.example.test"]}) is None


async def test_a_block_on_the_command_blocks_what_it_is_handed_over_to_and_one_call_has_one_card(
    project: Project,
) -> None:
    rules("  - {command: [git, push], verdict: blocked, reason: not by agents}\n")
    outcome = await project.bench.cmd("git push origin main")
    assert outcome.status is Status.POLICY_DENIED and "not by agents" in outcome.text
    assert project.asked == [] and project.served("for-each-ref") == ""
    rules("  - {tool: git_push, verdict: preApproved}\n  - {tool: git_push, args: {ref: x}, verdict: preApproved}\n")
    outcome = await project.bench.cmd("git push origin main")
    assert (outcome.tool, outcome.status) == ("git_push", Status.SUCCESS)
    assert [request.tool for request in project.asked] == ["git_push"], "rules for another tool of this name"


async def test_a_tool_of_the_program_with_this_name_comes_first_and_commands_still_push(project: Project) -> None:
    from golem_forge import tool
    from golem_forge.agent.tool_inventory import build_catalog

    @tool
    def git_push(branch: str) -> str:
        """Mine."""
        return branch

    catalog = build_catalog([git_push], {"coding": {}})
    assert catalog.get("git_push") is git_push
    project.bench.path.catalog.add(git_push)
    assert (await project.bench.call("git_push", branch="main")).text == "main"
    outcome = await project.bench.cmd("git push origin main")
    assert outcome.status is Status.SUCCESS and project.served("rev-parse", "main") == project.git("rev-parse", "main")
