"""The servers of a session: when they start, who waits for whom, how they end."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import replace

import pytest
from tests.deadlines import LONG, PATIENCE, within
from tests.mcp.conftest import Ground
from tests.mcp.pools import LOG, living, logged, marked, no_more_writing, notes, pooled, starts, until

from golem_forge.config.mcp_spec import ServerSpec
from golem_forge.core.decisions import Status
from golem_forge.core.errors import ForgeError
from golem_forge.mcp.client import connection
from golem_forge.mcp.client.model import ServerState
from golem_forge.mcp.client.trust_store import ServerTrustStore
from golem_forge.tools.context import ToolContext


def test_importing_the_pool_imports_nothing_of_the_sdk() -> None:
    code = (
        "import sys, golem_forge.mcp.client.pool\n"
        "print([m for m in sys.modules if m.split('.')[0] in ('mcp', 'mcp_types', 'anyio', 'httpx2', 'pydantic')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert done.stdout.strip() == "[]"


# Starting


async def test_without_a_manifest_it_connects_in_the_background_and_its_tools_appear(ground: Ground) -> None:
    async with pooled(ground, ground.spec()) as rig:
        before = rig.pool.version
        rig.pool.begin()
        assert rig.pool.listing("echo") is None
        assert rig.pool.status("echo").state is ServerState.CONNECTING
        await until(lambda: rig.pool.status("echo").state is ServerState.READY)
        assert rig.states("echo") == [ServerState.CONNECTING, ServerState.READY]
        assert rig.pool.version > before
        status = rig.pool.status("echo")
        assert (status.tools, status.protocol, status.info["name"]) == (8, "2025-11-25", "echo")


@pytest.mark.usefixtures("quick_tries")
async def test_some_attempts_then_failed_and_then_a_rest(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MAX_ATTEMPTS", 3)
    async with pooled(ground, ground.hostile("dies-start")) as rig:
        rig.pool.begin()
        await until(lambda: rig.pool.status("bad").state is ServerState.FAILED)
        assert len(notes(ground, "started")) == 3
        backoffs = [status for status in rig.told if status.state is ServerState.BACKOFF]
        assert len(backoffs) == 2
        assert all(status.retry_at is not None and status.error for status in backoffs)
        for _ in range(3):
            with pytest.raises(ForgeError, match="exit code 3"):
                await rig.pool.wait_connected("bad")
        assert len(notes(ground, "started")) == 3
        monkeypatch.setattr(connection, "MAX_ATTEMPTS", 1)
        with pytest.raises(ForgeError):
            await rig.pool.reconnect("bad")
        assert len(notes(ground, "started")) == 4, "asked for, it tries again"


@pytest.mark.usefixtures("quick_tries")
async def test_after_the_rest_the_next_use_tries_again(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("golem_forge.mcp.client.managed_server.FAILED_PAUSE_S", 0.3)
    monkeypatch.setattr(connection, "MAX_ATTEMPTS", 1)
    async with pooled(ground, ground.hostile("dies-start")) as rig:
        rig.pool.begin()
        await until(lambda: rig.pool.status("bad").state is ServerState.FAILED)
        await asyncio.sleep(0.35)
        with pytest.raises(ForgeError):
            await rig.pool.wait_connected("bad")
        assert len(notes(ground, "started")) == 2


async def test_disabled_and_unusable_specs_say_so(ground: Ground) -> None:
    off = ground.spec("off", enabled=False)
    sse = ground.spec("sse", problem="SSE is not supported; use streamable HTTP")
    async with pooled(ground, off, sse) as rig:
        rig.pool.begin()
        assert rig.pool.status("off").state is ServerState.DISABLED
        assert rig.pool.status("sse").state is ServerState.FAILED
        with pytest.raises(ForgeError, match="server 'off' is disabled"):
            await rig.pool.wait_connected("off")
        with pytest.raises(ForgeError, match="SSE is not supported; use streamable HTTP"):
            await rig.pool.wait_connected("sse")
        with pytest.raises(ForgeError, match="MCP server not found: nope"):
            rig.pool.status("nope")


async def test_a_required_server_that_cannot_connect_is_named_with_the_cause(ground: Ground) -> None:
    good, bad = ground.spec("good", required=True), ground.spec("bad", command="/no/such/binary", required=True)
    async with pooled(ground, good, bad) as rig:
        rig.pool.begin()
        with pytest.raises(ForgeError, match=r"required MCP server 'bad' .*no/such/binary"):
            await rig.pool.wait_required()


async def test_a_required_server_that_says_nothing_delays_by_connect_timeout_at_most(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "BACKOFF_FIRST_S", LONG)  # what a second attempt would have to wait for
    async with pooled(ground, ground.hostile("silent-start", required=True, connect_timeout=0.6)) as rig:
        rig.pool.begin()
        with within(0.6), pytest.raises(ForgeError, match="'bad'"):
            await rig.pool.wait_required()


# Approval


async def test_headless_an_unapproved_server_is_pending_and_nothing_starts(ground: Ground) -> None:
    spec = ground.spec("git", env=LOG)
    async with pooled(ground, spec, approve=False) as rig:
        rig.pool.begin()
        assert rig.pool.status("git").state is ServerState.PENDING
        with pytest.raises(ForgeError) as raised:
            await rig.pool.wait_connected("git")
        assert raised.value.message == "server 'git' waits for approval; run: forge mcp approve git"
        assert raised.value.status is Status.APPROVAL_DENIED
        with pytest.raises(ForgeError, match="waits for approval"):
            await rig.pool.reconnect("git")
        assert starts(ground) == 0
        rig.book.approve_server(spec, "person")  # in another process
        await rig.pool.wait_connected("git")
        assert starts(ground) == 1


async def test_an_edit_that_only_judges_otherwise_keeps_the_process(ground: Ground) -> None:
    spec = ground.spec(env=LOG)
    async with pooled(ground, spec) as rig:
        await rig.pool.wait_connected("echo")
        before = rig.pool.version
        await rig.pool.replace({"echo": replace(spec, deny=("fail",))})
        assert rig.pool.version > before
        assert rig.pool.specs["echo"].deny == ("fail",)
        assert rig.pool.status("echo").tools == 7
        await rig.call("echo", "echo", text="x")
        assert starts(ground) == 1


# Who waits for whom


async def test_a_caller_who_gives_up_does_not_stop_the_connect_others_wait_for(ground: Ground) -> None:
    spec = ground.spec(env=LOG)
    async with pooled(ground, spec) as rig:
        waiting = [asyncio.create_task(rig.pool.wait_connected("echo")) for _ in range(5)]
        await asyncio.sleep(0.01)
        for task in waiting[:4]:
            task.cancel()
        await waiting[4]
        assert starts(ground) == 1
        assert rig.pool.status("echo").state is ServerState.READY


async def test_closed_while_connecting(ground: Ground) -> None:
    async with pooled(ground, marked(ground, ground.hostile("silent-start"))) as rig:
        rig.pool.begin()
        waiting = asyncio.create_task(rig.pool.wait_connected("bad"))
        await asyncio.sleep(0)
        with within(1):
            await rig.pool.aclose()
        with pytest.raises(ForgeError, match="was closed"):
            await waiting
        await until(lambda: not living(ground))


async def test_a_reconnect_while_others_wait_serves_them_too(ground: Ground) -> None:
    async with pooled(ground, ground.spec()) as rig:
        waiting = [asyncio.create_task(rig.pool.wait_connected("echo")) for _ in range(3)]
        await asyncio.sleep(0.03)
        await rig.pool.reconnect("echo")
        await asyncio.gather(*waiting)
        assert rig.pool.status("echo").state == "ready"


# Unused and ended


async def test_a_call_that_takes_longer_than_close_after_is_not_cut_off(ground: Ground) -> None:
    async with pooled(ground, ground.spec(close_after=0.2)) as rig:
        assert (await rig.call("echo", "sleep", seconds=0.7)).result.text == "slept"


# Changes


async def test_a_pin_made_in_another_session_counts_here(ground: Ground) -> None:
    async with pooled(ground, ground.hostile("drift")) as rig:
        await rig.pool.wait_connected("bad")
        await rig.pool.reconnect("bad")
        await rig.call("bad", "set_phase", phase=2)
        await until(lambda: rig.pool.listing("bad").held)  # type: ignore[union-attr]
        before = rig.pool.version
        held = rig.pool.listing("bad").held[0]  # type: ignore[union-attr]
        assert held.tool is not None
        type(rig.book)(ground.home).pin("", held.tool)
        assert rig.pool.version > before
        assert rig.pool.listing("bad").held == ()  # type: ignore[union-attr]


async def test_an_unknown_tool_makes_the_list_be_fetched_again(ground: Ground) -> None:
    async with pooled(ground, ground.spec(env=LOG)) as rig:
        await rig.pool.wait_connected("echo")
        gone = replace(rig.tool("echo", "echo"), name="gone")
        finished = await rig.pool.call(gone, {}, ToolContext())
        assert finished.status is Status.EXECUTION_FAILED
        assert finished.error == "echo answered with error -32602: Unknown tool: gone"
        await until(lambda: sum(m.get("method") == "tools/list" for m in logged(ground)) == 2)


async def test_resources_and_prompts_come_as_they_are(ground: Ground) -> None:
    async with pooled(ground, ground.spec(), ground.hostile("liar")) as rig:
        ctx = ToolContext()
        await rig.pool.wait_connected("echo")
        await rig.pool.wait_connected("bad")
        assert [one["uri"] for one in (await rig.pool.list_resources("echo", None, ctx))["resources"]] == [
            "note://one",
            "note://blob",
        ]
        assert (await rig.pool.list_resource_templates("echo", None, ctx))["resourceTemplates"]
        assert (await rig.pool.read_resource("echo", "note://one", ctx))["contents"][0]["text"] == "the note note://one"
        assert [prompt["name"] for prompt in await rig.pool.list_prompts("echo")] == ["greet"]
        got = await rig.pool.get_prompt("echo", "greet", {"who": "Ada"}, ctx)
        assert got["messages"][0]["content"]["text"] == "Say hello to Ada."
        assert await rig.pool.list_resources("bad", None, ctx) == {"resources": []}
        with pytest.raises(ForgeError, match="bad answered with error -32601"):
            await rig.pool.read_resource("bad", "x://y", ctx)


async def test_a_yes_that_cannot_be_kept_starts_nothing_and_says_why(ground: Ground) -> None:
    async def approve(spec: ServerSpec, card: str, diff: str) -> bool:
        return True

    no_more_writing(ground.home)
    async with pooled(ground, ground.spec(env=LOG), approve=False, can_ask=lambda: True, approve_server=approve) as rig:
        rig.pool.begin()
        await until(lambda: "the answer was not kept" in rig.pool.status("echo").error)
        status = rig.pool.status("echo")
        assert status.state is ServerState.PENDING and "forge mcp approve echo" in status.error
        assert rig.told[-1] == status
        assert starts(ground) == 0


async def test_before_it_begins_a_server_shows_what_is_true(ground: Ground) -> None:
    specs = [
        ground.spec("known", env=LOG),
        ground.spec("off", enabled=False),
        ground.spec("wrong", problem="it names no zone"),
    ]
    for spec in specs:
        ServerTrustStore(ground.home).approve_server(spec, "person")
    async with pooled(ground, *specs, ground.spec("strange"), approve=False) as rig:
        assert {status.server: (status.state, status.error) for status in rig.pool.statuses()} == {
            "known": (ServerState.KNOWN, ""),
            "off": (ServerState.DISABLED, ""),
            "strange": (ServerState.PENDING, "server 'strange' waits for approval; run: forge mcp approve strange"),
            "wrong": (ServerState.FAILED, "it names no zone"),
        }
        assert rig.told == [] and starts(ground) == 0
        rig.pool.begin()
        assert {status.server: status.state for status in rig.told} == {
            "known": ServerState.CONNECTING,
            "strange": ServerState.PENDING,
            "wrong": ServerState.FAILED,
        }
