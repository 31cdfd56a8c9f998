"""Reach: from where the page can be reached. Loopback and a free port, unless somebody says otherwise in so many words.

Refuses an address that other machines reach without a name it may be called by: with any name allowed, a page anywhere
could have its own name point here and speak to the session as if it were ours.
"""

from __future__ import annotations

from dataclasses import dataclass

from golem_forge.core.errors import ForgeError
from golem_forge.core.listening import Hosts, has_port, in_url, is_host, is_loopback


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    host: str = "127.0.0.1"
    port: int = 0
    """0: any free one."""
    allow_hosts: tuple[str, ...] = ()
    """Names besides the loopback ones, `NAME` with any port or `NAME:PORT`; behind a proxy the one people type."""

    def hosts(self, port: int) -> Hosts:
        own = (f"{in_url(self.host)}:{port}",) if is_loopback(self.host) else ()
        return Hosts(port, (*own, *self.allow_hosts))

    def address(self, port: int) -> str:
        """What a person opens."""
        if is_loopback(self.host) or not self.allow_hosts:
            return f"http://{in_url(self.host)}:{port}/"
        name = self.allow_hosts[0]
        return f"http://{name}/" if has_port(name) else f"http://{name}:{port}/"


def check_reach(reach: Reach) -> None:
    """Before anything listens. Raises ForgeError."""
    for name in reach.allow_hosts:
        if not is_host(name):
            raise ForgeError(
                f"--allow-host {name!r} is no name of a host; write NAME or NAME:PORT, without http://",
                code="BIND_REFUSED",
            )
    if not is_loopback(reach.host) and not reach.allow_hosts:
        raise ForgeError(
            f"{reach.host} can be reached from other machines; say with --allow-host NAME under which name it may be",
            code="BIND_REFUSED",
        )
