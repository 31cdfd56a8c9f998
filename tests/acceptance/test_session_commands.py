"""Commands about a session, as a person types them: /cost, /compact, /export, /model, /resume."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.deadlines import PATIENCE

from golem_forge.agent.model.interface import TokenUsage, UserMessage
from golem_forge.agent.model.scripted import FunctionScript, Turn
from golem_forge.agent.model.selection import ModelKeys
from golem_forge.agent.runtime import WorkerRuntime
from golem_forge.agent.session_state import known_secrets
from golem_forge.agent.trust import trust_store
from golem_forge.storage.home import ForgeHome, forge_home
from golem_forge.ui.web.session_registry import SessionLauncher, StartRequest

MODEL = "scripted:words.yaml"


@pytest.fixture
def project(tmp_path: Path, own_home: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "words.yaml").write_text("turns:\n" + 6 * "  - {say: Hello there.}\n")
    return folder


class Typing:
    """A session and a person who types commands; `answer` is what they say to every card."""

    def __init__(self, project: Path, **options: Any) -> None:
        self.turns: list[Any] = []
        self.asked: list[Any] = []
        self.runtime = WorkerRuntime(directory=project, model=FunctionScript(self._answer), **options)
        self.said: list[dict[str, Any]] = []
        self.runtime.bus.on("status", lambda event: self.said.append(dict(event.wire)))

    def _answer(self, request: Any) -> Any:
        self.asked.append(request)
        turn = self.turns.pop(0) if self.turns else None
        return turn(request) if callable(turn) else turn or Turn(say="Done.", usage=TokenUsage(input=100, output=10))

    async def __aenter__(self) -> Typing:
        await self.runtime.initialize()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.runtime.aclose()

    async def type(self, line: str) -> str:
        self.said.clear()
        commands = self.runtime.bus.commands
        assert commands is not None
        await asyncio.wait_for(commands.run(line), PATIENCE)  # type: ignore[attr-defined]
        return "\n".join(each["message"] for each in self.said if each.get("code") == "command")


async def test_cost_is_told_by_worker_and_model_and_an_unknown_price_is_said(project: Path) -> None:
    async with Typing(project) as person:
        assert await person.type("/cost") == "No model was asked anything yet."
        await person.runtime.turn("Hello")
        await person.runtime.turn("Again")
        head, row, total = (await person.type("/cost")).splitlines()
        assert head.split() == ["WORKER", "MODEL", "INPUT", "CACHED", "OUTPUT", "COST"]
        assert row.split()[0] == "default" and row.split()[2:] == ["200", "0", "20", "price", "unknown"]
        assert total.split() == ["total", "200", "0", "20", "price", "unknown"]


async def test_cost_with_prices_is_money(project: Path) -> None:
    name = FunctionScript(lambda request: "Done.").name
    (project / "forge.yaml").write_text(json.dumps({"pricing": {name: {"input": 1000, "output": 1000}}}))
    trust_store(forge_home()).give(project)
    async with Typing(project) as person:
        await person.runtime.turn("Hello")
        assert "$0.1100" in (await person.type("/cost")).splitlines()[1]


async def test_compact_makes_the_history_shorter_and_keeps_what_is_asked(project: Path) -> None:
    async with Typing(project) as person:
        assert "nothing to condense" in await person.type("/compact")
        for number in range(4):
            person.turns = ["An answer that goes on and on. " * 40]
            await person.runtime.turn(f"Question {number} " + "with many words " * 40)
        before = len(person.runtime.history.messages)
        person.turns = ["They asked four questions."]
        said = await person.type("/compact the phone number")
        assert said.startswith("The history is condensed: ") and said.endswith(" after.")
        first, second = (int(word.replace(",", "")) for word in said.split() if word[0].isdigit())
        assert second < first and len(person.runtime.history.messages) < before
        assert "the phone number" in person.asked[-1].messages[-1].text
        assert "They asked four questions." in str(person.runtime.history.messages)
        assert person.runtime.history.messages[-2].text.startswith("Question 3")  # type: ignore[union-attr]
        await person.runtime.turn("Go on")
        assert "They asked four questions." in str(person.asked[-1].messages)


async def test_compact_waits_for_nobody_and_loses_nothing(project: Path) -> None:
    async with Typing(project) as person:
        for _ in range(3):
            person.turns = ["Long answer. " * 100]
            await person.runtime.turn("Say much. " * 50)
        loop = person.runtime._active.loop
        assert loop is not None
        loop.busy = True
        assert "An answer is on its way" in await person.type("/compact")
        loop.busy = False

        def meanwhile(_: Any) -> str:
            person.runtime.history.add(UserMessage(text="One more thing"))
            return "Short."

        person.turns = [meanwhile]
        assert "A new message came meanwhile" in await person.type("/compact")
        assert person.runtime.history.messages[-1] == UserMessage(text="One more thing")


@pytest.mark.parametrize(("file", "begins"), [("", "# Buy milk"), ("talk.md", "# Buy milk"), ("talk.json", '{"id": ')])
async def test_export_is_written_as_the_persons_own_write(project: Path, file: str, begins: str, asked: Any) -> None:
    cards = asked({"approved": True})
    async with Typing(project, approval_mode="interactive", approval_callback=cards) as person:
        await person.runtime.turn("Buy milk")
        assert await person.type(f"/export {file}") == ""
        [written] = project.glob(file or f"session-{person.runtime.session_id[:12]}.md")
        assert written.read_text().startswith(begins) and len(cards) == 1 and cards[0].tool == "write_file"
        outside = await person.type("/export ../../outside.md")
        assert outside and not (project.parent.parent / "outside.md").exists()


async def test_an_export_leaves_out_a_key_that_was_said_before_it_was_stored(project: Path, own_home: Path) -> None:
    key = "canary-key-77120-abcdef"
    async with Typing(project, approval_mode="approve_all") as person:
        await person.runtime.turn(f"My key is {key}")
        ModelKeys(forge_home()).save("anthropic", "https://api.anthropic.com", key)
        person.runtime.tree.redactor.add_secret("DECLARED", "canary-declared-5512")
        await person.runtime.turn("And canary-declared-5512")
        for file in ("talk.md", "talk.json"):
            assert await person.type(f"/export {file}") == ""
            assert "My " in (project / file).read_text() and "canary" not in (project / file).read_text()
        assert key not in known_secrets(forge_home()).text(f"as `forge sessions export` writes it: {key}")


async def test_an_export_that_is_denied_writes_nothing(project: Path) -> None:
    async with Typing(project, approval_mode="auto_deny") as person:
        await person.runtime.turn("Buy milk")
        assert "requires approval" in await person.type("/export talk.md")
        assert not (project / "talk.md").exists()


async def test_model_without_a_name_lists_what_can_be_chosen(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-0123456789abcdef")
    async with Typing(project) as person:
        said = await person.type("/model")
        assert said.startswith("Model: ") and "You can choose:\n  anthropic:" in said and "sk-ant" not in said


async def test_resume_where_no_session_can_be_opened_names_the_command(project: Path) -> None:
    async with Typing(project) as first:
        await first.runtime.turn("Plan the trip")
        id = first.runtime.session_id
    async with Typing(project) as person:
        listed = await person.type("/resume")
        assert listed.splitlines()[1].split()[:2] == ["1", id[:12]] and listed.splitlines()[1].endswith("Plan the trip")
        for typed in ("last", "1", id, id[:8]):
            assert f"forge run --resume {id[:12]}" in await person.type(f"/resume {typed}")
        assert "no number 7" in await person.type("/resume 7")
        assert "no session '../../x'" in await person.type("/resume ../../x")
        assert "the session you are in" in await person.type(f"/resume {person.runtime.session_id}")


async def test_resume_on_a_page_opens_the_other_session_and_ends_this_one(project: Path, own_home: Path) -> None:
    from tests.ui.web.bench import until

    launcher = SessionLauncher(ForgeHome(own_home / ".forge"), project)
    try:
        first = await launcher.start(StartRequest(model=MODEL, input="Plan the trip"))
        journal = own_home / ".forge" / "sessions" / f"{first}.jsonl"
        await until(lambda: "Hello there." in journal.read_text(), "its first turn is recorded")
        await launcher.end(first)
        second = await launcher.start(StartRequest(model=MODEL, input="Another"))
        said: list[str] = []
        bus = launcher.live(second).bus
        bus.on("status", lambda event: said.append(event.wire["message"]))
        bus.emit("command", {"requestId": "c1", "text": "/resume last"}, source="browser")
        await until(lambda: any(f"#/s/{first}/chat" in each for each in said))
        await until(lambda: [each.id for each in launcher.live_sessions()] == [first])
    finally:
        await launcher.close()


def test_resume_at_a_terminal_goes_on_in_the_same_process(desk: Any, terminal: Any) -> None:
    here = desk({"words.yaml": "turns:\n" + 6 * "  - {say: Hello there.}\n"})
    assert here.start("run", "-m", MODEL, "Plan the trip").wait(PATIENCE) == 0
    screen = terminal(here, "run", "-m", MODEL)
    screen.wait_for("default · scripted:words.yaml")
    screen.enter("/resume last")
    screen.wait_for(re.compile("This session ends; [0-9a-f]{12} goes on"))
    screen.wait_for(re.compile("resuming [0-9a-f]{12} in "))
    screen.wait_for("1 turn so far")


def test_a_tool_of_yours_that_the_worker_here_lacks_is_named_with_the_way(desk: Callable[..., Any]) -> None:
    """Made and active, then called beside a forge.yaml whose worker has no user tools."""
    worker = "---\nname: main\ntoolsets: {filesystem: {}}\n---\nYou help.\n"
    place = desk({"forge.yaml": "{}\n", "main.worker": worker})
    place.trust()
    assert place.forge("tools", "new", "todos", "--description", "What is left", "--language", "shell").code == 0
    ran = place.forge("call", "todos")
    assert ran.code == 4 and "'todos' is a tool of yours" in ran.err and "`user_tools:` under `toolsets`" in ran.err
    assert "a tool of yours" not in place.forge("call", "nothing").err
