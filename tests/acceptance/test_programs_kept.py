"""A program that worked becomes a tool: `create_custom_tool(from_run=…)`, `/keep`, suggestions. programs.md §3."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import pytest
from tests.acceptance.user_tools import Bench, card_text, run
from tests.deadlines import PATIENCE

from golem_forge import ToolResult, tool
from golem_forge.agent.model.scripted import FunctionScript, Turn, TurnCall
from golem_forge.agent.runtime import WorkerRuntime
from golem_forge.events.journal_records import read
from golem_forge.tools.validation import InputInvalid
from golem_forge.usertools.kept_program import with_parameters

CODE = "run_code"
COUNTING = """\
from forge_tools import grep_files, read_file, answer

found = grep_files(pattern="TODO", path="/workspace/src")["files"]
answer({"files": len(found), "first": read_file("/workspace/src/a.txt").strip()})
"""


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    made = Bench(tmp_path)
    for folder in ("src", "lib"):
        (made.workspace / folder).mkdir()
        for number, name in enumerate("abc"):
            (made.workspace / folder / f"{name}.txt").write_text(f"TODO {folder} {number}\n")
    (made.workspace / "lib/c.txt").write_text("done\n")
    return made


async def kept(session: Any, **args: Any) -> Any:
    given = {"name": "count-todos", "description": "Counts what is left to do.", "from_run": "last"}
    return await session.call("create_custom_tool", given | args)


async def test_c8_from_run_to_tool_to_the_next_session(bench: Bench) -> None:
    async with bench.session() as session:
        done = await session.call(CODE, {"code": COUNTING})
        assert done.ok, done.text
        made = await kept(session, from_run=done.call.id, parameters={"folder": "/workspace/src"})
        assert made.ok, made.text
        assert "tool.yaml, count-todos.py, recorded_calls.json. Its test replays the calls of the run." in made.text
    manifest = (bench.tools / "count-todos/tool.yaml").read_text()
    source = (bench.tools / "count-todos/count-todos.py").read_text()
    assert "calls: [grep_files, read_file]" in manifest and "output: json" in manifest
    assert "calls: recorded_calls.json" in manifest and "arguments: stdin-json" in manifest
    assert 'path=forge_parameters["folder"])' in source and '"/workspace/src/a.txt"' in source
    async with bench.session() as session:
        before = len(bench.cards)
        used = await run(session, "count-todos", {"folder": "/workspace/lib"})
        assert used.ok, used.text
        assert json.loads(used.text) == {"files": 2, "first": "TODO src 0"}
        assert used.result.structured == {"files": 2, "first": "TODO src 0"}
        (card,) = bench.cards[before:]
        assert card.type == "command" and "forge_parameters" not in card_text(card), "its creation showed it"
        assert (await session.call("count-todos", {"folder": "/workspace/src"})).ok
    assert bench.cards.of_trust() == []
    (bench.tools / "count-todos/count-todos.py").write_text(source.replace("TODO", "todo"))
    bench.cards.yes = False
    async with bench.session() as session:
        refused = await run(session, "count-todos", {"folder": "/workspace/src"})
    assert refused.status == "approval_denied" and "todo" in bench.cards.last.changed + bench.cards.last.diff


async def test_its_test_makes_no_call_and_notices_another_program(bench: Bench) -> None:
    async with bench.session() as session:
        assert (await session.call(CODE, {"code": COUNTING})).ok
        assert (await kept(session)).ok
        for each in ("a", "b", "c"):
            (bench.workspace / f"src/{each}.txt").unlink()
    tested = bench.forge_here("tools", "test", "count-todos", "--yes")
    assert tested.code == 0 and "ok replays the run" in tested.out, tested
    source = bench.tools / "count-todos/count-todos.py"
    source.write_text(source.read_text().replace("TODO", "FIXME"))
    failed = bench.forge_here("tools", "test", "count-todos", "--yes")
    assert failed.code == 1 and "FAIL replays the run" in failed.out, failed


NO_TEST = [
    (
        "from forge_tools import read_file\nprint(len(open('src/a.txt').read()), read_file('src/a.txt'))",
        "may read files itself (open)",
    ),
    ("from forge_tools import read_file\nprint(read_file('src/a.txt') * 2000)", "too long"),
    ("from forge_tools import leak\nprint(len(leak()))", "something secret"),
    ("import forge_tools\nprint(forge_tools.picture().mime)", "an image"),
    ("from forge_tools import search, read_file\nprint(search('read'), read_file('src/a.txt'))", "search"),
    ("import tools\ntools.help('read_file')\nprint(tools.read_file('src/a.txt'))", "help"),
    (
        "from forge_tools import read_file, ToolError\ntry:\n    read_file('gone')\n"
        "except ToolError as error:\n    print(error.code)",
        "the code of a call that failed",
    ),
]


async def test_a_run_that_cannot_be_replayed_gets_no_test_and_says_so(bench: Bench) -> None:
    @tool(needs_approval=False)
    def leak() -> str:
        """Says what it should not."""
        return "the key is canary-secret-77"

    @tool(needs_approval=False)
    def picture() -> ToolResult:
        """A picture."""
        block = {"type": "image", "data": base64.b64encode(b"1234").decode(), "mimeType": "image/png"}
        return ToolResult({"kind": "text", "content": ""}, text="", content=(block,))

    async with bench.session(tools=[leak, picture]) as session:
        session.state.redactor.add_secret("KEY", "canary-secret-77")
        for number, (code, why) in enumerate(NO_TEST):
            assert (await session.call(CODE, {"code": code})).ok, code
            made = await kept(session, name=f"kept-{number}")
            assert made.ok and "It has no test:" in made.text and why in made.text, made.text
            assert not (bench.tools / f"kept-{number}/recorded_calls.json").exists()
            assert any("it has no test" in each for each in bench.cards.last.warnings)


NOT_KEPT: list[tuple[dict[str, Any], str]] = [
    ({"from_run": "nothing"}, "no run_code call 'nothing' in this session"),
    ({"parameters": {"x": "not there"}}, 'x: the program has no literal "not there"'),
    ({"parameters": {"x": None}}, "x: "),
    ({"parameters": [{"name": "x"}]}, "maps each name to the literal"),
    ({"source": "print(1)"}, "source: comes from the program"),
    ({"parameters": {"a b": "/workspace/src"}}, "parameters[0].name"),
]


async def test_what_cannot_be_kept_is_refused_and_nothing_is_written(bench: Bench) -> None:
    async with bench.session() as session:
        assert (await session.call(CODE, {"code": COUNTING})).ok
        cards = len(bench.cards)
        for args, why in NOT_KEPT:
            refused = await kept(session, **args)
            assert refused.status == "input_invalid" and why in refused.text, refused.text
    assert len(bench.cards) == cards and not (bench.tools / "count-todos").exists()


async def test_a_failed_program_and_one_with_a_secret_are_not_kept(bench: Bench) -> None:
    async with bench.session() as session:
        failed = await session.call(CODE, {"code": "raise SystemExit(3)"})
        assert "ended with execution_failed" in (await kept(session, from_run=failed.call.id)).text
        session.state.redactor.add_secret("KEY", "canary-secret-77")
        assert (await session.call(CODE, {"code": "print(len('canary-secret-77'))"})).ok
        assert "holds a secret" in (await kept(session)).text
    assert not bench.cards


async def test_a_denied_call_is_not_among_its_calls(bench: Bench) -> None:
    bench.cards.yes = False
    code = (
        "from forge_tools import write_file, file_exists, ToolDenied\n"
        "try:\n    write_file(path='x', content='1')\nexcept ToolDenied:\n    print(bool(file_exists(path='x')))"
    )
    async with bench.session() as session:
        assert (await session.call(CODE, {"code": code})).ok
        bench.cards.yes = True
        assert (await kept(session)).ok
    assert "calls: [file_exists]" in (bench.tools / "count-todos/tool.yaml").read_text()
    assert bench.forge_here("tools", "test", "count-todos", "--yes").code == 0


async def test_a_call_that_failed_is_among_its_calls_and_fails_again_in_its_test(bench: Bench) -> None:
    code = (
        "from forge_tools import read_file, file_exists, ToolError\nfile_exists(path='x')\n"
        "try:\n    read_file('gone')\nexcept ToolError as error:\n    print(error.status, error.text)"
    )
    async with bench.session() as session:
        assert (await session.call(CODE, {"code": code})).ok
        assert (await kept(session)).ok
        assert "calls: [file_exists, read_file]" in (bench.tools / "count-todos/tool.yaml").read_text()
        used = await run(session, "count-todos")
    assert used.ok and "execution_failed File not found" in used.text, used.text


async def test_a_program_that_runs_a_tool_through_another_is_told_the_form_that_can_be_kept(bench: Bench) -> None:
    bench.tool("hi", "echo hi\n")
    code = "from forge_tools import call\nprint(call('run_custom_tool', tool_name='hi'))"
    async with bench.session() as session:
        assert (await session.call(CODE, {"code": code})).ok
        refused = await kept(session)
        assert refused.status == "input_invalid" and "let it call hi by name" in refused.text, refused.text
        assert (await session.call(CODE, {"code": "from forge_tools import hi\nprint(hi())"})).ok
        assert (await kept(session)).ok
        assert (await run(session, "count-todos")).text.strip() == "hi"


async def test_a_tool_finds_by_search_what_it_lists_and_no_more(bench: Bench) -> None:
    source = "from forge_tools import search\nprint([each.__name__ for each in search('file', 20)])"
    bench.python("finds", source, calls=["read_file"])
    async with bench.session() as session:
        assert (await run(session, "finds")).text.strip() == "['read_file']"


@pytest.mark.parametrize(
    ("code", "literals", "made"),
    [
        (
            "x = 'a'\ny = f'{x}a'\nz = 'a' 'b'\nprint('a', x)",
            {"p": "a"},
            ["x = P", "f'{x}a'", "'a' 'b'", "print(P, x)"],
        ),
        ("é = 'ü'; x = ['ü', 1]", {"p": "ü"}, ["é = P; x = [P, 1]"]),
        ("x = [1, 2]\ny = {'k': [1, 2]}", {"p": [1, 2]}, ["x = P", "y = {'k': P}"]),
        ("x = -1; y = True; z = 1", {"p": -1}, ["x = P; y = True; z = 1"]),
        ("match v:\n    case 'a':\n        w = 'a'", {"p": "a"}, ["case 'a':", "w = P"]),
        ("'''a'''\nfrom __future__ import annotations\nx = 'a'", {"p": "a"}, ["'''a'''\nfrom __future__", "x = P"]),
        ("'''b\u2028c\x0cd'''\nx = 'a'", {"p": "a"}, ["'''b\u2028c\x0cd'''", "x = P"]),
        ("x = find('a')['a']\ny = {'k': 'a'}['k']", {"p": "a"}, ["x = find(P)['a']", "y = {'k': P}['k']"]),
        ("d = {}; d['a'] = 1; x = d['a']", {"p": "a"}, ["d[P] = 1; x = d[P]"]),
        ("d = {'a': 'b'}; x = d['a']", {"p": "a"}, ["d = {P: 'b'}; x = d[P]"]),
        ("longer = 'an a' + 'a'; x = f(a='a')", {"p": "a"}, ["longer = 'an a' + P; x = f(a=P)"]),
        ("# b\x0cc\x1cd\x85e\nx = 'a'", {"p": "a"}, ["# b\x0cc\x1cd\x85e", "x = P"]),
        ("y = 'b'\rx = 'a'", {"p": "a"}, ["y = 'b'\rx = P"]),
        ("y = 'b'\r\nx = 'a'", {"p": "a"}, ["y = 'b'\r\nx = P"]),
    ],
)
def test_only_literals_that_stand_alone_are_replaced(code: str, literals: Any, made: list[str]) -> None:
    text = with_parameters(code, literals).replace('forge_parameters["p"]', "P")
    assert all(each in text for each in made), text
    compile(text, "x", "exec")


def test_a_name_of_its_own_and_overlapping_literals_are_refused() -> None:
    for code, literals in (
        ("forge_parameters = {}\nx = 'a'", {"p": "a"}),
        ("x = ['a', 'b']", {"p": ["a", "b"], "q": "a"}),
    ):
        with pytest.raises(InputInvalid):
            with_parameters(code, literals)


class Talk:
    """A worker whose model says what it is told, in one home; somebody answers yes."""

    def __init__(self, bench: Bench, *turns: Any) -> None:
        self.turns = list(turns)
        self.requests: list[Any] = []
        self.cards = bench.cards
        self.said: list[str] = []
        self.runtime = WorkerRuntime(
            directory=bench.workspace, home=bench.home, model=FunctionScript(self._next), approval_callback=bench.cards
        )
        self.runtime.bus.on("status", lambda event: self.said.append(str(event.wire.get("message"))))

    def _next(self, request: Any) -> Any:
        self.requests.append(request)
        turn = self.turns.pop(0)
        return turn if isinstance(turn, str) else Turn(calls=tuple(TurnCall(tool=t, args=a) for t, a in turn))

    async def type(self, line: str) -> str:
        self.said.clear()
        await asyncio.wait_for(self.runtime.bus.commands.run(line), PATIENCE)
        return "\n".join(self.said)


PAIRS = """
from forge_tools import file_exists, grep_files
for name in ("a", "b", "c"):
    file_exists(path=f"/workspace/src/{name}.txt")
    grep_files(pattern="TODO", path=f"/workspace/src/{name}.txt")
"""


async def test_keep_makes_a_tool_of_the_last_program(bench: Bench) -> None:
    talk = Talk(bench, [(CODE, {"code": COUNTING})], "done")
    async with talk.runtime:
        assert "no program in this session" in await talk.type("/keep")
        await talk.runtime.turn("go")
        assert await talk.type("/keep") == ""
        assert "already exists" in await talk.type("/keep grep_read")
        assert "identical to custom tool 'grep_read'" in await talk.type("/keep todo-counter")
        assert "One name" in await talk.type("/keep a b")
    assert sorted(each.name for each in bench.tools.iterdir()) == ["grep_read"]
    assert [card.tool for card in bench.cards] == ["create_custom_tool"]
    assert bench.forge_here("tools", "test", "grep_read", "--yes").code == 0


async def test_a_suggestion_proposes_the_program_of_the_last_run(bench: Bench) -> None:
    """The same calls in programs of two sessions: the third one's model is told, with its own program filled in."""
    for _ in range(2):
        talk = Talk(bench, [(CODE, {"code": PAIRS})], "done")
        async with talk.runtime:
            await talk.runtime.turn("go")
    talk = Talk(bench, [(CODE, {"code": PAIRS})], "done", "and on")
    async with talk.runtime:
        await talk.runtime.turn("go")
        await talk.runtime.turn("go on")
        journal = [each for each in read(talk.runtime.journal.path) if each.get("tool") == CODE]
    run_id = journal[0]["call"]
    notes = [each.text for each in talk.requests[-1].messages if getattr(each, "kind", "") == "note"]
    assert len(notes) == 1 and "file_exists" in notes[0] and "grep_files" in notes[0], notes
    assert f'create_custom_tool(from_run="{run_id}", name="file_grep"' in notes[0]
