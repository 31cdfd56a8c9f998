"""`forge mcp test NAME` and `forge mcp reconnect NAME`: start an approved server, list what it offers, end it.

`connect` returns what the server offers and how long that took; `NotConnected` carries the text of its state and the
last lines of its stderr. A server that is not approved is refused. Its tools are pinned and its manifest is cached, as
in a session. `unseen_file` finds the most likely mistake: the server's own file lies in a zone it was not given.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from golem_forge.agent.mcp_servers import session_servers
from golem_forge.agent.mcp_status import ServerInventory, offered_names, read_inventory
from golem_forge.agent.session_state import SessionOptions, open_session_state
from golem_forge.cli.args import DENIED, read_args
from golem_forge.cli.format import print_error, print_json, progress_message
from golem_forge.cli.mcp.list import introduction, print_offer
from golem_forge.config.mcp_spec import ServerSpec
from golem_forge.core.errors import ForgeError
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.text import duration, one_line
from golem_forge.mcp.client.model import ServerManifest, ServerState, ServerToolList
from golem_forge.mcp.client.tool_source import is_offered

TEST_HELP: Final = """usage: forge mcp test NAME [--json] [-p DIR]

Connects to one MCP server (starts it, inside its walls), lists what it offers, says how long that took, and ends it.

  --json             for programs: {server, ok, milliseconds, protocol, info, tools, held, diagnostics, error, stderr}
  -p, --program DIR  the program in that directory instead of this one

Exit: 0 it answers, 1 it does not answer (the error and the last lines of its stderr are printed), 2 usage or
configuration, 3 it is not approved, 4 no such server."""
RECONNECT_HELP: Final = """usage: forge mcp reconnect NAME [-p DIR]

Connects to one MCP server again, stores and shows what it offers now, and disconnects. In a running session
`/mcp reconnect NAME` does that for the session's own connection.

  -p, --program DIR  the program in that directory instead of this one

Exit: 0 done, 1 it does not answer, 2 usage or configuration, 3 it is not approved, 4 no such server."""


def run_test(words: list[str]) -> int:
    asked = read_args("mcp test", TEST_HELP, words, "NAME", "--json", "-p,--program DIR", program=".")
    return _connect("test", asked.program, asked.name, as_json=asked.json)


def run_reconnect(words: list[str]) -> int:
    asked = read_args("mcp reconnect", RECONNECT_HELP, words, "NAME", "-p,--program DIR", program=".")
    return _connect("reconnect", asked.program, asked.name, as_json=False)


def _connect(verb: str, directory: str, name: str, *, as_json: bool) -> int:
    place = read_inventory(directory)
    spec = place.spec(name)
    try:
        found = connect(directory, name)
    except NotConnected as refused:
        if as_json:
            print_json({"server": name, "ok": False, "error": refused.text, "stderr": list(refused.stderr)})
        else:
            print_not_connected(f"mcp {verb}", refused)
            if place.book.approved(spec) and (unseen := unseen_file(place, spec)):
                word, zone = unseen  # the likeliest reason of a program that finds its own file missing
                note = f"note: '{one_line(word)}' is in zone '{zone}', which this server does not see; "
                note += f"`zones: {{{zone}: ro}}` under mcp.servers.{name} of forge.yaml lets the server see it."
                print(note, file=sys.stderr)
        usable = spec.enabled and not spec.problem
        return DENIED if usable and not place.book.approved(spec) else 1
    if as_json:
        print_json(_facts(spec, found))
    else:
        print_connected(place, spec, found)
    return 0


def print_connected(place: ServerInventory, spec: ServerSpec, found: ProbeResult) -> None:
    """How long it took and what it offers."""
    others = [each.listing for each in place.all() if each.spec.name != spec.name]
    print(f"{spec.name}: answers after {duration(found.milliseconds)} ({introduction(found.manifest)})")
    print_offer(spec, found.manifest, found.listing, offered_names([*others, found.listing]))


def print_not_connected(verb: str, refused: NotConnected) -> None:
    print_error(verb, refused.text)
    if refused.stderr:
        print("the last lines of its stderr:", file=sys.stderr)
        for line in refused.stderr:
            print(f"  {one_line(line)}", file=sys.stderr)


def _facts(spec: ServerSpec, found: ProbeResult) -> dict[str, Any]:
    return {
        "server": spec.name,
        "ok": True,
        "milliseconds": found.milliseconds,
        "protocol": found.manifest.protocol,
        "info": dict(found.manifest.info),
        "tools": sum(is_offered(spec, tool.name) for tool in found.listing.tools),
        "held": len(found.listing.held),
        "diagnostics": list(found.listing.diagnostics),
    }


_ATTEMPTS: Final = 2


class NotConnected(Exception):
    def __init__(self, text: str, stderr: tuple[str, ...]) -> None:
        super().__init__(text)
        self.text = text
        self.stderr = stderr
        """Its last lines, redacted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    milliseconds: int
    manifest: ServerManifest
    listing: ServerToolList


def connect(directory: Path | str, name: str) -> ProbeResult:
    """Raises NotConnected, ConfigError."""
    with progress_message(f"connecting to '{one_line(name)}' …"):  # a package runner may download the server first
        return asyncio.run(_connect_async(directory, name))


async def _connect_async(directory: Path | str, name: str) -> ProbeResult:
    tree = open_session_state(directory, SessionOptions(journal=False))
    try:
        pool = session_servers(tree).pool
        attempts = _AttemptLimit()
        tree.bus.on("mcpStatus", attempts.on_status)
        with suppress(ImportError):  # the server's state says what is missing
            await asyncio.to_thread(__import__, "golem_forge.mcp.sdk")  # most of a second, and not the server's
        start = time.monotonic()
        try:
            await attempts.wait(pool.wait_connected(name))
        except ForgeError as error:
            raise NotConnected(tree.redactor.text(error.message), pool.status(name).stderr) from None
        except _GaveUp:
            status = pool.status(name)
            raise NotConnected(f"server '{name}' failed: {status.error}", status.stderr) from None
        took = time.monotonic() - start
        manifest, listing = pool.manifest(name), pool.listing(name)
        assert manifest is not None
        assert listing is not None
        return ProbeResult(milliseconds=round(took * 1000), manifest=manifest, listing=listing)
    finally:
        await tree.aclose()


class _GaveUp(Exception):
    pass


class _AttemptLimit:
    """Gives up after two attempts, where a session makes five: at a shell people want to know what is wrong. The second
    attempt is needed because it speaks the older protocol only."""

    def __init__(self) -> None:
        self._failures = 0
        self._out = asyncio.Event()

    def on_status(self, event: Any) -> None:
        if getattr(event.data, "state", "") == ServerState.BACKOFF:
            self._failures += 1
            if self._failures >= _ATTEMPTS:
                self._out.set()

    async def wait(self, settled: Coroutine[Any, Any, None]) -> None:
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


def unseen_file(place: ServerInventory, spec: ServerSpec) -> tuple[str, str] | None:
    """Of a program without zones: the first argument that names something in a zone, as it looks from here, and that
    zone."""
    if spec.is_http or spec.zones:
        return None
    for word in spec.args:
        path = Path(os.path.abspath(word)) if word and "\0" not in word else None
        if path is None or word.startswith("-") or not os.path.exists(path):
            continue
        for zone in place.program.zones:
            if path.is_relative_to(zone.path):
                return word, zone.name
    return None
