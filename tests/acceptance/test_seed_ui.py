"""The document "Tools and UI", from *User Interface* to *Integration*, block by block in Python: each with its effect.

The event arrives, the tool runs, the card is answered, the line is printed. Only the model's words are scripted.
"""

from __future__ import annotations

import asyncio
import io
import os
import sys
import warnings
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Literal

import pexpect
import pytest
from tests.deadlines import PATIENCE

import golem_forge
from golem_forge import (
    ApprovalController,
    Worker,
    WorkerRuntime,
    create_event_cli_adapter,
    create_interrupt_signal,
    create_runtime_ui,
    create_trace_formatter,
    create_ui_event_bus,
    tool,
)
from golem_forge.agent.model.scripted import FunctionScript, Turn, TurnCall
from golem_forge.core.results import ToolResult
from golem_forge.events.model import REGISTRY, EventData, emit_default


def plays(*turns: Turn | str) -> FunctionScript:
    left = list(turns)
    return FunctionScript(lambda request: left.pop(0))


def calls(name: str, **args: Any) -> Turn:
    return Turn(calls=(TurnCall(tool=name, args=args),))


class Shop:
    """Two tools and what they did."""

    def __init__(self) -> None:
        self.done: list[str] = []

        @tool(mode="manual", needs_approval=False, label="Deploy Application", category="Operations")
        def deploy(target: str = "staging") -> str:
            """Deploy it."""
            self.done.append(f"deployed {target}")
            return f"on {target}"

        @tool(needs_approval=True)
        def write_report(text: str) -> str:
            """Write a report."""
            self.done.append(f"wrote {text}")
            return "written"

        self.tools = [deploy, write_report]


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
async def opened(tmp_path: Path, shop: Shop) -> AsyncIterator[Callable[..., Any]]:
    """`await opened(model, …)`: an initialized runtime of a worker with the shop's tools."""
    runtimes: list[WorkerRuntime] = []
    folder = tmp_path / "project"
    folder.mkdir()

    async def make(model: Any = None, **options: Any) -> WorkerRuntime:
        options = {"directory": folder, "tools": shop.tools, **options}
        runtime = WorkerRuntime(worker=Worker(name="clerk"), model=model or plays("Done."), **options)
        runtimes.append(runtime)
        await runtime.initialize()
        return runtime

    yield make
    for runtime in runtimes:
        await runtime.aclose()


class OwnUI:
    """A UI of one's own: it holds a bus, and answers every card in its own way."""

    def __init__(self, bus: Any, *, answer: dict[str, Any] | None = None, attached: bool = True) -> None:
        self.bus = bus
        self.seen: list[Any] = []
        self._answer = {"approved": True} if answer is None else answer
        self._attached = attached
        self._over: list[Callable[[], None]] = []

    async def initialize(self) -> None:
        self._over = [self.bus.on("*", self.seen.append), self.bus.on("approvalRequired", self._asked)]
        if self._attached:
            self._over.append(create_runtime_ui(self.bus).attach("own"))

    async def shutdown(self) -> None:
        for end in self._over:
            end()

    def _asked(self, event: Any) -> None:
        self.bus.emit("approvalResponse", {"requestId": event.data.request_id, **self._answer})

    def of(self, kind: str) -> list[Any]:
        return [event for event in self.seen if event.type == kind]


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.01)


# ---- UIEventBus

DISPLAYED = [
    ("message", {"message": {"role": "assistant", "content": "Hello!"}}),
    ("toolStarted", {"toolCallId": "t1", "toolName": "read_file", "args": {"path": "/src"}}),
    ("toolResult", {"toolCallId": "t1", "toolName": "read_file", "status": "success"}),
    ("streaming", {"requestId": "r1", "delta": "token", "done": False}),
    ("approvalRequired", {"requestId": "a1", "type": "tool_call"}),
]
ACTED = [
    ("userInput", {"requestId": "i1", "content": "user message"}),
    ("approvalResponse", {"requestId": "a1", "approved": True}),
    ("interrupt", {"reason": "User cancelled"}),
    ("manualToolInvoke", {"toolName": "deploy", "args": {}}),
    ("command", {"text": "/status"}),
]


def snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


@pytest.mark.parametrize(("name", "payload"), DISPLAYED + ACTED)
def test_an_event_arrives_with_the_documents_fields_in_either_spelling(name: str, payload: dict[str, Any]) -> None:
    bus = create_ui_event_bus()
    heard: list[Any] = []
    bus.on(name, heard.append)
    bus.on(snake(name), heard.append)
    bus.emit(name, payload)
    bus.emit(snake(name), {snake(field): value for field, value in payload.items()})
    assert len(heard) == 4, "both handlers heard both events"
    for event in heard:
        assert event.type == name
        assert {field: event.wire[field] for field in payload} == payload
        assert all(getattr(event.data, snake(field)) == value for field, value in payload.items())
    printed = io.StringIO()
    create_trace_formatter("debug", output=printed)(heard[0])
    assert name in printed.getvalue(), "what is filled in can be shown"


def test_what_an_event_has_beside_them_is_filled_in() -> None:
    bus = create_ui_event_bus()
    heard: list[Any] = []
    bus.on("*", heard.append)
    for name, payload in DISPLAYED:
        bus.emit(name, payload)
    started, result, streaming, card = (event.data for event in heard[1:])
    assert started.caller == "llm"
    assert (result.args, result.duration_ms, result.decision, result.truncated) == ({}, 0, None, False)
    assert streaming.channel == "text"
    assert (card.risk, card.choices, card.waiting) == ("high", [], 1)
    assert card.args is not heard[-1].data.choices


@pytest.mark.parametrize(
    ("name", "payload", "problem"),
    [
        ("toolStartd", {}, "did you mean 'toolStarted'"),
        ("tool_startd", {}, "did you mean 'toolStarted'"),
        ("toolStarted", {"toolCallId": "t", "toolNme": "x"}, "'toolNme'; did you mean 'toolName'"),
        ("toolStarted", {"toolCallId": "t", "tool_call_id": "t", "toolName": "x"}, "'toolCallId' is given twice"),
        ("toolStarted", {"toolCallId": "t"}, "'toolName' is missing"),
        ("toolStarted", {"toolCallId": 5, "toolName": "x"}, "'toolCallId' is text, not int"),
        ("toolStarted", {"toolCallId": "t", "toolName": ["x"], "caller": "llm", "args": {}}, "'toolName' is text, not"),
        ("toolStarted", {"toolCallId": "t", "toolName": "x", "label": 5}, "'label' is text, not int"),
    ],
)
def test_an_unknown_event_or_field_is_an_error_that_names_the_nearest(name: str, payload: Any, problem: str) -> None:
    bus = create_ui_event_bus()
    with pytest.raises(ValueError, match=problem):
        bus.emit(name, payload)
    if name != "toolStarted":
        with pytest.raises(ValueError, match=problem):
            bus.on(name, print)


@pytest.mark.parametrize(
    ("name", "payload", "problem"),
    [
        ("message", {"message": "Hello"}, "'message' is an object {role, content}, not str"),
        ("message", {"message": {"role": "robot", "content": "x"}}, "'role' that is one of 'user', 'assistant'"),
        ("message", {"message": {"role": "user"}}, "has no 'content'"),
        ("toolResult", {"toolCallId": "t", "toolName": "x", "status": "sucess"}, "'status' is one of 'success', "),
        ("status", {"type": "loud", "message": "x"}, "'type' is one of 'info', 'warning', 'error', not 'loud'"),
        ("status", {"type": "info", "message": None}, "'message' is text, not NoneType"),
        ("streaming", {"requestId": "r", "delta": "x", "done": "no"}, "'done' is true or false, not str"),
        ("message", "hi", "event 'message' takes a mapping of its fields, {message}, not str"),
        ("interrupt", "stop", "event 'interrupt' takes a mapping"),
    ],
)
def test_a_value_that_a_field_cannot_hold_is_an_error_at_once(name: str, payload: Any, problem: str) -> None:
    bus = create_ui_event_bus()
    heard: list[Any] = []
    bus.on(name, heard.append)
    with pytest.raises(TypeError if isinstance(payload, str) else ValueError) as error:
        bus.emit(name, payload)
    assert problem in str(error.value)
    assert heard == []


def test_an_event_of_ones_own_is_checked_as_far_as_its_types_are_plain() -> None:
    class Weighed(EventData):
        grams: float
        unit: Literal["g", "kg"] = emit_default(lambda: "g")
        scale: Path | None = None

    try:
        bus = create_ui_event_bus()
        heard: list[Any] = []
        bus.on("weighed", heard.append)
        bus.emit("weighed", {"grams": 3, "scale": 5})
        assert [event.data.grams for event in heard] == [3]
        for wrong in ({"grams": "3"}, {"grams": 3, "unit": "t"}):
            with pytest.raises(ValueError, match=r"event 'weighed': field '(grams|unit)' is "):
                bus.emit("weighed", wrong)
    finally:
        del REGISTRY["weighed"]


# ---- RuntimeUI


def test_runtime_ui_takes_plain_text_and_results_or_names_the_shape() -> None:
    bus = create_ui_event_bus()
    heard: list[Any] = []
    bus.on("*", heard.append)
    ui = create_runtime_ui(bus)
    ui.show_message("Hi")
    ui.show_status("Processing")
    ui.show_tool_result("t1", "add", "success", ToolResult(value={"kind": "text", "content": "3"}, text="3"))
    ui.show_tool_result("t2", "add", ToolResult(value={"kind": "text", "content": "no"}, text="no", is_error=True))
    message, status, added, failed = (event.data for event in heard)
    assert message.message == {"role": "assistant", "content": "Hi"}
    assert (status.type, status.message) == ("info", "Processing")
    assert (added.status, added.value) == ("success", {"kind": "text", "content": "3"})
    assert (failed.status, failed.error) == ("execution_failed", "no")
    with pytest.raises(TypeError, match=r'"type": "tool_call", "description": …'):
        asyncio.run(ui.request_approval("Deploy?"))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a mapping of its fields or keywords, not int"):
        ui.show_status(5)  # type: ignore[arg-type]


async def test_runtime_ui_shows_and_asks_with_the_documents_calls() -> None:
    bus = create_ui_event_bus()
    ui = create_runtime_ui(bus)
    own = OwnUI(bus)
    await own.initialize()
    bus.on("inputPrompt", lambda event: bus.emit("userInput", {"requestId": event.data.request_id, "content": "hi"}))
    ui.show_message({"role": "assistant", "content": "Hello!"})
    ui.show_message(role="assistant", content="Hello again!")
    ui.show_status({"type": "info", "message": "Processing..."})
    ui.show_tool_started("t1", "read_file", {"path": "/src"})
    ui.show_tool_started({"toolCallId": "t2", "toolName": "read_file", "args": {}})
    ui.show_tool_result("t1", "read_file", "success", "two lines", duration_ms=3)
    ui.show_tool_result({"toolCallId": "t2", "toolName": "read_file", "status": "success", "value": {"n": 1}})
    ui.show_streaming("r1", "token")
    assert [event.data.message["content"] for event in own.of("message")] == ["Hello!", "Hello again!"]
    assert own.of("status")[0].data.message == "Processing..."
    assert [event.data.args for event in own.of("toolStarted")] == [{"path": "/src"}, {}]
    results = own.of("toolResult")
    assert results[0].data.value == {"kind": "text", "content": "two lines"} and results[0].data.duration_ms == 3
    assert results[1].data.value == {"kind": "json", "data": {"n": 1}}
    assert own.of("streaming")[0].data.delta == "token"
    with pytest.raises(ValueError, match="did you mean 'message'"):
        ui.show_status({"type": "info", "mesage": "x"})

    question = {"type": "tool_call", "description": "Write file /output/result.txt", "risk": "medium"}
    approved = await ui.request_approval(question)
    assert approved and approved["approved"] is True and approved.approved
    card = own.of("approvalRequired")[0].data
    assert (card.description, card.risk) == ("Write file /output/result.txt", "medium")
    assert shown(own.of("approvalRequired")[0]).startswith("── Write file /output/result.txt · risk medium ")
    own._answer = {"approved": False, "reason": "not now"}
    denied = await ui.request_approval(**question)
    assert not denied and denied["reason"] == "not now", "`if await …` must not take a denial for a yes"
    given = await ui.get_user_input("Enter your message:")
    assert given == "hi" and isinstance(given, str) and given.content == "hi"
    await own.shutdown()


def shown(event: Any) -> str:
    printed = io.StringIO()
    create_trace_formatter("normal", output=printed)(event)
    return printed.getvalue()


# ---- EventCLIAdapter


@pytest.mark.parametrize("spelled", ["camel", "snake", "keywords"])
async def test_the_cli_adapter_takes_the_documents_options_and_prints(spelled: str) -> None:
    output, bus = io.StringIO(), create_ui_event_bus()
    options = {"output": output, "input": io.StringIO(), "enable_raw_mode": True, "trace_level": "summary"}
    if spelled == "camel":
        options = {"output": output, "input": io.StringIO(), "enableRawMode": True, "traceLevel": "summary"}
    made = create_event_cli_adapter
    adapter = made(bus, **options) if spelled == "keywords" else made(bus, options)  # type: ignore[arg-type]
    assert adapter.bus is bus
    await adapter.initialize()
    await adapter.initialize()
    bus.emit("toolStarted", {"toolCallId": "t1", "toolName": "read_file", "args": {}})
    bus.emit("status", {"type": "warning", "message": "mind the gap"})
    assert output.getvalue() == "warning: mind the gap\n", "once, and at this level nothing of the tool"
    await adapter.shutdown()
    await adapter.shutdown()
    bus.emit("status", {"type": "warning", "message": "too late"})
    assert "too late" not in output.getvalue()


def test_options_that_are_not_known_are_errors_at_once() -> None:
    bus = create_ui_event_bus()
    with pytest.raises(TypeError, match="did you mean 'trace_level'"):
        create_event_cli_adapter(bus, {"traceLevl": "quiet"})
    with pytest.raises(TypeError, match="did you mean 'trace_level'"):
        create_event_cli_adapter(bus, traceLevel="quiet")  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="quiet, summary, normal, debug"):
        create_event_cli_adapter(bus, {"output": io.StringIO(), "trace_level": "loud"})
    with pytest.raises(TypeError, match="did you mean 'ui_adapter'"):
        WorkerRuntime({"worker": "x", "uiAdaptor": 1})
    with pytest.raises(TypeError, match="did you mean 'ui_adapter'"):
        WorkerRuntime(uiAdapter=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="'depth' is given twice"):
        WorkerRuntime({"depth": 1}, depth=0)
    with pytest.raises(TypeError, match="did you mean 'approval_callback'"):
        ApprovalController({"mode": "interactive", "approvalCallbak": print})
    with pytest.raises(ValueError, match="did you mean 'approve_all'"):
        ApprovalController(mode="aprove_all")


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: WorkerRuntime(5), "worker must be a Worker, a mapping of its keys, a file or a name, not 5"),
        (lambda: WorkerRuntime(model=5), "model must be a name like"),
        (lambda: WorkerRuntime(approval_callback=True), "approval_callback must be a function"),
        (lambda: WorkerRuntime(on_event=5), "on_event must be a function"),
        (lambda: WorkerRuntime(bus=5), r"bus must be made by create_ui_event_bus\(\)"),
        (lambda: WorkerRuntime(interrupt_signal=5), r"must be made by create_interrupt_signal\(\)"),
        (lambda: WorkerRuntime(tools=5), "tools must be a list of Tools"),
        (lambda: ApprovalController("interactive", 5), "approval_callback must be a function"),
        (lambda: create_ui_event_bus({"x": 1}), "session_id must be a text"),
        (lambda: create_runtime_ui(5), "bus must be made by create_ui_event_bus"),
        (lambda: create_event_cli_adapter(5), "bus must be made by create_ui_event_bus"),
        (lambda: create_event_cli_adapter(create_ui_event_bus(), output=5), "output must be a stream"),
        (lambda: Worker(name="w", instruction="x"), "did you mean 'instructions'"),
    ],
)
def test_values_that_can_only_fail_later_are_errors_at_once(make: Callable[[], Any], says: str) -> None:
    with pytest.raises(TypeError, match=says):
        make()


# ---- a worker made in Python

ZONES = {"zones": [{"name": "workspace", "approval": {"write": "preApproved"}}]}
WORKER: dict[str, Any] = {
    "name": "clerk",
    "instructions": "You write.",
    "toolsets": {"filesystem": None},
    "sandbox": ZONES,
    "max_iterations": 7,
    "batch": {"mode": "sequential"},
    "budget": {"max_requests": 2},
    "attachment_policy": {"allowed_suffixes": [".pdf"]},
}


@pytest.mark.parametrize("spelled", ["mapping", "camelCase", "Worker", "Worker of a mapping"])
async def test_a_worker_made_in_python_means_what_its_file_would(spelled: str, tmp_path: Path) -> None:
    theirs = {"max_iterations": "maxIterations", "attachment_policy": "attachmentPolicy"}
    made: Any = {
        "mapping": lambda: WORKER,
        "camelCase": lambda: {theirs.get(key, key): value for key, value in WORKER.items()},
        "Worker": lambda: Worker(**WORKER),
        "Worker of a mapping": lambda: Worker(WORKER),  # type: ignore[misc, arg-type]
    }[spelled]()
    again = plays(calls("write_file", path="a.txt", content="x"), calls("read_file", path="a.txt"), "never said")
    async with WorkerRuntime(worker=made, model=again, directory=tmp_path) as runtime:
        worker = runtime.worker
        assert (worker.max_iterations, worker.batch.mode, worker.attachment_policy.allowed_suffixes) == (
            7,
            "sequential",
            (".pdf",),
        )
        result = await runtime.run("Write it")
    assert (tmp_path / "a.txt").read_text() == "x"  # the zone says so, and nobody was asked
    assert (result.status, result.error) == ("limit", "budget exceeded: max_requests 2 (used 2)")


WRONG: dict[str, Any] = {
    "name": "a b",
    "mode": "chatty",
    "tool_format": "json",
    "compatible_models": "anthropic:*",
    "output_schema": {"type": "objct"},
    "toolsets": ["filesystem"],
    "max_iterations": "x",
    "instructions": None,
    "budget": {"max_tokns": 5},
    "sandbox": {"zones": [{"name": "workspace", "mode": "wr"}]},
    "batch": {"mode": "one"},
    "attachment_policy": {"max_attachments": -1},
}


@pytest.mark.parametrize("as_mapping", [True, False])
def test_every_mistake_of_a_worker_made_in_python_is_told_at_once(as_mapping: bool) -> None:
    with pytest.raises(golem_forge.ConfigError) as caught:
        WorkerRuntime(worker=WRONG if as_mapping else Worker(**WRONG))
    places = sorted(problem.split(": ")[1] for problem in caught.value.problems)
    assert places == sorted(
        [
            *(key for key in WRONG if key not in ("budget", "sandbox", "batch", "attachment_policy")),
            *("budget.max_tokns", "sandbox.zones[0].mode", "batch.mode", "attachment_policy.max_attachments"),
        ]
    )
    assert "Worker: budget.max_tokns: unknown key 'max_tokns'; did you mean 'max_tokens'?" in caught.value.problems


async def test_an_input_that_is_no_text_is_an_error_at_once(opened: Callable[..., Any]) -> None:
    runtime = await opened()
    for wrong in (None, {"a": 1}):
        with pytest.raises(TypeError, match="input of a worker must be a text"):
            await runtime.run(wrong)
    assert "`run(text)`" in (await runtime.turn(" ")).error


# ---- actions act


async def test_actions_on_the_bus_of_a_runtime_act(opened: Callable[..., Any], shop: Shop) -> None:
    runtime = await opened()
    heard: list[Any] = []
    runtime.bus.on("*", heard.append)

    def said(text: str) -> bool:
        return any(event.type == "status" and text in event.data.message for event in heard)

    runtime.bus.emit("manualToolInvoke", {"toolName": "deploy", "args": {}})
    await until(lambda: shop.done == ["deployed staging"])
    runtime.bus.emit("manual_tool_invoke", {"tool_name": "deploy", "args": {"target": "live"}})
    await until(lambda: shop.done[1:] == ["deployed live"])
    results = [event.data for event in heard if event.type == "toolResult"]
    assert [result.status for result in results] == ["success", "success"], "through the one path, recorded"
    runtime.bus.emit("command", {"text": "/deploy --target test"})
    await until(lambda: shop.done[2:] == ["deployed test"])
    runtime.bus.emit("command", {"text": "/stauts"})
    await until(lambda: said("did you mean '/status'"))
    runtime.bus.emit("interrupt", {"reason": "User cancelled"})
    result = await runtime.run("go")
    assert (result.success, result.response) == (True, "[Interrupted]")
    runtime.signal.reset()
    assert (await runtime.run("again")).response == "Done."


async def test_commands_of_ones_own_take_the_place_of_the_runtimes(opened: Callable[..., Any], shop: Shop) -> None:
    runtime = await opened()
    left: list[str] = []
    commands = golem_forge.SlashCommands(runtime, leave=lambda: left.append("left"))
    runtime.bus.emit("manualToolInvoke", {"toolName": "deploy", "args": {}})
    runtime.bus.emit("command", {"text": "/exit"})
    await until(lambda: left and shop.done)
    await commands.run("/deploy")
    await commands.settled()
    assert shop.done == ["deployed staging"] * 2, "each once"
    await commands.aclose()
    runtime.bus.emit("manualToolInvoke", {"toolName": "deploy", "args": {"target": "again"}})
    await until(lambda: shop.done[2:] == ["deployed again"])


async def test_actions_on_the_bus_of_a_session_without_a_worker_act(tmp_path: Path, shop: Shop) -> None:
    async with golem_forge.open_session(tmp_path, tools=shop.tools, toolsets={}) as session:
        told: list[str] = []
        session.bus.on("status", lambda event: told.append(event.data.message))
        wish = {"toolName": "deploy", "args": {}, "requestId": "0" * 32}
        session.bus.emit("manualToolInvoke", wish)
        session.bus.emit("manualToolInvoke", wish)
        session.bus.emit("manualToolInvoke", {"toolName": "write_report", "args": {"text": "x"}})
        await until(lambda: shop.done)
        session.bus.emit("command", {"text": "/deploy"})
        await until(lambda: any("no worker" in text for text in told))
        session.bus.emit("interrupt")
        assert (await session.call("deploy", {}, caller="human")).status.value == "interrupted"
        session.reset()
        assert (await session.call("deploy", {}, caller="human")).status.value == "success"
    assert shop.done == ["deployed staging"] * 2, "what is sent twice ran once, what a model alone may call did not"


async def test_a_conversation_hears_user_input_and_ends_by_command(opened: Callable[..., Any]) -> None:
    bus = create_ui_event_bus()
    own = OwnUI(bus)
    runtime = await opened(plays("One.", "Two."), ui_adapter=own)
    lines = iter(["first", "second"])

    def answer(event: Any) -> None:
        text = next(lines, None)
        if text is None:
            bus.emit("command", {"text": "/exit"})
        else:
            bus.emit("userInput", {"requestId": event.data.request_id, "content": text})

    bus.on("inputPrompt", answer)
    last = await golem_forge.Conversation(runtime).run()
    assert last is not None and last.response == "Two."
    said = [event.data.message["content"] for event in own.of("message")]
    assert said == ["first", "One.", "second", "Two."]


async def test_a_prompt_answered_with_a_command_is_shown_again(opened: Callable[..., Any], shop: Shop) -> None:
    bus = create_ui_event_bus()
    runtime = await opened(plays("One."), ui_adapter=OwnUI(bus))
    lines = iter(["/deploy --target prod", "hello", "/exit"])

    def answer(event: Any) -> None:
        text, asked = next(lines), {"requestId": event.data.request_id}
        if golem_forge.is_command(text):
            bus.emit("command", {**asked, "text": text})
        else:
            bus.emit("userInput", {**asked, "content": text})

    bus.on("inputPrompt", answer)
    last = await asyncio.wait_for(golem_forge.Conversation(runtime).run(), PATIENCE)
    assert last is not None and last.response == "One."
    assert shop.done == ["deployed prod"]


async def test_a_conversation_without_a_ui_says_what_it_needs(opened: Callable[..., Any]) -> None:
    runtime = await opened()
    with pytest.raises(RuntimeError, match=r"needs a UI .*ui_adapter=… .*runtime\.turn"):
        await golem_forge.Conversation(runtime).run()


# ---- ApprovalController, Interruption, Worker Depth


async def test_the_controller_asks_its_callback_and_remembers_for_the_session() -> None:
    asked: list[Any] = []

    async def callback(request: Any) -> dict[str, Any]:
        asked.append(request)
        return {"approved": "no" not in request.description, "remember": "session"}

    controller = ApprovalController({"mode": "interactive", "approvalCallback": callback})
    wish = {"toolName": "write_file", "args": {"path": "/workspace/foo.txt"}, "description": "Write it"}
    assert await controller.request_approval(wish)
    assert await controller.request_approval(tool="write_file", args=wish["args"], description="Write it")
    assert len(asked) == 1, "the same call is not asked again"
    assert await controller.request_approval({**wish, "args": {"path": "/workspace/bar.txt"}})
    assert len(asked) == 2, "another one is"
    denied = await controller.request_approval({"type": "tool_call", "description": "no way", "risk": "medium"})
    assert not denied and asked[-1].risk == "medium"
    assert await ApprovalController({"mode": "approve_all"}).request_approval(wish)
    refused = await ApprovalController(mode="auto_deny").request_approval(wish)
    assert not refused and "requires approval" in refused["reason"]
    with pytest.raises(TypeError, match="did you mean 'description'"):
        await controller.request_approval({"descripton": "x"})
    with pytest.raises(ValueError, match="what is to be approved"):
        await controller.request_approval({"type": "tool_call"})


async def test_a_signal_interrupts_and_reset_makes_the_next_run_normal(opened: Callable[..., Any]) -> None:
    signal = create_interrupt_signal()
    runtime = await opened(plays("fine"), interrupt_signal=signal)
    signal.interrupt()
    result = await runtime.run("go")
    assert (result.success, result.response) == (True, "[Interrupted]")
    signal.reset()
    assert (await runtime.run("go")).response == "fine"


async def test_depth_says_who_is_root_and_what_a_sub_worker_may(opened: Callable[..., Any]) -> None:
    root = await opened()
    assert (root.get_depth(), root.is_root()) == (0, True)
    bus = create_ui_event_bus()
    own = OwnUI(bus)
    below = await opened(ui_adapter=own, depth=2, default_mode="chat")
    assert (below.get_depth(), below.is_root(), below.mode) == (2, False, "single")
    await below.run("go")
    assert {event.data.depth for event in own.of("workerUpdate")} == {2}
    with pytest.raises(ValueError, match="answers once"):
        golem_forge.Conversation(below)
    with pytest.raises(ValueError, match="depth"):
        WorkerRuntime(depth=-1)


# ---- Integration


async def test_the_integration_example_with_a_plain_output(
    tmp_path: Path, shop: Shop, asked: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    output, ask = io.StringIO(), asked({"approved": True, "remember": "session"})
    bus = create_ui_event_bus()
    adapter = create_event_cli_adapter(bus, {"output": output, "input": io.StringIO(), "traceLevel": "normal"})
    signal = create_interrupt_signal()
    again = [calls("write_report", text="one"), calls("write_report", text="one"), "All done."]
    runtime = WorkerRuntime(
        {
            "worker": Worker(name="clerk"),
            "model": plays(*again),
            "uiAdapter": adapter,
            "interruptSignal": signal,
            "depth": 0,
            "approvalMode": "interactive",
            "approvalCallback": ask,
            "onEvent": create_trace_formatter(),
            "directory": tmp_path,
            "tools": shop.tools,
        }
    )
    assert runtime.bus is bus, "the adapter's bus is the session's"
    await runtime.initialize()
    result = await runtime.run("Process the files")
    assert (result.success, result.response) == (True, "All done.")
    assert {"deploy", "write_report"} <= {each.name for each in runtime.get_tools()}
    await runtime.aclose()
    assert shop.done == ["wrote one"] * 2 and [request.tool for request in ask] == ["write_report"]
    printed = capsys.readouterr().out
    for text in (output.getvalue(), printed):
        assert "All done." in text and "✓ write_report" in text


PROGRAM = """
import asyncio
from golem_forge import *
from golem_forge.agent.model.scripted import FunctionScript, Turn, TurnCall

@tool(needs_approval=True)
def write_report(text: str) -> str:
    "Write a report."
    print("WROTE " + text)
    return "written"

turns = [Turn(calls=(TurnCall(tool="write_report", args={"text": "one"}),)), "All done."]

async def main():
    bus = create_ui_event_bus()
    adapter = create_event_cli_adapter(bus, {"enable_raw_mode": True, "trace_level": "normal"})
    runtime = WorkerRuntime(
        worker=Worker(name="clerk"), model=FunctionScript(lambda request: turns.pop(0)), tools=[write_report],
        ui_adapter=adapter, interrupt_signal=create_interrupt_signal(), depth=0,
        approval_mode="interactive", approval_callback=create_cli_approval_callback(),
        on_event=create_trace_formatter("quiet"),
    )
    await adapter.initialize()
    await runtime.initialize()
    result = await runtime.run("Process the files")
    await runtime.aclose()
    print("RESULT", type(adapter).__name__, result.success, result.response)

asyncio.run(main())
"""


def test_the_integration_example_on_a_terminal(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    environment = {**os.environ, "TERM": "xterm"}
    child = pexpect.spawn(
        sys.executable,
        ["program.py"],
        cwd=tmp_path,
        encoding="utf-8",
        timeout=PATIENCE,
        env=environment,
        dimensions=(40, 120),
    )
    child.expect("write_report wants to run")
    child.expect(r"\[y/N\]")
    child.expect("\\? help|\\?\\) ")
    while child.isalive():  # a card takes no answer in its first moment
        child.send("y")
        if child.expect(["WROTE one", pexpect.TIMEOUT], timeout=1) == 0:
            break
    child.expect("RESULT TerminalAdapter True All done.")
    child.expect(pexpect.EOF)


async def test_two_buses_and_a_bus_in_use_are_refused_with_a_sentence(
    opened: Callable[..., Any], tmp_path: Path
) -> None:
    bus, other = create_ui_event_bus(), create_ui_event_bus()
    own = OwnUI(bus)
    with pytest.raises(ValueError, match="bus= is not the bus of ui_adapter"):
        WorkerRuntime(ui_adapter=own, bus=other)
    assert WorkerRuntime(ui_adapter=own, bus=bus).bus is bus
    assert WorkerRuntime(bus=other).bus is other
    with pytest.raises(TypeError, match="no `bus`"):
        WorkerRuntime(ui_adapter=NoBus())
    with pytest.raises(TypeError, match=r"no `initialize\(\)`"):
        WorkerRuntime(ui_adapter=object())
    first = await opened(ui_adapter=own)
    with pytest.raises(RuntimeError, match="already carries a session"):
        await opened(ui_adapter=own)
    await first.aclose()
    second = await opened(ui_adapter=own)
    assert second.session_id != first_id(own), "each session has an id of its own"


def first_id(own: OwnUI) -> str:
    return str(own.of("sessionStarted")[0].session_id)


class NoBus:
    async def initialize(self) -> None: ...

    async def shutdown(self) -> None: ...


async def test_secrets_do_not_reach_a_bus_that_was_there_before(
    opened: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_API_KEY", "sk-very-secret-value")
    bus = create_ui_event_bus()
    own = OwnUI(bus)
    runtime = await opened(plays("the key is sk-very-secret-value"), ui_adapter=own)
    await runtime.run("go")
    assert "sk-very-secret-value" not in "".join(event.to_json() for event in own.seen)


# ---- a UI of one's own, and a session shown again


async def test_a_ui_of_ones_own_answers(opened: Callable[..., Any], shop: Shop) -> None:
    own = OwnUI(create_ui_event_bus(), answer={"approved": True, "args": {"text": "edited"}})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        runtime = await opened(plays(calls("write_report", text="one"), "Done."), ui_adapter=own)
    assert (await runtime.run("go")).response == "Done."
    assert shop.done == ["wrote edited"]
    resolved = own.of("approvalResolved")[0].data
    assert (resolved.approved, resolved.by, resolved.edited) == (True, "own", True)


async def test_one_that_is_not_attached_warns_once(opened: Callable[..., Any], shop: Shop) -> None:
    own = OwnUI(create_ui_event_bus(), attached=False)
    model = plays(calls("write_report", text="one"), calls("write_report", text="two"), "Done.")
    with pytest.warns(RuntimeWarning, match=r"UI OwnUI is not attached.*attach\(") as told:
        runtime = await opened(model, ui_adapter=own)
    assert len(told) == 1
    told_on_the_bus = [event.data.message for event in own.of("status") if "not attached" in event.data.message]
    assert len(told_on_the_bus) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        await runtime.run("go")
    assert shop.done == []
    reasons = [event.data.error for event in own.of("toolResult")]
    assert all("No one can answer" in reason for reason in reasons) and len(reasons) == 2
    detach = create_runtime_ui(own.bus).attach("late")
    assert await runtime.ui.request_approval(type="tool_call", description="now it can")
    detach()


async def test_a_plain_output_that_shall_ask_says_that_it_cannot(opened: Callable[..., Any]) -> None:
    adapter = create_event_cli_adapter(create_ui_event_bus(), output=io.StringIO())
    with pytest.warns(RuntimeWarning, match="asks nothing.*approval_callback"):
        await opened(ui_adapter=adapter, approval_mode="interactive")


async def test_a_question_that_somebody_listens_to_without_being_attached_warns() -> None:
    bus = create_ui_event_bus()
    bus.on("approvalRequired", lambda event: None)
    with pytest.warns(RuntimeWarning, match="listens to 'approvalRequired' is not attached"):
        assert not await create_runtime_ui(bus).request_approval({"type": "tool_call", "description": "x"})


async def test_a_journal_is_replayed_and_nothing_is_done_again(
    opened: Callable[..., Any], shop: Shop, tmp_path: Path
) -> None:
    own = OwnUI(create_ui_event_bus())
    runtime = await opened(plays(calls("write_report", text="one"), "Done."), ui_adapter=own)
    runtime.bus.emit("manualToolInvoke", {"toolName": "deploy", "args": {}})
    await until(lambda: shop.done)
    await runtime.run("go")
    done, path, ident, home = list(shop.done), runtime.journal.path, runtime.session_id, runtime.home
    live = [event.type for event in golem_forge.replay(runtime)]
    await runtime.aclose()
    recorded = {event.seq: event.type for event in own.seen if event.type not in ("streaming", "toolOutput")}
    for again in (path, str(path), ident, ident[:12], "last"):
        assert [event.type for event in golem_forge.replay(again, home=home)] == live
    assert live == [recorded[seq] for seq in sorted(recorded)]
    bus = create_ui_event_bus()
    output = io.StringIO()
    adapter = create_event_cli_adapter(bus, output=output)
    acted: list[Any] = []
    bus.on("manualToolInvoke", acted.append)
    await adapter.initialize()
    bus.replay(golem_forge.replay(path))
    assert "✓ write_report" in output.getvalue() and "Done." in output.getvalue()
    assert shop.done == done and acted == [], "an action that was recorded acts on nobody"
    with pytest.raises(TypeError, match="path of a journal"):
        golem_forge.replay(7)
