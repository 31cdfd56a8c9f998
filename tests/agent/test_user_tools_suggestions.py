"""What a session learns from those before it: custom-tools.md §13, case 54. Real sessions, real journals."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.agent.conftest import WORKSPACE, calls
from tests.deadlines import PATIENCE

from golem_forge.agent import user_tools
from golem_forge.agent.files.worker import Worker
from golem_forge.agent.slash.handler import SlashCommands
from golem_forge.storage.home import ForgeHome
from golem_forge.usertools.store import ToolStore
from golem_forge.usertools.suggestions import dismiss_sequence, event_sequence_key

MAKER = Worker(
    name="main",
    toolsets={"filesystem": {}, "search": {}, "user_tools": {"tools": ["*"], "create": True}},
    sandbox=WORKSPACE,
)
NO_MAKER = Worker(
    name="main", toolsets={"filesystem": {}, "search": {}, "user_tools": {"create": False}}, sandbox=WORKSPACE
)


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search is waited for as long as it takes: no result depends on the machine."""
    monkeypatch.setattr(user_tools, "_WAIT_S", PATIENCE)


@pytest.fixture
def home(tmp_path: Path) -> ForgeHome:
    return ForgeHome(tmp_path / "home")


@pytest.fixture
def greet(home: ForgeHome) -> None:
    """A tool of the person's own."""
    folder = home.path / "tools" / "greet"
    folder.mkdir(parents=True)
    (folder / "tool.yaml").write_text('name: greet\ndescription: Greets\nversion: "1"\nentrypoint: greet.sh\n')
    (folder / "greet.sh").write_text("echo hello\n")


@pytest.fixture
def session(play: Callable[..., Any], home: ForgeHome) -> Callable[..., Any]:
    """`await session("a", "b")`: a session whose model works on the notes a and b, a turn each. With `more` turns of
    the model to come it stays open."""

    async def run(*notes: str, worker: Worker = MAKER, more: tuple[Any, ...] = ()) -> Any:
        turns = [turn for note in notes for turn in tidied(note)]
        played = await play([*turns, *more], worker=worker, home=home.path)
        for note in notes:
            (Path(played.runtime.program.root) / f"{note}.md").write_text("TODO\n")
            await played.runtime.turn(f"tidy {note}")
        if not more:
            await played.runtime.aclose()
        return played

    return run


def tidied(note: str) -> tuple[Any, ...]:
    """read → grep → write, the last two in one response, then an answer."""
    path = f"/workspace/{note}.md"
    return (
        calls(("read_file", {"path": path})),
        calls(
            ("grep_files", {"pattern": "TODO", "path": path}),
            ("write_file", {"path": "/workspace/done.md", "content": f"{note}\n"}),
        ),
        "Done.",
    )


def told(played: Any) -> list[str]:
    """What Forge itself has said to the model, as its last request has it."""
    requests = played.script.requests
    return [each.text for each in requests[-1].messages if getattr(each, "kind", "") == "note"] if requests else []


async def test_read_grep_write_four_times_over_two_sessions_54(session: Callable[..., Any]) -> None:
    first = await session("a", "b")
    assert first.seen("toolSuggested") == []
    second = await session("c", "d")
    (event,) = second.seen("toolSuggested")
    assert [each["name"] for each in event.wire["sequence"]] == ["read_file", "grep_files", "write_file"]
    assert event.wire["occurrences"] == 3, "said as soon as it is so"
    assert len(told(second)) == 1, "in the turn that did it for the third time"
    third = await session("e", more=("Good morning.",))
    await third.runtime.turn("hello")
    (event,) = third.seen("toolSuggested")
    read, grep, write = event.wire["sequence"]
    assert event.wire["occurrences"] == 5
    of_note = [{"argument": "path", "template": "/workspace/{name}.md"}]
    assert (read["arguments"], read["parameters"], read["templates"]) == ({}, [], of_note)
    assert grep["arguments"] == {"pattern": "TODO"} and grep["templates"] == of_note, "one path, not two"
    assert write["arguments"] == {"path": "/workspace/done.md"}
    assert write["templates"] == [{"argument": "content", "template": "{name}\n"}]
    assert [(each["name"], each["type"], each["required"]) for each in event.wire["parameters"]] == [
        ("name", "string", True)
    ]
    (line,) = told(third)
    assert "\n" not in line and "5 times in 3 sessions" in line and "create_custom_tool" in line
    assert "grep_files(pattern=TODO, path=/workspace/<name>.md)" in line


async def test_a_fresh_run_hears_of_it_before_its_third_repeat_ends(play: Callable[..., Any], home: ForgeHome) -> None:
    """One turn a session, as `forge run TASK` has; and work that has nothing in common is never mentioned."""

    async def ran(*turns: Any) -> Any:
        played = await play([*turns, "Done."], worker=MAKER, home=home.path)
        for name in "abc":
            (Path(played.runtime.program.root) / f"{name}.md").write_text("TODO\n")
        await played.runtime.turn("work")
        await played.runtime.aclose()
        return played

    def steps(name: str) -> tuple[Any, ...]:
        path = f"/workspace/{name}.md"
        read, grep = calls(("read_file", {"path": path})), calls(("grep_files", {"pattern": "TODO", "path": path}))
        return read, grep, calls(("write_file", {"path": f"/workspace/out/{name}.txt", "content": f"{name} is done\n"}))

    for name in "ab":
        played = await ran(*steps(name))
        assert played.seen("toolSuggested") == [] and told(played) == []
    third = await ran(*steps("c"))
    notes = [
        [each for each in request.messages if getattr(each, "kind", "") == "note"] for request in third.script.requests
    ]
    assert [len(each) for each in notes] == [0, 0, 1, 1], "before the last of its three calls"
    assert "3 times in 3 sessions" in notes[-1][0].text

    other = [("a.md", "x.txt", "one"), ("b.md", "deep/y.py", "def f(): ..."), ("c.md", "z", "a b c")]
    for source, target, text in other:
        given = {"path": f"/workspace/{target}", "content": text}
        played = await ran(calls(("read_file", {"path": f"/workspace/{source}"})), calls(("write_file", given)))
        assert played.seen("toolSuggested") == [] and told(played) == []


async def test_a_session_that_does_something_else_hears_nothing_of_it(session: Callable[..., Any]) -> None:
    await session("a", "b")
    second = await session("c", more=("Good morning.", *tidied("d"), "Good evening."))
    assert len(second.seen("toolSuggested")) == 1
    other = await session(more=("Good morning.", calls(("read_file", {"path": "/workspace/a.md"})), "Read."))
    for said in ("hello", "read it"):
        await other.runtime.turn(said)
    assert other.seen("toolSuggested") == [] and told(other) == []
    for said in ("hello", "tidy d", "good night"):
        await second.runtime.turn(said)
    assert len(second.seen("toolSuggested")) == len(told(second)) == 1


async def test_not_after_two_times_nor_in_one_session(session: Callable[..., Any]) -> None:
    await session("a")
    second = await session("b")
    assert second.seen("toolSuggested") == [] and told(second) == []


async def test_four_times_in_one_session_are_a_habit_of_one_day(session: Callable[..., Any]) -> None:
    played = await session("a", "b", "c", "d")
    assert played.seen("toolSuggested") == []


async def test_once_per_session_and_only_to_who_can_make_tools(session: Callable[..., Any]) -> None:
    await session("a", "b")
    await session("c")
    third = await session("d", "e", "f")
    assert len(third.seen("toolSuggested")) == 1 and len(told(third)) == 1
    other = await session("g", worker=NO_MAKER)
    assert other.seen("toolSuggested") == [] and told(other) == []


async def test_a_resumed_session_is_the_same_session(session: Callable[..., Any], play: Any, home: ForgeHome) -> None:
    await session("a", "b")
    await session("c")
    third = await session("d", "e")
    again = await play(
        ["Yes."], turn="still there?", worker=MAKER, home=home.path, resume=third.runtime._session_bus.bus.session_id
    )
    assert again.seen("toolSuggested") == [] and len(told(again)) == 1, "the line that its history had already"


async def test_a_dismissed_sequence_is_never_offered_again(session: Callable[..., Any], home: ForgeHome) -> None:
    await session("a", "b")
    second = await session("c")
    (event,) = second.seen("toolSuggested")
    dismiss_sequence(home, event_sequence_key(event.wire["sequence"]))
    third = await session("d")
    assert third.seen("toolSuggested") == [] and told(third) == []


async def test_the_tool_that_is_made_of_it_remembers_it_and_ends_it(
    session: Callable[..., Any], play: Any, home: ForgeHome
) -> None:
    await session("a", "b")
    await session("c")
    order = {
        "name": "tidy-note",
        "description": "Copies a note that still has something to do",
        "parameters": [
            {"name": "name", "type": "string", "description": "the note", "required": True},
        ],
    }
    unrelated = {"name": "csv2json", "description": "Converts a table"}
    third = await session(
        "e", more=(calls(("create_custom_tool", unrelated)), calls(("create_custom_tool", order)), "Made.", "Hello.")
    )
    await third.runtime.turn("make it")
    assert [status for status, _ in third.script.results(5)] == ["success"], third.script.results(5)
    book = ToolStore(home)
    made = dict(book.rows("SELECT name, sequence_ms FROM creations WHERE suggestion <> ''"))
    assert list(made) == ["tidy-note"] and made["tidy-note"] > 0
    await third.runtime.aclose()
    fourth = await session("d")
    assert fourth.seen("toolSuggested") == []


async def test_a_secret_never_appears(play: Any, home: ForgeHome) -> None:
    canary = "canary-5f2c-and-not-a-word"

    def send(url: str, token: str, body: dict[str, str]) -> str:
        """Send."""
        return "sent"

    def fetch(url: str) -> str:
        """Fetch."""
        return "there"

    async def once() -> Any:
        turn = calls(
            ("fetch", {"url": "https://example.test/x"}),
            ("send", {"url": "https://example.test/x", "token": canary, "body": {"api_key": canary, "n": "1"}}),
        )
        played = await play([turn, "Done."], turn="send it", worker=MAKER, home=home.path, tools=[fetch, send])
        await played.runtime.aclose()
        return played

    await once()
    await once()
    third = await once()
    (event,) = third.seen("toolSuggested")
    wire = json.dumps(event.wire)
    assert canary not in wire and "redacted" not in wire and "secret" not in wire
    parameters = {each["name"]: each for each in event.wire["parameters"]}
    assert list(parameters) == ["body", "token"], "the same each time, and still a parameter"
    assert all("example" not in each["description"] for each in parameters.values())
    assert event.wire["sequence"][1]["arguments"] == {"url": "https://example.test/x"}
    kept = (home.path / "cache" / "suggestions.json").read_text()
    assert canary not in kept and "example.test" not in kept, "what is kept between sessions holds no argument"


async def test_a_third_run_is_followed_by_the_offer_to_rate_once(play: Any, home: ForgeHome, greet: None) -> None:
    async def greeted(times: int) -> list[str]:
        run = ("run_custom_tool", {"tool_name": "greet"})
        played = await play([calls(*[run] * times), "Done."], turn="greet them", worker=MAKER, home=home.path)
        said = [each.wire["message"] for each in played.seen("status")]
        assert [each.wire["status"] for each in played.seen("toolResult")] == ["success"] * times
        await played.runtime.aclose()
        return [text for text in said if "/rate" in text]

    assert await greeted(2) == []
    assert await greeted(2) == ["rate it: /rate greet good|bad [note]"]
    assert await greeted(1) == []


async def test_a_run_that_ends_the_session_offers_nothing(
    play: Any, home: ForgeHome, greet: None, caplog: pytest.LogCaptureFixture
) -> None:
    played = await play([], worker=MAKER, home=home.path)
    commands = SlashCommands(played.runtime)
    for _ in range(3):
        await commands.run("/greet")
    await commands.aclose()
    await played.runtime.aclose()
    await asyncio.sleep(0.05)
    assert [each.wire["status"] for each in played.seen("toolResult")] == ["success"] * 3
    assert not caplog.records, caplog.text


async def test_rate_is_kept_with_the_tool(play: Any, home: ForgeHome, greet: None) -> None:
    played = await play([], worker=NO_MAKER, home=home.path)
    commands = SlashCommands(played.runtime)

    async def say(text: str) -> str:
        before = len(played.events)
        await commands.run(text)
        return [each.wire["message"] for each in played.events[before:] if each.type == "status"][-1]

    assert await say('/rate greet good "quick and right"') == "greet: 1 good, 0 bad"
    assert await say("/rate greet BAD") == "greet: 1 good, 1 bad"
    assert ToolStore(home).ratings("greet").notes == ("quick and right",)
    assert "did you mean 'greet'?" in await say("/rate gret good")
    assert "is not good or bad" in await say("/rate greet great")
    assert "/rate NAME good|bad" in await say("/rate greet")
    assert "/rate NAME good|bad" in await say("/help")
    await commands.aclose()
