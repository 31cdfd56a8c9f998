"""PoolPlace: where the tools of a session find its pool of servers, and which of them each worker has.

A session part: empty until the session puts its pool there. A worker that was given no servers sees none, and a
server it does not have is, for it, not there at all.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from golem_forge.mcp.client.pool import Pool

ALL = "*"


class PoolPlace:
    def __init__(self) -> None:
        self.pool: Pool | None = None
        self._servers: dict[str, frozenset[str]] = {}

    def put(self, pool: Pool) -> None:
        self.pool = pool

    def give(self, worker: str, servers: Collection[str]) -> None:
        """`worker`: its path from the root, `main/coder`. `servers`: as its block names them, `*` for all."""
        self._servers[worker] = frozenset(servers)

    def servers_of(self, worker: str) -> tuple[str, ...]:
        """In name order."""
        given = self._servers.get(worker, frozenset())
        if self.pool is None or not given:
            return ()
        return tuple(sorted(name for name in self.pool.names() if ALL in given or name in given))
