"""Commands in the approval mode `contained`, in real walls: what runs unasked, what asks and why, and what is read-only
because it could not be undone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.tables import table
from tests.toolsets.conftest import Bench

from golem_forge.core.decisions import AnsweredBy, Risk, Status, Verdict
from golem_forge.sandbox.sandbox import Sandbox, open_sandbox
from golem_forge.sandbox.walls.model import Coverage, Level, LevelResult, ProbeReport, UncoveredPath, ZoneCoverage
from golem_forge.sandbox.walls.walls import Walls, WallsHost
from golem_forge.sandbox.zones import ZoneSpec
from golem_forge.tools.factory import ToolsetContext
from golem_forge.toolsets import TOOLKIT
from golem_forge.toolsets.exec import ExecToolset, create_exec_command_tool, create_write_stdin_tool, exec_model
from golem_forge.toolsets.exec.shell import shell_model, shell_settings, shell_tool

BIG = UncoveredPath(("data", "big.bin"), "40 MiB, above undo.max_file (32 MiB)")
CANNOT = "`/workspace/data/big.bin` cannot be undone: 40 MiB, above undo.max_file (32 MiB)"


@pytest.fixture
def zones() -> tuple[dict[str, Any], ...]:
    return ({"name": "workspace"},)


@pytest.fixture
def sandbox(tmp_path: Path, workspace: Path, zones: tuple[dict[str, Any], ...]) -> Sandbox:
    for name in ("forge_home", "home"):
        (tmp_path / name).mkdir()
    specs = []
    for number, zone in enumerate(zones):
        place = workspace if number == 0 else tmp_path / f"host-{zone['name']}"
        place.mkdir(exist_ok=True)
        specs.append(ZoneSpec(path=place, **zone))
    return open_sandbox(specs, forge_home=tmp_path / "forge_home", home=tmp_path / "home")


@pytest.fixture
def coverage(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def says(**zones: ZoneCoverage) -> None:
        async def look(self: Walls) -> Coverage:
            return Coverage(zones)

        monkeypatch.setattr(Walls, "coverage", look)

    return says


@pytest.fixture
def ask(asked: Any) -> Any:
    return asked({"approved": False})


@pytest.fixture
def bench(benches: Callable[..., Bench], ask: Any) -> Bench:
    files = (TOOLKIT["write_file"], TOOLKIT["delete_file"], TOOLKIT["apply_patch"])
    return benches(create_exec_command_tool(), create_write_stdin_tool(), *files, ask=ask, mode="contained")


@pytest.fixture
def big(workspace: Path, coverage: Callable[..., None]) -> Path:
    (workspace / "data").mkdir()
    (workspace / "data/big.bin").write_text("big")
    (workspace / "data/small.txt").write_text("small")
    coverage(workspace=ZoneCoverage(uncovered=(BIG,)))
    return workspace / "data/big.bin"


@table(
    "cmd",
    [
        "touch a",
        "for f in a b; do echo $f > $f; done",
        "rm -rf build; find . -name '*.pyc' -delete; mkdir d; chmod -R a+w d",
        "git reset --hard || true",
        "cat <<E > f\npip install x\nE",
        "PATH=/usr/bin:$PATH ls",
        "echo ls | base64 | base64 -d | sh",
    ],
)
async def test_what_stays_inside_runs_without_a_question(bench: Bench, ask: Any, cmd: str) -> None:
    outcome = await bench.cmd(cmd)
    assert (outcome.status, list(ask)) == (Status.SUCCESS, []), outcome.text
    assert outcome.decision is not None
    assert (outcome.decision.verdict, outcome.decision.answered_by) == (Verdict.ASK, AnsweredBy.CONTAINED)


async def test_what_only_reads_is_answered_by_nobody(bench: Bench) -> None:
    outcome = await bench.cmd("ls -la")
    assert outcome.decision is not None and outcome.decision.answered_by is AnsweredBy.NOBODY


async def test_a_text_that_nobody_can_read_has_the_risk_of_a_command(bench: Bench) -> None:
    outcome = await bench.cmd("echo $((1 + 1)) > f")
    assert outcome.decision is not None and outcome.decision.risk is Risk.MEDIUM


@table(
    ("cmd", "because"),
    [
        ("git push --force", "`git push` needs the remote repository's host"),
        ("for p in a b; do pip install $p; done", "`pip install` needs a package registry"),
        ("sudo ls", "(privilege)"),
        ("cat .env > f", "(secret_read)"),
        ("mkdir d; cd d && echo x >> id_rsa", "`/workspace/d/id_rsa` looks like a secret"),
        ("cat /etc/passwd", "reaches outside every zone"),
    ],
)
async def test_what_leaves_asks_and_says_why(bench: Bench, ask: Any, cmd: str, because: str) -> None:
    ask.clear()
    assert (await bench.cmd(cmd)).status is Status.APPROVAL_DENIED
    (request,) = ask
    assert request.why.startswith("asks because ") and because in request.why


async def test_a_host_asks_even_where_a_rule_allows_it(benches: Callable[..., Bench], ask: Any, own_home: Path) -> None:
    (own_home / ".forge").mkdir(exist_ok=True)
    (own_home / ".forge/rules.yaml").write_text("version: 1\nrules:\n  - {host: a.test, verdict: preApproved}\n")
    bench = benches(ask=ask, mode="contained")
    assert (await bench.cmd("make", network=["a.test"])).status is Status.APPROVAL_DENIED
    assert "it reaches a.test:443" in ask[0].why


async def test_what_a_rule_allows_runs_as_before(benches: Callable[..., Bench], own_home: Path) -> None:
    (own_home / ".forge").mkdir(exist_ok=True)
    (own_home / ".forge/rules.yaml").write_text("version: 1\nrules:\n  - {command: [touch], verdict: preApproved}\n")
    outcome = await benches(mode="contained").cmd("touch a")
    assert outcome.decision is not None and outcome.decision.answered_by is AnsweredBy.RULE


async def test_files_in_a_zone_are_changed_without_a_question(bench: Bench, ask: Any, workspace: Path) -> None:
    (workspace / "old.txt").write_text("x")
    patch = "*** Begin Patch\n*** Add File: c.txt\n+c\n*** Delete File: a.txt\n*** End Patch\n"
    calls = (
        ("write_file", {"path": "a.txt", "content": "a"}),
        ("delete_file", {"path": "old.txt"}),
        ("apply_patch", {"input": patch}),
    )
    for name, args in calls:
        outcome = await bench.call(name, **args)
        assert outcome.status is Status.SUCCESS, outcome.text
        assert outcome.decision is not None and outcome.decision.answered_by is AnsweredBy.CONTAINED
    assert [*ask] == [] and [path.name for path in workspace.iterdir()] == ["c.txt"]


@pytest.mark.parametrize("path", [".env", ".git/hooks/pre-commit", ".github/workflows/ci.yml", "id_rsa"])
async def test_secrets_and_what_others_obey_ask(bench: Bench, ask: Any, path: str) -> None:
    assert (await bench.call("write_file", path=path, content="x")).status is Status.APPROVAL_DENIED
    assert len(ask) == 1 and path in ask[0].why


async def test_what_cannot_be_undone_asks_where_a_call_names_it(bench: Bench, ask: Any, big: Path) -> None:
    for cmd in (
        "rm data/big.bin",
        "rm -r data",
        "mv data d",
        "echo x > data/big.bin",
        "rm data/*.bin",
        "cd data && rm big.bin",
    ):
        assert (await bench.cmd(cmd)).status is Status.APPROVAL_DENIED, cmd
    assert (await bench.call("write_file", path="data/big.bin", content="")).status is Status.APPROVAL_DENIED
    assert (await bench.call("delete_file", path="data/big.bin")).status is Status.APPROVAL_DENIED
    assert [request.why for request in ask] == [f"asks because {CANNOT}"] * 8
    assert (await bench.cmd("touch data/new && rm data/small.txt && cat data/big.bin")).status is Status.SUCCESS
    assert big.read_text() == "big" and len(ask) == 8


async def test_what_cannot_be_undone_is_read_only_for_what_nobody_was_asked_about(bench: Bench, big: Path) -> None:
    outcome = await bench.cmd("python3 -c \"print(open('data/big.bin').read()); open('data/big.bin', 'w')\"")
    assert outcome.status is Status.SANDBOX_DENIED and big.read_text() == "big"
    assert "Read-only file system" in outcome.text
    (denial,) = outcome.denials
    assert (denial["target"], denial["access"]) == ("/workspace/data/big.bin", "write")
    assert denial["why"] == "it could not be undone: 40 MiB, above undo.max_file (32 MiB)"
    assert "interactive" in denial["widen"] and "file tool" in denial["widen"]
    moved = await bench.cmd("python3 -c \"import os; os.rename('data', 'd')\"")
    assert moved.status is not Status.SUCCESS and big.read_text() == "big"


async def test_what_a_person_agreed_to_is_not_held_back(benches: Callable[..., Bench], asked: Any, big: Path) -> None:
    ask = asked({"approved": True})
    bench = benches(ask=ask, mode="contained")
    assert (await bench.cmd("rm data/big.bin")).status is Status.SUCCESS
    assert CANNOT in ask[0].why and not big.exists()


async def test_a_zone_that_cannot_be_undone_asks(bench: Bench, ask: Any, coverage: Callable[..., None]) -> None:
    coverage(workspace=ZoneCoverage(problem="more than 200,000 entries"))
    assert (await bench.cmd("touch a")).status is Status.APPROVAL_DENIED
    assert (await bench.call("write_file", path="a", content="")).status is Status.APPROVAL_DENIED
    why = "asks because /workspace cannot be undone: more than 200,000 entries"
    assert [request.why for request in ask] == [why, why]
    assert (await bench.cmd("ls")).status is Status.SUCCESS


@pytest.mark.parametrize(
    ("zones", "because"),
    [
        (({"name": "workspace", "write": "ask"},), "zone /workspace says ask for write"),
        (({"name": "workspace", "delete": "blocked"},), "zone /workspace says blocked for delete"),
        (({"name": "workspace"}, {"name": "other", "write": "blocked"}), "zone /other says blocked for write"),
    ],
)
async def test_what_a_zone_says_by_hand_beats_the_mode(bench: Bench, ask: Any, because: str) -> None:
    assert (await bench.cmd("touch a > f")).status is Status.APPROVAL_DENIED
    assert because in ask[0].why


@pytest.mark.parametrize("zones", [({"name": "workspace", "write": "ask"},)])
async def test_a_zone_that_asks_by_hand_asks_for_files_too(bench: Bench, ask: Any) -> None:
    assert (await bench.call("write_file", path="a", content="")).status is Status.APPROVAL_DENIED
    assert ask[0].why == "asks because zone /workspace says ask for write"


async def test_walled_ask_in_a_worker_file_is_written_by_hand(benches: Callable[..., Bench], ask: Any) -> None:
    block = exec_model().model_validate({"walled": "ask"})
    bench = benches(*ExecToolset().get_tools(ToolsetContext(config=block)), ask=ask, mode="contained")
    assert (await bench.cmd("touch a")).status is Status.APPROVAL_DENIED
    assert "walled: ask" in ask[0].why


async def test_the_shell_tool_asks_by_its_own_rules_only(benches: Callable[..., Bench], ask: Any) -> None:
    free = benches(TOOLKIT["shell"], ask=ask, mode="contained")
    assert (await free.call("shell", command="touch a")).status is Status.SUCCESS
    block = shell_model().model_validate({"rules": [{"pattern": "touch", "approval": "ask"}]})
    ruled = benches(shell_tool(shell_settings(block)), ask=ask, mode="contained")
    assert (await ruled.call("shell", command="touch a")).status is Status.APPROVAL_DENIED
    assert ask[0].why == "asks because shell rule 'touch' says ask"


async def test_lines_typed_into_a_session_that_stays_inside(bench: Bench, ask: Any) -> None:
    number = await bench.session("cat > typed.txt", tty=True)
    outcome = await bench.stdin(number, "hello\n")
    assert outcome.status is Status.SUCCESS and not ask
    assert (await bench.stdin(number, "git push\n")).status is Status.APPROVAL_DENIED
    assert "`git push` needs" in ask[0].why


@pytest.mark.parametrize("level", [Level.LANDLOCK, Level.OFF])
async def test_without_full_walls_everything_asks_as_before(
    benches: Callable[..., Bench], ask: Any, sandbox: Sandbox, tmp_path: Path, level: Level
) -> None:
    tried = (LevelResult(level=Level.FULL, cause="no bwrap here"),)
    report = ProbeReport(level=level, tried=tried)
    walls = Walls(sandbox, forge_home=tmp_path / "forge_home", host=WallsHost(report=report))
    bench = benches(create_exec_command_tool(), TOOLKIT["write_file"], ask=ask, mode="contained", walls=walls)
    assert (await bench.call("write_file", path="a", content="")).status is Status.APPROVAL_DENIED
    said = "walls are switched off" if level is Level.OFF else "there are no full walls here: no bwrap here"
    assert ask[0].why == f"asks because {said}"
    if level is Level.OFF:
        assert (await bench.cmd("touch a")).status is Status.APPROVAL_DENIED
        assert said in ask[1].why


async def test_nobody_to_ask_denies_what_leaves(benches: Callable[..., Bench]) -> None:
    bench = benches(mode="contained")
    assert (await bench.cmd("echo x > f")).status is Status.SUCCESS
    outcome = await bench.cmd("git push")
    assert outcome.status is Status.APPROVAL_DENIED
    assert outcome.text.endswith(
        "asks because `git push` needs the remote repository's host (with your credentials as a command of its own)"
    )
