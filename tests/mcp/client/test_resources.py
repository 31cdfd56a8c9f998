"""Reading what servers have: real servers in real walls, down the one path and each tool by itself."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.mcp.conftest import Ground
from tests.mcp.pools import Rig, logged, pooled, until
from tests.tables import table

from golem_forge import Caller, Status, ToolCall
from golem_forge.agent.session import open_session
from golem_forge.config.mcp_spec import ServerSpec, ServerTrust
from golem_forge.core.decisions import Risk
from golem_forge.core.effects import Effect
from golem_forge.core.errors import ForgeError, ToolFailed
from golem_forge.events.redaction import Redactor
from golem_forge.mcp.client.model import ServerManifest, ServerState, ServerStatus
from golem_forge.mcp.client.resources import CURSOR_ALONE, ServerAccess, resource_tools
from golem_forge.orchestrator.bound_output import OutputStore
from golem_forge.tools.context import SessionParts, ToolContext
from golem_forge.tools.tool import Tool
from golem_forge.tools.validation import Err

TOOLS: dict[str, Tool] = {tool.name: tool for tool in resource_tools()}


async def run(name: str, ctx: ToolContext, **args: Any) -> Any:
    planner = TOOLS[name].planner
    assert planner is not None
    plan: Any = planner(args, ctx)
    return await plan.run()


def effects(name: str, ctx: ToolContext, **args: Any) -> tuple[Effect, ...]:
    planner = TOOLS[name].planner
    assert planner is not None
    plan: Any = planner(args, ctx)
    return plan.effects


def context(pool: Any, tmp_path: Path, *servers: str, worker: str = "main") -> ToolContext:
    ctx = ToolContext(worker=worker, parts=SessionParts(), outputs=OutputStore(tmp_path / "output", "s1"))
    place = ctx.parts.get(ServerAccess)
    place.set_pool(pool)
    place.grant("main", servers or ("*",))
    return ctx


# ---- with real servers


@asynccontextmanager
async def session(rig: Rig, tmp_path: Path) -> AsyncIterator[Any]:
    opened = open_session(tmp_path / "program", toolsets={"mcp_resources": {}})
    place = opened.path.parts.get(ServerAccess)
    place.set_pool(rig.pool)
    place.grant(opened.path.worker, ["*"])
    try:
        yield opened
    finally:
        await opened.aclose()


async def test_a_server_that_nobody_trusts_is_not_read_unasked(
    ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trusted one is: tests/acceptance/test_mcp_resources.py."""
    monkeypatch.setenv("FORGE_HOME", str(ground.home.path))
    (tmp_path / "program").mkdir()
    async with pooled(ground, ground.spec("echo")) as rig, session(rig, tmp_path) as opened:
        args = {"server": "echo", "uri": "note://one"}
        outcome = await opened.path.call(ToolCall("read_mcp_resource", args, Caller.LLM))
    assert outcome.status is Status.APPROVAL_DENIED and outcome.decision.risk is Risk.HIGH
    assert not [each for each in logged(ground) if each.get("method") == "resources/read"]


# ---- with a pool of the test's own, for what real servers seldom do


class FakePool:
    def __init__(self, **servers: Any) -> None:
        self.specs = {
            name: ServerSpec(
                name=name, scope="", origin="", command="x", trust=said.get("trust", ServerTrust.UNTRUSTED)
            )
            for name, said in servers.items()
        }
        self._said = servers
        self.asked: list[tuple[str, str | None]] = []
        self.wait = asyncio.Event()
        self.wait.set()

    def names(self) -> tuple[str, ...]:
        return tuple(self.specs)

    def status(self, name: str) -> ServerStatus:
        return ServerStatus(server=name, state=self._said[name].get("state", ServerState.READY))

    def manifest(self, name: str) -> ServerManifest | None:
        if "has" not in self._said[name]:
            return None
        has = self._said[name]["has"]
        return ServerManifest(server=name, scope="", config_digest="", fetched_at=0.0, has_resources=has)

    async def list_resources(self, name: str, cursor: str | None, ctx: ToolContext) -> Any:
        self.asked.append((name, cursor))
        await self.wait.wait()
        if ctx.cancel:
            raise ForgeError("interrupted")
        pages = self._said[name].get("pages", {None: {"resources": []}})
        page = pages(cursor) if callable(pages) else pages[cursor]
        if isinstance(page, Exception):
            raise page
        return page

    async def read_resource(self, name: str, uri: str, ctx: ToolContext) -> Any:
        return self._said[name]["contents"]


async def test_nothing_configured_is_an_empty_list() -> None:
    assert await run("list_mcp_resources", ToolContext()) == {"resources": []}
    assert effects("list_mcp_resources", ToolContext()) == ()
    assert await run("list_mcp_resource_templates", ToolContext()) == {"resourceTemplates": []}


async def test_a_worker_sees_only_the_servers_it_was_given(tmp_path: Path) -> None:
    pool = FakePool(a={}, b={})
    ctx = context(pool, tmp_path, "a")
    await run("list_mcp_resources", ctx)
    assert pool.asked == [("a", None)]
    for name in ("b", "c"):
        with pytest.raises(ToolFailed, match=f"MCP server not found: {name}"):
            await run("read_mcp_resource", ctx, server=name, uri="x:y")
    other = ToolContext(worker="main/other", parts=ctx.parts)
    assert await run("list_mcp_resources", other) == {"resources": []}


async def test_servers_that_wait_or_have_none_are_not_asked(tmp_path: Path) -> None:
    pool = FakePool(
        a={"state": ServerState.PENDING}, b={"state": ServerState.DISABLED}, c={"has": False}, d={"has": True}
    )
    assert await run("list_mcp_resources", context(pool, tmp_path)) == {"resources": []}
    assert pool.asked == [("d", None)]


def test_every_server_that_would_be_asked_is_an_effect(tmp_path: Path) -> None:
    pool = FakePool(a={"trust": ServerTrust.TRUSTED}, b={})
    a, b = effects("list_mcp_resources", context(pool, tmp_path))
    assert (a.describe(), a.proven, b.describe(), b.proven) == ("net mcp://a", True, "net mcp://b", False)


async def test_all_pages_are_walked_and_one_that_never_ends_is_cut(tmp_path: Path) -> None:
    def endless(cursor: str | None) -> Any:
        number = int(cursor or 0)
        return {"resources": [{"uri": f"n:{number}-{each}"} for each in range(100)], "nextCursor": str(number + 1)}

    pages = {None: {"resources": [{"uri": "p:1"}], "nextCursor": "x"}, "x": {"resources": [{"uri": "p:2"}]}}
    loops = {None: {"resources": [{"uri": "l:1"}], "nextCursor": "x"}, "x": {"resources": [], "nextCursor": "x"}}
    pool = FakePool(ends={"pages": pages}, loops={"pages": loops}, never={"pages": endless})
    listed = await run("list_mcp_resources", context(pool, tmp_path))
    assert [each["uri"] for each in listed["resources"] if each["server"] == "ends"] == ["p:1", "p:2"]
    assert sum(each["server"] == "never" for each in listed["resources"]) == 1000
    errors = {error["server"]: error["error"] for error in listed["errors"]}
    assert set(errors) == {"loops", "never"} and "only the first 1000" in errors["never"]


async def test_one_that_fails_halfway_keeps_what_came_and_an_entry_cannot_be_anothers(tmp_path: Path) -> None:
    pages = {None: {"resources": [{"uri": "p:1", "server": "good"}, 5], "nextCursor": "x"}, "x": ValueError("canary")}
    pool = FakePool(bad={"pages": pages}, good={})
    listed = await run("list_mcp_resources", context(pool, tmp_path))
    assert listed["resources"] == [{"server": "bad", "uri": "p:1"}]
    assert listed["errors"] == [{"server": "bad", "error": "could not be asked (ValueError)"}]


@table(("ttl", "times"), [(60_000, 1), (0, 2), (-5, 2), ("x", 2), (True, 2), (None, 2)])
async def test_an_answer_is_used_again_only_as_long_as_its_server_allows(tmp_path: Path, ttl: Any, times: int) -> None:
    pool = FakePool(a={"pages": {None: {"resources": [], "ttlMs": ttl}}})
    ctx = context(pool, tmp_path)
    for _ in range(2):
        await run("list_mcp_resources", ctx, server="a")
    assert len(pool.asked) == times
    fresh = context(pool, tmp_path)
    await run("list_mcp_resources", fresh, server="a")
    assert len(pool.asked) == times + 1, "another session asks for itself"


async def test_an_answer_that_grew_old_is_asked_for_again(tmp_path: Path) -> None:
    pool = FakePool(a={"pages": {None: {"resources": [], "ttlMs": 50}}})
    ctx = context(pool, tmp_path)
    await run("list_mcp_resources", ctx, server="a")
    await asyncio.sleep(0.08)
    await run("list_mcp_resources", ctx, server="a")
    assert len(pool.asked) == 2


async def test_equal_requests_in_flight_share_one_and_outlive_who_leaves(tmp_path: Path) -> None:
    pool = FakePool(a={"pages": {None: {"resources": [{"uri": "x:1"}]}}})
    pool.wait.clear()
    ctx = context(pool, tmp_path)
    calls = [asyncio.create_task(run("list_mcp_resources", ctx, server="a")) for _ in range(5)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    calls[0].cancel()
    await asyncio.sleep(0)
    pool.wait.set()
    found = await asyncio.gather(*calls[1:])
    assert len(pool.asked) == 1 and all(each["resources"] == [{"uri": "x:1"}] for each in found)
    assert calls[0].cancelled()


async def test_with_the_last_who_waits_the_request_ends(tmp_path: Path) -> None:
    pool = FakePool(a={})
    pool.wait.clear()
    ctx = context(pool, tmp_path)
    call = asyncio.create_task(run("list_mcp_resources", ctx, server="a"))
    await until(lambda: pool.asked)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    pool.wait.set()
    assert await run("list_mcp_resources", ctx, server="a") == {"server": "a", "resources": []}
    assert len(pool.asked) == 2


async def test_odd_parts_are_named_and_cost_the_others_nothing(tmp_path: Path) -> None:
    contents = [
        {"uri": "x:1", "blob": "not base64!", "mimeType": "image/png"},
        {"uri": "x:2"},
        7,
        {"uri": "x:3", "text": "good", "_meta": {"a": "canary"}},
        {"uri": "x:4", "blob": base64.b64encode(b"abc").decode(), "mimeType": "a/\x1b[2J"},
    ]
    pool = FakePool(a={"contents": {"contents": contents}})
    read = await run("read_mcp_resource", context(pool, tmp_path), server="a", uri="x:1")
    broken, nothing, text, blob = read["contents"]
    assert broken == {"mimeType": "image/png", "error": "neither text nor valid base64"}
    assert nothing["error"] and text == {"uri": "x:3", "text": "good"}
    assert blob["bytes"] == 3 and "\x1b" not in blob["mimeType"]


async def test_a_secret_is_taken_out_of_a_blob_before_it_is_kept(tmp_path: Path) -> None:
    blob = base64.b64encode(b"\xff before canary-secret-value after").decode()
    pool = FakePool(a={"contents": {"contents": [{"uri": "x:1", "blob": blob}]}})
    ctx = context(pool, tmp_path)
    ctx.redactor = Redactor()
    ctx.redactor.add_secret("KEY", "canary-secret-value")
    read = await run("read_mcp_resource", ctx, server="a", uri="x:1")
    assert ctx.outputs is not None
    found = ctx.outputs.find(read["contents"][0]["handle"], "main")
    assert found is not None
    kept = base64.b64decode(found.path.read_bytes())
    assert b"canary" not in kept and kept.startswith(b"\xff before ")


def test_the_tools_say_what_they_are() -> None:
    assert list(TOOLS) == ["list_mcp_resources", "list_mcp_resource_templates", "read_mcp_resource"]
    assert all(tool.read_only for tool in TOOLS.values())
    assert TOOLS["list_mcp_resources"].validate_input({"cursor": "c"}) == Err(f"list_mcp_resources: {CURSOR_ALONE}")
    assert TOOLS["read_mcp_resource"].input_schema["required"] == ["server", "uri"]
