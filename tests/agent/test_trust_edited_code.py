"""Code that is edited while a session runs: workers.md §3. Changed bytes ask again, and old code never runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.agent.conftest import calls
from tests.deadlines import PATIENCE

from golem_forge.agent.slash.handler import SlashCommands
from golem_forge.agent.trust import trust_store
from golem_forge.config.trust import TrustStore
from golem_forge.events.serialization import Event
from golem_forge.storage.home import ForgeHome

CODE = "from golem_forge import tool\n@tool(mode='both', needs_approval=False)\ndef word() -> str:\n    return '{}'\n"


class Chat:
    """A program with a tool, its session, and a person who answers every card as `answer` says."""

    def __init__(self, played: Any, root: Path, store: TrustStore) -> None:
        self.played, self.root, self.store = played, root, store
        self.answer = False
        self.cards: list[str] = []
        self.commands = SlashCommands(played.runtime)
        played.runtime.ui.attach("test")
        played.runtime.bus.on("approvalRequired", self._answer)

    def edit(self, text: str) -> None:
        (self.root / "tools.py").write_text(CODE.format(text))

    async def command(self, text: str) -> tuple[str, str]:
        """(what a tool gave, what was said to the person)."""
        before = len(self.played.events)
        await asyncio.wait_for(self.commands.run(text), PATIENCE)
        news = self.played.events[before:]
        values = [each.wire["value"]["content"] for each in news if each.type == "toolResult" and each.wire["value"]]
        said = [each.wire["message"] for each in news if each.type == "status" and each.wire.get("code") == "command"]
        return "".join(values), "".join(said)

    def _answer(self, event: Event) -> None:
        self.cards.append(str(event.wire["payload"]))
        answer = {"requestId": event.wire["requestId"], "approved": self.answer}
        asyncio.get_running_loop().call_soon(self.played.runtime.bus.emit, "approvalResponse", answer)


@pytest.fixture
async def chat(play: Any, tmp_path: Path) -> AsyncIterator[Chat]:
    root, store = tmp_path / "program", trust_store(ForgeHome(tmp_path / "home"))
    root.mkdir()
    (root / "forge.yaml").write_text("")
    (root / "tools.py").write_text(CODE.format("first"))
    (root / "main.worker").write_text(
        "---\nname: main\ntoolsets: {custom: {module: ./tools.py, tools: [word]}}\n---\nHi\n"
    )
    store.give(root)
    played = await play(
        ["a", "b", "c", "d"], worker="main", directory=root, home=tmp_path / "home", approval="interactive"
    )
    made = Chat(played, root, store)
    yield made
    await made.commands.aclose()


async def test_a_persons_own_call_runs_the_code_as_it_is_now(chat: Chat) -> None:
    assert await chat.command("/word") == ("first", "")
    chat.edit("second")
    chat.store.give(chat.root)
    assert await chat.command("/word") == ("second", "")
    chat.edit("third")
    chat.store.give(chat.root)
    chat.played.runtime.bus.emit("manualToolInvoke", {"toolName": "word", "args": {}})
    await asyncio.wait_for(chat.commands.settled(), PATIENCE)
    assert chat.played.seen("toolResult")[-1].wire["value"]["content"] == "third"
    assert chat.cards == []


async def test_an_edit_asks_before_a_persons_own_call(chat: Chat) -> None:
    chat.edit("second")
    chat.answer = True
    assert await chat.command("/word") == ("second", "")
    (card,) = chat.cards
    assert "-    return 'first'" in card and "+    return 'second'" in card


async def test_w12_after_no_the_same_bytes_are_not_asked_about_and_others_are(chat: Chat) -> None:
    chat.edit("second")
    runtime = chat.played.runtime
    await runtime.turn("go")
    (said,) = [each for each in chat.played.seen("status") if each.wire["type"] == "warning"]
    assert "forge trust" in said.wire["message"] and len(chat.cards) == 1
    (news,) = chat.played.seen("catalogChanged")
    assert news.wire["removed"] == ["word"] and "forge trust" in news.wire["diagnostics"][0]

    await runtime.turn("and on")
    assert (await chat.command("/word"))[1] == "Unknown command '/word'"
    assert len(chat.cards) == 1

    chat.edit("third")
    await runtime.turn("again")
    assert len(chat.cards) == 2 and "+    return 'third'" in chat.cards[1]
    assert len(chat.played.seen("catalogChanged")) == 1  # nothing new to say
    assert len([each for each in chat.played.seen("status") if each.wire["type"] == "warning"]) == 1

    chat.edit("fourth")
    chat.answer = True
    assert await chat.command("/word") == ("fourth", "")
    assert len(chat.cards) == 3


async def test_undoing_the_change_or_trust_given_elsewhere_brings_the_tools_back(chat: Chat) -> None:
    chat.edit("second")
    await chat.command("/tools")
    chat.edit("first")
    assert await chat.command("/word") == ("first", "")
    chat.edit("second")
    assert (await chat.command("/word"))[1] == "Unknown command '/word'"
    chat.store.give(chat.root)
    assert await chat.command("/word") == ("second", "")
    assert len(chat.cards) == 1


async def test_a_module_that_is_gone_is_said_once(chat: Chat) -> None:
    chat.edit("second")
    await chat.command("/tools")
    (chat.root / "tools.py").unlink()
    await chat.command("/tools")
    await chat.command("/tools")
    told = [each.wire["diagnostics"] for each in chat.played.seen("catalogChanged")]
    assert [len(each) for each in told] == [1, 1] and "file not found" in told[1][0]


@pytest.mark.parametrize("agrees", [True, False])
async def test_a_module_that_the_call_before_changes_does_not_run_as_it_was(
    play: Any, tmp_path: Path, agrees: bool
) -> None:
    """A write and a call in one response: the person is asked about the new code first, and the old is over."""
    root, home = tmp_path / "program", tmp_path / "home"
    root.mkdir()
    (root / "forge.yaml").write_text("sandbox: {zones: {code: {path: ., mode: rw, approval: {write: preApproved}}}}\n")
    (root / "tools.py").write_text(CODE.format("old"))
    toolsets = "{filesystem: {}, custom: {module: ./tools.py, tools: [word]}}"
    zones = "sandbox: {zones: [{name: code, mode: rw}]}"
    (root / "main.worker").write_text(f"---\nname: main\ntoolsets: {toolsets}\n{zones}\n---\nHi\n")
    trust_store(ForgeHome(home)).give(root)
    write = ("write_file", {"path": "/code/tools.py", "content": CODE.format("new")})
    turns = [calls(write, ("word", {})), "done"]
    played = await play(turns, worker="main", directory=root, home=home, approval="interactive")
    made = Chat(played, root, trust_store(ForgeHome(home)))
    made.answer = agrees
    await asyncio.wait_for(played.runtime.run("go"), PATIENCE)
    written, called = played.script.results()
    await made.commands.aclose()
    assert written[0] == "success" and len(made.cards) == 1 and "+    return 'new'" in made.cards[0]
    assert "old" not in called[1]
    assert (called[0], "\nnew\n" in called[1]) == (("success", True) if agrees else ("tool_not_found", False))
