"""`forge mcp list | show | test | reconnect`: the configured servers with their state, one in full, whether it answers.

`list` and `show` start nothing and load nothing of the SDK. Values that may be secrets are not shown. `test` and
`reconnect` start an approved server, list what it offers and end it; one that is not approved is refused. `connect`
returns what the server offers and how long that took; `NotConnected` carries the text of its state and the last lines
of its stderr. Its tools are pinned and its manifest is cached, as in a session. `unseen_file` finds the most likely
mistake: the server's own file lies in a zone it was not given.

Threat: every name and description is a server's own text; nothing of it can steer a terminal.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from golem_forge.agent.mcp_servers import session_servers
from golem_forge.agent.mcp_status import (
    EditorServer,
    KnownServer,
    ServerInventory,
    offered_names,
    prompt_names,
    read_inventory,
    server_details,
    server_summary,
)
from golem_forge.agent.session_state import SessionOptions, open_session_state
from golem_forge.cli.command import DENIED, first_line, print_error, print_json, progress_message, read_args
from golem_forge.config.mcp_spec import ServerSpec
from golem_forge.core.errors import ForgeError
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.text import columns, duration, escape_control_chars, one_line, shorten, shorten_prose
from golem_forge.events.serialization import iso_time
from golem_forge.mcp.client.approval_text import server_card
from golem_forge.mcp.client.model import Identity, RemoteTool, ServerManifest, ServerState, ServerToolList
from golem_forge.mcp.client.tool_source import is_offered

LIST_HELP: Final = """usage: forge mcp list [--json] [-p DIR]

Every configured MCP server: its state, how many tools it offers, where it is configured. Servers come from forge.yaml
and .mcp.json of the program, and from your own config.yaml. Those that an editor named for its sessions stand at the
end.

  --json             for programs: {servers: [{name, state, error, transport, origin, approved, trust, required,
                     tools, held, protocol}], warnings, problem}; `tools` is null until Forge has asked the server
  -p, --program DIR  the program in that directory instead of this one

States: disabled (switched off), pending (waits for your approval, or has not answered yet), known (not running;
Forge remembers what it offered), failed (its configuration cannot be used). The command starts nothing.
Exit: 0 done, 2 usage or configuration."""

_ERROR_WIDTH: Final = 200


def run_list(words: list[str]) -> int:
    asked = read_args("mcp list", LIST_HELP, words, "--json", "-p,--program DIR", program=".")
    place = read_inventory(asked.program)
    found, named = place.all(), place.named_by_editors()
    problem, warnings = place.book.problem, place.program.mcp.warnings
    if asked.json:
        servers = [*map(server_summary, found), *(each.summary() for each in named)]
        print_json({"servers": servers, "warnings": list(warnings), "problem": problem or None})
        return 0
    if found or named:
        rows = [*map(_server_row, found), *map(_editor_row, named)]
        print(columns([("NAME", "STATE", "TOOLS", "HELD", "FROM", "NOTE"), *rows]))
    else:
        print_error("mcp", "no MCP server is configured here. `forge mcp add --help` says how to add one.")
    for warning in warnings:
        print(f"warning: {one_line(warning)}", file=sys.stderr)
    if problem:
        print_error("mcp", problem)
    return 0


def _server_row(known: KnownServer) -> tuple[str, ...]:
    name, listing, offered, held = known.spec.name, known.listing, "-", "-"
    if listing is not None and known.offered is not None:
        offered, held = str(known.offered), str(len(listing.held))
    note = shorten_prose(known.error, _ERROR_WIDTH)
    if not known.error and listing is not None and listing.held:
        note = f"tools are held back; run: forge mcp show {name}"
    return name, known.state.value, offered, held, known.spec.origin, note


def _editor_row(server: EditorServer) -> tuple[str, ...]:
    return server.name, server.state.value, "-", "-", server.origin, server.note


SHOW_HELP: Final = """usage: forge mcp show NAME [--json] [-p DIR]

One MCP server: its configuration, its state, the negotiated protocol version, its tools under the name callers use and
under its own, whether each is pinned or new; what is held back, with the reason and, for `drift`, what changed.

  --json             for programs: what `list --json` has, and {config, configDiff, server, listedAt, instructions,
                     tools: [{name, tool, title, description, pin, offered, digest, annotations}],
                     held: [{name, tool, reason, message, diff}], prompts, resources, diagnostics}
  -p, --program DIR  the program in that directory instead of this one

Nothing is started: `forge mcp test NAME` asks the server itself. Values of variables and headers are never shown.
Exit: 0 done, 2 usage or configuration, 4 no such server."""

_INSTRUCTIONS_WIDTH: Final = 2048


def run_show(words: list[str]) -> int:
    asked = read_args("mcp show", SHOW_HELP, words, "NAME", "--json", "-p,--program DIR", program=".")
    place = read_inventory(asked.program)
    if named := place.editor_servers(asked.name):
        for each in named:
            _print_editor_server(each, as_json=asked.json)
        return 0
    known = place.known(asked.name)
    names = offered_names(each.listing for each in place.all())
    if asked.json:
        print_json(server_details(known, names))
    else:
        _print_server(known, names)
        if place.book.problem:
            print_error("mcp", place.book.problem)
    return 0


def _print_editor_server(server: EditorServer, *, as_json: bool) -> None:
    if as_json:
        print_json(server.summary() | {"config": dict(server.named.described), "configDiff": server.diff or None})
        return
    print(escape_control_chars(server.card))
    print(f"approved: {'yes' if server.approved else 'no'}")
    if server.diff:
        print(f"changed since it was approved:\n{escape_control_chars(server.diff)}")
    print(one_line(f"state: {server.state.value} ({server.note})"))


def _print_server(known: KnownServer, names: Mapping[Identity, str]) -> None:
    spec, manifest = known.spec, known.manifest
    print(escape_control_chars(server_card(spec)))
    print(f"trust: {spec.trust.value}")
    print(f"approved: {'yes' if known.approved else 'no'}")
    if known.config_diff:
        print(f"changed since it was approved:\n{escape_control_chars(known.config_diff)}")
    print(one_line(f"state: {known.state.value}{f' ({known.error})' if known.error else ''}"))
    if manifest is None or known.listing is None:
        return
    print(f"listed: {iso_time(manifest.fetched_at)}")
    print(f"server: {introduction(manifest)}")
    if manifest.instructions:
        print(one_line(f"instructions: {shorten_prose(manifest.instructions, _INSTRUCTIONS_WIDTH)}"))
    print_offer(spec, manifest, known.listing, names)


_DESCRIPTION_WIDTH: Final = 80
_MOST_NAMES: Final = 20
NOT_OFFERED: Final = "not offered"


def introduction(manifest: ServerManifest) -> str:
    """`echo 1, protocol 2025-11-25`, in the server's own words."""
    own = " ".join(str(manifest.info[key]) for key in ("name", "version") if manifest.info.get(key))
    return one_line(shorten(", ".join(part for part in (own, f"protocol {manifest.protocol}") if part), 200))


def tool_row(spec: ServerSpec, tool: RemoteTool, name: str) -> tuple[str, str, str, str]:
    """Returns the columns NAME, RAW, PIN, DESCRIPTION."""
    pin = tool.familiarity.value if is_offered(spec, tool.name) else NOT_OFFERED
    return name, tool.name, pin, shorten_prose(first_line(tool.description), _DESCRIPTION_WIDTH)


def print_offer(
    spec: ServerSpec, manifest: ServerManifest, listing: ServerToolList, names: Mapping[Identity, str]
) -> None:
    print_tools(spec, listing, names)
    print(f"prompts: {_prompts(manifest)}")
    print(f"resources: {'yes' if manifest.has_resources else 'none'}")
    for text in listing.diagnostics:
        print(one_line(f"note: {text}"))


def print_tools(spec: ServerSpec, listing: ServerToolList, names: Mapping[Identity, str]) -> None:
    rows = [tool_row(spec, tool, names[tool.identity]) for tool in listing.tools]
    print(f"tools: {len(rows) or 'none'}")
    if rows:
        print(columns([("NAME", "RAW", "PIN", "DESCRIPTION"), *rows], indent="  "))
    if listing.held:
        print(f"held back: {len(listing.held)}")
        for held in listing.held:
            print(f"  {one_line(held.name)}  {held.reason.value}: {one_line(held.message)}")
            for line in held.diff.splitlines():
                print(f"    {escape_control_chars(line)}")


def _prompts(manifest: ServerManifest) -> str:
    names = prompt_names(manifest)
    if not names:
        return "none"
    shown = ", ".join(shorten(name, 60) for name in names[:_MOST_NAMES])
    more = f" … and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return one_line(f"{len(names)}: {shown}{more}")


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
    """Prints how long the connection took and what the server offers."""
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
    """Connects to a server. Raises NotConnected, ConfigError."""
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
        """Waits for the server within the limit. Raises what `settled` raises, and _GaveUp."""
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
    """Returns, for a server without zones, the first argument that names a file in a zone, and that zone."""
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
