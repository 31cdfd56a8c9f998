"""Roots: the zones a server was given, as file URIs that are valid where it runs: inside its walls. HTTP: none.

A zone is named by the place at which it stands for the server's own process, as `${zone:x}` names it in its config: a
server that compares the two must find them equal. Threat: any other path of this machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from golem_forge.config.mcp.spec import ServerSpec
from golem_forge.mcp.client.hooks import Hooks

if TYPE_CHECKING:
    from golem_forge.mcp import sdk


async def list_roots(spec: ServerSpec, hooks: Hooks) -> sdk.ListRootsResult:
    from golem_forge.mcp import sdk

    places = {} if spec.is_http or not spec.zones else await _places(spec, hooks)
    return sdk.ListRootsResult(
        roots=[sdk.Root.model_validate({"uri": uri, "name": zone}) for zone, uri in places.items()]
    )


async def _places(spec: ServerSpec, hooks: Hooks) -> dict[str, str]:
    from urllib.parse import quote

    walls = hooks.walls_for(spec)
    level = await walls.level()
    return {zone: f"file://{quote(walls.stands_at(zone, level))}" for zone in spec.zones}
