"""HostServices: single ports of this machine's own loopback, reachable at the same address in one call's namespace.

Takes grants such as `localhost:5432` that a rule with `private: true` or a person allowed for this call. `serve_inside`
opens a listening socket for each in the namespace of the call's process (WALLS_UNAVAILABLE if the system refuses: the
command must not start then) and passes its connections on, TCP only, to exactly that port. Each connection is told to
`reached` before it is made, for the journal. `close` ends all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.network.forward import PortForward
from golem_forge.sandbox.network.proxy import open_listeners_blocking
from golem_forge.sandbox.network.resolve import connect, run_in_thread
from golem_forge.sandbox.walls.model import HostGrant

NAME: Final = "localhost"
_ADDRESSES: Final = ("127.0.0.1", "::1")
"""What the name stands for, inside as outside."""


class HostServices:
    def __init__(self, grants: Sequence[HostGrant], reached: Callable[[HostGrant], None]) -> None:
        self._grants = tuple(grants)
        self._forwards = [
            PortForward(partial(connect, _addresses(grant), grant.port), seen=partial(reached, grant))
            for grant in self._grants
        ]

    async def serve_inside(self, pid: int) -> None:
        wanted = [
            (forward, address, grant.port)
            for forward, grant in zip(self._forwards, self._grants, strict=True)
            for address in _addresses(grant)
        ]
        try:
            await self._serve(pid, wanted)
        except SandboxError:  # a machine without IPv6: the name has the other address, too
            least = [each for each in wanted if ":" not in each[1]]
            if len(least) == len(wanted) or len({each[0] for each in least}) < len(self._forwards):
                raise
            await self._serve(pid, least)

    async def _serve(self, pid: int, wanted: Sequence[tuple[PortForward, str, int]]) -> None:
        places = [f"{address}:{port}" for _, address, port in wanted]
        listeners = await run_in_thread(partial(open_listeners_blocking, pid, places))
        for (forward, _, _), listener in zip(wanted, listeners, strict=True):
            await forward.serve(listener)

    def close(self) -> None:
        """May be called twice, or before `serve_inside`."""
        for forward in self._forwards:
            forward.close()


def _addresses(grant: HostGrant) -> tuple[str, ...]:
    return _ADDRESSES if grant.host == NAME else (grant.host,)


def bypassing(grants: Sequence[HostGrant]) -> str:
    """For NO_PROXY: places that the proxy does not lead to, because they are there themselves."""
    return ",".join(dict.fromkeys(place for grant in grants for place in (grant.host, *_addresses(grant))))
