"""`forge mcp serve` and clients of others: what they find, what they are asked, how it ends. mcp.md §17, cases 35–39
and 42.

The real command serves one program with tools of every source. The clients are the inspector's command line, the
TypeScript SDKs, fastmcp, an agent of pydantic-ai and the Python SDK, each in the eras that it speaks.
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from tests.acceptance.mcp_bench import McpBench
from tests.acceptance.mcp_serving import (
    ERAS,
    LEGACY,
    MODERN,
    NEWEST_LEGACY,
    YES,
    HttpServer,
    Person,
    StdioServer,
    activate,
    alive,
    children_of,
    follow,
    http_server,
    inspect,
    notes,
    serving_bench,
    user_tool,
)
from tests.deadlines import LONG, PATIENCE, within
from tests.mcp.pools import naming, until

OF_EACH_SOURCE = {"read_file", "greet", "echo__echo"}
"""Native, the person's own, proxied."""
ONE_OF_EACH = [
    ["read_file", {"path": "/workspace/hello.txt"}],
    ["greet", {"who": "you"}],
    ["echo__echo", {"text": "there and back"}],
]
THEY_SAY = ["hello from a zone", "hello you", "there and back"]
NO = {"action": "decline"}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, tried_walls: Path, ready_forge: Any) -> Iterator[McpBench]:
    with serving_bench(tmp_path_factory.mktemp("serving"), tried_walls, ready_forge) as made:
        user_tool(made, "greet")
        activate(made, "greet")
        yield made


@pytest.fixture(scope="module")
def server(bench: McpBench) -> Iterator[HttpServer]:
    with http_server(bench) as running:
        yield running


def first_line(result: Any) -> str:
    return str(result.content[0].text).partition("\n")[0]


# ---- 35


@pytest.mark.long
def test_case_35_the_inspector_lists_a_tool_of_each_source_and_runs_one_over_stdio(bench: McpBench) -> None:
    """`inspector --cli … --method tools/list` and `tools/call` over stdio: a native, a custom and a proxied tool are
    listed, the last of them is called. (Each is, by other clients, in the next tests.)"""
    listed = inspect(bench, "--method", "tools/list", "--protocol-era", "modern")
    assert {tool["name"] for tool in listed["result"]["tools"]} >= OF_EACH_SOURCE
    name, args = ONE_OF_EACH[-1]
    words = ["--method", "tools/call", "--tool-name", str(name), "--tool-args-json", json.dumps(args)]
    result = inspect(bench, *words)["result"]
    assert not result.get("isError") and THEY_SAY[-1] in result["content"][0]["text"]
    assert result["_meta"]["golem-forge/outcome"]["status"] == "success"
    # Beside another test's server over HTTP, which serves the same program.
    assert bench.nobody_left(beside=lambda: [child for each in bench.started for child in children_of(each.pid)])


@pytest.mark.long
def test_case_35_clients_of_others_do_the_same_over_http_in_both_eras(server: HttpServer) -> None:
    """fastmcp and pydantic-ai list and run a native, a custom and a proxied tool over HTTP, both eras. (The TypeScript
    SDK's client does so in case 37.)"""
    clients = ("fastmcp", "pydantic-ai")
    seen = follow("python", *(server.orders(*ONE_OF_EACH, era=era, by=client) for client in clients for era in ERAS))

    assert [each["version"] for each in seen] == [NEWEST_LEGACY, MODERN] * len(clients)
    for each in seen:
        runs_one_of_each(each["tools"], each["results"])


def runs_one_of_each(tools: list[str], results: list[Any]) -> None:
    assert set(tools) >= OF_EACH_SOURCE
    for result, said in zip(results, THEY_SAY, strict=True):
        assert not result["isError"] and said in result["text"]


@pytest.mark.parametrize("era", ERAS)
async def test_case_35_the_python_sdk_does_the_same_and_reads_the_annotations(server: HttpServer, era: str) -> None:
    """The same with the SDK's own client, which shows what the list says of each tool."""
    async with server.client(era) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        for (name, args), said in zip(ONE_OF_EACH, THEY_SAY, strict=True):
            result = await client.call_tool(name, args)
            assert not result.is_error and said in result.content[0].text
        reads, runs, proxied = (tools[name].annotations for name in ("read_file", "exec_command", "echo__append"))
        assert (reads.read_only_hint, reads.destructive_hint, reads.open_world_hint) == (True, False, False)
        assert (runs.read_only_hint, runs.destructive_hint, runs.open_world_hint) == (False, True, True)
        assert (proxied.read_only_hint, proxied.destructive_hint, proxied.open_world_hint) == (False, True, True)
        assert tools["echo__add"].output_schema is not None
        summed = await client.call_tool("echo__add", {"a": 2, "b": 3})
        assert summed.structured_content == {"sum": 5}
        [note] = (await client.read_resource("forge://mcp/echo/note%3A%2F%2Fone")).contents
        assert note.text == "the note note://one"


# ---- 36


@pytest.mark.parametrize("era", ERAS)
async def test_case_36_a_manual_tool_is_not_there_and_wrong_arguments_run_nothing(
    server: HttpServer, bench: McpBench, era: str
) -> None:
    """A `manual` tool is not listed; calling it → −32602. Invalid arguments → isError, input_invalid, not executed."""
    before, person = notes(bench), Person(YES)
    async with server.client(era, elicitation_callback=person) as client:
        assert "by_hand" not in {tool.name for tool in (await client.list_tools()).tools}
        for name in ("by_hand", "no_such"):
            with pytest.raises(MCPError) as unknown:
                await client.call_tool(name, {"text": "x"})
            assert (unknown.value.error.code, unknown.value.error.message) == (-32602, f"Unknown tool: {name}")
        wrong = await client.call_tool("note", {"text": [1]})
        assert wrong.is_error and first_line(wrong).startswith("input_invalid: ") and "text" in first_line(wrong)
        assert wrong.meta["golem-forge/outcome"]["status"] == "input_invalid"
    assert (notes(bench), person.asked) == (before, [])


# ---- 37


def test_case_37_a_client_that_can_ask_runs_it_once_or_not_at_all(server: HttpServer, bench: McpBench) -> None:
    """`ask` tool, client with elicitation: accept → one execution, decline → none. `blocked` → policy_denied, no
    question. And the client of the TypeScript SDK runs a tool of each source in both eras."""
    orders = [
        server.orders(
            *(["note", {"text": f"{answer['action']} {era}"}], ["never", {"text": era}], *ONE_OF_EACH),
            era=era,
            answer=answer,
        )
        for era in ERAS
        for answer in (YES, NO)
    ]
    before = len(notes(bench))
    seen = follow("typescript", *orders)
    assert notes(bench)[before:] == [f"note accept {LEGACY}", f"note accept {MODERN}"]
    assert [each["version"] for each in seen] == [NEWEST_LEGACY, NEWEST_LEGACY, MODERN, MODERN]
    for each in seen:
        runs_one_of_each(each["tools"], each["results"][2:])
        assert len(each["asked"]) == 1
        for shown in ("'note'", '"text"', "Risk:"):
            assert shown in each["asked"][0]
        assert each["results"][1]["isError"] and each["results"][1]["text"].startswith("policy_denied: ")
    answers = [each["results"][0] for each in seen]
    assert [answer["isError"] for answer in answers] == [False, True, False, True]
    assert all(answer["text"].startswith("approval_denied: ") for answer in answers[1::2])


@pytest.mark.parametrize("era", ERAS)
async def test_case_37_a_client_that_cannot_ask_is_told_how_to_allow_it(
    server: HttpServer, bench: McpBench, era: str
) -> None:
    """Client without elicitation: the refusal text."""
    before = notes(bench)
    async with server.client(era) as client:
        refused = await client.call_tool("note", {"text": "x"})

    assert refused.is_error and refused.content[0].text == (
        "approval_denied: 'note' needs approval and this client cannot ask; allow it with a rule in rules.yaml"
    )
    assert notes(bench) == before


@pytest.mark.parametrize("era", ERAS)
async def test_a_tool_that_nobody_trusts_as_it_is_names_the_command_that_activates_it(
    server: HttpServer, bench: McpBench, era: str
) -> None:
    """No rule lets content run that nobody agreed to, so none is advised."""
    number = ERAS.index(era)
    fresh, edited = f"fresh-{number}", f"edited-{number}"
    for name in (fresh, edited):
        user_tool(bench, name)
    await asyncio.to_thread(activate, bench, edited)
    with (bench.home.path / "tools" / edited / f"{edited}.sh").open("a") as source:
        source.write("touch /workspace/notes\n")
    before = notes(bench)
    async with server.client(era) as client:
        refused = {
            fresh: await client.call_tool("run_custom_tool", {"tool_name": fresh, "arguments": {"who": "x"}}),
            edited: await client.call_tool(edited, {"who": "x"}),
        }
    for name, answer in refused.items():
        told = f"approval_denied: custom tool '{name}' is not trusted; run: forge tools activate {name}"
        assert answer.is_error and answer.content[0].text == told
    assert notes(bench) == before


# ---- 38


async def test_case_38_a_tool_activated_meanwhile_is_announced_in_both_eras(
    tmp_path: Path, tried_walls: Path, ready_forge: Any
) -> None:
    """Creating and activating a user tool while a client is connected → list_changed within 2 s, new tool listed."""
    heard, listening = asyncio.Event(), asyncio.Event()

    async def hear(message: Any) -> None:
        if getattr(message, "method", "") == "notifications/tools/list_changed":
            heard.set()

    with (
        serving_bench(tmp_path, tried_walls, ready_forge, echo=[]) as bench,  # its tools would be announced too
        http_server(bench) as server,
    ):
        client = server.client(LEGACY, listening=listening, message_handler=hear)
        async with client as old, server.client(MODERN) as new:
            await asyncio.wait_for(listening.wait(), PATIENCE)
            async with new.listen(tools_list_changed=True) as stream:
                changes = asyncio.create_task(anext(aiter(stream)))
                user_tool(bench, "later")
                await asyncio.sleep(1)
                assert "later" not in {tool.name for tool in (await old.list_tools()).tools}
                assert not heard.is_set() and not changes.done(), "a tool that nobody activated is nobody's business"
                await asyncio.to_thread(activate, bench, "later")
                with within(2):
                    await heard.wait()
                    await changes
            for client in (old, new):
                assert "later" in {tool.name for tool in (await client.list_tools()).tools}
                assert "hello again" in (await client.call_tool("later", {"who": "again"})).content[0].text


# ---- 39


@pytest.mark.long
async def test_case_39_progress_and_cancel_of_a_foreign_client(server: HttpServer, marker: str) -> None:
    """Progress and cancel from a foreign client, in both eras: progress received; after cancel no child process."""
    place, ends = server.bench.workspace, f"sleep 300 & sleep 300; : {marker}"
    orders = [
        server.orders(
            ["echo__sleep", {"seconds": 0.5, "progress": True}],
            ["exec_command", {"cmd": ends, "yield_time_ms": 30_000}, str(place / f"enough-{era}")],
            [
                "exec_command",
                {"cmd": f"until [ -e seen-to-end-{era} ]; do sleep 0.05; done; echo waited", "yield_time_ms": 30_000},
            ],
            era=era,
            answer=YES,
        )
        for era in ERAS
    ]
    client = asyncio.create_task(asyncio.to_thread(follow, "typescript", *orders))
    for era in ERAS:
        await until(lambda: naming(marker), "the command runs")
        (place / f"enough-{era}").touch()
        await until(lambda: not naming(marker), "the command is ended")
        assert not client.done(), "it ended because it was cancelled, not because the client left"
        (place / f"seen-to-end-{era}").touch()
    for seen in await client:
        slept, cancelled, after = seen["results"]
        assert slept["text"] == "slept" and "step 1" in slept["progress"]
        assert cancelled["cancelled"] and "error" in cancelled and "waited" in after["text"]


async def test_case_39_a_cancelled_request_gets_no_response(bench: McpBench, marker: str) -> None:
    """After cancel: no child process and no response."""
    async with StdioServer(bench, "--approval", "approve_all") as server:
        command = f"sleep 300; touch after-it; : {marker}"
        call = server.call("exec_command", {"cmd": command, "yield_time_ms": 30_000})
        await until(lambda: naming(marker), "the command runs")
        with within(1):
            server.write({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": call}})
            await until(lambda: not naming(marker), "the command is ended")
        assert "result" in await server.answer_to(server.call("double", {"x": 21}))
        assert not [each for each in server.received if each.get("id") == call]
    assert not (bench.workspace / "after-it").exists()


# ---- 42


@pytest.mark.parametrize("how", ["stdin is closed", "SIGTERM twice"])
async def test_case_42_the_end_of_stdin_ends_calls_and_children_at_once(bench: McpBench, marker: str, how: str) -> None:
    """Closing stdin during a running call → exit 0 in < 1 s, no children."""
    async with StdioServer(bench, "--approval", "approve_all") as server:
        assert "result" in await server.answer_to(server.call("echo__echo", {"text": "the proxied server runs too"}))
        server.call(
            "exec_command", {"cmd": f"trap '' TERM; sleep 300 & sleep 300; : {marker}", "yield_time_ms": 30_000}
        )
        await until(lambda: naming(marker), "the command runs")
        children = children_of(server.process.pid)
        assert len(children) >= 3
        with within(1):
            if how == "stdin is closed":
                assert await server.end() == 0
            else:
                server.process.send_signal(signal.SIGTERM)
                await asyncio.sleep(0.03)
                server.process.send_signal(signal.SIGTERM)
                assert await asyncio.to_thread(server.process.wait, LONG) == 0
        assert not naming(marker) and not [child for child in children if alive(child)]
