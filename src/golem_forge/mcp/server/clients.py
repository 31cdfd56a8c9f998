"""Clients of `forge mcp serve`: which client a request belongs to, what it has under way, and the tools it sees.

With the handshake protocol a client is one connection; on 2026-07-28 it is one token, or the process at the other end
of stdio. `ClientRegistry` makes a Client at its first request. A client goes when its connection closes, its token is
revoked or the server ends, and all its calls end with it. Calls, suspended calls and listed outputs are bounded.

`ExportedToolList` has the offered tools as MCP definitions, built once for each state of the catalog. Annotations are
derived from what a tool can do, not from what its author or server says: what is not known to be harmless counts as
destructive and open. A proxied server's own hints can only add a warning.

`StateTokens` issues the state that a client carries between two requests of one call: an opaque text bound to that call
and client, valid once and for ten minutes, signed with a random key of this process. Threat: a client that answers for
another call or client, twice, or after the person has long gone.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, NamedTuple, TypeVar, get_args

from golem_forge.core.effects import Verb
from golem_forge.core.ids import new_id
from golem_forge.core.json import digest
from golem_forge.events.redaction import Redactor
from golem_forge.mcp.server.host import (
    ClientFacts,
    ClientHandle,
    ClientQuestion,
    ElicitationSupport,
    ServedCall,
    ServingHost,
)
from golem_forge.mcp.server.sdk import MODERN_PROTOCOL_VERSIONS, AuthenticatedUser, Context, connection_of, types
from golem_forge.tools.catalog import DefinitionFormat, tool_definition
from golem_forge.tools.tool import SourceKind, Tool


class ExportedToolList:
    def __init__(self, offered: Callable[[], tuple[Tool, ...]], redactor: Redactor | None = None) -> None:
        """`redactor`: takes secrets out of definitions; None: there are none."""
        self._offered = offered
        self._redactor = redactor or Redactor()
        self._clean_of = 0
        self._tools: tuple[Tool, ...] = ()
        self._entries: tuple[dict[str, Any], ...] = ()
        self._schemas: dict[str, Mapping[str, Any]] = {}
        self._digest = ""

    def entries(self) -> tuple[dict[str, Any], ...]:
        """The very same objects until something changes; not to be modified."""
        self._look()
        return self._entries

    def digest(self) -> str:
        """Returns the digest of all that a client can see; tools that only people may call are not included."""
        self._look()
        self._digest = self._digest or digest(list(self._entries))
        return self._digest

    def schema(self, name: str) -> Mapping[str, Any] | None:
        self._look()
        return self._schemas.get(name)

    def __contains__(self, name: str) -> bool:
        self._look()
        return name in self._schemas

    def _look(self) -> None:
        tools, clean_of = self._offered(), self._redactor.version
        if tools is self._tools and self._entries and clean_of == self._clean_of:
            return
        self._tools, self._clean_of = tools, clean_of
        self._entries = tuple(self._entry(tool) for tool in tools)
        self._schemas = {entry["name"]: entry["inputSchema"] for entry in self._entries}
        self._digest = ""

    def _entry(self, tool: Tool) -> dict[str, Any]:
        shaped = tool_definition(tool, DefinitionFormat.MCP)
        if tool.source is not SourceKind.NATIVE:
            shaped = self._redactor.without_secrets(shaped) | {"name": shaped["name"]}
        # MCP wants it said, also where it is implied
        shaped["inputSchema"] = {"type": "object", **shaped["inputSchema"]}
        return {**shaped, "annotations": derived_annotations(tool)}


_DESTROYING: Final = frozenset({Verb.DELETE, Verb.EXEC, Verb.SPAWN})
_OPEN_WORLD: Final = frozenset({Verb.NET, Verb.EXEC, Verb.SPAWN})
_NATIVE_WRITERS: Final = frozenset({"write_file", "save_memory", "update_plan"})
"""Native tools that change things and neither delete nor run anything. (apply_patch deletes files too.)"""
_NATIVE_CLOSED: Final = frozenset({"Files", "Search", "Memory", "Plan", "Output"})
"""Categories of built-in tools that reach nothing outside the zones and Forge itself."""


def derived_annotations(tool: Tool) -> dict[str, Any]:
    return {
        "readOnlyHint": tool.read_only,
        "destructiveHint": not tool.read_only
        and _applies(tool, "destructiveHint", _DESTROYING, harmless=tool.name in _NATIVE_WRITERS),
        "openWorldHint": _applies(tool, "openWorldHint", _OPEN_WORLD, harmless=tool.category in _NATIVE_CLOSED),
    }


def _applies(tool: Tool, hint: str, verbs: frozenset[Verb], *, harmless: bool) -> bool:
    """`harmless`: known of a built-in tool of that name or category."""
    if tool.remote is not None or tool.redirect is not None:
        return True
    if tool.source is SourceKind.NATIVE and harmless:
        return False
    if tool.effects is not None:
        return any(effect.verb in verbs for effect in tool.effects)
    return tool.annotations.get(hint) is not False


_CLIENT_KEY: Final = "golem-forge/client"
STDIO_CLIENT: Final = ""


class ClientRegistry:
    def __init__(self, host: ServingHost) -> None:
        self._host = host
        self._by_token: dict[str, Client] = {}
        self._connected: dict[Client, str] = {}
        """Those of the handshake era → the token they came with."""

    def client_of(self, ctx: Context) -> Client:
        token, name = _credential(ctx)
        if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
            if token not in self._by_token:
                self._by_token[token] = self._admitted(name)
            return self._by_token[token]
        connection = connection_of(ctx)
        client: Client | None = connection.state.get(_CLIENT_KEY)
        if client is None:
            client = connection.state[_CLIENT_KEY] = self._admitted(name)
            self._connected[client] = token
            connection.exit_stack.push_async_callback(self._left, client)
        return client

    async def revoked(self, token: str) -> None:
        """Ends everything that the holder of this token has running; the guard refuses the token from now on."""
        gone = [client for client, came_with in self._connected.items() if came_with == token]
        if (modern := self._by_token.pop(token, None)) is not None:
            gone.append(modern)
        await asyncio.gather(*(self._left(client) for client in gone))

    async def aclose(self) -> None:
        everyone = [*self._by_token.values(), *self._connected]
        self._by_token.clear()
        await asyncio.gather(*(self._left(client) for client in everyone))

    def _admitted(self, name: str) -> Client:
        return Client(self._host, self._host.admit(ClientFacts(caller_name=name)))

    async def _left(self, client: Client) -> None:
        self._connected.pop(client, None)
        await client.aclose()


def _credential(ctx: Context) -> tuple[str, str]:
    """(id of the token, its name), as the guard noted them; both empty over a pipe."""
    scope = getattr(ctx.request, "scope", None)
    user = scope.get("user") if scope is not None else None
    if not isinstance(user, AuthenticatedUser):
        return STDIO_CLIENT, ""
    return user.access_token.client_id, user.access_token.subject or ""


MOST_CALLS: Final = 128
MOST_OUTPUTS: Final = 1000
LOG_LEVELS: Final[tuple[str, ...]] = get_args(types.LoggingLevel)
"""Levels, the least severe first."""


class SuspendedCall(NamedTuple):
    """A call that waits for the next request of its client, and the questions that request must answer."""

    call: ServedCall
    questions: tuple[ClientQuestion, ...]


class Client:
    def __init__(self, host: ServingHost, guest: ClientHandle) -> None:
        self.guest = guest
        self.suspended: StateTokens[SuspendedCall] = StateTokens(
            lambda parked: self._later(parked.call, "the client never came back")
        )
        self.log_level = "info"
        """From which level on it is sent log messages (2025-11-25); `logging/setLevel` changes it."""
        self._calls = host.calls
        self._under_way: set[ServedCall] = set()
        self._outputs: OrderedDict[str, str] = OrderedDict()
        self._ending: set[asyncio.Task[None]] = set()
        self._gone = False

    @property
    def full(self) -> bool:
        return self._gone or len(self._under_way) >= MOST_CALLS

    def begin(self, name: str, args: object, abilities: ElicitationSupport) -> ServedCall:
        call = ServedCall(new_id(), abilities, self)
        self._under_way.add(call)
        self._calls.add(call)
        work = self.guest.call(name, args, call_id=call.id, cancel=call.cancel, progress=call.report)
        call.start(work, over=lambda: self._over(call))
        return call

    def note_output(self, handle: str, of: str) -> None:
        self._outputs[handle] = of
        if len(self._outputs) > MOST_OUTPUTS:
            self._outputs.popitem(last=False)

    def outputs(self) -> dict[str, str]:
        """Handle → the tool whose output it is, newest first. Only what this client was told of."""
        return dict(reversed(self._outputs.items()))

    async def aclose(self) -> None:
        """The client left: everything it had under way ends with it."""
        if self._gone:
            return
        self._gone = True
        self.suspended.take_all()
        await asyncio.gather(*(call.end("the client left") for call in list(self._under_way)), *self._ending)
        await self.guest.aclose()

    def _over(self, call: ServedCall) -> None:
        self._under_way.discard(call)
        self._calls.discard(call)

    def _later(self, call: ServedCall, why: str) -> None:
        task = asyncio.get_running_loop().create_task(call.end(why))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)


T = TypeVar("T")
VALID_SECONDS: Final = 600.0
MOST_OPEN: Final = 32
_KEY: Final = secrets.token_bytes(32)


class InvalidStateToken(ValueError):
    """The state token was not signed by this server."""


class StateTokens(Generic[T]):
    """Issues tokens by which a client continues a call. `dropped` is called with entries that made room
    for newer ones.
    """

    def __init__(self, dropped: Callable[[T], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._open: dict[str, tuple[str, float, T]] = {}
        self._dropped = dropped
        self._clock = clock

    def __len__(self) -> int:
        return len(self._open)

    def issue(self, bound_to: str, kept: T) -> str:
        """`bound_to`: the call, spelled so that another call is spelled otherwise."""
        self._forget_late()
        while len(self._open) >= MOST_OPEN:
            self._dropped(self._open.pop(next(iter(self._open)))[2])
        nonce, until = secrets.token_hex(16), self._clock() + VALID_SECONDS
        self._open[nonce] = (bound_to, until, kept)
        return f"{nonce}.{_mac(nonce)}"

    def redeem(self, text: str, bound_to: str) -> T | None:
        """Returns the entry of a token, once. Returns None for a token of another call or client, a late or a used one,
        without using anything up. Raises InvalidStateToken.
        """
        self._forget_late()
        nonce, _, mac = text.partition(".")
        if not hmac.compare_digest(_bytes(mac), _bytes(_mac(nonce))):
            raise InvalidStateToken
        found = self._open.get(nonce)
        if found is None or found[0] != bound_to:
            return None
        del self._open[nonce]
        return found[2]

    def take_all(self) -> list[T]:
        """Removes and returns all open entries."""
        taken, self._open = self._open, {}
        return [kept for _, _, kept in taken.values()]

    def _forget_late(self) -> None:
        now = self._clock()
        for nonce in [nonce for nonce, (_, until, _) in self._open.items() if until <= now]:
            self._dropped(self._open.pop(nonce)[2])


def _mac(nonce: str) -> str:
    return hmac.new(_KEY, _bytes(nonce), hashlib.sha256).hexdigest()


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
