"""Directories of this machine as `.mcp.json` names them, said by the zones they lie in.

Other hosts start servers without walls, so their file holds host paths. `zone_of` takes a path and gives the zone and
what is below it; `by_zones` does that for whole arguments (`/home/me/app/docs`, `--root=/home/me/app`). What lies in no
zone stays as it is: nothing is opened for it. Threat: `..`, with which a path seems to lie where it does not.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from golem_forge.config.zones import ZoneEntry

_OPTION: Final = re.compile(r"(--?[A-Za-z][A-Za-z0-9_.-]*=)?(/.*)", re.DOTALL)


def zone_of(path: Path, zones: Iterable[ZoneEntry]) -> tuple[str, str] | None:
    """(name of the innermost zone, path below it or empty). Links count as they are spelled, then as they lead."""
    for spelled in dict.fromkeys((path, Path(os.path.realpath(path)))):
        found = [
            (len(place.parts), zone.name, os.path.relpath(spelled, place))
            for zone in zones
            for place in {zone.path, Path(os.path.realpath(zone.path))}
            if spelled.is_relative_to(place)
        ]
        if found:
            _, name, below = max(found)
            return name, "" if below == "." else below
    return None


def by_zones(args: Sequence[str], zones: Sequence[ZoneEntry]) -> tuple[list[str], tuple[str, ...]]:
    """The arguments with `${zone:x}` for every path in a zone, and the names of those zones."""
    said: list[str] = []
    named: dict[str, None] = {}
    for word in args:
        match = _OPTION.fullmatch(word)
        place = zone_of(Path(match[2]), zones) if match and ".." not in match[2].split("/") else None
        if match is None or place is None:
            said.append(word)
            continue
        name, below = place
        named[name] = None
        said.append(f"{match[1] or ''}${{zone:{name}}}" + (f"/{below}" if below else ""))
    return said, tuple(named)
