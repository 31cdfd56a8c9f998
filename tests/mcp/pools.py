"""A pool on the ground of conftest: real servers in real walls, approved unless a test says otherwise."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.deadlines import PATIENCE

from golem_forge.config.mcp_spec import ServerSpec
from golem_forge.core.calls import ToolCompletion
from golem_forge.events.redaction import Redactor
from golem_forge.mcp.client.manifest import ManifestCache
from golem_forge.mcp.client.model import RemoteTool, ServerState, ServerStatus
from golem_forge.mcp.client.pool import Pool
from golem_forge.mcp.client.trust_store import ServerTrustStore
from golem_forge.storage.home import ForgeHome
from golem_forge.tools.context import ToolContext

from .conftest import Ground

LOG = {"ECHO_LOG": "/workspace/log"}
"""For echo.py, which then keeps there what it is sent: see `logged`."""


@dataclass
class Rig:
    pool: Pool
    book: ServerTrustStore
    cache: ManifestCache
    redactor: Redactor
    told: list[ServerStatus] = field(default_factory=list)

    def states(self, server: str) -> list[ServerState]:
        return [status.state for status in self.told if status.server == server]

    def tool(self, server: str, name: str) -> RemoteTool:
        listing = self.pool.listing(server)
        assert listing is not None
        return next(tool for tool in listing.tools if tool.name == name)

    async def call(self, server: str, tool: str, ctx: ToolContext | None = None, **args: Any) -> ToolCompletion:
        await self.pool.wait_connected(server)
        return await self.pool.call(self.tool(server, tool), args, ctx or ToolContext())


@asynccontextmanager
async def pooled(ground: Ground, *specs: ServerSpec, approve: bool = True, **hooks: Any) -> AsyncIterator[Rig]:
    book, cache, redactor = ServerTrustStore(ground.home), ManifestCache(ground.home), Redactor()
    if approve:
        for spec in specs:
            book.approve_server(spec, "person")
    told: list[ServerStatus] = []
    pool = Pool(
        {spec.name: spec for spec in specs},
        home=ground.home,
        redactor=redactor,
        environ=ground.environ,
        hooks=ground.hooks(**({"tell": told.append} | hooks)),
        book=book,
        cache=cache,
    )
    try:
        yield Rig(pool, book, cache, redactor, told)
    finally:
        await pool.aclose()


def no_more_writing(home: ForgeHome) -> None:
    """From now on nothing can be written into the book of trust, by root neither: its lock is a link."""
    lock = home.ensure("state") / "mcp.json.lock"
    lock.unlink(missing_ok=True)
    lock.symlink_to("elsewhere")


def logged(ground: Ground, name: str = "log") -> list[dict[str, Any]]:
    """What a program with `env=LOG` was sent, over all its processes."""
    return [json.loads(line) for line in notes(ground, name)]


def starts(ground: Ground) -> int:
    return sum(message.get("method") == "initialize" for message in logged(ground))


def notes(ground: Ground, name: str) -> list[str]:
    """Whole lines: the last one may be on its way."""
    file = ground.workspace / name
    return file.read_text().rpartition("\n")[0].splitlines() if file.exists() else []


def marked(ground: Ground, spec: ServerSpec) -> ServerSpec:
    """With a word at the end of its argv by which `living` finds it from outside."""
    return replace(spec, args=(*spec.args, _mark(ground)))


def _mark(ground: Ground) -> str:
    return f"mark-{ground.root.parent.name}-{ground.root.name}"


def living(ground: Ground) -> list[str]:
    """The processes of marked servers."""
    return naming(_mark(ground))


def naming(word: str, *, environ: bool = False) -> list[str]:
    """Processes that have it in their argv, or with `environ` in their environment."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            words = Path("/proc", entry, "cmdline").read_bytes()
            if word.encode() in words or (environ and word.encode() in Path("/proc", entry, "environ").read_bytes()):
                found.append(f"{entry} {words[:200]!r}")
    return found


async def until(true: Callable[[], Any], what: str = "", within: float = PATIENCE) -> Any:
    """Polls, what takes long to look at less often; gives the first thing that is not empty."""
    end = time.monotonic() + within
    while True:
        began = time.monotonic()
        if found := true():
            return found
        assert time.monotonic() < end, f"not within {within} s: {what}"
        await asyncio.sleep(max(0.01, 5 * (time.monotonic() - began)))


async def timed(work: Awaitable[Any]) -> tuple[Any, float]:
    start = time.monotonic()
    return await work, time.monotonic() - start
