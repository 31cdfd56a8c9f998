"""One server connected to for one command: it is started or called, listed, and ended before the command ends.

`connected` gives what it offers and how long that took; `NotConnected` carries what its state says and the last lines
of its stderr. Refuses what is not approved. Its tools are pinned and its manifest is kept, as in a session.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from golem_forge.cli.plain import one_line
from golem_forge.core.errors import ForgeError
from golem_forge.mcp.client.state import State

if TYPE_CHECKING:
    from golem_forge.mcp.client.definitions.definition import Listing
    from golem_forge.mcp.client.definitions.manifest import Manifest

_ATTEMPTS: Final = 2


class NotConnected(Exception):
    def __init__(self, text: str, stderr: tuple[str, ...]) -> None:
        super().__init__(text)
        self.text = text
        self.stderr = stderr
        """Its last lines, redacted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Connected:
    milliseconds: int
    manifest: Manifest
    listing: Listing


def connected(directory: Path | str, name: str) -> Connected:
    """Raises NotConnected, ConfigError."""
    with _said_meanwhile(f"connecting to '{one_line(name)}' …"):
        return asyncio.run(_connected(directory, name))


@contextmanager
def _said_meanwhile(text: str) -> Iterator[None]:
    """To a person who waits: a package runner may download the server first. Gone when the wait is over."""
    shown = sys.stderr is not None and sys.stderr.isatty()
    if shown:
        print(text, end="", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        if shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


async def _connected(directory: Path | str, name: str) -> Connected:
    from golem_forge.workers.mcp.servers import servers_of
    from golem_forge.workers.tree import TreeOptions, open_tree

    tree = open_tree(directory, TreeOptions(journal=False))
    try:
        pool = servers_of(tree).pool
        patience = _Patience()
        tree.bus.on("mcpStatus", patience.heard)
        await asyncio.to_thread(__import__, "golem_forge.mcp.sdk")  # most of a second, and not the server's
        start = time.monotonic()
        try:
            await patience.until(pool.settled(name))
        except ForgeError as error:
            raise NotConnected(tree.redactor.text(error.message), pool.status(name).stderr) from None
        except _GaveUp:
            status = pool.status(name)
            raise NotConnected(f"server '{name}' failed: {status.error}", status.stderr) from None
        took = time.monotonic() - start
        manifest, listing = pool.manifest(name), pool.listing(name)
        assert manifest is not None
        assert listing is not None
        return Connected(milliseconds=round(took * 1000), manifest=manifest, listing=listing)
    finally:
        await tree.aclose()


class _GaveUp(Exception):
    pass


class _Patience:
    """A session tries five times, with pauses; whoever waits at a shell wants to know what is wrong. The second attempt
    is made all the same: it is the one that speaks the older protocol only."""

    def __init__(self) -> None:
        self._failures = 0
        self._out = asyncio.Event()

    def heard(self, event: Any) -> None:
        if getattr(event.data, "state", "") == State.BACKOFF:
            self._failures += 1
            if self._failures >= _ATTEMPTS:
                self._out.set()

    async def until(self, settled: Coroutine[Any, Any, None]) -> None:
        """Raises what `settled` raises, and _GaveUp."""
        done, waiting = asyncio.ensure_future(settled), asyncio.ensure_future(self._out.wait())
        try:
            await asyncio.wait({done, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if not done.done():
                raise _GaveUp
            done.result()
        finally:
            done.cancel()
            waiting.cancel()
