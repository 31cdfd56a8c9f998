"""The recipes of docs/guides/hooks.md run as they are written there."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML
from tests.agent.conftest import Script, calls

from golem_forge import open_session
from golem_forge.agent.model.interface import UserMessage
from golem_forge.agent.runtime import WorkerRuntime
from golem_forge.config.hooks_block import Hook, HookPoint
from golem_forge.core.decisions import Status
from golem_forge.policy.hooks import ALIASES, EVENT_NAMES, hook_input
from golem_forge.storage.home import forge_home

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guides" / "hooks.md").read_text()
EXAMPLES = ROOT / "examples" / "hooks"
PYTEST = "[pytest]\naddopts = -p no:schemathesis -p no:hypothesispytest -p no:asyncio\n"
"""Plugins of this environment, whose import takes most of a run."""


@pytest.fixture
def recipe(tmp_path: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """`recipe("A note on the desktop")` puts the YAML below that heading into the person's config; gives the project.
    What the page tells a person to have in `~/bin` is there."""
    (own_home / "bin").mkdir()
    for example in EXAMPLES.glob("*.py"):
        shutil.copy(example, own_home / "bin")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    root = tmp_path / "project"
    root.mkdir()
    (root / "pytest.ini").write_text(PYTEST)

    def use(heading: str, **instead: str) -> Path:
        found = re.search(rf"^### {re.escape(heading)}\n.*?```yaml\n(.*?)```", PAGE, re.MULTILINE | re.DOTALL)
        assert found, heading
        text = found[1]
        for word, other in instead.items():
            text = text.replace(f"/usr/bin/{word.replace('_', '-')}", other)
        YAML(typ="safe").load(text)
        forge_home().ensure()
        forge_home().config.write_text(text)
        return root

    return use


async def test_format_after_each_edit(recipe: Callable[..., Path]) -> None:
    root = recipe("Format after each edit")
    async with open_session(root, approval="approve_all") as session:
        outcome = await session.call("write_file", {"path": "/workspace/a.py", "content": "import os\nx=1\n"})
        assert (root / "a.py").read_text() == "import os\n\nx = 1\n", outcome.text
        assert "1 file reformatted" in outcome.text and "F401" in outcome.text
        (made,) = session.changes()
        assert (await session.undo(call=made.call)).ok and not (root / "a.py").exists()


async def test_the_tests_at_the_end_of_each_turn(recipe: Callable[..., Path]) -> None:
    root = recipe("Run the tests at the end of each turn")
    (root / "test_it.py").write_text("from it import two\n\n\ndef test_two():\n    assert two() == 2\n")

    def write(value: int) -> Any:
        return calls(("write_file", {"path": "/workspace/it.py", "content": f"def two():\n    return {value}\n"}))

    script = Script([write(3), "done", write(2), "mended"])
    async with WorkerRuntime(directory=root, model=script.model, approval_mode="approve_all") as runtime:
        assert (await runtime.turn("write it.py")).response == "mended"
    notes = [
        each.text for each in script.requests[-1].messages if isinstance(each, UserMessage) and each.kind == "note"
    ]
    assert any("assert 3 == 2" in note for note in notes), notes


async def test_nobody_writes_to_migrations(recipe: Callable[..., Path]) -> None:
    root = recipe("Nobody writes to migrations/")
    async with open_session(root, approval="approve_all") as session:
        for path in ("migrations/1.sql", "app/migrations/2.sql"):
            outcome = await session.call("write_file", {"path": f"/workspace/{path}", "content": "x"})
            assert outcome.status is Status.POLICY_DENIED and "written by hand" in outcome.error
        assert (await session.call("write_file", {"path": "/workspace/app.py", "content": "x"})).ok


async def test_a_note_on_the_desktop(recipe: Callable[..., Path], own_home: Path) -> None:
    fake = own_home / "notify"
    fake.write_text(f'#!/bin/sh\necho "$@" >> {own_home}/notes\n')
    fake.chmod(0o755)
    root = recipe("A note on the desktop", notify_send=str(fake))
    script = Script(["done"])
    async with WorkerRuntime(directory=root, model=script.model, approval_mode="approve_all") as runtime:
        await runtime.turn("go")
    assert (own_home / "notes").read_text() == "Forge is done\n"


async def test_a_reviewer_by_rules(recipe: Callable[..., Path], asked: Callable[..., Any]) -> None:
    root = recipe("A reviewer by rules")
    ask = asked({"approved": False})
    async with open_session(root, approval="interactive", approval_callback=ask) as session:
        session.state.reviewer.begin_turn("please write notes.md and run the tests")

        async def by(name: str, args: dict[str, Any]) -> str:
            return (await session.call(name, args)).decision.answered_by.value

        assert await by("write_file", {"path": "/workspace/notes.md", "content": "x"}) == "reviewer"
        assert await by("exec_command", {"cmd": "make test"}) == "reviewer"
        assert await by("write_file", {"path": "/workspace/other.md", "content": "x"}) == "person"
        assert await by("exec_command", {"cmd": "touch x"}) == "person"
        assert "not a known check" in ask[-1].warnings[-1]
        # names and options that only begin like what it approves
        path = "/workspace/notes.md (old)/evil.py"
        assert await by("write_file", {"path": path, "content": "x"}) == "person"
        assert await by("exec_command", {"cmd": "go test -exec ./evil ./..."}) == "person"


def test_the_table_of_other_agents_names_is_the_one_that_hooks_are_told() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", PAGE, re.MULTILINE))
    for name, others in ALIASES.items():
        assert all(f"`{other}`" in rows[name] for other in others), name
    hook = Hook(on=HookPoint.BEFORE_CALL, run="x", name="x")
    said = json.loads(hook_input(hook, {"tool": "t", "arguments": {"cmd": "ls"}}))
    assert said["tool_name"] == said["toolName"] == "t" and said["tool_input"] == {"cmd": "ls", "command": "ls"}
    assert said["arguments"] == {"cmd": "ls"} and said["hook_event_name"] == EVENT_NAMES[HookPoint.BEFORE_CALL]
