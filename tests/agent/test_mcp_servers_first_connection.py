"""A call of a tool whose server was never connected on this machine: it waits for that server, and for nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.acceptance.mcp_bench import PROGRAMS, PYTHON, McpBench, Talk, state
from tests.deadlines import PATIENCE, within
from tests.mcp.pools import until
from tests.team.background import Program

from golem_forge.cli.mcp.serve import serve_session
from golem_forge.core.calls import Caller, ToolCall
from golem_forge.core.ids import new_id
from golem_forge.core.signals import InterruptSignal
from golem_forge.mcp.server.host import ClientFacts
from golem_forge.sandbox.walls.bubblewrap import find_bwrap
from golem_forge.tools.context import ToolContext

pytestmark = pytest.mark.skipif(find_bwrap() is None, reason="walls around servers need bubblewrap")

LATE_S = 0.5
LATE = {"ECHO_LATE": str(LATE_S)}
HI = ("late__echo", {"text": "hi"})
NO_SERVER = "/no/such/binary"


@pytest.fixture
def bench(tmp_path: Path, tried_walls: Path, ready_forge: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[McpBench]:
    """`late` answers after half a second, `mute` never, `broken` cannot start, `strange` was never approved."""
    made = McpBench(tmp_path, tried_walls, ready_forge)
    monkeypatch.setenv("FORGE_HOME", os.fspath(made.home.path))
    servers = {
        "late": made.ours("echo.py", env=LATE),
        "mute": made.ours("hostile.py", "silent-start"),
        "broken": {"command": NO_SERVER},
        "strange": made.ours("echo.py", "--strange"),
        "off": made.ours("echo.py", enabled=False),
    }
    made.yaml(servers)
    made.trust()
    made.approve("late", "mute", "broken")
    yield made
    made.close()
    assert made.nobody_left()


async def told(bench: McpBench, *calls: tuple[str, dict[str, Any]]) -> list[tuple[str, str]]:
    """What a model hears of calls with which it begins, before any server of this session has answered."""
    async with bench.conversation([calls, "Done."]) as talk:
        result = await talk.turn("go")
        assert result.success, result.error
        return talk.told()


async def test_a_models_first_call_waits_for_the_server(bench: McpBench) -> None:
    began = time.monotonic()
    [(status, text)] = await told(bench, HI)
    assert status == "success" and "hi" in text
    assert time.monotonic() - began > LATE_S
    assert [card.tool for card in bench.cards if card.type != "trust"] == ["late__echo"], "it is judged as any other"


async def test_calls_of_one_turn_keep_their_order_while_one_waits(bench: McpBench) -> None:
    append = {"path": "/workspace/lines"}
    results = await told(
        bench, ("late__append", {**append, "text": "one"}), ("late__append", {**append, "text": "two"})
    )
    assert [status for status, _ in results] == ["success", "success"]
    assert bench.lines("lines") == ["one", "two"]


async def test_a_server_that_cannot_start_says_so_and_why(bench: McpBench) -> None:
    [(status, text)] = await told(bench, ("broken__anything", {}))
    assert status == "execution_failed"
    assert text.startswith("server 'broken' failed: ") and NO_SERVER in text
    assert text.endswith("then run: forge mcp reconnect broken")
    tried = bench.forge("mcp", "test", "broken")
    assert text.splitlines()[0] in tried.err, "the sentence of `forge mcp`"


async def test_a_server_that_never_answers_holds_a_call_no_longer_than_its_start_may_take(bench: McpBench) -> None:
    bench.yaml({"mute": bench.ours("hostile.py", "silent-start", connect_timeout=1)})
    bench.approve()
    with within(3):
        [(status, text)] = await told(bench, ("mute__anything", {}))
    assert status == "execution_failed" and "server 'mute' is not connected after 1 seconds" in text
    typed = bench.forge("call", "mute__anything")
    assert typed.code == 1 and "`forge mcp test mute` tries it and says more." in typed.err, typed


async def test_a_name_that_the_server_does_not_have_is_unknown_and_the_nearest_are_named(bench: McpBench) -> None:
    [(status, text)] = await told(bench, ("late__ecko", {}))
    assert (status, text) == ("tool_not_found", "Unknown tool 'late__ecko'. Did you mean 'late__echo'?")


async def test_a_server_that_nobody_agreed_to_is_not_waited_for(bench: McpBench) -> None:
    async with bench.session(person=False) as session:
        with within(1):
            refused = await session.call("strange__echo", {"text": "hi"})
        assert refused.status == "approval_denied" and not refused.executed
        assert refused.text.endswith("server 'strange' waits for approval; run: forge mcp approve strange")
        off = await session.call("off__echo", {"text": "hi"})
        assert off.status == "execution_failed" and "server 'off' is disabled; set `enabled: true` in" in off.text
        await until(lambda: state(session, "broken") == "failed", "it gives up")


async def test_a_call_waits_for_the_person_who_is_asked_whether_the_server_may_start(bench: McpBench) -> None:
    async with bench.session() as session:
        assert (await session.call("strange__echo", {"text": "hi"})).text == "hi"
    assert [card.tool for card in bench.cards] == ["strange", "strange__echo"]


async def test_other_names_are_answered_at_once(bench: McpBench) -> None:
    bench.yaml({"mute": bench.ours("hostile.py", "silent-start")})
    bench.approve()
    with within(1):
        [(status, _)] = await told(bench, ("nobody__echo", {}))
    assert status == "tool_not_found"
    async with bench.session() as session:
        with within(1):
            assert (await session.call("list_files", {"path": "/workspace"})).ok
            assert (await session.call("mut__anything", {})).status == "tool_not_found"


@contextlib.asynccontextmanager
async def waiting_model(bench: McpBench) -> AsyncIterator[tuple[Talk, asyncio.Task[Any]]]:
    """A turn whose one call waits for the server that never answers."""
    async with bench.conversation([[("mute__anything", {})], "Done."]) as talk:
        turn = asyncio.create_task(talk.turn("go"))
        await until(lambda: talk.runtime.path.only_waits, "the call waits")
        yield talk, turn


async def test_an_interrupt_ends_a_waiting_call_and_not_the_connecting(bench: McpBench) -> None:
    async with waiting_model(bench) as (talk, turn):
        assert not talk.runtime.path.runs_something, "no effect of it has begun"
        with within(1):
            talk.runtime.interrupt()
            result = await turn
        assert result.status == "interrupted"
        [call] = talk.runtime.history.messages[-1].results
        assert call.status == "interrupted" and "'mute__anything' was interrupted before it ran." in call.text
        assert state(talk, "mute") == "connecting", "others may wait for the same"


@pytest.mark.long
async def test_a_persons_call_is_interrupted_too(bench: McpBench) -> None:
    async with bench.session() as session:
        for caller in (Caller.HUMAN, Caller.LLM):
            call = asyncio.create_task(session.call("mute__anything", {}, caller=caller))
            await asyncio.sleep(0.3)
            assert not call.done()
            with within(1):
                session.interrupt()
                assert (await call).status == "interrupted"
            session.reset()
        batch = [ToolCall("mute__anything", {}), ToolCall("list_files", {"path": "/workspace"})]
        calls = asyncio.create_task(session.batch(batch))
        await asyncio.sleep(0.3)
        with within(1):
            session.interrupt()
            assert [outcome.status for outcome in await calls] == ["interrupted", "interrupted"]


async def test_a_client_of_forge_mcp_serve_waits_and_may_give_up(bench: McpBench) -> None:
    async with serve_session(bench.workspace, approval="approve_all") as host:
        guest = host.admit(ClientFacts())

        async def call(name: str, args: dict[str, Any], cancel: InterruptSignal) -> Any:
            progress = lambda done, of, text: None  # noqa: E731
            return await guest.call(name, args, call_id=new_id(), cancel=cancel, progress=progress)

        assert (await call(*HI, InterruptSignal())).text == "hi"
        cancel = InterruptSignal()
        mute = asyncio.create_task(call("mute__anything", {}, cancel))
        await asyncio.sleep(0.3)
        with within(1):
            cancel.interrupt()
            assert (await mute).status == "interrupted"
        broken = await call("broken__anything", {}, InterruptSignal())
        assert broken.status == "execution_failed" and "server 'broken' failed: " in broken.text


async def test_a_typed_command_waits_for_the_server(bench: McpBench) -> None:
    async with bench.conversation([]) as talk:
        said: list[Any] = []
        talk.runtime.bus.on("status", lambda event: said.append(event.wire))
        ended: list[Any] = []
        talk.runtime.bus.on("toolResult", lambda event: ended.append(event.wire))
        await talk.runtime.bus.commands.run("/late__echo --text hi")
        assert [(each["toolName"], each["status"]) for each in ended] == [("late__echo", "success")], said
        await talk.runtime.bus.commands.run("/tool broken__anything")
        assert said[-1]["message"].startswith("server 'broken' failed: "), said
        await talk.runtime.bus.commands.run("/nobody__echo")
        assert "nobody__echo" in said[-1]["message"] and "nknown" in said[-1]["message"]
        mute = asyncio.create_task(talk.runtime.bus.commands.run("/mute__anything"))
        await asyncio.sleep(0.3)
        assert not mute.done()
        with within(1):
            talk.runtime.interrupt()
            await mute
        assert "'mute__anything' was interrupted before it ran." in said[-1]["message"]


async def test_a_tool_that_calls_others_learns_what_a_late_one_takes_and_stops_when_it_is_interrupted(
    bench: McpBench,
) -> None:
    """A user tool's `forge call late__echo --text hi` is bound by the schema; without it the options would be lost."""

    async def passes_on(ctx: ToolContext, name: str) -> str:
        found = await ctx.find(name)
        assert found is not None, name
        return f"{sorted(found.input_schema['properties'])} {(await ctx.call(name, {'text': 'hi'})).text}"

    async with bench.session(tools=[passes_on]) as session:
        assert (await session.call("passes_on", {"name": "late__echo"})).text == "['text'] hi"
        call = asyncio.create_task(session.call("passes_on", {"name": "mute__anything"}))
        await asyncio.sleep(0.3)
        assert not call.done()
        with within(1):
            session.interrupt()
            assert (await call).status == "interrupted"


def test_a_parked_call_is_woken_on_a_machine_that_never_met_the_server(tmp_path: Path, ready_forge: Any) -> None:
    program = Program(tmp_path / "shop", tmp_path / "home", ready=ready_forge)
    shutil.copy(PROGRAMS / "echo.py", program.folder / "work")
    server = {"command": PYTHON, "args": ["-S", "${zone:work}/echo.py"], "zones": {"work": "rw"}, "env": LATE}
    with (program.folder / "forge.yaml").open("a") as file:
        file.write(json.dumps({"mcp": {"servers": {"late": server}}})[1:-1] + "\n")
    (program.folder / "main.worker").write_text(
        "---\nname: main\ndescription: d\nsandbox: {zones: [{name: work, mode: rw}]}\n"
        "toolsets: {mcp: {servers: [late]}}\n---\nDo it.\n"
    )
    program.forge("trust", "--yes")
    program.forge("mcp", "approve", "late", "--yes")
    call = {"tool": "late__append", "args": {"path": "/work/lines", "text": "one"}}
    program.play({"calls": [call]}, {"say": "done"})
    session = program.queue()
    runner = program.start_runner()
    try:
        program.wait_for(session, "waiting")
        runner.kill()
        runner.wait()
        shutil.rmtree(program.home / "cache" / "mcp")
        store = program.store()
        [asked] = store.questions.rows()
        store.questions.answer(asked.id, {"approved": True}, "ada", "test")
        program.start_runner()
        program.wait_for(session, "finished", within=PATIENCE)
    finally:
        program.close()
    assert (program.folder / "work" / "lines").read_text() == "one\n", program.logs()


def test_forge_call_waits_and_binds_options_by_what_the_server_lists(bench: McpBench) -> None:
    ran = bench.forge("call", "late__echo", "--text", "hi", "--approval", "approve_all")
    assert (ran.code, ran.out.strip()) == (0, "hi"), ran
    failed = bench.forge("call", "broken__anything")
    assert failed.code == 1 and "server 'broken' failed: " in failed.err, failed
    unknown = bench.forge("call", "late__ecko")
    assert unknown.code == 4 and "Did you mean 'late__echo'?" in unknown.err, unknown


def test_forge_call_is_interrupted_while_it_waits(bench: McpBench) -> None:
    process = bench.start("call", "mute__anything")
    end = time.monotonic() + PATIENCE
    while not bench.left() and time.monotonic() < end:
        time.sleep(0.02)
    time.sleep(0.5)
    with within(2):
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(PATIENCE) == 130
