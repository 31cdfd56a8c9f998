"""What a command left behind comes with the call that reports its end; what no call reports is told all the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.deadlines import PATIENCE
from tests.toolsets.conftest import Bench

from golem_forge import open_session
from golem_forge.core.calls import Leftover, Outcome, Severity
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.walls.model import Job, Level, ProbeReport
from golem_forge.sandbox.walls.walls import Aftermath, WalledChild, Walls, WallsHost
from golem_forge.toolsets.exec import create_exec_command_tool
from golem_forge.toolsets.exec.shell import create_shell_tool

HOOK = Leftover(kind="nested_repository", severity=Severity.CRITICAL, text="a hook in /workspace/x")
CREATED = "Protected file created: /workspace/.envrc"


class Looking(Walls):
    """Real walls whose look at the zone finds one thing each time."""

    looks = 0

    async def start(self, job: Job) -> WalledChild:
        walled = await super().start(job)
        walled._leftovers = self._look
        return walled

    def _look(self) -> tuple[Leftover, ...]:
        self.looks += 1
        return (HOOK,)


@pytest.fixture
def walls(sandbox: Sandbox, tmp_path: Path) -> Looking:
    return Looking(sandbox, forge_home=tmp_path / "forge_home", host=WallsHost(report=ProbeReport(level=Level.FULL)))


def told(outcome: Outcome) -> tuple[tuple[str, ...], tuple[Leftover, ...], bool]:
    return outcome.protected_created, outcome.leftovers, CREATED in outcome.text.split("\n")


async def test_a_command_and_a_program(benches: Callable[..., Bench], walls: Looking, workspace: Path) -> None:
    bench = benches(create_exec_command_tool(), create_shell_tool(), walls=walls)
    assert told(await bench.cmd("touch .envrc")) == (("/workspace/.envrc",), (HOOK,), True)
    (workspace / ".envrc").unlink()
    outcome = await bench.cmd("exit 3")
    assert told(outcome) == ((), (HOOK,), False)
    assert "Left behind (critical): a hook in /workspace/x" in outcome.text.split("\n")
    assert told(await bench.call("shell", command="touch .envrc")) == (("/workspace/.envrc",), (HOOK,), True)


async def test_a_session_says_it_with_its_end_and_looks_once(benches: Callable[..., Bench], walls: Looking) -> None:
    heard: list[Aftermath] = []
    walls.on_unread(heard.append)
    bench = benches(walls=walls)
    number = await bench.session("read line; touch .envrc", tty=True)
    assert told(await bench.stdin(number, yield_time_ms=50)) == ((), (), False)
    ended = await bench.stdin(number, "go\n", yield_time_ms=20_000)
    again = await bench.stdin(number)
    assert told(ended) == told(again) == (("/workspace/.envrc",), (HOOK,), True)
    await bench.path.parts.close()
    assert walls.looks == 1 and heard == []


async def test_a_session_that_nobody_reads_to_its_end(benches: Callable[..., Bench], walls: Looking) -> None:
    heard: list[Aftermath] = []
    walls.on_unread(heard.append)
    bench = benches(walls=walls)
    await bench.cmd("touch .envrc; sleep 60", yield_time_ms=1)
    await bench.path.parts.close()
    [after] = heard
    assert after.leftovers == (HOOK,) and set(after.protected_created) <= {"/workspace/.envrc"}


async def test_a_session_that_ends_while_nobody_waits_tells_at_once(
    benches: Callable[..., Bench], walls: Looking, workspace: Path
) -> None:
    heard: asyncio.Queue[Aftermath] = asyncio.Queue()
    walls.on_unread(heard.put_nowait)
    bench = benches(walls=walls)
    number = await bench.session("touch .envrc; until [ -e go ]; do sleep 0.02; done")
    (workspace / "go").touch()
    after = await asyncio.wait_for(heard.get(), PATIENCE)
    assert (after.protected_created, after.leftovers) == (("/workspace/.envrc",), (HOOK,))
    assert told(await bench.stdin(number)) == (("/workspace/.envrc",), (HOOK,), True), "who reads it hears it too"
    await bench.path.parts.close()
    assert walls.looks == 1 and heard.empty()


async def test_a_session_tells_its_person_and_its_journal(tmp_path: Path, own_home: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    heard: list[dict[str, str]] = []
    async with open_session(str(project), approval="approve_all") as session:
        session.bus.on("status", lambda event: heard.append(dict(event.wire)))
        await session.call("exec_command", {"cmd": "touch .envrc; sleep 60", "yield_time_ms": 1})
        while not (project / ".envrc").exists():
            await asyncio.sleep(0.01)
    assert heard == [{"type": "warning", "message": CREATED, "code": "leftovers"}]
    [journal] = (own_home / ".forge/sessions").glob("*.jsonl")
    assert CREATED in journal.read_text()


async def test_python_leaves_no_bytecode_in_the_zone_and_finds_it_again(bench: Bench, workspace: Path) -> None:
    package = workspace / "pkg"
    package.mkdir()
    (package / "__init__.py").write_text("")
    look = "python3 -v -c 'import pkg' 2>&1 | grep -a 'code object from.*pkg'"
    first, second = await bench.cmd(look), await bench.cmd(look)
    assert "# code object from /workspace/pkg/__init__.py" in first.text
    assert "# code object from '/opt/forge/bytecode/workspace/pkg/__init__" in second.text
    assert [path.name for path in package.iterdir()] == ["__init__.py"]
