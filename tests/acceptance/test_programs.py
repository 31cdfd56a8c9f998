"""Programs that call tools: `run_code`. programs.md §5. Every program is a real process in real walls."""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.acceptance.mcp_bench import McpBench, settled
from tests.acceptance.user_tools import Bench
from tests.deadlines import LONG, PATIENCE, ever_longer, within

from golem_forge import ToolResult, tool
from golem_forge.agent.model.scripted import FunctionScript, Turn, TurnCall
from golem_forge.agent.runtime import WorkerRuntime
from golem_forge.events.journal_files import journal_path
from golem_forge.events.journal_records import CallRecord, CallRecords, read
from golem_forge.tools.context import ProgramCalls
from golem_forge.toolsets.tool_search import definition_tokens
from golem_forge.usertools.run import tool_values

CODE = "run_code"


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def recorded(bench: Bench, session: Any) -> list[CallRecord]:
    """The session's calls as its journal has them, in the order they were asked for."""
    states = CallRecords()
    for record in read(journal_path(bench.home, session.id)):
        states.add(record)
    return list(states.calls.values())


async def program(session: Any, code: str, **more: Any) -> Any:
    return await session.call(CODE, {"code": code, **more})


class Choosing(list[Any]):
    """A person who says yes, and keeps the answer for the session where it covers a directory."""

    def __call__(self, card: Any) -> dict[str, Any]:
        self.append(card)
        wide = [each for each in card.choices if "/**" in each.rule and each.scope == "session"]
        return {"approved": True, "choice": wide[0].id} if wide else {"approved": True}


async def test_c1_sixty_files_three_calls_each_one_turn_one_question(bench: Bench) -> None:
    (bench.workspace / "in").mkdir()
    for number in range(60):
        (bench.workspace / f"in/{number}.txt").write_text(f"line {number}\n")
    person = Choosing()
    async with bench.session(approval_callback=person) as session:
        done = await program(
            session,
            """
from forge_tools import read_file, file_exists, write_file, answer
total = 0
for number in range(60):
    path = f"/workspace/in/{number}.txt"
    assert file_exists(path=path)
    text = read_file(path=path)
    write_file(path=f"/workspace/out/{number}.txt", content=text.upper())
    total += len(text)
answer({"characters": total})
""",
        )
        assert done.ok, done.text
        assert "Answer: " + json.dumps({"characters": 470}) in done.text
        assert [line for line in done.text.splitlines() if line.startswith("[")] == [
            "[file_exists: 60 calls]",
            "[read_file: 60 calls]",
            "[write_file: 60 calls]",
        ]
        calls = recorded(bench, session)
    assert len(person) == 1 and [each["name"] for each in person[0].worker_path] == ["default", CODE]
    (outer,) = [each for each in calls if each.tool == CODE]
    inside = [each for each in calls if each.parent == outer.id]
    assert len(inside) == 180 and {each.caller for each in inside} == {"tool"}
    assert {each.status for each in inside} == {"success"}
    assert (bench.workspace / "out/59.txt").read_text() == "LINE 59\n"
    listed = bench.forge_here("log", "--session", session.id, "--limit", "3")
    assert listed.code == 0 and all(f"  {each}" in listed.out for each in ("└ write_file",)), listed.out


async def test_c2_a_denied_call_is_an_exception_and_asked_about_once_a_program(bench: Bench) -> None:
    bench.cards.yes = False
    async with bench.session() as session:
        done = await program(
            session,
            """
from forge_tools import write_file, ToolDenied
for path in ("/workspace/x", "/workspace/x", "/workspace/y"):
    try:
        write_file(path=path, content="1")
    except ToolDenied as error:
        print(error.status, error.text)
print("goes on")
""",
        )
        assert done.ok and "goes on" in done.text, done.text
        assert "[write_file: 3 calls, 3 failed (3 denied)]" in done.text
        assert "denied the same call before" in done.text.splitlines()[1]
        assert len(bench.cards) == 2, "the second one is the first"
        again = await program(
            session, "from forge_tools import write_file\nwrite_file(path='/workspace/x', content='1')"
        )
        assert again.status == "execution_failed" and len(bench.cards) == 3, "another program asks again"
        calls = recorded(bench, session)
    assert [each.status for each in calls if each.tool == "write_file"] == ["approval_denied"] * 4
    assert not (bench.workspace / "x").exists()


async def test_c2_a_call_that_many_threads_make_is_asked_about_once(bench: Bench) -> None:
    bench.cards.yes = False
    code = """
from forge_tools import ToolDenied, answer, map, write_file
def tried(_):
    try:
        write_file(path="x", content="1")
    except ToolDenied as error:
        return error.status
answer(list(map(tried, range(100), at_once=16)))
"""
    async with bench.session() as session:
        done = await program(session, code)
    assert done.text.count('"approval_denied"') == 100, done.text
    assert len(bench.cards) == 1 and not (bench.workspace / "x").exists()


async def test_c3_an_interrupt_in_call_forty_ends_everything(bench: Bench) -> None:
    forty = asyncio.Event()

    @tool(needs_approval=False)
    async def step(number: int) -> int:
        """One step."""
        if number == 40:
            forty.set()
            await asyncio.sleep(LONG)
        return number

    async with bench.session(tools=[step]) as session:
        running = asyncio.ensure_future(
            program(
                session,
                "import forge_tools\nfor n in range(1, 100):\n    print(forge_tools.step(number=n), flush=True)",
            )
        )
        await asyncio.wait_for(forty.wait(), PATIENCE)
        with within(1):
            session.interrupt()
            done = await running
        assert done.status == "interrupted"
        calls = [each for each in recorded(bench, session) if each.tool == "step"]
    assert [each.status for each in calls] == ["success"] * 39 + ["interrupted"]
    assert "39\n" in done.text


async def test_c4_a_program_meets_the_walls_of_any_command(bench: Bench) -> None:
    (bench.workspace / ".env").write_text("KEY=canary-41\n")
    (bench.workspace / "a.txt").write_text("seen")
    async with bench.session() as session:
        done = await program(
            session,
            """
import os, socket, glob
def tried(what):
    try:
        return repr(what())[:60]
    except BaseException as error:
        return type(error).__name__
print("file", tried(lambda: open("/workspace/a.txt").read()))
print("write", tried(lambda: open("/workspace/b.txt", "w")))
print("env", tried(lambda: open("/workspace/.env").read()))
print("net", tried(lambda: socket.create_connection(("1.1.1.1", 80), 2)))
print("kill", tried(lambda: os.kill(1, 0) or [p for p in os.listdir("/proc") if p.isdigit()].__len__() < 5))
print("home", tried(lambda: glob.glob("HOME/*")))
print("tmp", tried(lambda: open("/tmp/x", "w").write("1")))
print("site", tried(lambda: __import__("pydantic")))
print("vars", sorted(n for n in os.environ if n.startswith("FORGE")))
""".replace("HOME", str(bench.home)),
        )
    said = dict(line.split(" ", 1) for line in done.text.splitlines() if " " in line)
    assert said["file"] == "'seen'" and said["tmp"] == "1", done.text
    assert said["write"] in ("OSError", "PermissionError") and "canary-41" not in done.text
    assert said["net"] in ("OSError", "PermissionError", "ConnectionRefusedError")
    assert said["home"] == "[]" and said["kill"] == "True" and said["site"] == "ModuleNotFoundError"
    assert said["vars"] == "['FORGE_CALL_TOKEN', 'FORGE_SOCKET', 'FORGE_WORKSPACE']"
    assert not (bench.workspace / "b.txt").exists()


async def test_c5_what_never_ends_floods_or_recurses_is_bounded(bench: Bench) -> None:
    (bench.workspace / "forge.yaml").write_text("sandbox: {limits: {output: 2MiB, processes: 64}}\n")
    async with bench.session() as session:
        for seconds in ever_longer(2):
            endless = "import time\nprint('began', flush=True)\ntime.sleep(60)"
            over = await program(session, endless, timeout_ms=int(seconds * 1000))
            assert over.status == "timeout" and f"timed out after {seconds} seconds" in over.text
            if "began" in over.text:
                break
        assert "began" in over.text
        flood = await program(session, "while True: print('x' * 1_000_000)")
        assert flood.status == "execution_failed" and "sandbox.limits.output" in flood.text
        assert len(flood.text) < 40_000
        # 256, not without end: what a busy machine lets through until it looks would be all of the machine.
        bomb = "import os, time\nfor _ in range(8): os.fork()\ntime.sleep(600)"
        forks = await program(session, bomb)
        assert forks.status == "execution_failed" and "sandbox.limits.processes" in forks.text, forks.text
        again = await program(session, "from forge_tools import call\ncall('run_code', code='print(1)')")
        assert "ToolDenied: run_code: policy_denied: run_code cannot be called from inside" in again.text
        wrong = await program(session, "print(1\n")
        assert wrong.status == "execution_failed" and "SyntaxError" in wrong.text


async def test_c5_ten_thousand_calls_are_two_hundred(bench: Bench) -> None:
    async with bench.session() as session:
        done = await program(
            session,
            """
from forge_tools import file_exists, ToolError
said = {}
for _ in range(10_000):
    try:
        file_exists(path="x")
    except ToolError as error:
        said[error.text] = said.get(error.text, 0) + 1
print(said)
""",
        )
        calls = recorded(bench, session)
    assert done.ok, done.text
    assert "a program may make at most 200 calls" in done.text and "Forge does not answer any more" in done.text
    assert sum(each.status == "success" for each in calls if each.tool == "file_exists") == 200
    assert len(calls) < 1000


async def test_max_calls_is_a_key_of_the_worker(bench: Bench) -> None:
    blocks = {"filesystem": {}, "code": {"max_calls": 2}}
    async with bench.session(toolsets=blocks) as session:
        done = await program(session, "from forge_tools import file_exists\nfor _ in range(3): file_exists(path='x')")
    assert "a program may make at most 2 calls" in done.text


async def test_c7_structured_content_is_a_dict_and_an_image_a_handle(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool_values, "LARGEST_VALUE", 1 << 20)  # in place of eight times that
    data = bytes(range(256)) * 10

    @tool(needs_approval=False)
    def picture() -> ToolResult:
        """A picture."""
        block = {"type": "image", "data": base64.b64encode(data).decode(), "mimeType": "image/png"}
        return ToolResult({"kind": "text", "content": ""}, text="", content=(block,))

    @tool(needs_approval=False)
    def long_list(size: int) -> dict[str, Any]:
        """Much data."""
        return {"items": ["x" * 1000] * size}

    async with bench.session(tools=[picture, long_list]) as session:
        done = await program(
            session,
            """
import forge_tools
image = forge_tools.picture()
print(image.mime, image.size, image.read() == bytes(range(256)) * 10, image.read(1, 3))
print(len(forge_tools.long_list(size=1000)["items"]))
large = forge_tools.long_list(size=1100)
print(type(large).__name__, large.mime, large.size > 1 << 20, large.read(0, 12))
try:
    forge_tools.ResultHandle("out_000000000000", "text/plain", 3).read()
except forge_tools.ToolError as error:
    print(error.text)
""",
        )
    assert done.text.splitlines()[:4] == [
        "image/png 2560 True b'\\x01\\x02'",
        "1000",
        'ResultHandle application/json True b\'{"items": ["\'',
        "this handle was not given to this run",
    ], done.text


async def test_a_picture_that_a_program_gives_back_comes_with_its_result(bench: Bench) -> None:
    """A model that sees reads what the program picked out, not what it went through to find it."""

    @tool(needs_approval=False)
    def picture(number: int) -> ToolResult:
        """A picture."""
        data = base64.b64encode(b"picture %d" % number).decode()
        return ToolResult.from_mcp({"content": [{"type": "image", "data": data, "mimeType": "image/png"}]})

    async with bench.session(tools=[picture]) as session:
        done = await program(
            session,
            """
from forge_tools import picture, answer
seen = [picture(number) for number in range(3)]
answer({"best": seen[1], "made up": {"handle": "out_000000000000"}, "deep": eval("[" * 90 + "]" * 90)})
""",
        )
        none = await program(session, "from forge_tools import picture\npicture(0)")
    assert done.ok, done.text
    [part] = done.media
    assert (part.media_type, part.size) == ("image/png", len(b"picture 1"))
    assert none.media == ()


async def test_c7_tools_of_a_server_are_a_namespace(mcp_bench: McpBench) -> None:
    mcp_bench.yaml({"echo": mcp_bench.ours("echo.py")})
    mcp_bench.trust()
    mcp_bench.approve()
    async with mcp_bench.session() as session:
        await settled(session, "echo")
        done = await program(
            session,
            """
import forge_tools
from forge_tools import echo
print(echo.add(a=1, b=2), forge_tools.echo__add(a=2, b=2), repr(echo.echo(text="import os; os.abort()")))
print([each.__name__ for each in forge_tools.search("add two numbers", limit=1)])
try:
    echo.fail()
except forge_tools.ToolError as error:
    print(error.status, error.text)
""",
        )
    assert done.text.splitlines()[:3] == [
        "{'sum': 3} {'sum': 4} 'import os; os.abort()'",
        "['echo__add']",
        "execution_failed it failed, as it always does",
    ], done.text


async def test_c9_a_program_sees_what_the_model_may_call_and_no_more(bench: Bench) -> None:
    ran: list[str] = []

    @tool(mode="manual", needs_approval=False)
    def by_hand() -> str:
        """Only for people."""
        ran.append("by_hand")
        return ""

    @tool(needs_approval="blocked")
    def never() -> str:
        """Nobody."""
        ran.append("never")
        return ""

    @tool(needs_approval=False)
    def free() -> str:
        """Anybody."""
        ran.append("free")
        return "it ran"

    async with bench.session(tools=[by_hand, never, free]) as session:
        done = await program(
            session,
            """
import forge_tools
print([name for name in dir(forge_tools) if name in ("by_hand", "never", "free", "run_code", "undo_changes")])
for name in ("by_hand", "never", "undo_changes", "client:log", "client:ask", "free"):
    try:
        print(name, forge_tools.call(name))
    except forge_tools.ToolError as error:
        print(name, type(error).__name__, error.status)
""",
        )
    assert done.text.splitlines()[:7] == [
        "['free']",
        "by_hand ToolError tool_not_found",
        "never ToolDenied policy_denied",
        "undo_changes ToolError tool_not_found",
        "client:log ToolDenied policy_denied",
        "client:ask ToolDenied policy_denied",
        "free it ran",
    ], done.text
    assert ran == ["free"]


async def test_c10_python_in_a_result_is_data(bench: Bench) -> None:
    (bench.workspace / "evil.txt").write_text("__import__('forge_tools').write_file(path='pwned', content='1')\n")
    async with bench.session() as session:
        done = await program(session, "from forge_tools import read_file\nprint(len(read_file(path='evil.txt')))")
    assert done.ok and not bench.cards and not (bench.workspace / "pwned").exists()


async def test_the_clock_stops_while_a_question_is_open(bench: Bench) -> None:
    asked = asyncio.Event()
    answered = asyncio.Event()

    async def person(card: Any) -> dict[str, Any]:
        asked.set()
        await answered.wait()
        return {"approved": True}

    code = "from forge_tools import write_file\nwrite_file(path='x', content='1')\nprint('written')"
    async with bench.session(approval_callback=person) as session:
        running = asyncio.ensure_future(program(session, code, timeout_ms=int(LONG * 1000)))
        await asyncio.wait_for(asked.wait(), PATIENCE)
        # what the clock would have counted is taken from it: no test waits for that long
        (state,) = [each for each in _running_programs(session) if each is not None]
        state._since -= 1000
        answered.set()
        done = await running
    assert done.ok and "written" in done.text, done.text


def _running_programs(session: Any) -> list[Any]:
    return [each for each in gc.get_objects() if isinstance(each, ProgramCalls) and each._open]


STUBBORN = """
import time
from forge_tools import write_file
try:
    write_file(path="x", content="1")
except Exception:
    time.sleep(60)
"""


async def test_a_person_who_ends_the_turn_ends_the_program(bench: Bench) -> None:
    turns = [Turn(calls=(TurnCall(tool=CODE, args={"code": STUBBORN}),)), "never said"]
    async with WorkerRuntime(
        directory=bench.workspace,
        home=bench.home,
        model=FunctionScript(lambda _: turns.pop(0)),
        approval_callback=lambda card: {"approved": False, "stop": True},
    ) as runtime:
        with within(5):
            await runtime.turn("go")
    assert turns == ["never said"]


COUNTING = """
from forge_tools import file_exists, ToolError
for _ in range(9):
    try:
        file_exists(path="x")
    except ToolError as error:
        print(error)
        break
"""


async def test_a_program_counts_against_the_budget(bench: Bench) -> None:
    (bench.workspace / "forge.yaml").write_text("budget: {max_tool_calls: 4}\n")
    said: list[Any] = []

    def next_turn(request: Any) -> Any:
        said.append(request)
        return Turn(calls=(TurnCall(tool=CODE, args={"code": COUNTING}),)) if len(said) == 1 else "done"

    async with WorkerRuntime(
        directory=bench.workspace, home=bench.home, model=FunctionScript(next_turn), approval_mode="auto_deny"
    ) as runtime:
        await runtime.turn("go")
    text = said[1].messages[-1].results[0].text
    assert "budget exceeded: max_tool_calls 4" in text and "[file_exists: 4 calls, 1 failed (1 denied)]" in text


async def test_many_at_once_keep_their_order(bench: Bench) -> None:
    for number in range(30):
        (bench.workspace / f"{number}.txt").write_text(str(number))
    async with bench.session() as session:
        done = await program(
            session,
            """
from forge_tools import read_file, map
print([int(text) for text in map(read_file, [f"{n}.txt" for n in range(30)], at_once=16)] == list(range(30)))
print(map(read_file, [{"path": "3.txt"}]))
try:
    map(read_file, ["1.txt", "gone.txt"])
except Exception as error:
    print(type(error).__name__, error.tool)
""",
        )
    assert done.text.splitlines()[:3] == ["True", "['3']", "ToolError read_file"], done.text


async def test_two_hundred_calls_by_position_leave_room_for_an_answer(bench: Bench) -> None:
    code = """
import tools
for _ in range(200):
    tools.file_exists("x")
for _ in range(30):
    tools.answer("done")
"""
    async with bench.session() as session:
        done = await program(session, code)
    assert done.ok and 'Answer: "done"' in done.text and "[file_exists: 200 calls]" in done.text, done.text


async def test_a_tool_may_have_any_name(bench: Bench) -> None:
    """Of a module's own names only those that the guide lists hide a tool, and `call` reaches that one too."""
    names = ("json", "os", "sys", "ask", "CallFailed", "TYPE_CHECKING", "map")

    def named(name: str) -> Any:
        @tool(name=name, needs_approval=False)
        def says() -> str:
            """Says its name."""
            return f"I am {name}"

        return says

    async with bench.session(tools=[named(name) for name in names]) as session:
        done = await program(
            session,
            f"""
import forge_tools
print([getattr(forge_tools, name)() for name in {names[:-1]!r}], forge_tools.call("map"))
print(sorted(set(vars(forge_tools)) - set(forge_tools.__all__) - {{n for n in vars(forge_tools) if n[0] == "_"}}))
""",
        )
    said = [f"I am {name}" for name in names]
    assert done.text.splitlines()[:2] == [f"{said[:-1]} {said[-1]}", "[]"], done.text


async def test_a_page_of_a_long_file_says_that_it_is_one(bench: Bench) -> None:
    (bench.workspace / "long.txt").write_text("line\n" * 5000)
    async with bench.session() as session:
        assert definition_tokens(session.catalog.get(CODE)) <= 350, "its own definition is short"
        done = await program(session, "from forge_tools import read_file\nprint(read_file('long.txt').count('line'))")
    assert "2000" in done.text and "gave lines 1 to 2000 of 5000 of /workspace/long.txt" in done.text


def test_a_failed_program_shows_its_own_frames(bench: Bench) -> None:
    code = "from forge_tools import read_file\ndef inner():\n    return read_file(path='gone')\ninner()"
    said = bench.forge_here("call", CODE, "--code", code)
    assert said.code == 1, said
    text = said.out + said.err
    assert "line 3, in inner" in text and "ToolError: read_file: execution_failed" in text
    assert "forge_tools.py" not in text and os.fspath(bench.home) not in text
