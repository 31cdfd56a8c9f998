"""How messages reach a server: opening a transport, errors that may be shown, and what became of each request.

`TransportOpener.open` takes a spec and returns a transport for the SDK that is ready but not entered, and access to its
stderr. Environment values are expanded here and nowhere else. It raises ForgeError for an unset variable, a zone that
the server was not given, or walls that cannot be built. No error text holds a header, a token or an expanded value; of
a URL it names the host at most.

`Delivery` records whether a request may have been processed; a call that may have reached the server is never sent
again. A caller opens it with `track_delivery()`; both transports find it in the caller's context. Provably not
processed:
- stdio: not one byte of the request's line was written. A line that was written in part counts as sent.
- HTTP: no connection was made, the server answered 404 or 410 to the session's id, or it only named another address.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any, Self

from golem_forge.config.mcp_expand import expand_spec
from golem_forge.config.mcp_spec import AuthKind, ServerSpec
from golem_forge.core.errors import ForgeError
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.events.redaction import Redactor
from golem_forge.mcp.client.hooks import Hooks
from golem_forge.mcp.client.oauth import provider
from golem_forge.storage.home import ForgeHome

if TYPE_CHECKING:
    from golem_forge.mcp import sdk


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransport:
    transport: sdk.Transport
    stderr: Callable[[], tuple[str, ...]] = tuple
    failure: Callable[[], TransportError | None] = lambda: None
    """What went wrong on the way, as the transport itself saw it."""
    clean_text: Callable[[str], str] | None = None
    """How its words are rewritten before anybody reads them; None: not at all."""
    zone_paths: Mapping[str, str] = field(default_factory=dict)
    """Address of a zone → where it stands for the server, if that is elsewhere."""
    dropped: Callable[[], int] = int
    """How many lines it wrote to standard output that were no messages."""
    why_ended: Callable[[], str] = str
    """How the process ended, in words; empty: nothing is known about that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportOpener:
    """What every connection of one session is opened with."""

    home: ForgeHome
    redactor: Redactor
    environ: Mapping[str, str]
    hooks: Hooks

    async def open(self, spec: ServerSpec) -> OpenTransport:
        return await (self._http(spec) if spec.is_http else self._stdio(spec))

    async def _stdio(self, spec: ServerSpec) -> OpenTransport:
        from golem_forge.mcp.client.stdio_transport import StdioTransport

        walls = self.hooks.walls_for(spec)
        report = await walls.report()
        places = {f"/{zone}": walls.mount_point(zone, report.level) for zone in spec.zones}
        expanded = self._expanded(spec, lambda zone: places[f"/{zone}"])
        transport = StdioTransport(spec, expanded, walls, self.home, self.redactor, self.hooks.host_rule)
        return OpenTransport(
            transport=transport,
            stderr=transport.stderr_tail,
            failure=lambda: transport.failure,
            clean_text=walls.redact,
            zone_paths={address: place for address, place in places.items() if place not in ("", address)},
            dropped=lambda: transport.dropped_lines,
            why_ended=transport.why_ended,
        )

    async def _http(self, spec: ServerSpec) -> OpenTransport:
        from golem_forge.mcp.client.http_transport import http_transport

        expanded, auth = self._expanded(spec, _no_zone), None
        if spec.auth.kind is AuthKind.OAUTH:
            auth = provider(spec, self.home, url=expanded.url, redactor=self.redactor)
        transport = http_transport(spec, expanded, auth=auth)
        # It knows what it was sent in headers: said back in a description, that would be part of every model request.
        return OpenTransport(
            transport=transport, failure=lambda: transport.failure, clean_text=self.redactor.redact_secrets
        )

    def _expanded(self, spec: ServerSpec, zone: Callable[[str], str]) -> Any:
        expanded = expand_spec(spec, self.environ, zone)
        for value in expanded.secrets:
            if value not in self.redactor.secrets:  # every connection brings the same ones
                self.redactor.add_secret(spec.name, value)
        return expanded


def _no_zone(name: str) -> str:
    raise KeyError(name)


class ClosingStream:
    """One of the SDK's streams: leaving it closes it."""

    async def aclose(self) -> None:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


@dataclass(slots=True)
class Delivery:
    sent: int = 0
    """Requests of which a byte may have reached the server."""
    refused: int = 0
    """Those of them that it certainly did not process."""
    failure: TransportError | None = None
    """What the way to the server made of the last request; None: it was answered, or still may be."""

    @property
    def unprocessed(self) -> bool:
        """Nothing that was sent can have had an effect: it may be sent once more."""
        return self.sent == self.refused


_current_delivery: ContextVar[Delivery | None] = ContextVar("delivery", default=None)


def current_delivery() -> Delivery:
    """The caller's; one that nobody reads, if it did not ask for any."""
    return _current_delivery.get() or Delivery()


class track_delivery:
    """`with track_delivery() as delivery: await session.call_tool(…)`; read it after a failure."""

    __slots__ = ("_token",)

    def __enter__(self) -> Delivery:
        delivery = Delivery()
        self._token: Token[Delivery | None] = _current_delivery.set(delivery)
        return delivery

    def __exit__(self, *_: object) -> None:
        _current_delivery.reset(self._token)


class TransportError(ForgeError):
    """The way to a server failed, not what the server did with a call."""


class WallsFailed(TransportError):
    """The walls around a server could not be built; nothing ran. The text has the cause and the fix."""


class CannotStart(TransportError):
    """There is no such command inside the walls; nothing ran."""


class UnusableAnswer(TransportError):
    """An answer came and cannot be used, e.g. it is larger than the bound: what was asked may have been done."""


class LineTooLong(UnusableAnswer):
    """A server wrote more than 16 MiB without an end of line: nothing after that can be told apart."""


class NotSent(TransportError):
    """Not one byte of this request was written. It was not processed."""


class Unreachable(TransportError):
    """No connection to the server came about."""


class NeedsLogin(TransportError):
    """401 or 403."""


class SessionUnknown(TransportError):
    """404 or 410 for the session's id: the server does not know this session (any more), and did nothing."""


class ConnectionLost(TransportError):
    """It broke after something was sent: what was asked may have been done."""


class Redirected(TransportError):
    """The server names another address, which is not followed; it did nothing. The text has the address."""


class BadAddress(TransportError):
    """A URL that is neither https nor http to this machine; nothing was sent."""


def needs_login(server: str) -> NeedsLogin:
    return NeedsLogin(f"run: forge mcp login {server}", code="NEEDS_LOGIN")
