"""mcp.md §17, 14–21: what a call may take, what comes back, what a server may ask meanwhile, and lists without end."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import Mapping
from typing import Any

import pytest
from tests.acceptance.mcp_bench import Forms, McpBench, offered, pool_of, settled
from tests.deadlines import LONG, ever_longer, within
from tests.mcp import foreign
from tests.mcp.pools import until
from tests.mcp.talk import talking
from tests.ui.terminal.screen import CTRL_C, CTRL_D, Terminal

from golem_forge.agent.model.interface import TokenUsage
from golem_forge.agent.model.scripted import Turn
from golem_forge.core.calls import ToolCall
from golem_forge.core.results import to_mcp

SLOW = "trigger-long-running-operation"
ERAS = pytest.mark.parametrize("era", ["legacy", "modern"])


def everything(bench: McpBench, **keys: Any) -> dict[str, Any]:
    return bench.theirs(foreign.everything(), **keys)


def begin(bench: McpBench, **servers: Mapping[str, Any]) -> None:
    """The program names them; a person trusts it and has approved them."""
    bench.yaml(servers)
    bench.approve()
    bench.trust()


# ---- time


async def test_case_14_progress_keeps_a_call_alive_and_silence_ends_it(mcp_bench: McpBench) -> None:
    """Longer than `idle_timeout` with progress: success, and it is shown. Without: `timeout` naming the idle limit.
    `total_timeout` ends it whatever it says. The time that a person takes counts for neither:
    tests/mcp/client/test_addresses.py. (Seconds as 20, 5 and 8 in the case: 1.25, 1 and 1 here, and more where a
    busy machine holds up the server for that long; whoever is cut off would have taken a minute.)"""
    for seconds in ever_longer(1):
        if await _kept_its_times(mcp_bench, seconds):
            return
    raise AssertionError("with progress it was ended all the same")


async def _kept_its_times(mcp_bench: McpBench, seconds: float) -> bool:
    """False: the machine stood still for longer than `seconds`, so there was no progress either."""
    free = {"approval": {"default": "preApproved"}}
    begin(
        mcp_bench,
        patient=mcp_bench.ours("echo.py", idle_timeout=seconds, **free),
        hurried=mcp_bench.ours("echo.py", total_timeout=seconds, **free),
    )
    calls = [
        ToolCall("patient__sleep", {"seconds": 1.25 * seconds, "progress": True}),
        ToolCall("patient__sleep", {"seconds": LONG}),
        ToolCall("hurried__sleep", {"seconds": LONG, "progress": True}),
    ]
    progress: list[Any] = []
    async with mcp_bench.session() as session:
        await settled(session)
        session.bus.on("toolProgress", lambda event: progress.append(event.data))
        with within(1.25 * seconds):
            kept_busy, silent, too_long = await asyncio.gather(*(session.call(each) for each in calls))
        if kept_busy.status == "timeout":
            return False
        shown = [told.progress for told in progress if told.tool_call_id == calls[0].id]
        assert kept_busy.ok and kept_busy.text == "slept", kept_busy.error
        assert len(shown) >= 5 and shown == sorted(set(shown))
        assert (silent.status, silent.error) == ("timeout", f"no progress from patient for {seconds} seconds")
        assert silent.duration_ms > 950 * seconds
        assert (too_long.status, too_long.error) == ("timeout", f"hurried did not finish within {seconds} seconds")
        assert too_long.duration_ms > 950 * seconds
        assert any(told.tool_call_id == calls[2].id for told in progress), "it was not silent"
        afterwards = [await session.call(f"{server}__echo", {"text": "still"}) for server in ("patient", "hurried")]
        if "timeout" in [outcome.status for outcome in afterwards]:
            return False
        assert [outcome.text for outcome in afterwards] == ["still"] * 2
    return True


async def test_case_15_an_interrupt_ends_the_call_and_not_the_connection(mcp_bench: McpBench) -> None:
    """`interrupted` in < 1 s; the next call on the same connection works, on the same process."""
    begin(mcp_bench, echo=mcp_bench.ours("echo.py", env={"ECHO_LOG": "/workspace/log"}))
    async with mcp_bench.session() as session:
        await settled(session)
        pid = (await session.call("echo__pid")).text
        running = asyncio.create_task(session.call("echo__sleep", {"seconds": LONG, "progress": True}))
        told: list[Any] = []
        session.bus.on("toolProgress", told.append)
        await until(lambda: told, "progress")
        with within(1):
            session.interrupt()
            outcome = await running
        assert outcome.status == "interrupted"
        session.reset()
        assert (await session.call("echo__pid")).text == pid
        assert mcp_bench.starts() == 1
        sleeping = [said["id"] for said in mcp_bench.log() if said.get("params", {}).get("name") == "sleep"]
        cancelled = [said for said in mcp_bench.log() if said.get("method") == "notifications/cancelled"]
        assert [said["params"]["requestId"] for said in cancelled] == sleeping


def chat(bench: McpBench, turns: list[dict[str, Any]]) -> Terminal:
    """`forge` at a terminal: a conversation with a model that says these turns, and every server."""
    front = {"name": "main", "mode": "chat", "model": "scripted:script.yaml", "toolsets": {"mcp": {"servers": ["*"]}}}
    (bench.workspace / "script.yaml").write_text(json.dumps({"turns": turns}))
    (bench.workspace / "main.worker").write_text(f"---\n{json.dumps(front)}\n---\nYou are main.\n")
    bench.trust()
    return Terminal(["forge"], cwd=bench.workspace, env=bench.environ(), spawn=bench.ready.on_a_terminal)


def journal(bench: McpBench) -> list[dict[str, Any]]:
    [file] = (bench.home.path / "sessions").glob("*.jsonl")
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.mark.long
def test_case_15_ctrl_c_at_a_terminal(mcp_bench: McpBench) -> None:
    """The same for whoever sits before `forge run`: the turn ends, the conversation and the server go on."""
    begin(mcp_bench, echo=mcp_bench.ours("echo.py", approval={"default": "preApproved"}))
    turns = [
        {"calls": [{"tool": "echo__sleep", "args": {"seconds": LONG, "progress": True}}]},
        {"calls": [{"tool": "echo__echo", "args": {"text": "again"}}]},
        {"say": "Well done."},
    ]
    with chat(mcp_bench, turns) as screen:
        screen.wait_for("server echo: ready")
        screen.enter("go")
        screen.wait_for(re.compile("sleep.* [0-9.]+ s · "))
        [server] = [each for each in mcp_bench.left() if "echo.py" in each and "bwrap" not in each]
        with within(1):
            screen.send(CTRL_C)
            screen.wait_for(re.compile("(?i)interrupted"), LONG)
        screen.enter("once more")
        screen.wait_for("Well done.")
        assert server in mcp_bench.left(), "the same process serves the next call"
        screen.send(CTRL_D)
        assert screen.wait_end() == 0
    records = journal(mcp_bench)
    ends = [record["status"] for record in records if record["type"] == "finished"]
    assert ends == ["interrupted", "success"]


# ---- results


async def test_case_16_a_result_that_breaks_its_own_promise_fails(mcp_bench: McpBench) -> None:
    """Another shape than `outputSchema` says: `execution_failed` naming the path, content kept. `isError` likewise."""
    begin(mcp_bench, liar=mcp_bench.ours("hostile.py", "liar"), echo=mcp_bench.ours("echo.py"))
    async with mcp_bench.session() as session:
        await settled(session)
        shape = await session.call("liar__shape")
        assert shape.status == "execution_failed"
        assert shape.error.startswith("tool 'shape' of liar returned an invalid value at $.n: ")
        assert "done" in shape.text and shape.result.structured == {"n": "many"}
        missing = await session.call("liar__missing")
        assert missing.status == "execution_failed" and "no structured content at $" in missing.error
        assert missing.result.text == "done"
        failed = await session.call("echo__fail")
        assert failed.status == "execution_failed" and failed.text == "it failed, as it always does"


RICH: list[tuple[str, dict[str, Any], str]] = [
    ("get-tiny-image", {}, "image"),
    ("get-resource-reference", {"resourceType": "Text", "resourceId": 1}, "resource"),
    ("get-resource-reference", {"resourceType": "Blob", "resourceId": 2}, "resource"),
    ("get-resource-links", {"count": 3}, "resource_link"),
    ("get-annotated-message", {"messageType": "error", "includeImage": True}, "image"),
    ("get-structured-content", {"location": "New York"}, "text"),
]


@pytest.mark.long
async def test_case_17_images_and_resources_come_through_intact(mcp_bench: McpBench) -> None:
    """What server-everything says, ToolResult → CallToolResult gives again."""
    begin(mcp_bench, every=everything(mcp_bench))
    with talking(foreign.everything()) as alone:
        expected = [alone.call(name, args) for name, args, _ in RICH]
    async with mcp_bench.session() as session:
        await settled(session)
        for (name, args, kind), said in zip(RICH, expected, strict=True):
            outcome = await session.call(f"every__{name}", args)
            assert outcome.ok, outcome.error
            assert kind in [block["type"] for block in said["content"]]
            assert without_times(to_mcp(outcome.result)) == without_times(said)


def without_times(result: Any) -> Any:
    """Its dynamic resources say when they were made, also in a blob."""
    copy = json.loads(json.dumps(result))
    for block in copy["content"]:
        resource = block.get("resource", {})
        text = resource.get("text") or base64.b64decode(resource.pop("blob", "")).decode()
        if text:
            resource["text"] = text.split(" at ")[0].split(" created")[0]
    return copy


async def test_case_17_what_is_no_text_comes_through_intact_and_is_not_counted_in_the_text_bound(
    mcp_bench: McpBench,
) -> None:
    """An image of 600 KB beside a long text: the text is cut and kept by handle, the image is whole. And ToolResult →
    CallToolResult gives resources, links, annotations and structured content as the server said them."""
    picture = base64.b64encode(bytes(range(256)) * 1800).decode()
    lines = "\n".join(f"line {number}" for number in range(10_000))
    image = {"type": "image", "data": picture, "mimeType": "image/png"}
    small, large = ({"type": "text", "text": text} for text in ("Here it is.", lines))
    rich = {
        "content": [
            {"type": "resource", "resource": {"uri": "demo://1", "mimeType": "text/plain", "text": "one"}},
            {"type": "resource", "resource": {"uri": "demo://2", "mimeType": "text/plain", "blob": picture[:8]}},
            {"type": "resource_link", "uri": "demo://3", "name": "three"},
            small | {"annotations": {"priority": 1.0, "audience": ["user", "assistant"]}},
        ],
        "structuredContent": {"temperature": 33},
    }
    answers = {"small": {"content": [small, image]}, "large": {"content": [large, image]}, "rich": rich}
    tools = [{"name": name, "inputSchema": {"type": "object"}, "answer": answer} for name, answer in answers.items()]
    (mcp_bench.workspace / "tools.json").write_text(json.dumps(tools))
    begin(mcp_bench, shelf=mcp_bench.ours("shelf.py", "${zone:workspace}/tools.json"))
    async with mcp_bench.session() as session:
        await settled(session)
        whole = await session.call("shelf__small")
        assert whole.ok and not whole.truncated and whole.output_handle == ""
        assert to_mcp(whole.result)["content"] == [small, image]
        assert to_mcp((await session.call("shelf__rich")).result) == rich
        cut = await session.call("shelf__large")
        assert cut.ok and cut.truncated and len(cut.text.encode()) < 40_000
        assert "line 0\n" in cut.text and "line 9999" in cut.text
        assert image in cut.result.content
        kept = await session.call("read_output", {"handle": cut.output_handle, "offset": 5000, "limit": 2})
        assert kept.ok and "line 4999" in kept.text


# ---- what servers ask


FORM = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Your name", "minLength": 1},
        "colour": {"type": "string", "enum": ["red", "green"]},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "sure": {"type": "boolean"},
    },
    "required": ["name", "age"],
}
FILLED = {"name": "Ada", "colour": "green", "age": 36, "sure": True}


@ERAS
async def test_case_18_a_server_asks_and_a_person_fills_in_a_form(mcp_bench: McpBench, era: str) -> None:
    """String, enum, integer, boolean: a form, headed by the server's name. An integer out of range is refused in the
    form; refusing gives `decline`, dismissing `cancel`; the same in both eras."""
    mcp_bench.forms = Forms(
        {"action": "accept", "values": FILLED | {"age": 1500}},
        {"action": "accept", "values": FILLED},
        {"action": "decline"},
        {"action": "cancel"},
    )
    begin(mcp_bench, asker=mcp_bench.ours("asker.py", era))
    question = {"method": "elicitation/create", "params": {"message": "Who are you?", "requestedSchema": FORM}}
    async with mcp_bench.session() as session:
        await settled(session)
        version = pool_of(session).status("asker").protocol
        assert (version == "2026-07-28") is (era == "modern"), version
        said = [json.loads((await session.call("asker__ask", question)).text) for _ in range(3)]
    first, again, *_ = mcp_bench.forms
    assert (first.source, first.message) == ("asker", "Who are you?") and "asker" in first.title
    fields = {each["name"]: each for each in first.fields}
    assert {name: each["type"] for name, each in fields.items()} == {
        "name": "text",
        "colour": "select",
        "age": "number",
        "sure": "boolean",
    }
    assert fields["name"]["label"] == "Your name" and fields["name"]["required"] and not fields["sure"]["required"]
    assert [option["value"] for option in fields["colour"]["options"]] == ["red", "green"]
    wrong = {each["name"]: each.get("error", "") for each in again.fields}
    assert "150" in wrong.pop("age") and not any(wrong.values())
    assert said == [[{"action": "accept", "content": FILLED}], [{"action": "decline"}], [{"action": "cancel"}]]
    assert len(mcp_bench.forms) == 4


@pytest.mark.long
def test_case_18_at_a_terminal(mcp_bench: McpBench) -> None:
    """Field by field, headed by the server's name; what is out of range is refused where it was typed."""
    begin(mcp_bench, asker=mcp_bench.ours("asker.py", "modern", approval={"default": "preApproved"}))
    params = {"message": "Who are you?", "requestedSchema": FORM}
    ask = {"tool": "asker__ask", "args": {"method": "elicitation/create", "params": params}}
    with chat(mcp_bench, [{"calls": [ask]}, {"say": "Thank you."}]) as screen:
        screen.wait_for("server asker: ready")
        screen.enter("go")
        screen.wait_for("'asker' asks")
        screen.wait_for("Who are you?")
        for shown, answer in (
            ("Your name", "Ada"),
            ("one of red, green", "green"),
            ("from 0 to 150", "1500"),
            ("must be at most 150", "\x15" + "36"),
            ("yes or no", "yes"),
        ):
            screen.wait_for(shown, anywhere=False)
            screen.settle(0.05)
            screen.enter(answer)
        screen.wait_for("(y send", anywhere=False)
        screen.send("y")
        screen.wait_for("Thank you.")
        screen.send(CTRL_D)
        assert screen.wait_end() == 0
    messages = [record["message"] for record in journal(mcp_bench) if record["type"] == "history"]
    [told] = [result["text"] for message in messages for result in message.get("results", ())]
    assert json.dumps([{"action": "accept", "content": FILLED}]) in told


async def test_case_18_with_nobody_there_it_is_cancelled(mcp_bench: McpBench) -> None:
    begin(mcp_bench, asker=mcp_bench.ours("asker.py", "modern"))
    question = {"method": "elicitation/create", "params": {"message": "Who?", "requestedSchema": FORM}}
    async with mcp_bench.session(person=False, approval="approve_all") as session:
        await settled(session)
        outcome = await session.call("asker__ask", question)
        assert json.loads(outcome.text) == [{"action": "cancel"}]


@pytest.mark.long
async def test_case_18_the_form_of_server_everything(mcp_bench: McpBench) -> None:
    """Thirteen fields of every kind that MCP knows; what is left alone has the value the server proposed."""
    chosen = {"name": "Ada", "integer": 7, "check": True, "titledSingleSelectEnum": "hero-2"}
    mcp_bench.forms = Forms(
        {"action": "accept", "values": {"name": "Ada", "integer": 101}},
        {"action": "accept", "values": chosen},
        {"action": "decline"},
    )
    begin(mcp_bench, every=everything(mcp_bench))
    async with mcp_bench.session() as session:
        await settled(session)
        outcome = await session.call("every__trigger-elicitation-request")
        declined = await session.call("every__trigger-elicitation-request")
    assert outcome.ok and declined.ok and "declined" in declined.text
    sent = json.loads(outcome.text.partition("Raw result: ")[2])
    assert sent["action"] == "accept"
    assert sent["content"] == sent["content"] | chosen
    assert sent["content"]["untitledMultipleSelectEnum"] == ["Guitar"] and sent["content"]["number"] == 3.14
    fields = {each["name"]: each for each in mcp_bench.forms[0].fields}
    labels = {name: [option["label"] for option in each.get("options", ())] for name, each in fields.items()}
    assert labels["titledSingleSelectEnum"] == ["Superman", "Green Lantern", "Wonder Woman"]
    assert labels["legacyTitledEnum"] == ["Cats", "Dogs", "Birds", "Fish", "Reptiles"]


SAMPLING = {
    "messages": [{"role": "user", "content": {"type": "text", "text": "What is 2 + 2?"}}],
    "systemPrompt": "Be brief.",
    "maxTokens": 100_000,
    "includeContext": "allServers",
}


def fenced(text: str) -> str:
    """What stands between the lines that mark a tool's output for a model."""
    return "\n".join(text.splitlines()[1:-1])


@ERAS
async def test_case_19_a_server_asks_the_workers_model(mcp_bench: McpBench, era: str) -> None:
    """A card with the messages; denied: the server gets an error; allowed: the answer of the worker's model, whose cost
    is the worker's."""
    begin(mcp_bench, asker=mcp_bench.ours("asker.py", era, approval={"default": "preApproved"}))
    ask = [("asker__ask", {"method": "sampling/createMessage", "params": SAMPLING})]
    paid = Turn(say="It is four.", usage=TokenUsage(input=1000, output=77))
    async with mcp_bench.conversation([ask, paid, "I know now.", ask, "Never mind."]) as talk:
        await settled(talk)
        used: list[Any] = []
        talk.runtime.bus.on("usageUpdated", lambda event: used.append(event.data))
        result = await talk.turn("find out")
        assert result.success, result.error
        [card] = mcp_bench.cards
        assert card.type == "sampling" and "asker" in card.description
        assert "What is 2 + 2?" in card.payload and "Be brief." in card.payload
        assert "4096" in card.payload and talk.runtime.model_name in "\n".join((card.description, *card.effects))
        _, sampled, after = talk.requests
        assert (sampled.system, sampled.tools, sampled.max_output_tokens) == ("Be brief.", (), 4096)
        assert [message.text for message in sampled.messages] == ["What is 2 + 2?"], "nothing of the conversation"
        [(status, text)] = talk.told()
        [answer] = json.loads(fenced(text))
        assert status == "success" and answer["content"]["text"] == "It is four."
        assert (answer["role"], answer["stopReason"]) == ("assistant", "endTurn")
        assert talk.runtime.meter.requests == 3, "its own two and the server's"
        assert talk.runtime.meter.usage.output >= 77 and talk.runtime.meter.usage.input >= 1000
        assert len(used) == 3 and len({each.worker_id for each in used}) == 1
        assert "It is four." not in [getattr(message, "text", "") for message in after.messages]

        mcp_bench.cards.yes = False
        assert (await talk.turn("again")).success
        [(status, text)] = talk.told()
        assert len(mcp_bench.cards) == 2 and talk.runtime.meter.requests == 5
        if era == "legacy":
            [answer] = json.loads(fenced(text))
            assert answer["error"]["message"].startswith("User rejected sampling request")
        else:  # the question stands in the result of the call: without its answer the call cannot go on
            assert status == "execution_failed" and "User rejected sampling request" in text


async def test_case_19_a_secret_that_the_server_was_given_is_not_sent_to_the_model(
    mcp_bench: McpBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    canary = "canary-b0a7c1ff"
    monkeypatch.setenv("ASKER_KEY", canary)
    server = mcp_bench.ours("asker.py", "legacy", approval={"default": "preApproved"}, pass_env=["ASKER_KEY"])
    begin(mcp_bench, asker=server)
    told = {"role": "user", "content": {"type": "text", "text": f"Is {canary} a good key?"}}
    params = SAMPLING | {"messages": [told], "systemPrompt": f"You know {canary}."}
    ask = [("asker__ask", {"method": "sampling/createMessage", "params": params})]
    async with mcp_bench.conversation([ask, "No.", "I know now."]) as talk:
        await settled(talk)
        assert (await talk.turn("find out")).success
        sampled = talk.requests[1]
        assert sampled.system.startswith("You know ") and canary not in sampled.system
        [message] = sampled.messages
        assert message.text.endswith(" a good key?") and canary not in message.text
        [card] = mcp_bench.cards
        assert canary not in card.payload


@ERAS
async def test_case_19_blocked_is_not_even_declared(mcp_bench: McpBench, era: str) -> None:
    """`sampling: blocked`: the capability is absent from the handshake."""
    verdicts = ("ask", "blocked")
    servers = {
        name: mcp_bench.ours("asker.py", era, sampling=name, env={"ASKER_LOG": f"/workspace/{name}"})
        for name in verdicts
    }
    begin(mcp_bench, **servers)
    async with mcp_bench.session() as session:
        await settled(session)
        outcome = await session.call("blocked__ask", {"method": "sampling/createMessage", "params": SAMPLING})
    declared = [mcp_bench.log(name)[0] for name in verdicts]
    assert ["sampling" in each for each in declared] == [True, False]
    assert all("elicitation" in each and "roots" in each for each in declared)
    assert "sampling" not in [card.type for card in mcp_bench.cards]
    assert "It is four." not in outcome.text


async def test_case_20_roots_are_the_zones_it_was_given(mcp_bench: McpBench) -> None:
    """`zones: {workspace: ro}`: one file URI, readable inside; a write there fails. server-filesystem, started without
    a directory, takes what the roots say."""
    (mcp_bench.workspace / "notes.txt").write_text("buy milk\n")
    read_only = {"zones": {"workspace": "ro"}}
    begin(
        mcp_bench,
        files=mcp_bench.theirs(foreign.filesystem(), **read_only),
        asker=mcp_bench.ours("asker.py", "legacy", zones={"workspace": "ro"}),
    )
    async with mcp_bench.session() as session:
        await settled(session)
        listed = await session.call("asker__ask", {"method": "roots/list", "params": {}})
        [answer] = json.loads(listed.text)
        [root] = answer["roots"]
        assert root["uri"].startswith("file:///"), listed.text
        place = root["uri"].removeprefix("file://")
        allowed = await session.call("files__list_allowed_directories")
        assert allowed.ok and allowed.text.splitlines()[1:] == [place]
        read = await session.call("files__read_text_file", {"path": f"{place}/notes.txt"})
        assert read.ok and "buy milk" in read.text, read.error
        written = await session.call("files__write_file", {"path": f"{place}/new.txt", "content": "x"})
        assert written.status == "execution_failed" and re.search("EROFS|EACCES", written.text), written.text
    assert not (mcp_bench.workspace / "new.txt").exists()


# ---- lists


async def test_case_21_every_page_of_a_long_list(mcp_bench: McpBench) -> None:
    """250 tools over three pages: all listed. A server that repeats its cursor: the listing ends with a diagnostic.
    (One that never ends: tests/mcp/client/test_manifest_pages.py.)"""
    begin(
        mcp_bench,
        long=mcp_bench.ours("hostile.py", "pages", "250"),
        loop=mcp_bench.ours("hostile.py", "cursor-loop"),
    )
    async with mcp_bench.session() as session:
        await settled(session)
        names = offered(session)
        assert [name for name in names if name.startswith("long__")] == [f"long__tool_{at:04}" for at in range(250)]
        assert pool_of(session).listing("long").diagnostics == ()
        assert (await session.call("long__tool_0249")).text == "tool_0249 ran"
        [said] = pool_of(session).listing("loop").diagnostics
        assert "a cursor came twice" in said and "loop" in said
        assert len([name for name in names if name.startswith("loop__")]) == 2
