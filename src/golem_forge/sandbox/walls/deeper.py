"""A whole look for secret names below a directory, for a program that would read everything there.

The scan that walls are planned with ends where a zone has too many entries, and what it did not enter is masked.
Whether that matters to a program that reads a whole tree is found out here, when it wants to run. Only directories are
opened, and none that lies too deep: each costs as much as it is deep.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Final

from golem_forge.core.effects import Mark
from golem_forge.sandbox import protected
from golem_forge.sandbox.access import CONTENT
from golem_forge.sandbox.walls.scan import MOST_DEPTH
from golem_forge.sandbox.zones import Zone

_MOST_NAMES: Final = 50_000
"""More take longer to look at than a person to answer."""
Parts = tuple[str, ...]


def nothing_secret_below(zone: Zone, parts: Parts, known: Collection[Parts], hidden: bool) -> bool:
    """False: a secret name that walls do not know (`known` ones they mask), or not everything could be looked at."""
    left = _MOST_NAMES
    waiting = [parts]
    while waiting:
        here = waiting.pop()
        try:
            directory = zone.open(here, CONTENT | os.O_DIRECTORY)
            with os.scandir(directory.fd) as entries:
                for entry in entries:
                    left -= 1
                    if left < 0:
                        return False
                    name = entry.name
                    if not hidden and name.startswith("."):
                        continue
                    below = (*here, name)
                    if below in known:
                        continue
                    if not protected.is_plain(name) and Mark.SECRET_PATH in protected.marks(below):
                        return False
                    if entry.is_dir(follow_symlinks=False):
                        if len(below) > MOST_DEPTH:
                            return False
                        waiting.append(below)
        except OSError:
            return False
    return True
