"""`forge mcp serve`: a worker's tools for any MCP client, every call on the one path.

Over stdin and stdout by default; stdout then carries protocol only, so whatever there is to say goes to stderr.
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NoReturn

from golem_forge.cli.plain import complain, parser
from golem_forge.core.leftovers import LEFTOVERS
from golem_forge.core.visible import visible

if TYPE_CHECKING:
    from golem_forge.events.envelope import Event
    from golem_forge.mcp.server.http import HttpOptions
    from golem_forge.mcp.server.tokens import TokenStore

HELP: Final = """usage: forge mcp serve [--worker FILE] [--http [HOST:PORT]] [--allow-host NAME]…
                       [--allow-origin ORIGIN]… [--approval MODE] [-p DIR]

Serves the tools of the entry worker (else of the built-in one) to MCP clients: its toolsets, zones and rules.

  --worker FILE          as that worker: a file, or a name of the program's
  --http [HOST:PORT]     over HTTP at /mcp instead of stdin and stdout; alone: 127.0.0.1:8765. Clients need a token:
                         forge mcp token create NAME
  --allow-host NAME      a name (or name:port) besides loopback under which it may be reached; repeat for more
  --allow-origin ORIGIN  a web page's origin that may use it, e.g. https://app.example; repeat for more
  --approval MODE        interactive, strict, approve_all or auto_deny
  -p, --program DIR      the program in that directory instead of this one

A call that asks is put before the client's person where the client can ask; else it is denied.
It ends when stdin ends, or with SIGTERM. `forge mcp install` makes other products start it.
Exit: 0 ended, 1 failed, 2 usage or configuration, 3 the program is not trusted."""

_DENIED: Final = 3


def run_serve(words: list[str]) -> int:
    from golem_forge.config.modes import ApprovalMode

    reader = parser("mcp serve", HELP)
    reader.add_argument("--worker", metavar="FILE")
    reader.add_argument("--http", metavar="HOST:PORT", nargs="?", const="")
    reader.add_argument("--allow-host", action="append", default=[])
    reader.add_argument("--allow-origin", action="append", default=[])
    reader.add_argument("--approval", choices=[mode.value for mode in ApprovalMode])
    reader.add_argument("-p", "--program", default=".")
    asked = reader.parse_args(words)
    from golem_forge.mcp.missing import need_sdk

    need_sdk()
    options = None
    if asked.http is not None:
        from golem_forge.core.errors import ForgeError

        try:
            options = _http_options(asked.http, asked.allow_host, asked.allow_origin)
        except ForgeError as refused:
            complain("mcp serve", refused.message)
            return 2
    elif asked.allow_host or asked.allow_origin:
        complain("mcp serve", "--allow-host and --allow-origin are for --http; there is nobody to check over stdin.")
        return 2
    code = asyncio.run(_serve(asked.program, asked.worker, asked.approval, options))
    if code == 0:
        _leave()
    return code


def _leave() -> NoReturn:
    """Everything was ended in order and is on disk. Taking the interpreter apart as well would take longer than all of
    that, and whoever waits for the end was promised a second."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(0)


def _http_options(address: str, hosts: list[str], origins: list[str]) -> HttpOptions:
    """Raises ForgeError."""
    from golem_forge.mcp.server.http import HttpOptions, check_bind, parse_address

    default = HttpOptions()
    bind, port = parse_address(address) if address else (default.bind, default.port)
    options = HttpOptions(bind=bind, port=port, allow_hosts=tuple(hosts), allow_origins=tuple(origins))
    check_bind(options)
    return options


async def _serve(program: str, worker: str | None, approval: str | None, options: HttpOptions | None) -> int:
    from golem_forge.workers.mcp.serving import serving
    from golem_forge.workers.trusting import NotTrusted

    try:
        async with serving(program, worker=worker, approval=approval) as host:
            for notice in host.session.notices_for_one_command:
                print(f"forge: {visible(notice)}", file=sys.stderr)
            host.session.bus.on("status", _tell_left_behind)
            if options is None:
                from golem_forge.mcp.server.stdio import serve_stdio

                return await serve_stdio(host)
            from golem_forge.config.home import forge_home
            from golem_forge.mcp.server.http import serve_http
            from golem_forge.mcp.server.tokens import TokenStore

            tokens = TokenStore(forge_home())
            _say_who_may_come(tokens)
            return await serve_http(host, options, tokens)
    except NotTrusted as refused:
        complain("mcp serve", str(refused))
        return _DENIED


def _tell_left_behind(event: Event) -> None:
    """What a command left behind that no call reports on. The client may never show it to its person."""
    if event.wire.get("code") == LEFTOVERS:
        with suppress(OSError):
            print(f"forge: {visible(str(event.wire.get('message', '')))}", file=sys.stderr, flush=True)


def _say_who_may_come(tokens: TokenStore) -> None:
    """Raises ForgeError where the tokens cannot be read: nobody would be let in."""
    if not tokens.tokens():
        complain("mcp serve", "there is no token yet, so nobody is let in: forge mcp token create NAME")
