"""What a running tool asks in a session with a person: a form, the session's model, its zones, a notice; and the
program's own prompts as commands. A client in the person's place: tests/acceptance/test_mcp_offers.py."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.acceptance.mcp_bench import Forms, Talk, answering
from tests.acceptance.user_tools import Cards

from golem_forge import ToolContext, WorkerRuntime, open_session, prompt, resource, tool
from golem_forge.agent.files.worker_file import WorkerProblems, parse_worker
from golem_forge.agent.model.scripted import FunctionScript
from golem_forge.agent.modules.exports import ExportError, exported_offers, exported_tools
from golem_forge.agent.slash.handler import SlashCommands
from golem_forge.core.calls import Caller
from golem_forge.core.errors import ToolFailed
from golem_forge.tools.factory import match_uri
from golem_forge.tools.validation import ToolDefinitionError
from golem_forge.toolsets import client
from golem_forge.toolsets.client import LOGS_A_SECOND

NAME = {"type": "object", "properties": {"name": {"type": "string", "minLength": 2}}, "required": ["name"]}


@tool(needs_approval=False)
async def ask_name(*, ctx: ToolContext) -> str:
    """Asks for a name."""
    said = await ctx.ask("What is your name?", NAME)
    return f"{said.action} {dict(said.values)}"


@tool(needs_approval=False)
def ask_model(*, ctx: ToolContext) -> str:
    """Asks the model."""
    return ctx.sample_blocking("two and two?", system="Be short.").text


@tool(needs_approval=False)
async def look_around(*, ctx: ToolContext) -> str:
    """Says where it is, and what it sees."""
    await ctx.log("warning", "careful\x1b[31m now")
    return " ".join(root.uri for root in await ctx.roots())


@tool(needs_approval=False)
async def ask_on(*, ctx: ToolContext) -> int:
    """Asks until it may not."""
    for number in range(100):
        try:
            await ctx.roots()
        except ToolFailed as error:
            return number if "may ask 20 times" in error.message else -1
    return 100


@tool(needs_approval=False)
async def ask_nested(*, ctx: ToolContext) -> str:
    """Asks for what cannot be shown."""
    await ctx.ask("Who?", {"type": "object", "properties": {"who": {"type": "object"}}})
    return "shown"


@tool(needs_approval=False)
async def flood(*, ctx: ToolContext) -> None:
    """Says too much."""
    for number in range(2 * LOGS_A_SECOND):
        await ctx.log("warning", f"flood {number}")


@prompt(needs_approval=False)
def plan_day(day: str, hours: int = 8) -> list[Any]:
    """Plan a day."""
    return [f"Plan {hours + 1} hours of {day}."]


TOOLS = [ask_name, ask_model, look_around, ask_on, ask_nested, flood, plan_day]


async def talk_with(tmp_path: Path, turns: Sequence[Any], cards: Cards, forms: Forms) -> tuple[Talk, list[Any]]:
    """The calls of a model, with a person before them; what it was told, and what the person was shown."""
    talk, shown = Talk(list(turns)), []
    (tmp_path / "program").mkdir()
    talk.runtime = WorkerRuntime(
        directory=tmp_path / "program",
        home=tmp_path / "home",
        model=FunctionScript(talk.next_turn),
        tools=TOOLS,
        approval_callback=cards,
    )
    async with asyncio.timeout(60), talk.runtime as runtime:
        detach = answering(runtime.tree, cards, forms)
        runtime.tree.bus.on("status", lambda event: shown.append(dict(event.wire)))
        await talk.turn("go")
        detach()
    return talk, shown


def _inside(text: str) -> str:
    """Without the lines around a tool's output."""
    return "\n".join(line for line in text.splitlines() if not line.startswith("--- "))


async def test_a_person_is_asked_in_the_place_of_a_client(tmp_path: Path) -> None:
    names = ("ask_name", "ask_model", "look_around", "ask_on", "ask_nested")
    calls = [[(name, {})] for name in names]
    turns = [calls[0], calls[1], "four", *calls[2:], "done"]
    forms = Forms({"action": "accept", "values": {"name": "A"}}, {"action": "accept", "values": {"name": "Ada"}})
    cards = Cards()
    talk, shown = await talk_with(tmp_path, turns, cards, forms)
    told = [(status, _inside(text)) for index in (1, 3, 4, 5, 6) for status, text in talk.told(index)]
    assert told[0] == ("success", "accept {'name': 'Ada'}")
    assert len(forms) == 2, "asked again: the name was too short"
    assert (forms[0].title, forms[0].message) == ("The tool 'ask_name' asks", "What is your name?")
    assert told[1] == ("success", "four")
    (card,) = [card for card in cards if card.type == "sampling"]
    assert "The tool 'ask_model' wants an answer" in card.description and "two and two?" in card.payload
    assert told[2] == ("success", "forge://zone/workspace forge://zone/user_tools")
    (notice,) = [each for each in shown if "careful" in each["message"]]
    assert notice["type"] == "warning" and "\x1b" not in notice["message"] and "look_around: " in notice["message"]
    assert told[3] == ("success", "20")
    assert told[4][0] == "execution_failed" and "cannot be shown" in told[4][1]


async def test_a_call_may_log_so_many_lines_in_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last one says that more are left out; in the next second there is room again."""
    lines_in_a_second, said = int(1.5 * LOGS_A_SECOND), count()
    monkeypatch.setattr(client, "time", SimpleNamespace(monotonic=lambda: next(said) // lines_in_a_second))
    _, shown = await talk_with(tmp_path, [[("flood", {})], "done"], Cards(), Forms())
    floods = [each["message"] for each in shown if "flood" in each["message"]]
    second = floods[LOGS_A_SECOND:]
    assert [("left out" in each) for each in floods] == [number == LOGS_A_SECOND - 1 for number in range(len(floods))]
    assert floods[LOGS_A_SECOND - 1].endswith(f"flood {LOGS_A_SECOND - 1} (more lines of this second are left out)")
    assert second[0].endswith(f"flood {lines_in_a_second}") and len(second) == 2 * LOGS_A_SECOND - lines_in_a_second


async def test_a_model_that_a_person_refuses_is_not_asked(tmp_path: Path) -> None:
    talk, _ = await talk_with(tmp_path, [[("ask_model", {})], "done"], Cards(yes=False), Forms())
    status, text = talk.told(1)[0]
    assert status == "execution_failed" and "the person refused it" in text


async def test_where_nobody_is_there_it_is_refused_and_only_tools_may_ask(tmp_path: Path) -> None:
    (tmp_path / "program").mkdir()
    async with open_session(tmp_path / "program", home=tmp_path / "home", tools=TOOLS) as session:
        assert "Nobody is there" in (await session.call("ask_name", {})).error
        assert "no model" in (await session.call("ask_model", {})).error
        for caller in (Caller.LLM, Caller.HUMAN, Caller.MCP):
            refused = await session.call("client:ask", {"message": "x", "schema": NAME}, caller=caller)
            assert refused.status == "tool_not_found"
        assert (await session.call("prompt:plan_day", {"day": "monday"})).status == "tool_not_found"  # no model's tool
        assert (await session.call("prompt:plan_day", {"day": "monday"}, caller=Caller.HUMAN)).ok
        assert not [name for name in session.catalog.names() if ":" in name]
        assert not [each for each in session.catalog.search("plan a day") if ":" in each.name]


async def test_a_prompt_of_the_program_is_a_command(tmp_path: Path) -> None:
    (tmp_path / "program").mkdir()
    said: list[dict[str, Any]] = []
    runtime = WorkerRuntime(
        directory=tmp_path / "program", home=tmp_path / "home", model=FunctionScript(lambda request: "no"), tools=TOOLS
    )
    async with asyncio.timeout(60), runtime:
        runtime.tree.bus.on("status", lambda event: said.append(dict(event.wire)))
        commands = SlashCommands(runtime)
        await commands.run("/plan_day --day monday --hours 2")
        (text,) = [each["message"] for each in said if each.get("code") == "prefill"]
        assert text == "[prompt 'plan_day' of this program]\nPlan 3 hours of monday."
        await commands.run("/help plan_day")
        assert "Plan a day." in said[-1]["message"] and "--day" in said[-1]["message"]
        await commands.aclose()


@pytest.mark.parametrize(
    ("block", "says"),
    [
        ("{module: ./t.py, prompts: []}", "main.worker:5: toolsets.custom.prompts: expected at least one name"),
        (
            "{module: ./t.py, promts: [a]}",
            "main.worker:5: toolsets.custom.promts: unknown key 'promts'; did you",
        ),
        ("{module: ./t.py, resources: [_a]}", "main.worker:5: toolsets.custom.resources: '_a' cannot be exported"),
        ("{module: ./t.py, tools: [a], prompts: [a]}", "'a' is named under 'tools' too"),
        ("{module: ./t.py}", "tools"),
        ("{prompts: [a]}", "module"),
    ],
)
def test_what_is_wrong_with_a_block_is_told_with_its_line(block: str, says: str) -> None:
    text = f"---\nname: main\ndescription: x\ntoolsets:\n  custom: {block}\n---\nHello.\n"
    read = parse_worker(text.encode(), "main.worker")
    assert isinstance(read, WorkerProblems)
    assert says in str(read.found)


def _wrong(uri: str, **options: Any) -> Any:
    def day_note(day: str) -> str:
        return day

    return resource(uri, **options)(day_note)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: _wrong("notes://{dya}"), "names {dya}, which the function does not take; did you mean 'day'?"),
        (lambda: _wrong("notes://today"), "needs 'day', which the URI does not name"),
        (lambda: _wrong("notes://{day}{day}"), "is not a URI for a resource"),
        (lambda: _wrong("forge://{day}"), "is not a URI for a resource"),
        (lambda: _wrong("{day}"), "is not a URI for a resource"),
        (
            lambda: _wrong("notes://{day}", complete={"dayy": []}),
            "'dayy', which is not an argument; did you mean 'day'?",
        ),
    ],
)
def test_a_resource_that_cannot_be_meant_is_refused_where_it_stands(make: Any, says: str) -> None:
    with pytest.raises(ToolDefinitionError) as refused:
        make()
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("template", "uri", "found"),
    [
        ("a://b", "a://b", {}),
        ("a://b", "a://bc", None),
        ("a://{x}", "a://one%2Ftwo", {"x": "one/two"}),
        ("a://{x}", "a://one/two", None),
        ("a://{x}", "a://", None),
        ("a://{+x}", "a://one/two", {"x": "one/two"}),
        ("a://{x}/b/{y}.txt", "a://1/b/2.txt", {"x": "1", "y": "2"}),
        ("a://{x}/b/{y}.txt", "a://1/b/2.tx", None),
        ("a://{x}-{y}", "a://1-2-3", {"x": "1", "y": "2-3"}),
        ("a://{x}-{y}-{z}.", "a://" + "-" * 2000, None),
    ],
)
def test_a_uri_is_matched_in_one_pass(template: str, uri: str, found: dict[str, str] | None) -> None:
    assert match_uri(template, uri) == found


@pytest.mark.parametrize(
    ("key", "name", "says"),
    [
        ("prompts", "plan_dya", "Prompt 'plan_dya' not found in ./t.py (did you mean 'plan_day'?). Available exports:"),
        ("prompts", "NAME", "'NAME' in ./t.py is no prompt: make it one with @prompt"),
        ("prompts", "ask_name", "'ask_name' in ./t.py is no prompt"),
        ("resources", "plan_day", "'plan_day' in ./t.py is no resource: make it one with @resource"),
        ("tools", "plan_day", "'plan_day' in ./t.py is not a tool; name it under 'prompts'"),
    ],
)
def test_an_export_that_is_something_else_is_told(key: str, name: str, says: str) -> None:
    module = sys.modules[__name__]
    listed: Any = [name] if key == "tools" else {key: [name]}
    read: Any = exported_tools if key == "tools" else exported_offers
    with pytest.raises(ExportError) as refused:
        read(module, listed, "./t.py")
    assert says in str(refused.value)


async def test_a_message_that_is_none_asks_nobody(tmp_path: Path) -> None:
    wrong: list[Any] = [5, {"type": "text"}, {"type": "text", "text": 5}, {"type": "video"}, {}, [], None]

    @tool(needs_approval=False)
    async def ask_wrongly(which: int, *, ctx: ToolContext) -> str:
        """Sends what is no message."""
        return (await ctx.sample([{"role": "user", "content": wrong[which]}])).text

    (tmp_path / "program").mkdir()
    async with open_session(tmp_path / "program", home=tmp_path / "home", tools=[ask_wrongly]) as session:
        for which in range(len(wrong)):
            outcome = await session.call("ask_wrongly", {"which": which})
            assert outcome.status == "execution_failed"
            assert "a message is" in outcome.error or "a block of type text needs 'text'" in outcome.error
