"""Which programs a server is started with: the person's PATH without what lies in zones that it was not given.

Threat: an activated environment of the project stands first on PATH. Workers may write there, and a server has the
whole network by default: a file called `uvx` would be run by the next server that is, outside of every worker's walls,
and its card would say that the server sees no zone.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from golem_forge.config.mcp.places import zone_of
from golem_forge.config.zones import ZoneEntry


def without_zones(environ: Mapping[str, str], zones: Sequence[ZoneEntry], given: Collection[str]) -> dict[str, str]:
    """The environment, with a PATH that leads into none of the zones but the given ones, however it is spelled."""

    def is_open(entry: str) -> bool:
        place = zone_of(Path(os.path.realpath(entry)), zones)
        return place is None or place[0] in given

    kept = os.pathsep.join(entry for entry in environ.get("PATH", "").split(os.pathsep) if is_open(entry))
    return {**environ, "PATH": kept}
