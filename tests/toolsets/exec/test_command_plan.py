"""What exec_command says of a command before anyone is asked, at every level of walls. Nothing is started here."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from tests.tables import table

from golem_forge.config.sandbox_block import HostCredential
from golem_forge.core.decisions import Status
from golem_forge.core.effects import Mark, Verb, Walled
from golem_forge.core.errors import ForgeError
from golem_forge.policy.facts import SYSTEM_PATH
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.walls.environment import EnvBlock
from golem_forge.sandbox.walls.exits import NO_EXITS, Exits
from golem_forge.sandbox.walls.model import HostGrant, Level, LevelResult, PathRule, ProbeReport
from golem_forge.tools.context import Plan, ToolContext
from golem_forge.tools.factory import ToolsetContext
from golem_forge.tools.tool import Tool
from golem_forge.tools.validation import Err, Ok
from golem_forge.toolsets.exec import ExecSettings, ExecToolset, create_exec_command_tool, exec_command_tool, exec_model


class StatedWalls:
    """Walls of a stated level; they are only asked, never used."""

    def __init__(self, level: Level) -> None:
        tried = LevelResult(level=Level.FULL, cause="no bwrap" if level is not Level.FULL else "", fix="Install it.")
        self._report = ProbeReport(level=level, tried=(tried,))

    async def report(self) -> ProbeReport:
        return self._report

    def search_path(self, *, command: bool) -> tuple[str, ...]:
        return SYSTEM_PATH

    def stands_at(self, zone: str, level: Level) -> str:
        return f"/{zone}"

    def path_rules(self) -> tuple[PathRule, ...]:
        return ()

    def exits(self) -> Exits:
        return NO_EXITS

    def credentials_for(self, hosts: Iterable[HostGrant]) -> tuple[HostCredential, ...]:
        return ()


def context(sandbox: Sandbox, level: Level = Level.FULL) -> ToolContext:
    return ToolContext(sandbox=sandbox, walls=StatedWalls(level))  # type: ignore[arg-type]


async def planned(ctx: ToolContext, cmd: str, *, tool: Tool | None = None, **args: Any) -> Plan:
    tool = tool or create_exec_command_tool()
    checked = tool.validate_input({"cmd": cmd, **args})
    assert isinstance(checked, Ok), checked
    assert tool.planner is not None
    plan = await tool.planner(checked.data, ctx)  # type: ignore[misc]
    plan.release()
    return plan


async def refused(ctx: ToolContext, cmd: str, **args: Any) -> ForgeError:
    with pytest.raises(ForgeError) as error:
        await planned(ctx, cmd, **args)
    return error.value


async def test_full_walls_offer_what_they_contain(sandbox: Sandbox) -> None:
    plan = await planned(context(sandbox), "make -j2")
    (effect,) = plan.effects or ()
    assert (effect.verb, effect.words, effect.walled, plan.read_only) == (
        Verb.EXEC,
        ("make", "-j2"),
        Walled.OFFERED,
        False,
    )


@table(
    ("cmd", "args"),
    [
        ("rm -rf x", {}),
        ("rm -rf $x", {}),
        ("make", {"network": ["a.test"]}),
        ("make > f", {"network": ["a.test"]}),
        ("cat /etc/passwd", {}),
    ],
)
async def test_what_carries_a_mark_or_asks_for_a_host_is_not_offered(
    sandbox: Sandbox, cmd: str, args: dict[str, Any]
) -> None:
    plan = await planned(context(sandbox), cmd, **args)
    assert {effect.walled for effect in plan.effects or ()} == {Walled.NO}


async def test_the_block_may_give_what_is_else_only_offered(sandbox: Sandbox) -> None:
    block = exec_model().model_validate({"walled": "preApproved"})
    tool = ExecToolset().get_tools(ToolsetContext(config=block))[0]
    given = await planned(context(sandbox), "make", tool=tool)
    opaque = await planned(context(sandbox), "make > f", tool=tool)
    assert [effect.walled for effect in given.effects or ()] == [Walled.GIVEN]
    assert [effect.walled for effect in opaque.effects or ()] == [Walled.OFFERED]


async def test_a_proven_command_is_a_reader(sandbox: Sandbox, workspace: Path) -> None:
    (workspace / "a.txt").touch()
    plan = await planned(context(sandbox), "cat a.txt | wc -l")
    assert plan.read_only
    assert [effect.describe() for effect in plan.effects or ()] == [
        "exec cat a.txt",
        "exec wc -l",
        "read /workspace/a.txt",
    ]


async def test_hosts_are_effects_in_one_spelling(sandbox: Sandbox) -> None:
    plan = await planned(context(sandbox), "make", network=["API.Example.com.", "x.test:8080", "[::1]:80"])
    nets = [effect.target for effect in plan.effects or () if effect.verb is Verb.NET]
    assert nets == ["api.example.com:443", "x.test:8080", "[::1]:80"]
    plan = await planned(context(sandbox), "make", network=["group:go", "proxy.golang.org"])
    assert [effect.target for effect in plan.effects or () if effect.verb is Verb.NET][:2] == [
        "proxy.golang.org:443",
        "sum.golang.org:443",
    ]
    assert plan.fingerprint_args is not None
    assert plan.fingerprint_args["network"] == ["group:go", "proxy.golang.org:443"]


@table(
    "args",
    [
        {"network": ["https://x"]},
        {"network": ["*.x.test"]},
        {"network": ["x:0"]},
        {"network": ["x:y"]},
        {"network": ["group:perl"]},
        {"network": ["group:python:443"]},
        {"network": ["h.test"] * 21},
        {"cmd": ""},
        {"cmd": "x" * 65537},
        {"shell": "fish"},
        {"justification": "x" * 1001},
        {"cmd": "ls", "command": "ls"},
    ],
)
def test_arguments_that_do_not_fit(args: dict[str, Any]) -> None:
    checked = create_exec_command_tool().validate_input({"cmd": "ls", **args})
    assert isinstance(checked, Err) and checked.message.startswith("exec_command: ")


@table(
    ("host", "says"),
    [
        ("http://x/y", "write the host alone, without a scheme"),
        ("http://x:80/y", "write the host alone, without a scheme"),
        ("h.test:canary-9c1e77aa", "is not a port"),
    ],
)
def test_a_bad_host_is_explained_without_its_text(host: str, says: str) -> None:
    checked = create_exec_command_tool().validate_input({"cmd": "ls", "network": [host]})
    assert isinstance(checked, Err) and says in checked.message
    assert "canary" not in checked.message


def test_other_variables_are_another_definition() -> None:
    def digest(**env: str) -> str:
        settings = ExecSettings(env=EnvBlock(fixed=env)) if env else ExecSettings()
        return exec_command_tool(settings).definition_digest

    assert digest(A="1") == digest(A="1")
    assert len({digest(), digest(A="1"), digest(A="2")}) == 3


def test_aliases_and_clamping() -> None:
    given = {"command": "ls", "working_dir": "/docs", "yield_time_ms": 99999, "timeout_ms": 0, "max_output_tokens": -5}
    checked = create_exec_command_tool().validate_input(given)
    assert isinstance(checked, Ok)
    values = checked.data
    assert (values["cmd"], values["workdir"]) == ("ls", "/docs")
    assert (values["yield_time_ms"], values["timeout_ms"], values["max_output_tokens"]) == (30000, 1, 1)


async def test_fingerprint_drops_presentation_and_normalises(sandbox: Sandbox) -> None:
    ctx = context(sandbox)
    plain = await planned(ctx, "cargo test")
    dressed = await planned(
        ctx, 'bash -lc "cargo   test"', yield_time_ms=1, max_output_tokens=5, justification="why", prefix_rule=["cargo"]
    )
    elsewhere = await planned(ctx, "cargo test", workdir="/docs")
    assert plain.fingerprint_args == dressed.fingerprint_args
    assert plain.targets == dressed.targets != elsewhere.targets
    assert dressed.model_note == "why"
    opaque = await planned(ctx, "cargo   test > f")
    assert opaque.fingerprint_args is not None and opaque.fingerprint_args["cmd"] == "cargo   test > f"


async def test_read_only_walls_hold_only_what_is_proven(sandbox: Sandbox, workspace: Path) -> None:
    (workspace / "a.txt").touch()
    ctx = context(sandbox, Level.LANDLOCK)
    assert (await planned(ctx, "cat a.txt")).read_only
    for args in ({"cmd": "make"}, {"cmd": "cat a.txt", "network": ["x.test"]}):
        error = await refused(ctx, args.pop("cmd"), **args)  # type: ignore[arg-type]
        assert error.code == "WALLS_UNAVAILABLE" and error.message.endswith("Install it.")
    assert "network access needs full walls" in error.message


async def test_read_only_walls_hold_anything_of_a_worker_that_may_change_nothing(sandbox: Sandbox) -> None:
    no_zone = Sandbox(has_block=False)
    assert (await planned(context(no_zone, Level.LANDLOCK), "make")).read_only is False


async def test_walls_switched_off_mark_every_command(sandbox: Sandbox) -> None:
    for cmd in ("ls", "make"):
        plan = await planned(context(sandbox, Level.OFF), cmd)
        execs = [effect for effect in plan.effects or () if effect.verb is Verb.EXEC]
        assert all(Mark.NO_WALLS in effect.marks and effect.walled is Walled.NO for effect in execs) and execs


async def test_the_working_directory_must_be_one(sandbox: Sandbox, workspace: Path) -> None:
    (workspace / "f").touch()
    ctx = context(sandbox)
    assert (await refused(ctx, "ls", workdir="/workspace/x")).message == "workdir '/workspace/x' does not exist."
    assert (await refused(ctx, "ls", workdir="f")).message == "workdir '/workspace/f' is not a directory."
    assert (await refused(ctx, "ls", workdir="/etc")).code == "ZONE_ACCESS_DENIED"
    assert (await refused(ctx, "ls", workdir="/user_tools/x")).code == "ZONE_ACCESS_DENIED"


async def test_user_tools_are_not_worked_on_here(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "tools/greet").mkdir(parents=True)
    maker = sandbox.with_user_tools(tmp_path / "tools")
    error = await refused(context(maker), "ls", workdir="/user_tools/greet")
    assert error.message == "Forge builds user tools itself; call run_custom_tool 'greet'."
    assert error.status is Status.EXECUTION_FAILED


async def test_a_patch_is_no_command(sandbox: Sandbox) -> None:
    error = await refused(context(sandbox), "*** Begin Patch\n*** Delete File: a\n*** End Patch\n")
    assert (error.status, error.message) == (
        Status.INPUT_INVALID,
        "This is a patch; call apply_patch with it as input.",
    )


async def test_no_script_holds_nul(sandbox: Sandbox) -> None:
    error = await refused(context(sandbox), "echo a\0b")
    assert (error.status, error.message) == (Status.INPUT_INVALID, "exec_command: cmd: contains NUL")


@pytest.mark.skipif(shutil.which("zsh") is not None, reason="needs a machine without zsh")
async def test_a_shell_that_is_not_there(sandbox: Sandbox) -> None:
    assert (await refused(context(sandbox), "ls", shell="zsh")).message.startswith("shell 'zsh' is not installed")


def test_blocks() -> None:
    assert exec_model().model_validate({}).walled == "ask"
    for wrong in ({"walled": "blocked"}, {"walls": "off"}, {"env": {"pass": ["LD_PRELOAD"]}}, {"env": {"sets": {}}}):
        with pytest.raises(ValidationError):
            exec_model().model_validate(wrong)
