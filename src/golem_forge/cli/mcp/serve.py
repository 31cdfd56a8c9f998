"""`forge mcp serve`: a worker's tools for any MCP client, every call on the one path; `forge mcp token` for `--http`.

Serves over stdin and stdout by default; stdout then carries protocol only, so messages go to stderr. A token is shown
once, on standard output alone, so that it can be piped where it belongs.

`serve_session` opens the session behind it: one worker's scope (`SessionHost`), and for each client its own
orchestrator (`SessionGuest`). Clients share tools, zones, walls, rules and the journal. They share no approval: what
one client's user agreed to is asked of the next one again. They share no process: what a call left running belongs to
its client and ends when that client leaves. Workers that a served call delegates to ask that call's client and remember
nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from golem_forge.agent.files.worker import McpBlock
from golem_forge.agent.mcp_servers import attach_servers
from golem_forge.agent.session import Session, entry_session
from golem_forge.agent.session_plan import is_built_in, named_mode
from golem_forge.agent.trust import NotTrusted
from golem_forge.agent.worker_scope import guest_orchestrator
from golem_forge.cli.command import DENIED, declare, exit_now, fail, parser, print_error, print_json, print_notices
from golem_forge.config.run_block import ApprovalMode
from golem_forge.core.calls import LEFTOVERS, MAX_LEFTOVER_LINES, Caller, Outcome, ToolCall
from golem_forge.core.effects import Verb
from golem_forge.core.errors import ForgeError
from golem_forge.core.ids import new_id
from golem_forge.core.signals import InterruptSignal, run_to_exit_code
from golem_forge.core.text import columns, escape_control_chars
from golem_forge.mcp import need_sdk
from golem_forge.mcp.client.resources import ServerAccess
from golem_forge.mcp.server.host import ClientApproval, ClientFacts, OnceApproval, Progress, ServedCalls, ServedOffers
from golem_forge.mcp.server.tokens import TokenStore
from golem_forge.net.server_guard import check_bind
from golem_forge.orchestrator.call_state import CallState
from golem_forge.sandbox.errors import SandboxError
from golem_forge.storage.home import forge_home, stamp_from_stat
from golem_forge.tools.context import ToolContext
from golem_forge.tools.tool import Tool
from golem_forge.toolsets.client import ClientRequests
from golem_forge.toolsets.exec.sessions import ExecSessions

if TYPE_CHECKING:
    from golem_forge.events.serialization import Event
    from golem_forge.mcp.server.http import HttpOptions

SERVE_HELP: Final = """usage: forge mcp serve [--worker FILE] [--http [HOST:PORT]] [--allow-host NAME]…
                       [--allow-origin ORIGIN]… [--approval MODE] [-p DIR]

Serves the tools of the entry worker to MCP clients, with its toolsets, zones and rules. Without a program it serves the
tools of the built-in worker.

  --worker FILE          serve the tools of this worker: a file, or the name of a worker of the program
  --http [HOST:PORT]     over HTTP at /mcp instead of stdin and stdout; alone: 127.0.0.1:8765. Clients need a token:
                         forge mcp token create NAME
  --allow-host NAME      a host name (or name:port) that clients may use besides loopback; repeat for more
  --allow-origin ORIGIN  a web page's origin that may use it, e.g. https://app.example; repeat for more
  --approval MODE        interactive, strict, contained, plan, approve_all or auto_deny
  -p, --program DIR      the program in that directory instead of this one

When a call needs approval, Forge asks the person through the client. If the client cannot ask, Forge denies the call.
It ends when stdin ends, or with SIGTERM. `forge mcp install` makes other products start it.
Exit: 0 ended, 1 failed, 2 usage or configuration, 3 the program is not trusted."""


def run_serve(words: list[str]) -> int:
    modes = f"--approval {'|'.join(ApprovalMode)}"
    declared = ("--worker FILE", "--allow-host NAME…", "--allow-origin ORIGIN…", modes, "-p,--program DIR")
    reader = declare(parser("mcp serve", SERVE_HELP), *declared)
    reader.add_argument("--http", nargs="?", const="")
    reader.set_defaults(program=".")
    asked = reader.parse_args(words)
    need_sdk()
    options = None
    if asked.http is not None:
        try:
            options = _http_options(asked.http, asked.allow_host, asked.allow_origin)
        except ForgeError as refused:
            return fail("mcp serve", refused.message, 2)
    elif asked.allow_host or asked.allow_origin:
        return fail("mcp serve", "--allow-host and --allow-origin need --http; over stdin they have no effect.", 2)
    code = run_to_exit_code(_serve(asked.program, asked.worker, asked.approval, options))
    if code == 0:
        exit_now()
    return code


def _http_options(address: str, hosts: list[str], origins: list[str]) -> HttpOptions:
    """Reads the HTTP options. Raises ForgeError."""
    from golem_forge.mcp.server.http import HttpOptions, parse_address

    default = HttpOptions()
    bind, port = parse_address(address) if address else (default.bind, default.port)
    options = HttpOptions(bind=bind, port=port, allow_hosts=tuple(hosts), allow_origins=tuple(origins))
    check_bind(options.bind, options.allow_hosts)
    return options


async def _serve(program: str, worker: str | None, approval: str | None, options: HttpOptions | None) -> int:
    try:
        async with serve_session(program, worker=worker, approval=approval) as host:
            print_notices(host.session)
            host.session.bus.on("status", _print_leftovers)
            if options is None:
                from golem_forge.mcp.server.service import serve_stdio

                return await serve_stdio(host)
            from golem_forge.mcp.server.http import serve_http

            tokens = TokenStore(forge_home())
            if not tokens.tokens():
                print_error("mcp serve", "there is no token yet, so no client can connect: forge mcp token create NAME")
            return await serve_http(host, options, tokens)
    except NotTrusted as refused:
        return fail("mcp serve", str(refused), DENIED)


def _print_leftovers(event: Event) -> None:
    """Prints what a command left behind if no call reports it, since the client may never show it."""
    if event.wire.get("code") == LEFTOVERS:
        with contextlib.suppress(OSError):
            print(f"forge: {escape_control_chars(str(event.wire.get('message', '')))}", file=sys.stderr, flush=True)


TOKEN_HELP: Final = """usage: forge mcp token create NAME
       forge mcp token list [--json]
       forge mcp token revoke NAME

Tokens for `forge mcp serve --http`. `create` prints a new token once; Forge keeps only its hash. Clients send it in
the header `Authorization: Bearer …`; the journal records their calls as `mcp:NAME`. `revoke` ends a token at once, also
in servers that run.

  --json   for programs: {tokens: [{name, created}]}

Exit: 0 done, 1 it failed (the name is taken), 2 usage, 4 no such token."""


def run_token(words: list[str]) -> int:
    reader = parser("mcp token", TOKEN_HELP)
    reader.add_argument("action", choices=("create", "list", "revoke"))
    declare(reader, "NAME?", "--json")
    asked = reader.parse_args(words)
    if (asked.name is None) is not (asked.action == "list"):
        reader.error("list takes no NAME" if asked.name else f"{asked.action} needs a NAME")
    if asked.json and asked.action != "list":
        reader.error("--json is for list")
    store = TokenStore(forge_home())
    if asked.action == "create":
        secret, whose = store.create(asked.name), f"The token of '{asked.name}'. Forge shows it only once."
        print(f"{whose} Clients send it as `Authorization: Bearer …`:", file=sys.stderr)
        print(secret)
        return 0
    if asked.action == "revoke":
        return _revoke(store, asked.name)
    return _list(store, as_json=asked.json)


def _revoke(store: TokenStore, name: str) -> int:
    there = any(token.name == name for token in store.tokens())
    try:
        store.revoke(name)
    except ForgeError as error:
        if there:
            raise
        return fail("mcp token", error.message, 4)
    print(f"revoked {name}.")
    return 0


def _list(store: TokenStore, *, as_json: bool) -> int:
    tokens = store.tokens()
    if as_json:
        print_json({"tokens": [{"name": token.name, "created": token.created} for token in tokens]})
    elif tokens:
        print(columns([("NAME", "CREATED"), *((token.name, token.created) for token in tokens)]))
    else:
        print_error("mcp token", "there is no token. `forge mcp token create NAME` makes one.")
    return 0


@contextlib.asynccontextmanager
async def serve_session(
    directory: Path | str = ".", *, worker: Path | str | None = None, approval: ApprovalMode | str | None = None
) -> AsyncIterator[SessionHost]:
    """`worker`: a file or a name of the program's; None: its entry, else the built-in one. Raises ConfigError,
    NotTrusted, and ForgeError where a required server cannot be had."""
    async with entry_session(directory, worker=worker) as session:
        mode = session.program.mode(None if approval is None else named_mode(approval))
        host = SessionHost(session, mode.value)
        if session.servers is not None:
            await session.servers.pool.wait_required()
        yield host


class SessionHost:
    def __init__(self, session: Session, mode: ApprovalMode) -> None:
        self.session = session
        self.mode = mode
        self.calls = ServedCalls()
        self.redactor = session.state.redactor
        session.state.controller = OnceApproval(mode, self.calls)
        if session.servers is None and is_built_in(session.scope.worker):
            session.servers = attach_servers(session.scope, McpBlock())  # some may be configured while it serves
        if session.servers is not None:
            session.servers.form_asker = self.calls.ask_form
            session.servers.begin()
        session.state.parts.get(ClientRequests).default = self.calls
        self.calls.offers = ServedOffers(
            reserved=session.catalog.reserved,
            access=session.state.parts.get(ServerAccess),
            worker=session.path.worker,
            stamp=self._stamp,
        )
        self._gathering: asyncio.Task[None] | None = None

    async def gathered(self) -> None:
        if self._gathering is None:
            self._gathering = asyncio.create_task(self.session.wait_listed())
        await asyncio.shield(self._gathering)

    def offered(self) -> tuple[Tool, ...]:
        self.session.refresh()
        return self.session.catalog.offered(Caller.MCP)

    def _stamp(self, path: str) -> object:
        try:
            with self.session.scope.sandbox.target(path, Verb.READ) as target:
                return target.stat and stamp_from_stat(target.stat)
        except (SandboxError, OSError):
            return None

    def admit(self, client: ClientFacts) -> SessionGuest:
        return SessionGuest(self.session, client, ClientApproval(self.mode, self.calls))

    async def aclose(self) -> None:
        self.session.interrupt("the server ends")
        await self.session.aclose()


class SessionGuest:
    def __init__(self, session: Session, client: ClientFacts, approval: ClientApproval) -> None:
        self._session = session
        self._name = client.caller_name
        self._id = new_id()
        self._path = guest_orchestrator(session.scope, approval, self._id)
        self._leftovers: list[str] = []
        """What commands left behind that no call reports on, for this client's next result."""
        self._unsubscribe = session.bus.on("status", self._keep_leftover)

    async def call(self, name: str, args: Any, *, call_id: str, cancel: InterruptSignal, progress: Progress) -> Outcome:
        # What changed on disk, at a server or in the config counts for this call.
        session = self._session
        await session.look(name)
        blocks = session.path.judge.blocks
        if self._path.judge.blocks is not blocks:
            self._path.judge.set_blocks(blocks)
        state = CallState(ToolCall(name, args, Caller.MCP, id=call_id, caller_name=self._name), cancel, cancel)

        def report(event: Event) -> None:
            data: Any = event.data
            if data.tool_call_id == call_id:
                progress(data.progress, data.total, data.message or "")

        with contextlib.ExitStack() as until_done:
            until_done.callback(self._session.bus.on("toolProgress", report))
            until_done.callback(self._session.state.signal.listen(cancel.interrupt))
            outcome = await self._path.step(state)
            leftovers, self._leftovers = self._leftovers, []
            outcome.notes = (*(line for line in leftovers if line not in outcome.leftover_texts), *outcome.notes)
            return outcome

    def _keep_leftover(self, event: Event) -> None:
        if event.wire.get("code") == LEFTOVERS and len(self._leftovers) < MAX_LEFTOVER_LINES:
            self._leftovers.append(str(event.wire.get("message", "")))

    def output(self, handle: str) -> Path | None:
        kept = self._path.outputs.find(handle, self._path.worker)
        return kept.path if kept is not None else None

    async def aclose(self) -> None:
        self._unsubscribe()
        owner = ToolContext(worker=self._path.worker, guest=self._id).owner
        await self._session.state.parts.get(ExecSessions).end_owned_by(owner)
