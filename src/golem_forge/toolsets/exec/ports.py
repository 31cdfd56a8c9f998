"""Ports of a session for the person: publish_port, unpublish_port, and the rows of `/ports`.

`publish_port` asks, and its card says who will reach the port; a person who calls it has agreed already. Forge listens
on a random address of 127/8 and passes connections on to the session's loopback. `unpublish_port` ends that again and
is for people. `PublishedPorts` is a part of the session: what it holds ends with the session. `port_rows` is what
`/ports` lists. Threats: a browser's cookies know no ports, so a server at 127.0.0.1 would receive the login of every
page there; never that address, and none of its neighbours. The words of a process are a stranger's: escaped,
shortened, without secrets.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable, Hashable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from golem_forge.core.calls import Caller
from golem_forge.core.decisions import Verdict
from golem_forge.core.effects import Effect, Verb
from golem_forge.core.errors import ToolFailed
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.lazy_module import pydantic
from golem_forge.core.results import ToolResult
from golem_forge.core.text import local_minute, one_line, shorten_middle
from golem_forge.sandbox.network import lazy_loopback, lazy_port_forward
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.tools.context import Plan, SessionParts, ToolContext
from golem_forge.tools.factory import native_tool
from golem_forge.tools.threads import run_in_thread
from golem_forge.tools.tool import Mode, NeedsApproval, Tool

if TYPE_CHECKING:
    from golem_forge.sandbox.network.loopback import ListeningPort, SessionLoopback
    from golem_forge.sandbox.network.port_forward import PortForward


PUBLISH_TOOL: Final = "publish_port"
UNPUBLISH_TOOL: Final = "unpublish_port"
MOST_PUBLISHED: Final = 20
_PUBLISH_DESCRIPTION: Final = (
    "Let the person open a port that a command of this session listens on, in their own browser: gives a link that "
    "programs of their computer reach until the session ends. Start the server first, with exec_command and without "
    "`network`. Your own later commands without `network` reach it at localhost without this."
)
_UNPUBLISH_DESCRIPTION: Final = "End what publish_port made: nobody outside the session reaches the port any more."
WHO_REACHES: Final = "Every program and every user of this computer reaches it; no other computer does."
_TRIES: Final = 20
_LONGEST_COMMAND: Final = 120


def create_publish_port_tool(sandbox: Sandbox | None = None, needs_approval: NeedsApproval | None = None) -> Tool:
    """`sandbox`: of commands that were given one of their own."""
    return native_tool(
        PUBLISH_TOOL,
        _PUBLISH_DESCRIPTION,
        input_schema=_arguments,
        planner=partial(_plan_publish, sandbox),
        needs_approval=needs_approval,
        label="Publish port",
        category="Commands",
    )


def create_unpublish_port_tool() -> Tool:
    return native_tool(
        UNPUBLISH_TOOL,
        _UNPUBLISH_DESCRIPTION,
        input_schema=_unpublish_arguments,
        planner=_plan_unpublish,
        mode=Mode.MANUAL,
        label="Unpublish port",
        category="Commands",
    )


def _arguments() -> type[pydantic.BaseModel]:
    return pydantic.create_model(
        PUBLISH_TOOL, port=(int, pydantic.Field(ge=1, le=65535, description="The port a command listens on."))
    )


def _unpublish_arguments() -> type[pydantic.BaseModel]:
    return pydantic.create_model(
        UNPUBLISH_TOOL, port=(int, pydantic.Field(ge=1, le=65535, description="The port that was published."))
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    port: int
    """The port inside."""
    address: str
    outer_port: int
    loopback: SessionLoopback
    forward: PortForward

    @property
    def place(self) -> str:
        return f"{self.address}:{self.outer_port}"

    @property
    def url(self) -> str:
        return f"http://{self.place}/"


class PublishedPorts:
    """The published ports of a session."""

    def __init__(self) -> None:
        self._by_place: dict[Hashable, Publication] = {}

    @property
    def all(self) -> tuple[Publication, ...]:
        return tuple(self._by_place.values())

    @property
    def busy(self) -> bool:
        return bool(self._by_place)

    def find(self, loopback: SessionLoopback, port: int) -> Publication | None:
        return self._by_place.get((loopback.number, port))

    async def publish(self, loopback: SessionLoopback, port: int) -> Publication:
        """Publishes a port, or returns its existing publication. Raises ToolFailed."""
        if (known := self.find(loopback, port)) is not None:
            return known
        if len(self._by_place) >= MOST_PUBLISHED:
            raise ToolFailed(f"{MOST_PUBLISHED} ports are published already; end one with /unpublish first.")
        listener = _listen(port)
        address, outer_port = listener.getsockname()
        forward = lazy_port_forward.PortForward(partial(loopback.connect, port))
        made = Publication(port=port, address=address, outer_port=outer_port, loopback=loopback, forward=forward)
        self._by_place[loopback.number, port] = made
        await forward.serve(listener)
        return made

    def end(self, port: int) -> tuple[Publication, ...]:
        """Ends the publications of a port and returns them; a sub-worker may have published the same port of its own
        loopback.
        """
        ended = tuple(each for each in self._by_place.values() if each.port == port)
        for each in ended:
            each.forward.close()
            del self._by_place[each.loopback.number, port]
        return ended

    async def aclose(self) -> None:
        while self._by_place:
            self._by_place.popitem()[1].forward.close()


def _listen(port: int) -> socket.socket:
    """Listens on an address that nobody can guess, at the same port if it is free there. Raises ToolFailed."""
    for number in range(_TRIES):
        wanted = port if number < _TRIES // 2 else 0
        try:
            return socket.create_server((random_address(), wanted), backlog=64)
        except OSError:  # taken, or a port that only root opens
            continue
    raise ToolFailed("No address of this computer could be opened for it.", code="NOT_PUBLISHED")


def random_address() -> str:
    """Returns a random address of 127/8, outside 127.0/16 where the system's own servers are."""
    return f"127.{16 + secrets.randbelow(224)}.{secrets.randbelow(256)}.{1 + secrets.randbelow(254)}"


async def _plan_publish(sandbox: Sandbox | None, args: dict[str, Any], ctx: ToolContext) -> Plan:
    port = args["port"]
    loopback = await _loopback_with(port, sandbox, ctx)
    by_hand = ctx.caller is Caller.HUMAN
    effect = Effect(
        verb=Verb.NET,
        target=f"listen for port {port} of this session",
        said=Verdict.PRE_APPROVED if by_hand else None,
        said_by="you asked for it yourself" if by_hand else "",
        leaves=(f"port {port} becomes reachable from outside the walls",),
    )
    return Plan(
        run=partial(_publish, loopback, port, ctx),
        effects=(effect,),
        warnings=(WHO_REACHES,),
        read_only=True,
    )


async def _loopback_with(port: int, sandbox: Sandbox | None, ctx: ToolContext) -> SessionLoopback:
    """Returns the loopback where the port listens: that of the asking worker; for a person that of any worker. Raises
    ToolFailed.
    """
    from golem_forge.toolsets.exec.environment import environment_of

    loopbacks = ctx.parts.get(lazy_loopback.SessionLoopbacks)
    own = loopbacks.find(lazy_loopback.loopback_key(environment_of(sandbox, ctx).walls, ctx.guest))
    found = [each for each in (own, *(loopbacks.made if ctx.caller is Caller.HUMAN else ())) if each is not None]
    for loopback in found:
        if any(each.port == port for each in await run_in_thread(loopback.listening)):
            return loopback
    why = f" ({loopbacks.problem})" if loopbacks.problem else ""
    raise ToolFailed(
        f"No command of this session listens on port {port}{why}. Start the server with exec_command, without "
        "`network`, and wait until it listens; /ports lists what does.",
        code="NOT_LISTENING",
    )


async def _publish(loopback: SessionLoopback, port: int, ctx: ToolContext) -> ToolResult:
    made = await ctx.parts.get(PublishedPorts).publish(loopback, port)
    value = {
        "kind": "port.published",
        "summary": f"port {port} is at {made.url}",
        "port": port,
        "address": made.place,
        "url": made.url,
        "reached_by": WHO_REACHES,
    }
    text = f"Port {port} is at {made.url} until the session ends. {WHO_REACHES}"
    return ToolResult(value=value, text=text)


def _plan_unpublish(args: dict[str, Any], ctx: ToolContext) -> Plan:
    return Plan(run=partial(_unpublish, args["port"], ctx), effects=(), read_only=True)


async def _unpublish(port: int, ctx: ToolContext) -> ToolResult:
    if not ctx.parts.get(PublishedPorts).end(port):
        raise ToolFailed(f"Port {port} is not published; /ports lists what is.", code="NOT_PUBLISHED")
    return ToolResult({"kind": "text", "content": f"Port {port} is not published any more."})


def port_rows(parts: SessionParts, redact: Callable[[str], str]) -> list[dict[str, Any]]:
    """`{port, command, since, url}` for each port that listens or is published. `redact`: a text without secrets and
    host paths. Reads /proc: call it in a thread."""
    published = parts.get(PublishedPorts)
    rows = []
    for loopback in parts.get(lazy_loopback.SessionLoopbacks).made:
        listening = loopback.listening()
        rows += [_row(each, published.find(loopback, each.port), redact) for each in listening]
        silent = {each.port for each in listening}
        rows += [
            {"port": each.port, "command": "", "since": "", "url": each.url}
            for each in published.all
            if each.loopback is loopback and each.port not in silent
        ]
    return rows


def _row(each: ListeningPort, published: Publication | None, redact: Callable[[str], str]) -> dict[str, Any]:
    return {
        "port": each.port,
        "command": shorten_middle(one_line(redact(each.command)), _LONGEST_COMMAND, " … "),
        "since": datetime.fromtimestamp(each.since, UTC).isoformat(timespec="seconds") if each.since else "",
        "url": published.url if published else "",
    }


def port_lines(rows: Sequence[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Returns the rows of a table for people, with its header."""
    published = any(row["url"] for row in rows)
    return [
        ("PORT", "SINCE", *(("PUBLISHED AT",) if published else ()), "COMMAND"),
        *(
            (
                str(row["port"]),
                local_minute(row["since"]) if row["since"] else "",
                *((row["url"],) if published else ()),
                row["command"] or "nothing listens now",
            )
            for row in rows
        ),
    ]
