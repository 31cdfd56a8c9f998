"""exec_command in real walls: how it ends, what is said of it, what is kept, and patches in its place."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.deadlines import PATIENCE, ever_longer, within

from golem_forge.config.sandbox_block import MIB, ResourceLimits, WallSettings
from golem_forge.config.validation import Setting
from golem_forge.core.decisions import Status, Verdict
from golem_forge.events.bus import EventBus
from golem_forge.policy.base import ApprovalBlock, ApprovalBlocks
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.walls.model import Level, ProbeReport
from golem_forge.sandbox.walls.walls import Walls, WallsHost
from golem_forge.toolsets.edit import create_apply_patch_tool
from golem_forge.toolsets.exec import create_exec_command_tool


async def test_t17_a_command_and_its_text(bench: Any) -> None:
    outcome = await bench.cmd("echo hello")
    first, second, third, *output = outcome.text.split("\n")
    assert re.fullmatch(r"Wall time: \d+\.\d+ s", first)
    assert (second, third, output) == ("Exited: code 0", "Output (6 bytes):", ["hello", ""])
    assert outcome.status is Status.SUCCESS
    value = outcome.result.value
    assert (value["kind"], value["exit_code"], value["bytes"]) == ("exec.result", 0, 6)
    assert "session_id" not in value and "handle" not in value and value["wall_s"] > 0


async def test_t18_another_exit_code_is_a_failure_with_the_same_text(bench: Any) -> None:
    outcome = await bench.cmd("echo no >&2; exit 3")
    assert outcome.status is Status.EXECUTION_FAILED
    assert "\nExited: code 3\nOutput (3 bytes):\nno\n" in outcome.text
    assert outcome.result.value["exit_code"] == 3


async def test_death_by_signal_is_named(bench: Any) -> None:
    outcome = await bench.cmd("kill -KILL $$")
    assert "\nEnded by signal: SIGKILL (9)\nOutput (0 bytes):" in outcome.text
    assert (outcome.status, outcome.result.value["signal"]) == (Status.EXECUTION_FAILED, 9)


async def test_the_code_of_git_for_a_wrong_option_is_no_signal(bench: Any) -> None:
    outcome = await bench.cmd("git init --no-such-option")
    assert "\nExited: code 129\n" in outcome.text and "SIGHUP" not in outcome.text


async def test_both_streams_come_in_order_and_input_is_empty(bench: Any) -> None:
    outcome = await bench.cmd("echo a; echo b >&2; cat; echo c")
    assert outcome.text.endswith("Output (6 bytes):\na\nb\nc\n")


async def test_it_starts_where_it_is_told(bench: Any, workspace: Path) -> None:
    (workspace / "src").mkdir()
    outcome = await bench.cmd("pwd; printf %s $FORGE_WALLS-$FORGE_NETWORK-$USER", workdir="src")
    assert outcome.text.endswith("/workspace/src\nfull-off-forge")
    assert str(workspace) not in outcome.text


async def test_shells(bench: Any) -> None:
    for shell, args in (("bash", {}), ("bash", {"login": True}), ("sh", {}), ("sh", {"login": True})):
        outcome = await bench.cmd("echo $0", shell=shell, **args)
        assert outcome.text.endswith(f"/{shell}\n"), outcome.text


async def test_t22_long_output_has_head_and_tail_and_is_kept_whole(bench: Any) -> None:
    outcome = await bench.cmd("seq 200000", max_output_tokens=10)
    assert outcome.status is Status.SUCCESS and outcome.truncated
    handle = outcome.output_handle
    assert handle and outcome.result.value["handle"] == handle
    size = sum(len(f"{n}\n") for n in range(1, 200001))
    assert f"Output ({size} bytes):\n1\n2\n3\n" in outcome.text
    assert f" bytes left out; whole output: read_output handle={handle}]\n" in outcome.text
    assert outcome.text.endswith("199999\n200000\n")
    last = await bench.call("read_output", handle=handle, offset=-1)
    assert last.text.startswith("L200000: 200000")


async def test_output_up_to_the_limit_is_not_cut(bench: Any) -> None:
    outcome = await bench.cmd("head -c 39000 /dev/zero | tr '\\0' x", max_output_tokens=10000)
    assert "x" * 39000 in outcome.text and not outcome.truncated


async def test_t23_a_character_divided_over_two_writes_is_whole(bench: Any, workspace: Path) -> None:
    waiting = "until [ -e go ]; do sleep 0.02; done"
    number = await bench.session(f"printf '\\xe4\\xbd'; {waiting}; printf '\\xa0'", yield_time_ms=150)
    (workspace / "go").touch()
    outcome = await bench.stdin(number, yield_time_ms=20000)
    assert outcome.text.endswith("Output (3 bytes):\n你")


async def test_t26_the_time_limit_ends_the_whole_tree(bench: Any, gone: Callable[..., Any]) -> None:
    for seconds in ever_longer(0.6):
        with within(seconds + 1):
            outcome = await bench.cmd("echo before; sleep 61.26 & wait", timeout_ms=round(1000 * seconds))
        assert outcome.status is Status.TIMEOUT
        if "before" in outcome.text:
            break
    assert f"\nTimed out after {seconds:g} s\nOutput (7 bytes):\nbefore\n" in outcome.text
    await gone("61.26")


async def test_a_session_reaches_its_time_limit_alone(bench: Any, gone: Callable[..., Any]) -> None:
    for seconds in ever_longer(0.6):  # until the first wait was over before the limit
        begun = await bench.cmd("sleep 61.36", yield_time_ms=50, timeout_ms=round(1000 * seconds))
        if "session_id" in begun.result.value:
            break
    await gone("61.36")
    outcome = await bench.stdin(begun.result.value["session_id"])
    assert f"\nTimed out after {seconds:g} s\n" in outcome.text


async def test_cancel_in_the_first_wait_ends_the_tree_and_keeps_what_was_said(
    benches: Callable[..., Any], runs: Callable[..., Any], gone: Callable[..., Any]
) -> None:
    bus, heard = EventBus("s"), asyncio.Event()
    bus.on("toolOutput", lambda event: heard.set())
    bench = benches(bus=bus)
    call = asyncio.ensure_future(bench.cmd("echo early; trap '' TERM; sleep 61.28 & wait; sleep 61.28"))
    await runs("sleep\x0061.28")
    await asyncio.wait_for(
        heard.wait(), PATIENCE
    )  # a command may run for a while before Forge gets to read its first word
    with within(1):
        bench.path.signal.interrupt()
        outcome = await call
    assert outcome.status is Status.INTERRUPTED
    assert "early" in outcome.text
    await gone("61.28")


async def test_a_caller_that_is_cancelled_takes_its_command_with_it(
    bench: Any, runs: Callable[..., Any], gone: Callable[..., Any]
) -> None:
    call = asyncio.ensure_future(bench.cmd("sleep 61.29"))
    await runs("sleep\x0061.29")
    call.cancel()
    await asyncio.wait([call])
    assert call.cancelled()
    await gone("61.29")


async def test_what_the_walls_refuse_is_said(bench: Any, workspace: Path) -> None:
    (workspace / ".git").mkdir()
    (workspace / ".git/config").write_text("old")
    outcome = await bench.cmd("echo x > .git/config")
    assert outcome.status is Status.SANDBOX_DENIED
    assert "Blocked by the sandbox: write /workspace/.git/config (protected)." in outcome.text
    assert outcome.denials[0]["kind"] == "protected"
    assert (workspace / ".git/config").read_text() == "old"
    good = await bench.cmd("echo x > .git/config; exit 0")
    assert good.status is Status.SUCCESS and good.denials


async def test_a_limit_is_named_with_its_key(benches: Callable[..., Any], sandbox: Sandbox, tmp_path: Path) -> None:
    limited = WallSettings(limits=ResourceLimits(output=MIB))
    walls = Walls(
        sandbox, limited, forge_home=tmp_path / "forge_home", host=WallsHost(report=ProbeReport(level=Level.FULL))
    )

    outcome = await benches(walls=walls).cmd("yes | head -c 2000000", max_output_tokens=10, yield_time_ms=30000)

    assert (outcome.status, outcome.code) == (Status.EXECUTION_FAILED, "OUTPUT_LIMIT")
    assert "sandbox.limits.output" in outcome.text


async def test_s27_a_secret_is_visible_to_the_call_that_names_it_only(bench: Any, workspace: Path) -> None:
    (workspace / ".env").write_text("CANARY=sesame-1")
    named = await bench.cmd("cat .env")
    assert "CANARY=sesame-1" in named.text
    for other in ("cat .e*", "python3 -c \"print(open('.env').read())\"", "cat $PWD/.env"):
        assert "sesame-1" not in (await bench.cmd(other)).text


async def test_a_write_reaches_the_workspace(bench: Any, workspace: Path) -> None:
    outcome = await bench.cmd("echo new > made.txt && cat /workspace/made.txt")
    assert outcome.text.endswith("new\n")
    assert (workspace / "made.txt").read_text() == "new\n"


PATCH = "*** Begin Patch\n*** Add File: new.txt\n+hello\n*** End Patch\n"


@pytest.fixture
def tools() -> tuple[Any, ...]:
    return create_exec_command_tool(), create_apply_patch_tool()


async def test_it_becomes_a_patch(
    benches: Callable[..., Any], asked: Any, tools: tuple[Any, ...], workspace: Path
) -> None:
    (workspace / "sub").mkdir()
    ask = asked()
    bench = benches(*tools, ask=ask)
    calls: list[tuple[str, dict[str, str], str]] = [
        (f"cd sub && apply_patch <<'EOF'\n{PATCH}EOF\n", {}, "sub/new.txt"),
        (f"apply_patch <<'EOF'\n{PATCH}EOF", {"workdir": "sub"}, "sub/new.txt"),
        (f"cd sub && apply_patch <<'EOF'\n{PATCH}EOF", {"workdir": "/workspace/top"}, "top/sub/new.txt"),
        (f"apply_patch '{PATCH}'", {}, "new.txt"),
    ]
    for cmd, args, made in calls:
        ask.clear()
        outcome = await bench.cmd(cmd, **args)
        assert (outcome.status, outcome.tool) == (Status.SUCCESS, "apply_patch"), cmd
        assert [request.tool for request in ask] == ["apply_patch"]
        assert (workspace / made).read_text() == "hello\n"
        (workspace / made).unlink()


async def test_with_anything_beside_it_it_is_a_command(
    benches: Callable[..., Any], tools: tuple[Any, ...], workspace: Path
) -> None:
    (workspace / "sub").mkdir()
    outcome = await benches(*tools).cmd(f"cd sub && apply_patch <<'EOF'; ls\n{PATCH}EOF\n")
    assert outcome.tool == "exec_command"
    assert not (workspace / "sub/new.txt").exists()


async def test_blocked_on_either_tool_blocks(
    benches: Callable[..., Any], tools: tuple[Any, ...], workspace: Path
) -> None:
    for name in ("exec_command", "apply_patch"):
        block = ApprovalBlock(tools={name: Setting(Verdict.BLOCKED, "forge.yaml:3")})
        outcome = await benches(*tools, blocks=ApprovalBlocks(program=block)).cmd(f"apply_patch <<'EOF'\n{PATCH}EOF\n")
        assert outcome.status is Status.POLICY_DENIED
    assert not (workspace / "new.txt").exists()
