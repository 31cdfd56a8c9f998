"""Plan mode, seen from outside: the agent reads and proposes, nothing that it calls changes anything, `go` starts the
work."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.acceptance.mcp_bench import McpBench, answering
from tests.acceptance.user_tools import Bench
from tests.wire.server import WireCall, WireServer, WireTurn

from golem_forge import tool
from golem_forge.agent.conversation import Conversation
from golem_forge.agent.model.scripted import FunctionScript, Turn, TurnCall
from golem_forge.agent.runtime import WorkerRuntime
from golem_forge.config.run_block import ApprovalMode

Desks = Callable[..., Any]
STEPS = [{"step": "Write the greeting", "status": "pending"}, {"step": "Read it back", "status": "pending"}]
WRITE = ("write_file", {"path": "greeting.txt", "content": "hello\n"})
TOOLSETS = "toolsets: {filesystem: , coding: , workers: {allow: [helper]}}"
MAIN = f"---\nname: main\nsandbox: {{zones: [{{name: workspace}}]}}\n{TOOLSETS}\n---\n"
HELPER = "---\nname: helper\nsandbox: {zones: [{name: workspace}]}\ntoolsets: {filesystem: }\n---\n"


def calls(*asked: tuple[str, dict[str, Any]], say: str = "") -> WireTurn:
    return WireTurn(say=say, calls=tuple(WireCall(name=name, args=args) for name, args in asked))


@tool(needs_approval=False)
def poke() -> str:
    """Does something that nobody knows."""
    return "poked"


def results(server: WireServer, at: int) -> str:
    """What the request after so many others told the model of its calls."""
    body = server.requests[at].body
    return "\n".join(str(message["content"]) for message in body["messages"] if message["role"] == "tool")


@pytest.fixture
async def started(tmp_path: Path) -> Any:
    """`started(turns)`: a session whose person says yes to every question."""
    opened: list[Any] = []

    async def start(turns: list[WireTurn], **options: Any) -> tuple[WorkerRuntime, WireServer, Conversation]:
        root, home = tmp_path / "p", tmp_path / "home"
        (root / "workers").mkdir(parents=True)
        home.mkdir()
        server = WireServer(turns).__enter__()
        (root / "main.worker").write_text(MAIN)
        (root / "workers/helper.worker").write_text(HELPER)
        (root / "notes.txt").write_text("old notes\n")
        address = f"models: {{openai-compatible: {{base_url: '{server.base_url('x')}'}}}}\n"
        (home / "config.yaml").write_text(address)
        runtime = WorkerRuntime(
            worker=root / "main.worker",
            directory=root,
            home=home,
            model="openai-compatible:x",
            tools=[poke],
            approval_callback=lambda request: {"approved": True},
            **options,
        )
        await runtime.initialize()
        opened.append((runtime, server))
        return runtime, server, Conversation(runtime)

    yield start
    for runtime, server in opened:
        await runtime.aclose()
        server.__exit__()


async def test_the_agent_reads_and_proposes_and_go_starts_the_work_with_the_plan(started: Any, tmp_path: Path) -> None:
    looking = calls(
        ("read_file", {"path": "notes.txt"}),
        WRITE,
        ("delete_file", {"path": "notes.txt"}),
        ("exec_command", {"cmd": "touch made"}),
        ("exec_command", {"cmd": "cat notes.txt"}),
        ("poke", {}),
        ("helper", {"input": "write it"}),
    )
    turns = [
        looking,
        calls(WRITE),
        WireTurn(say="The helper could not."),
        calls(("update_plan", {"plan": STEPS})),
        WireTurn(say="That is my plan."),
        calls(WRITE),
        WireTurn(say="Done."),
    ]
    runtime, server, conversation = await started(turns, approval_mode="interactive")
    await conversation.command("/plan", "test")
    assert runtime.controller.mode is ApprovalMode.PLAN
    result = await conversation.turn("Greet the world.")
    assert result.response == "That is my plan."
    told = [str(body["content"]) for body in server.requests[3].body["messages"] if body["role"] == "tool"]
    refused = "plan mode: read, then propose"
    assert [refused in each for each in told] == [False, True, True, True, False, True, False], told
    assert "old notes" in told[0] and "old notes" in told[4]
    assert refused in results(server, 2), "the sub-worker is in plan mode too"
    assert sorted(path.name for path in (tmp_path / "p").iterdir()) == ["main.worker", "notes.txt", "workers"]
    assert "plan mode. You may read" in str(server.requests[0].body["messages"][0])

    result = await conversation.turn("Go!")
    assert result.response == "Done." and (tmp_path / "p/greeting.txt").read_text() == "hello\n"
    assert runtime.controller.mode is ApprovalMode.INTERACTIVE, "the mode before"
    said = [str(each["content"]) for each in server.requests[5].body["messages"] if each["role"] == "user"][-1]
    assert "1. Write the greeting\n2. Read it back" in said


async def test_the_person_may_still_call_by_hand_and_go_is_a_word_elsewhere(started: Any, tmp_path: Path) -> None:
    runtime, server, conversation = await started([WireTurn(say="Where to?")], approval_mode="plan")
    await conversation.command("/write_file --path by_hand.txt --content x", "test")
    assert (tmp_path / "p/by_hand.txt").exists()
    await conversation.command("/plan off", "test")
    assert runtime.controller.mode is ApprovalMode.INTERACTIVE
    assert (await conversation.turn("go")).response == "Where to?"
    assert server.requests[0].body["messages"][-1]["content"] == "go"


def test_forge_run_in_plan_mode_prints_a_plan_and_changes_nothing(desk: Desks) -> None:
    with WireServer([calls(WRITE), WireTurn(say="1. Write it.")]) as server:
        place = desk({})
        place.home.mkdir()
        address = f"models: {{openai-compatible: {{base_url: '{server.base_url('x')}'}}}}\n"
        (place.home / "config.yaml").write_text(address)
        ran = place.forge("run", "-a", "plan", "-m", "openai-compatible:x", "greet")
        dry = place.forge("run", "--dry-run", "-a", "plan", "-m", "openai-compatible:x")
    assert (ran.code, ran.out) == (0, "1. Write it.\n"), ran.err
    assert not (place.root / "greeting.txt").exists()
    [write] = [line for line in dry.out.splitlines() if line.lstrip().startswith("write_file")]
    assert "plan mode changes nothing" in write


PROGRAM = """
import forge_tools
from forge_tools import call, ToolError
for name, args in {ways!r}:
    try:
        print(name, "ran:", str(call(name, **args))[:80])
    except ToolError as error:
        print(name, error.status)
"""
MARK = {"path": "/workspace/made.txt", "content": "x"}
WAYS = [
    ("write_file", MARK),
    ("delete_file", {"path": "/workspace/notes.txt"}),
    ("apply_patch", {"patch": "*** Begin Patch\n*** Add File: made.txt\n+x\n*** End Patch"}),
    ("exec_command", {"cmd": "touch made.txt"}),
    ("poke", {}),
    ("scribe", {}),
    ("messenger", {}),
    ("echo__append", {"path": "/workspace/made.txt", "text": "x"}),
    ("helper", {"input": "write it"}),
    ("create_custom_tool", {"name": "made", "description": "d", "language": "shell", "source": "echo 1\n"}),
]
"""Every kind of tool that could write. `scribe` is a user tool that may write in the zone, `messenger` one that calls
write_file."""
NESTED_MAIN = """\
---
name: main
toolsets:
  filesystem:
  coding:
  user_tools:
  workers: {allow: [helper], approval: {default: preApproved}}
  mcp: {servers: ["*"]}
sandbox: {zones: [{name: workspace}]}
---
"""
NESTED_HELPER = (
    "---\nname: helper\nsandbox: {zones: [{name: workspace}]}\ntoolsets: {filesystem: , code: }\n---\nHelp.\n"
)


@pytest.mark.walls
@pytest.mark.parametrize("inside", [False, True], ids=["by the model", "inside a program"])
async def test_nothing_writes_from_inside_anything_else(mcp_bench: McpBench, inside: bool) -> None:
    """The person says yes to every question, trusts the tools and the server, and allows all by a rule: nothing of it
    counts in plan mode, whoever calls and however deep."""
    bench = mcp_bench
    bench.yaml({"echo": bench.ours("echo.py")})
    bench.trust()
    bench.approve()
    tools = Bench(bench.root / "tools-of")
    tools.home = bench.home.path
    tools.tools = bench.home.path / "tools"
    tools.tool("scribe", "touch /workspace/made.txt\n", zones={"workspace": "rw"})
    tools.tool("messenger", "forge call write_file --path /workspace/made.txt --content x\n", calls=["write_file"])
    tools.rules("{tool: '*', verdict: preApproved}")
    for name, text in {"main.worker": NESTED_MAIN, "helper.worker": NESTED_HELPER, "notes.txt": "old\n"}.items():
        (bench.workspace / name).write_text(text)
    bench.trust()
    for name in ("scribe", "messenger"):
        activated = bench.forge("tools", "activate", name, "--yes")
        assert activated.code == 0, activated.err
    told: dict[str, list[str]] = {"main": [], "helper": []}
    of_helper = [("write_file", MARK), ("run_code", {"code": PROGRAM.format(ways=WAYS[:2])})]

    def next_turn(request: Any) -> Any:
        results = getattr(request.messages[-1], "results", ())
        who = "helper" if "Help." in request.system else "main"
        told[who] += [f"{each.status.value} {each.text}" for each in results]
        ways = of_helper if who == "helper" else [("run_code", {"code": PROGRAM.format(ways=WAYS)})] if inside else WAYS
        return "done" if results else Turn(calls=tuple(TurnCall(tool=name, args=args) for name, args in ways))

    async with WorkerRuntime(
        bench.workspace / "main.worker",
        directory=bench.workspace,
        home=bench.home.path,
        model=FunctionScript(next_turn),
        tools=[poke],
        approval_callback=lambda card: {"approved": True},
        approval_mode="plan",
    ) as runtime:
        detach = answering(runtime.tree, bench.cards, bench.forms)
        await runtime.refresh()
        await runtime.turn("try")
        detach()
    names = {path.name for path in bench.workspace.iterdir()} - {".git"}  # walls keep one there while commands run
    assert names == {"forge.yaml", "echo.py", "main.worker", "helper.worker", "notes.txt"}
    assert sorted(path.name for path in tools.tools.iterdir()) == ["messenger", "scribe"]
    if inside:
        statuses = dict(re.findall(r"^(\w+) (\w+)", told["main"][0], re.MULTILINE))
    else:
        statuses = {name: text.split()[0] for (name, _), text in zip(WAYS, told["main"], strict=True)}
    refused = {name: "policy_denied" for name, _ in WAYS}
    refused |= {
        "messenger": "execution_failed",
        "helper": "ran" if inside else "success",
    }  # their own calls are refused
    assert {name: statuses.get(name) for name in refused} == refused
    if not inside:
        assert "policy_denied: 'write_file' is blocked" in told["main"][WAYS.index(("messenger", {}))]
    assert told["helper"][0].startswith("policy_denied") and "write_file policy_denied" in told["helper"][1]
