"""exec_command at each level of walls, and what a person is asked for."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from golem_forge.core.decisions import Status
from golem_forge.core.errors import ToolFailed
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.walls.model import Job, Level, LevelResult, ProbeReport
from golem_forge.sandbox.walls.walls import WalledChild, Walls, WallsHost
from golem_forge.tools.context import ToolContext
from golem_forge.tools.factory import ToolsetContext
from golem_forge.tools.validation import Ok
from golem_forge.toolsets.exec import ExecToolset, create_exec_command_tool, exec_model


@pytest.fixture
def walls(sandbox: Sandbox, tmp_path: Path) -> Callable[[Level], Walls]:
    def of(level: Level) -> Walls:
        tried = (LevelResult(level=Level.FULL, cause="no bwrap here", fix="Install bubblewrap."),)
        return Walls(
            sandbox, forge_home=tmp_path / "forge_home", host=WallsHost(report=ProbeReport(level=level, tried=tried))
        )

    return of


async def test_s33_read_only_walls(
    benches: Callable[..., Any], asked: Any, walls: Callable[[Level], Walls], workspace: Path
) -> None:
    (workspace / "a.txt").write_text("seen\n")
    (workspace / ".env").write_text("CANARY=sesame-2")
    ask = asked()
    bench = benches(ask=ask, walls=walls(Level.LANDLOCK))
    for cmd in ("cat a.txt", "cat /workspace/a.txt", "cd /workspace && cat a.txt 2>/dev/null | head -n 1"):
        assert (await bench.cmd(cmd)).text.endswith("seen\n"), cmd
    assert "sesame-2" not in (await bench.cmd("grep -r CANARY /workspace")).text
    outcome = await bench.cmd("make")
    assert (outcome.status, outcome.code) == (Status.EXECUTION_FAILED, "WALLS_UNAVAILABLE")
    assert "no bwrap here" in outcome.text and outcome.text.endswith("Install bubblewrap.")
    assert not ask


async def test_s34_no_walls_at_all(benches: Callable[..., Any], asked: Any, walls: Callable[[Level], Walls]) -> None:
    ask = asked()
    outcome = await benches(ask=ask, walls=walls(Level.NONE)).cmd("ls")
    text = "Walls could not be built: no bwrap here. The command was not run. Install bubblewrap."
    assert (outcome.status, outcome.code, outcome.text) == (Status.EXECUTION_FAILED, "WALLS_UNAVAILABLE", text)
    assert not ask


async def test_walls_that_were_switched_off_ask_for_everything(
    benches: Callable[..., Any], asked: Any, walls: Callable[[Level], Walls], workspace: Path
) -> None:
    (workspace / "a.txt").write_text("seen\n")
    ask = asked()
    bench = benches(ask=ask, walls=walls(Level.OFF))
    outcome = await bench.cmd("cat /workspace/a.txt; echo $FORGE_WALLS")
    assert outcome.text.endswith("off\n")
    assert (await bench.cmd("cat /workspace/a.txt")).text.endswith("seen\n")
    number = await bench.session("cat", tty=True)
    await bench.stdin(number, "x\n")
    assert [request.risk for request in ask] == ["critical"] * 4
    assert all("NO WALLS" in " ".join(request.risk_reasons) for request in ask)


async def test_a52_any_command_inside_the_walls(benches: Callable[..., Any]) -> None:
    asked: list[Any] = []

    def answer(request: Any) -> dict[str, Any]:
        asked.append(request)
        offer = next((each for each in request.choices if each.grant), None)
        return {"approved": True, "choice": offer.id} if offer else {"approved": False}

    bench = benches(ask=answer)
    assert (await bench.cmd("touch a")).status is Status.SUCCESS
    assert (await bench.cmd("mkdir b")).status is Status.SUCCESS
    assert (await bench.cmd("touch c > f")).status is Status.SUCCESS
    assert len(asked) == 1
    for still in ("rm -rf x", "rm -rf $x", "cat .env > f"):
        assert (await bench.cmd(still)).status is Status.APPROVAL_DENIED
    for still in ("touch a", "touch a > f"):
        assert (await bench.cmd(still, network=["x.test"])).status is Status.APPROVAL_DENIED
    assert len(asked) == 6


async def test_the_block_may_let_everything_contained_run(benches: Callable[..., Any]) -> None:
    block = exec_model().model_validate({"walled": "preApproved"})
    bench = benches(*ExecToolset().get_tools(ToolsetContext(config=block)), mode="auto_deny")
    assert (await bench.cmd("touch made")).status is Status.SUCCESS
    for asks in ("touch made > f", "rm -rf made", "cat .env"):
        assert (await bench.cmd(asks)).status is Status.APPROVAL_DENIED


class Unused(Walls):
    """Walls that commands are judged by, and in which none is started."""

    async def start(self, job: Job) -> WalledChild:
        raise ToolFailed("nothing is started here")


async def test_an_ordinary_day(benches: Callable[..., Any], sandbox: Sandbox, workspace: Path, tmp_path: Path) -> None:
    """Of a hundred commands those ask that change something, and none is red that a person would not call so."""
    lines = Path(__file__).parents[2].joinpath("policy", "ordinary_day.txt").read_text().splitlines()
    day = [line.split(" ", 2) for line in lines if line and not line.startswith("#")]
    for name in ("src/app.py", "tests/test_app.py", "README.md", "CHANGELOG.md", "pyproject.toml"):
        (workspace / name).parent.mkdir(exist_ok=True)
        (workspace / name).write_text("import this\n\ndef main(): ...\n")
    for words in (("init", "-q", "-b", "main"), ("add", "."), ("commit", "-q", "-m", "1"), ("commit", "-q", "-m", "2")):
        who = ("-c", "user.name=person", "-c", "user.email=person@example.test")
        extra = ("--allow-empty",) if words[0] == "commit" else ()
        subprocess.run(["git", *who, *words, *extra], cwd=workspace, check=True, capture_output=True)
    walls = Unused(sandbox, forge_home=tmp_path / "forge_home", host=WallsHost(report=ProbeReport(level=Level.FULL)))
    bench = benches(ask=lambda request: {"approved": False}, walls=walls)
    found = [(await bench.cmd(command)).decision for *_, command in day]
    judged = [[each.verdict.value, each.risk.value, command] for each, (*_, command) in zip(found, day, strict=True)]
    assert judged == day
    assert len(day) == 100


async def test_the_models_words_are_shown_as_such(benches: Callable[..., Any], asked: Any) -> None:
    ask = asked({"approved": False})
    await benches(ask=ask).cmd("make", justification="to build it", prefix_rule=["make"])
    assert (ask[0].payload, ask[0].model_note) == ("make", "to build it")


async def test_readers_run_together(benches: Callable[..., Any]) -> None:
    bench = benches(mode="auto_deny")
    outcomes = await asyncio.gather(*(bench.cmd("pwd") for _ in range(4)))
    assert [outcome.text.splitlines()[-1] for outcome in outcomes] == ["/workspace"] * 4


async def test_a_worker_without_zones(benches: Callable[..., Any], tmp_path: Path) -> None:
    alone = Sandbox(has_block=False)
    walls = Walls(alone, forge_home=tmp_path / "forge_home", host=WallsHost(report=ProbeReport(level=Level.FULL)))
    bench = benches(walls=walls)
    bench.path.scope.sandbox = alone
    assert (await bench.cmd("pwd; ls -A | wc -l")).status is Status.SUCCESS
    assert (await bench.cmd("ls /workspace")).status is not Status.SUCCESS


async def test_an_embedder_needs_no_session(sandbox: Sandbox, workspace: Path) -> None:
    tool = create_exec_command_tool(sandbox)
    checked = tool.validate_input({"cmd": "echo hi > made; cat made", "max_output_tokens": 1})
    assert isinstance(checked, Ok)
    ctx = ToolContext()
    result = await tool.execute(checked.data, ctx)
    assert result.value["exit_code"] == 0 and (workspace / "made").exists()
    await ctx.parts.close()
