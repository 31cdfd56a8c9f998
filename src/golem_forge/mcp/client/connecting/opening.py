"""Opening: the way to one server, made ready but not yet entered. Environment values are put in here and nowhere else.

Takes a spec, gives a transport for the SDK and where its stderr can be read. Refuses (ForgeError) what the config asks
for and cannot have: an unset variable, a zone it was not given, walls that cannot be built.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from golem_forge.config.home import ForgeHome
from golem_forge.config.mcp.spec import Login, ServerSpec
from golem_forge.events.redaction import Redactor
from golem_forge.mcp.client.hooks import Hooks
from golem_forge.mcp.client.transport.errors import TransportError

if TYPE_CHECKING:
    from golem_forge.mcp import sdk


def _silent() -> tuple[str, ...]:
    return ()


def _unharmed() -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    transport: sdk.Transport
    stderr: Callable[[], tuple[str, ...]] = _silent
    failure: Callable[[], TransportError | None] = _unharmed
    """What went wrong on the way, as the transport itself saw it."""
    clean: Callable[[str], str] | None = None
    """How its words are rewritten before anybody reads them; None: not at all."""
    places: Mapping[str, str] = field(default_factory=dict)
    """Address of a zone → where it stands for the server, if that is elsewhere."""
    why_ended: Callable[[], str] = str
    """How the process ended, in words; empty: nothing is known about that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opener:
    """What every connection of one session is opened with."""

    home: ForgeHome
    redactor: Redactor
    environ: Mapping[str, str]
    hooks: Hooks

    async def open(self, spec: ServerSpec) -> Opened:
        return await (self._http(spec) if spec.is_http else self._stdio(spec))

    async def _stdio(self, spec: ServerSpec) -> Opened:
        from golem_forge.mcp.client.transport.stdio import StdioTransport

        walls = self.hooks.walls_for(spec)
        report = await walls.report()
        places = {f"/{zone}": walls.stands_at(zone, report.level) for zone in spec.zones}
        expanded = self._expanded(spec, lambda zone: places[f"/{zone}"])
        transport = StdioTransport(spec, expanded, walls, self.home, self.redactor, self.hooks.host_rule)
        return Opened(
            transport=transport,
            stderr=transport.stderr_tail,
            failure=lambda: transport.failure,
            clean=walls.cleaned,
            places={address: place for address, place in places.items() if place not in ("", address)},
            why_ended=transport.why_ended,
        )

    async def _http(self, spec: ServerSpec) -> Opened:
        from golem_forge.mcp.client.transport.http import http_transport

        expanded, auth = self._expanded(spec, _no_zone), None
        if spec.auth.kind is Login.OAUTH:
            from golem_forge.mcp.client.oauth.login import provider

            auth = provider(spec, self.home, url=expanded.url, redactor=self.redactor)
        transport = http_transport(spec, expanded, auth=auth)
        # It knows what it was sent in headers: said back in a description, that would be part of every model request.
        return Opened(transport=transport, failure=lambda: transport.failure, clean=self.redactor.secrets_out)

    def _expanded(self, spec: ServerSpec, zone: Callable[[str], str]) -> Any:
        from golem_forge.config.mcp.expanding import expand_spec

        expanded = expand_spec(spec, self.environ, zone)
        for value in expanded.secrets:
            if value not in self.redactor.secrets:  # every connection brings the same ones
                self.redactor.add_secret(spec.name, value)
        return expanded


def _no_zone(name: str) -> str:
    raise KeyError(name)
