"""The likeliest mistake with a server's program: its own file lies in a zone that the server was not given."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from golem_forge.config.mcp.spec import ServerSpec
    from golem_forge.workers.mcp.known import Place


def unseen_file(place: Place, spec: ServerSpec) -> tuple[str, str] | None:
    """Of a program without zones: the first argument that names something in a zone, as it looks from here, and that
    zone."""
    if spec.is_http or spec.zones:
        return None
    for word in spec.args:
        path = Path(os.path.abspath(word)) if word and "\0" not in word else None
        if path is None or word.startswith("-") or not os.path.exists(path):
            continue
        for zone in place.program.zones:
            if path.is_relative_to(zone.path):
                return word, zone.name
    return None
