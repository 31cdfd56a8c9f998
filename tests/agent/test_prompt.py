"""The system prompt says what is so, and no host path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from golem_forge.agent.model.interface import HOW_TO_READ
from golem_forge.agent.prompt import PromptState, ZoneState, system_prompt
from golem_forge.config.run_block import ApprovalMode
from golem_forge.core.decisions import Verdict
from golem_forge.sandbox.walls.model import Level
from golem_forge.sandbox.zones import AccessMode

ZONES = (
    ZoneState(name="docs", mode=AccessMode.RO),
    ZoneState(name="workspace", mode=AccessMode.RW, write=Verdict.PRE_APPROVED, delete=Verdict.BLOCKED),
)


def prompt(**state: Any) -> str:
    return system_prompt("Be kind.\n", PromptState(**{"approval": ApprovalMode.INTERACTIVE, **state}))


def test_instructions_come_first_and_zones_with_their_modes() -> None:
    text = prompt(zones=ZONES, default_zone="workspace")
    assert text.startswith("Be kind.\n\n## Where you work\n")
    assert "  - /docs (ro): read only; writing and deleting are refused\n" in text
    assert "  - /workspace (rw): write allowed, delete refused; relative paths begin here\n" in text
    assert HOW_TO_READ in text


def test_a_small_model_reads_its_own_zone_first_and_that_only_calls_do_anything() -> None:
    zones = (
        ZoneState(name="docs", mode=AccessMode.RO),
        *(ZoneState(name=n, mode=AccessMode.RW) for n in ("user_tools", "w")),
    )
    text = prompt(zones=zones, default_zone="w", tools=frozenset({"read_file"}))
    assert text.index("/w (rw)") < text.index("/docs (ro)") < text.index("/user_tools (rw)")
    compact = prompt(zones=zones, default_zone="w", tools=frozenset({"read_file"}), compact=True)
    assert "Begin with a call" in compact and "Begin with a call" not in text and "/user_tools" not in compact


def test_without_instructions_or_zones() -> None:
    text = system_prompt("", PromptState(approval=ApprovalMode.AUTO_DENY))
    assert text.startswith("## Where you work\n- Files: none.")
    assert "nobody is there to ask" in text


def test_every_mode_and_every_level_says_something_of_its_own() -> None:
    assert len({prompt(approval=mode) for mode in ApprovalMode}) == len(ApprovalMode)
    tools = frozenset({"exec_command"})
    assert len({prompt(walls=level, tools=tools) for level in (*Level, None)}) == len(Level) + 1
    assert prompt(walls=Level.FULL) == prompt(walls=None)  # without commands walls are no matter


def test_network_blocked_tools_and_the_schema_of_the_answer() -> None:
    assert "Network: no tool here reaches it." in prompt()
    assert "approved for a call of exec_command or webfetch" in prompt(tools=frozenset({"webfetch", "exec_command"}))
    assert "Always refused: git_push, rm." in prompt(blocked=("git_push", "rm"))
    assert "t19 and 5 more." in prompt(blocked=tuple(f"t{n}" for n in range(25)))
    assert '{"type":"object"}' in prompt(output_schema={"type": "object"})
    assert "Always refused" not in prompt() and "schema" not in prompt()


@pytest.mark.parametrize("mode", list(ApprovalMode))
def test_the_state_of_a_real_zone_holds_no_host_path(tmp_path: Path, mode: ApprovalMode) -> None:
    from golem_forge.sandbox.sandbox import open_sandbox
    from golem_forge.sandbox.zones import ZoneSpec

    (tmp_path / "canary-folder").mkdir()
    specs = [ZoneSpec(name="work", path=tmp_path / "canary-folder")]
    with open_sandbox(specs, forge_home=tmp_path / "forge", home=tmp_path / "person") as sandbox:
        zones = tuple(ZoneState.of(zone) for zone in sandbox.zones.values())
    text = prompt(zones=zones, default_zone="work", approval=mode)
    assert "/work (rw): write asks the person, delete asks the person" in text
    assert "canary-folder" not in text and str(tmp_path) not in text


async def test_the_state_is_read_from_a_real_place(tmp_path: Path) -> None:
    from golem_forge.agent.files.worker import Worker
    from golem_forge.agent.session_state import SessionOptions, open_session_state
    from golem_forge.agent.tool_inventory import build_catalog
    from golem_forge.agent.worker_scope import open_scope
    from golem_forge.sandbox.sandbox import open_sandbox
    from golem_forge.sandbox.zones import ZoneSpec

    folder = tmp_path / "canary-program"
    folder.mkdir()
    (folder / "forge.yaml").write_text("approval:\n  tools: {exec_command: blocked}\n")
    home = tmp_path / "forge"
    tree = open_session_state(folder, SessionOptions(home=home, approval="auto_deny"))
    specs = [ZoneSpec(name="work", path=folder, mode=AccessMode.RO)]
    sandbox = open_sandbox(specs, forge_home=home, home=tmp_path / "person")
    station = open_scope(tree, Worker(name="main", output_schema={"type": "array"}), sandbox, build_catalog())
    try:
        state = PromptState.of(station)
        assert state.approval is ApprovalMode.AUTO_DENY
        assert state.zones == (ZoneState(name="work", mode=AccessMode.RO),) and state.default_zone == "work"
        assert state.walls is None
        assert state.blocked == ("exec_command",) and "read_file" in state.tools
        await station.walls.report()
        assert PromptState.of(station).walls is await station.walls.level()
        text = system_prompt("Hi", PromptState.of(station))
        assert "canary-program" not in text and "Always refused: exec_command." in text
    finally:
        station.close()
        tree.close()
