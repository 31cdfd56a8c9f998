"""What `forge mcp serve` offers beside tools, and what its tools ask their client. mcp.md §17, case 41.

One program with prompts and resources of its own and a server behind it, served by the real command over HTTP; the
clients are the Python SDK's in both eras, and requests by hand for what no client does.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp.shared.exceptions import MCPError
from tests.acceptance.mcp_bench import McpBench
from tests.acceptance.mcp_serving import ERAS, LEGACY, MODERN, HttpServer, http_server, initialize, serving_bench
from tests.deadlines import PATIENCE

pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
_WORKER = """\
---
name: main
description: Serves.
toolsets:
  filesystem: {}
  mcp_resources: {}
  custom:
    module: ./tools.py
    tools: [chat, ask_all, log_all, change, needs_model]
    prompts: [daily, weather, plain, broken]
    resources: [today, day_text, picture, large, secret_note]
    approval:
      default: preApproved
      tools: {"resource:secret_note": blocked}
  mcp: {servers: [echo, modern]}
sandbox:
  zones:
    - {name: workspace, mode: rw}
---
You are not asked anything.
"""
_TOOLS = '''\
import asyncio

from golem_forge import ToolContext, prompt, resource, tool

NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


@tool(read_only=True)
def chat(text: str, *, ctx: ToolContext) -> str:
    """Asks the model of whoever called."""
    said = ctx.sample_blocking(text, system="Be short.", max_tokens=50)
    return f"{said.model} says {said.text}"


@tool(read_only=True)
async def ask_all(*, ctx: ToolContext) -> str:
    """Asks three things at once."""
    form, said, roots = await asyncio.gather(ctx.ask("Who?", NAME), ctx.sample("Hello"), ctx.roots())
    return f"{form.action} {form.values.get('name')} {said.text} {[root.uri for root in roots]}"


@tool(read_only=True)
def log_all(*, ctx: ToolContext) -> str:
    """Says something at every level."""
    for level in ("debug", "info", "warning", "error"):
        ctx.log_blocking(level, f"line at {level} in /etc")
    return "logged"


@tool(read_only=True)
def change(uri: str, *, ctx: ToolContext) -> str:
    """Says that a resource changed."""
    ctx.resource_updated_blocking(uri)
    return "told"


@tool(read_only=True)
def needs_model(fallback: bool = False, *, ctx: ToolContext) -> str:
    """Needs a model, or does without."""
    try:
        return ctx.sample_blocking("Hello").text
    except Exception:
        if not fallback:
            raise
        return "without a model"


@prompt(title="Today", complete={"day": ["monday", "tuesday", "thursday"]})
def daily(day: str, count: int = 1) -> list:
    """What to do on a day."""
    return [f"Plan {count + 1} things for {day}.", {"role": "assistant", "content": "Gladly."}]


def _cities(typed: str, others: dict) -> list:
    return [f"{typed}-{others.get('country', 'nowhere')}-{number}" for number in range(150)]


@prompt(complete={"city": _cities})
async def weather(city: str, country: str = "") -> str:
    """The weather of a city."""
    return f"What is the weather in {city}?"


def plain() -> str:
    """A function is a prompt by being named as one."""
    return "plain words"


@prompt
def broken() -> str:
    """Fails."""
    raise ValueError("no words today")


@resource("notes://today", mime_type="text/markdown")
def today() -> str:
    """Today's note."""
    return "# today"


@resource("notes://{day}/text/{+rest}", complete={"day": ["monday", "friday"]})
def day_text(day: str, rest: str) -> dict:
    """The note of a day."""
    return {"day": day, "rest": rest}


@resource("notes://picture", mime_type="image/png")
def picture() -> bytes:
    """Some bytes."""
    return bytes(range(256))


@resource("notes://large")
def large() -> str:
    """More than a result may have."""
    return "x" * 300_000


@resource("notes://secret")
def secret_note() -> str:
    """Nobody may read it."""
    return "hidden"
'''


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, tried_walls: Path, ready_forge: Any) -> Iterator[HttpServer]:
    program = {"worker": _WORKER, "tools": _TOOLS, "modern": ["modern.py", "resources"]}
    root = tmp_path_factory.mktemp("offers")
    with serving_bench(root, tried_walls, ready_forge, **program) as bench, http_server(bench) as running:
        yield running


class Answering:
    """A client that can be asked everything: callbacks of the SDK, and what they were asked."""

    def __init__(self) -> None:
        self.sampled: list[Any] = []
        self.logged: list[tuple[str, Any]] = []

    async def sample(self, context: Any, params: Any) -> types.CreateMessageResult:
        self.sampled.append(params)
        content = types.TextContent(type="text", text="four words of wisdom")
        return types.CreateMessageResult(role="assistant", content=content, model="theirs", stop_reason="endTurn")

    async def roots(self, context: Any) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri="file:///home/them/project")])  # type: ignore[arg-type]

    async def elicit(self, context: Any, params: Any) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"name": "Ada"})

    async def log(self, params: Any) -> None:
        self.logged.append((params.level, params.data))

    @property
    def callbacks(self) -> dict[str, Any]:
        return {
            "sampling_callback": self.sample,
            "list_roots_callback": self.roots,
            "elicitation_callback": self.elicit,
            "logging_callback": self.log,
        }


def words(message: Any) -> str:
    return str(message.content.text)


@pytest.mark.parametrize("era", ERAS)
async def test_prompts_of_the_program_and_of_its_server_are_listed_filled_and_completed(
    server: HttpServer, era: str
) -> None:
    async with server.client(era) as client:
        listed = {each.name: each for each in (await client.list_prompts()).prompts}
        assert {"daily", "weather", "plain", "broken", "echo__greet"} <= listed.keys()
        assert (listed["daily"].title, listed["daily"].description) == ("Today", "What to do on a day.")
        assert [(each.name, each.required) for each in listed["daily"].arguments] == [("day", True), ("count", False)]

        filled = await client.get_prompt("daily", {"day": "monday", "count": "2"})
        assert [(each.role, words(each)) for each in filled.messages] == [
            ("user", "Plan 3 things for monday."),
            ("assistant", "Gladly."),
        ]
        assert words((await client.get_prompt("plain")).messages[0]) == "plain words"
        assert words((await client.get_prompt("echo__greet", {"who": "Ada"})).messages[0]) == "Say hello to Ada."

        for name, args, said in (
            ("daily", {}, "input_invalid"),
            ("nothing", {}, "Unknown prompt: nothing"),
            ("broken", {}, "no words today"),
            ("prompt:daily", {"day": "x"}, "Unknown prompt"),
        ):
            with pytest.raises(MCPError, match=said):
                await client.get_prompt(name, args)
        with pytest.raises(MCPError, match="Unknown tool"):
            await client.call_tool("prompt:daily", {"day": "monday"})

        async def completed(name: str, argument: str, value: str, **context: str) -> Any:
            ref = types.PromptReference(type="ref/prompt", name=name)
            found = await client.complete(ref, {"name": argument, "value": value}, context or None)
            return found.completion

        assert (await completed("daily", "day", "T")).values == ["tuesday", "thursday"]
        many = await completed("weather", "city", "par", country="fr")
        assert (many.values[0], len(many.values), many.has_more) == ("par-fr-0", 100, True)
        assert (await completed("echo__greet", "who", "A")).values == ["Ada", "Abert"]
        assert (await completed("weather", "country", "x")).values == []
        template = types.ResourceTemplateReference(type="ref/resource", uri="notes://{day}/text/{+rest}")
        found = await client.complete(template, {"name": "day", "value": "f"})
        assert found.completion.values == ["friday"]
        with pytest.raises(MCPError, match="no argument 'nope'"):
            await completed("daily", "nope", "x")


@pytest.mark.parametrize("era", ERAS)
async def test_resources_of_the_program_and_of_its_server_are_listed_and_read(server: HttpServer, era: str) -> None:
    async with server.client(era) as client:
        listed = {str(each.uri): each for each in (await client.list_resources()).resources}
        assert listed["notes://today"].mime_type == "text/markdown"
        proxied = "forge://mcp/echo/note%3A%2F%2Fone"
        assert proxied in listed
        templates = {each.uri_template for each in (await client.list_resource_templates()).resource_templates}
        assert {"notes://{day}/text/{+rest}", "forge://zone/{zone}/{+path}"} <= templates

        async def read(uri: str) -> Any:
            return (await client.read_resource(uri)).contents[0]

        assert (await read("notes://today")).text == "# today"
        assert json.loads((await read("notes://mon%20day/text/a/b")).text) == {"day": "mon day", "rest": "a/b"}
        assert len((await read("notes://large")).text) == 300_000
        picture = await read("notes://picture")
        assert (picture.mime_type, picture.blob[:8]) == ("image/png", "AAECAwQF")
        assert (await read(proxied)).text == "the note note://one"
        for uri, said in (
            ("notes://nothing", "Resource not found"),
            ("notes://a/b/text/", "Resource not found"),
            ("resource:today", "Resource not found"),
            ("notes://secret", "policy_denied"),
        ):
            with pytest.raises(MCPError, match=said):
                await client.read_resource(uri)


@pytest.mark.parametrize("era", ERAS)
async def test_a_tool_asks_its_client_for_a_form_its_model_and_its_roots(server: HttpServer, era: str) -> None:
    them = Answering()
    async with server.client(era, **them.callbacks) as client:
        said = await client.call_tool("chat", {"text": "two and two?"})
        assert said.content[0].text == "theirs says four words of wisdom"
        asked = them.sampled[0]
        assert (asked.system_prompt, asked.max_tokens) == ("Be short.", 50)
        assert asked.messages[0].content.text == "two and two?"
        every = await client.call_tool("ask_all", {})
        assert every.content[0].text == "accept Ada four words of wisdom ['file:///home/them/project']"


async def test_a_client_that_declared_nothing_is_refused_at_once(server: HttpServer) -> None:
    async with asyncio.timeout(PATIENCE), server.client(LEGACY) as client:
        refused = await client.call_tool("needs_model", {})
        assert refused.is_error
        assert "did not declare the capability 'sampling'" in refused.content[0].text
        assert (await client.call_tool("needs_model", {"fallback": True})).content[0].text == "without a model"
    meta = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": {"name": "by hand", "version": "0"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    for args, status in (({}, 400), ({"fallback": True}, 200)):
        params = {"name": "needs_model", "arguments": args, "_meta": meta}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        headers = {"MCP_Protocol_Version": MODERN, "Mcp_Method": "tools/call", "Mcp_Name": "needs_model"}
        answer = server.wire().send(body, **headers)
        assert answer.status == status
        if status == 400:
            assert answer.message["error"]["code"] == -32021
            assert answer.message["error"]["data"] == {"requiredCapabilities": {"sampling": {}}}


async def test_log_messages_are_those_the_client_wants(server: HttpServer) -> None:
    """How many they may be in a second: tests/agent/test_agent_client_requests.py."""
    them = Answering()
    async with server.client(LEGACY, **them.callbacks) as client:
        await client.call_tool("log_all", {})
        assert [level for level, _ in them.logged] == ["info", "warning", "error"]  # until it says otherwise
        them.logged.clear()
        await client.set_logging_level("error")
        await client.call_tool("log_all", {})
        assert them.logged == [("error", "line at error in /etc")]
    them = Answering()
    async with server.client(MODERN, **them.callbacks) as client:
        await client.call_tool("log_all", {})
        assert them.logged == []  # it asked for none
        await client.call_tool("log_all", {}, meta={types.LOG_LEVEL_META_KEY: "warning"})
        assert [level for level, _ in them.logged] == ["warning", "error"]


@asynccontextmanager
async def subscriber(server: HttpServer) -> AsyncIterator[tuple[Any, asyncio.Queue[str]]]:
    """A client, and the resources that it is told of."""
    heard: asyncio.Queue[str] = asyncio.Queue()

    async def told(message: Any) -> None:
        if isinstance(message, types.ResourceUpdatedNotification):
            heard.put_nowait(str(message.params.uri))

    listening = asyncio.Event()
    async with asyncio.timeout(PATIENCE), server.client(LEGACY, listening=listening, message_handler=told) as client:
        await listening.wait()
        yield client, heard


_ZONE, _PROXIED = "forge://zone/workspace/hello.txt", "forge://mcp/echo/note%3A%2F%2Fone"


async def test_a_subscriber_hears_of_files_of_the_program_and_of_servers(server: HttpServer) -> None:
    async with subscriber(server) as (client, heard):
        for uri in (_ZONE, _PROXIED, "notes://today"):
            await client.subscribe_resource(uri)
        for uri in ("forge://zone/workspace/not-there.txt", "notes://secret", "forge://output/0123456789abcdef"):
            with pytest.raises(MCPError, match="Resource not found"):
                await client.subscribe_resource(uri)
        await changed(server.bench, client, heard)
        await client.unsubscribe_resource("notes://today")
        await client.call_tool("change", {"uri": "notes://today"})
        await client.call_tool("change", {"uri": "notes://else"})
        rewrite(server.bench, "hello again\n")
        while (uri := await heard.get()) == _PROXIED:  # it was changed until Forge was subscribed
            pass
        assert uri == _ZONE


async def test_a_listener_of_the_new_era_hears_of_them_too(server: HttpServer) -> None:
    heard: asyncio.Queue[str] = asyncio.Queue()

    async def listen(client: Any, opened: asyncio.Event) -> None:
        uris = [_ZONE, _PROXIED, "notes://today", "notes://not-there"]
        async with client.listen(resource_subscriptions=uris) as events:
            opened.set()
            async for event in events:
                heard.put_nowait(event.uri)

    opened = asyncio.Event()
    async with asyncio.timeout(PATIENCE), server.client(MODERN) as client:
        task = asyncio.create_task(listen(client, opened))
        await opened.wait()
        await changed(server.bench, client, heard)
        await client.call_tool("change", {"uri": "notes://not-there"})
        await client.call_tool("change", {"uri": "notes://today"})
        while (uri := await heard.get()) == _PROXIED:  # it was changed until Forge was subscribed
            pass
        assert uri == "notes://today"
        task.cancel()


def rewrite(bench: McpBench, text: str) -> None:
    """At once: a look at a file that is being written would see two changes."""
    being_written = bench.workspace / "hello.new"
    being_written.write_text(text)
    being_written.replace(bench.workspace / "hello.txt")


async def changed(bench: McpBench, client: Any, heard: asyncio.Queue[str]) -> None:
    """Each of the three resources, one after the other; of the server's there is news once Forge is subscribed."""
    rewrite(bench, f"hello {id(client)}\n")
    assert await heard.get() == _ZONE
    await client.call_tool("change", {"uri": "notes://today"})
    assert await heard.get() == "notes://today"
    while heard.empty():
        await client.call_tool("echo__echo", {"text": "note://one is another"})
        await asyncio.sleep(0.8)
    assert await heard.get() == _PROXIED


async def test_news_of_a_server_of_the_new_era_are_passed_on_after_its_stream_ended_too(server: HttpServer) -> None:
    uri = "forge://mcp/modern/note%3A%2F%2Fone"
    async with subscriber(server) as (client, heard):
        assert (await client.read_resource(uri)).contents[0].text == "the note note://one"
        await client.subscribe_resource(uri)
        assert await told_of(client, heard) == uri
        await client.call_tool("modern__drop", {})
        while not heard.empty():
            heard.get_nowait()
        assert await told_of(client, heard) == uri
        await client.unsubscribe_resource(uri)
        await client.subscribe_resource(_ZONE)
        rewrite(server.bench, "one\n")
        while await heard.get() != _ZONE:  # of changes before that
            pass
        await client.call_tool("modern__echo", {"text": "note://one for nobody"})
        await asyncio.sleep(1.2)
        rewrite(server.bench, "another\n")
        assert await heard.get() == _ZONE


async def told_of(client: Any, heard: asyncio.Queue[str]) -> str:
    """The next news of the server's resource, which it changes until Forge listens."""
    while heard.empty():
        await client.call_tool("modern__echo", {"text": "note://one is another"})
        await asyncio.sleep(0.8)
    return await heard.get()


def test_a_hostile_client_is_bounded(server: HttpServer) -> None:
    wire = server.wire()
    begun = wire.send(initialize(1))
    session = {"Mcp_Session_Id": begun.headers["mcp-session-id"]}
    wire.send({"jsonrpc": "2.0", "method": "notifications/initialized"}, **session)

    def ask(method: str, **params: Any) -> dict[str, Any]:
        return wire.send({"jsonrpc": "2.0", "id": 2, "method": method, "params": params}, **session).message

    assert ask("logging/setLevel", level="loud")["error"]["code"] == -32602
    assert ask("prompts/get", name="x" * 100_000)["error"]["message"] == f"Unknown prompt: {'x' * 200}"
    assert "not found" in ask("resources/subscribe", uri="notes://" + "x" * 50_000)["error"]["message"]
    long = "notes://a/text/" + "/" * 100_000
    assert "not found" in ask("resources/read", uri=long)["error"]["message"]
    for number in range(100):
        assert "result" in ask("resources/subscribe", uri=f"notes://d{number}/text/x")
    refused = ask("resources/subscribe", uri="notes://one-more/text/x")
    assert "at most 100" in refused["error"]["message"]
    ref = {"type": "ref/prompt", "name": "weather"}
    assert "error" in ask("completion/complete", ref=ref, argument={"name": "city", "value": 5})
