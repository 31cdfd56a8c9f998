"""Which `host:port` a child was granted. Takes the spelling a program used, gives the grant or nothing.

A grant's host is a name, an address, or `*.` before a domain, which means its subdomains and never the domain itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from golem_forge.sandbox.walls.job import HostGrant


def plain_host(text: str) -> str:
    """Lower case, no final dot, no brackets around an address: one spelling to compare and to show."""
    return text.strip().removeprefix("[").removesuffix("]").lower().removesuffix(".")


def granted(grants: Sequence[HostGrant], host: str, port: int) -> HostGrant | None:
    """An exact grant goes before a pattern, whose `private` was not meant for this very host."""
    fitting = [grant for grant in grants if grant.port == port and _matches(plain_host(grant.host), host)]
    return min(fitting, key=lambda grant: grant.host.startswith("*."), default=None)


def _matches(pattern: str, host: str) -> bool:
    if pattern.startswith("*."):
        return host.endswith(pattern[1:]) and len(host) >= len(pattern)
    return host == pattern
