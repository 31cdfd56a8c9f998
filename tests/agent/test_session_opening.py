"""What `open_session` refuses says which word is wrong and which ones there are; interrupts can be taken back."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from golem_forge import Tool, ToolsetContext, WorkerRuntime, open_session
from golem_forge.core.errors import ConfigError


def refused(directory: Path, **given: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        open_session(directory, **given)
    return "\n".join(caught.value.problems)


@pytest.mark.parametrize(
    ("blocks", "said"),
    [
        ({"coding": {"exec": {"walld": "ask"}}}, "toolsets.coding.exec.walld: unknown key; did you mean 'walled'?"),
        ({"coding": {"exec": {"zzzzzz": 1}}}, "toolsets.coding.exec.zzzzzz: unknown key. There are: env, walled"),
        (
            {"shell": {"rules": [{"pattern": "ls", "aproval": "ask"}]}},
            "toolsets.shell.rules[0].aproval: unknown key; did you mean 'approval'?",
        ),
        (["coding"], "toolsets: must be a mapping from names to blocks, like {'coding': {}}, not list"),
    ],
)
def test_a_wrong_toolset_block_is_named_with_the_keys_of_its_own_level(tmp_path: Path, blocks: Any, said: str) -> None:
    assert refused(tmp_path, toolsets=blocks) == said


def test_a_wrong_mode_and_a_missing_directory_are_named(tmp_path: Path) -> None:
    modes = "interactive, strict, contained, plan, approve_all, auto_deny"
    assert refused(tmp_path, approval="yolo") == f"approval must be one of {modes}, not 'yolo'"
    assert refused(tmp_path, approval="strikt").endswith("not 'strikt'; did you mean 'strict'?")
    assert refused(tmp_path / "nowhere") == f"no such directory: {tmp_path / 'nowhere'}"


def test_after_an_interrupt_a_reset_makes_the_next_call_normal(tmp_path: Path) -> None:
    async def talk() -> list[str]:
        async with open_session(tmp_path) as session:
            session.interrupt()
            first = await session.call("list_files", {})
            session.reset()
            return [first.status.value, (await session.call("list_files", {})).status.value]

    assert asyncio.run(talk()) == ["interrupted", "success"]


async def test_zones_of_a_program_that_was_just_trusted_are_strange_no_more(tmp_path: Path) -> None:
    """A person's rules about paths lift nothing in zones that an untrusted program named; after their yes they do."""
    root = tmp_path / "program"
    (root / "data").mkdir(parents=True)
    (root / "forge.yaml").write_text("sandbox: {zones: {data: {path: ./data, mode: rw}}}\n")
    (root / "tools.py").write_text("def count(n: int) -> int:\n    return n\n")
    block = "custom: {module: ./tools.py, tools: [count]}"
    (root / "main.worker").write_text(f"---\nname: main\ntoolsets:\n  {block}\n---\nWork.\n")
    asked = []
    runtime = WorkerRuntime(directory=root, home=tmp_path / "home", needs_model=False)

    def agree(event: Any) -> None:
        asked.append(event.wire["type"])
        runtime.bus.emit("approvalResponse", {"requestId": event.wire["requestId"], "approved": True})

    runtime.bus.on("approvalRequired", agree)
    runtime.ui.attach("a person")
    async with runtime:
        assert asked == ["trust"] and runtime.path.judge.strange_zones == frozenset()


async def test_toolsets_of_others_are_taken_as_they_are_written(tmp_path: Path) -> None:
    """An instance or the class, with or without the context, of Tools or plain functions."""

    def plain(word: str) -> str:
        """Says it."""
        return word

    class WithContext:
        name = "ours"
        config = None

        def get_tools(self, ctx: ToolsetContext) -> list[Any]:
            return [plain]

    class Without:
        def get_tools(self) -> list[Any]:
            return [Tool("other", "Another one.", execute=plain)]

    class Wrong:
        def get_tools(self) -> Any:
            return "plain"

    class Needy(Without):
        def __init__(self, region: str, limit: int = 3) -> None:
            self.region = region

    (here := tmp_path / "here").mkdir()
    async with open_session(here, tools=[WithContext, Without()], toolsets={}, home=tmp_path / "home") as session:
        assert {"plain", "other"} <= {tool.name for tool in session.catalog.list()}
    with pytest.raises(TypeError, match=r"Wrong\.get_tools gives must be a list of tools"):
        open_session(here, tools=[Wrong()], toolsets={}, home=tmp_path / "home")
    with pytest.raises(TypeError, match=r"^toolset Needy needs arguments: give Needy\(region\) instead of the class$"):
        open_session(here, tools=[Needy], toolsets={}, home=tmp_path / "home")


async def test_a_model_that_is_chosen_before_the_first_message_answers_it(tmp_path: Path) -> None:
    """The one that was configured is still being opened while the person types."""
    for name in ("configured", "chosen"):
        (tmp_path / f"{name}.yaml").write_text(f"turns: [{{say: from the {name} one}}]\n")
    runtime = WorkerRuntime(directory=tmp_path, model="scripted:configured.yaml", needs_model=False)
    async with runtime:
        runtime.switch_model("scripted:chosen.yaml")
        assert (await runtime.turn("hello")).response == "from the chosen one"
        assert runtime.model_name == "scripted:chosen.yaml"
