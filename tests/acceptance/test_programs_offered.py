"""Who has `run_code`, and what a program of a sub-worker or of an MCP client may do. programs.md §2 and §5."""

from __future__ import annotations

import asyncio
import html
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.acceptance.mcp_serving import (
    _WORKER,
    ERAS,
    YES,
    HttpServer,
    Person,
    http_server,
    served_program,
    serving_bench,
)
from tests.acceptance.user_tools import Bench
from tests.deadlines import PATIENCE
from tests.wire.server import WireServer, WireTurn

from golem_forge.agent.model.scripted import FunctionScript, Turn, TurnCall
from golem_forge.agent.runtime import WorkerRuntime
from golem_forge.agent.trust import trust_store
from golem_forge.storage.home import ForgeHome

CODE = "run_code"
NO = {"action": "accept", "content": {"approve": False, "remember": "once"}}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


async def offered(bench: Bench) -> set[str]:
    """What the model is sent first."""
    seen: list[Any] = []

    def next_turn(request: Any) -> str:
        seen.append(request)
        return "ok"

    trust_store(ForgeHome(bench.home)).give(bench.workspace)
    async with WorkerRuntime(directory=bench.workspace, home=bench.home, model=FunctionScript(next_turn)) as runtime:
        await runtime.turn("go")
    return {tool.name for tool in seen[0].tools}


async def test_the_built_in_worker_has_it_and_a_word_takes_it_away(bench: Bench) -> None:
    assert CODE in await offered(bench)
    (bench.home / "config.yaml").write_text("toolsets: {code: off}\n")
    assert CODE not in await offered(bench)
    async with bench.session() as session:
        assert (await session.call(CODE, {"code": "print(1)"})).status == "tool_not_found"


@pytest.mark.parametrize(
    ("toolsets", "there"),
    [
        ("coding: {}", True),
        ("code: {}", True),
        ("coding: {code: {max_calls: 5}}", True),
        ("{coding: {}, code: off}", False),
        ("{code: off, coding: {}}", False),
        ("filesystem: {}", False),
    ],
)
async def test_a_worker_has_it_with_coding_unless_it_says_off(bench: Bench, toolsets: str, there: bool) -> None:
    block = toolsets if toolsets.startswith("{") else f"{{{toolsets}}}"
    (bench.workspace / "main.worker").write_text(f"---\nname: main\ntoolsets: {block}\n---\nWork.\n")
    names = await offered(bench)
    assert (CODE in names) is there
    assert "coding" not in toolsets or "exec_command" in names


WRITTEN = """\
Let me count.
<tool><tool_name>run_code</tool_name><arguments><code><![CDATA[
from forge_tools import read_file, answer
words = [word for name in ("a", "b") for word in read_file(path=f"{name}.txt").split() if len(word) < 4 and word > "a"]
answer(words)
]]></code></arguments></tool>
"""


async def test_a_model_that_only_writes_text_runs_a_program(bench: Bench) -> None:
    """In the XML format, with every sign that a program has."""
    worker = "---\nname: main\ntool_format: xml\ntoolsets: {filesystem: {}, code: {}}\n"
    worker += "sandbox: {zones: [{name: workspace}]}\n---\nWork.\n"
    (bench.workspace / "main.worker").write_text(worker)
    (bench.workspace / "a.txt").write_text("one three\n")
    (bench.workspace / "b.txt").write_text("two\n")
    with WireServer([WireTurn(say=WRITTEN), WireTurn(say="Two.")]) as server:
        bench.home.mkdir(exist_ok=True)
        address = server.base_url("openai-compatible")
        (bench.home / "config.yaml").write_text(f"models: {{openai-compatible: {{base_url: '{address}'}}}}\n")
        trust_store(ForgeHome(bench.home)).give(bench.workspace)
        async with WorkerRuntime(
            bench.workspace / "main.worker",
            directory=bench.workspace,
            home=bench.home,
            model="openai-compatible:local",
            approval_mode="auto_deny",
        ) as runtime:
            result = await runtime.turn("how many short words?")
    assert result.response == "Two.", result
    first, second = (request.body for request in server.requests)
    assert "tools" not in first and "run_code" in str(first["messages"][0])
    told = html.unescape(str(second["messages"][-1]["content"]))
    assert 'Answer: ["one", "two"]' in told and "[read_file: 2 calls]" in told, told


MAIN = """\
---
name: main
toolsets: {filesystem: {}, workers: {allow: [reader], approval: {default: preApproved}}, code: {}}
sandbox: {zones: [{name: workspace, mode: rw}]}
---
Lead.
"""
READER = """\
---
name: reader
toolsets: {filesystem: {}, code: {}}
sandbox: {zones: [{name: workspace, mode: ro}]}
---
Read.
"""
WIDER = """
import forge_tools
print([name for name in ("reader", "write_file", "read_file", "run_code") if name in dir(forge_tools)])
for path in ("/workspace/x.txt", "/elsewhere/x.txt"):
    try:
        forge_tools.write_file(path=path, content="1")
    except forge_tools.ToolDenied as error:
        print(error.status)
try:
    open("/workspace/y.txt", "w")
except OSError as error:
    print("read-only")
"""


async def test_c9_a_sub_workers_program_is_no_wider_than_its_worker(bench: Bench) -> None:
    for name, text in {"main.worker": MAIN, "reader.worker": READER, "forge.yaml": ""}.items():
        (bench.workspace / name).write_text(text)
    trust_store(ForgeHome(bench.home)).give(bench.workspace)
    told: list[str] = []

    def next_turn(request: Any) -> Any:
        last = request.messages[-1]
        results = getattr(last, "results", ())
        if "Read." in request.system:
            told.extend(each.text for each in results)
            return "read" if results else Turn(calls=(TurnCall(tool=CODE, args={"code": WIDER}),))
        return "led" if results else Turn(calls=(TurnCall(tool=CODE, args={"code": LEADING}),))

    cards: list[Any] = []
    async with WorkerRuntime(
        directory=bench.workspace,
        home=bench.home,
        model=FunctionScript(next_turn),
        approval_callback=lambda card: cards.append(card) or {"approved": True},
    ) as runtime:
        result = await runtime.turn("go")
    assert told, result
    assert "['write_file', 'read_file']\nsandbox_denied\nsandbox_denied\nread-only\n" in told[0], told
    assert not cards and not list(bench.workspace.glob("?.txt"))


LEADING = "from forge_tools import reader\nprint(reader(input='look')['response'])"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, tried_walls: Path, ready_forge: Any) -> Iterator[HttpServer]:
    with serving_bench(tmp_path_factory.mktemp("programs"), tried_walls, ready_forge) as bench:
        served_program(bench, _WORKER.replace("  exec: {}\n", "  exec: {}\n  code: {}\n"))
        with http_server(bench) as running:
            yield running


SERVED = """
from forge_tools import double, write_file, echo, call, ToolError
print(double(x=21), echo.add(a=1, b=1))
for name in ("never", "by_hand"):
    try:
        call(name, text="x")
    except ToolError as error:
        print(name, error.status)
try:
    print(write_file(path="/workspace/made.txt", content="1")["path"])
except ToolError as error:
    print(error.status)
"""


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_of_forge_mcp_serve_is_asked_for_what_its_program_calls(server: HttpServer, era: str) -> None:
    for answer, ended in ((NO, "approval_denied"), (YES, "/workspace/made.txt")):
        person = Person(answer, "Ada")
        async with server.client(era, "ada", elicitation_callback=person) as client, asyncio.timeout(PATIENCE):
            assert CODE in {each.name for each in (await client.list_tools()).tools}
            done = await client.call_tool(CODE, {"code": SERVED})
        assert done.content[0].text.splitlines()[:4] == [
            "42 {'sum': 2}",
            "never policy_denied",
            "by_hand tool_not_found",
            ended,
        ], done.content[0].text
        assert len(person.asked) == 1 and "made.txt" in person.asked[0].message
