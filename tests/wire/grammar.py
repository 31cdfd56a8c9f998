"""What a server that compiles tool schemas into a grammar refuses, as llama.cpp's does: the whole request, with 400."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from .server import WireRequest, WireTurn

LONGEST = 1999
"""Repetitions of a rule; one more is refused."""
_SIZES = ("minLength", "maxLength", "minItems", "maxItems")


def refused_parts(schema: Any, place: str = "$") -> Iterator[str]:
    """Where a schema asks for more repetitions than a grammar may have, or for a pattern that none can express."""
    if isinstance(schema, list):
        for number, item in enumerate(schema):
            yield from refused_parts(item, f"{place}[{number}]")
    if not isinstance(schema, dict):
        return
    for key, value in schema.items():
        if key in _SIZES and isinstance(value, int) and value > LONGEST:
            yield f"{place}.{key}: {value}"
        elif key == "pattern" and isinstance(value, str):
            counts = [int(count) for count in re.findall(r"[{,](\d+)(?=[,}])", value)]
            if not (value.startswith("^") and value.endswith("$")) or any(count > LONGEST for count in counts):
                yield f"{place}.pattern: {value}"
        else:
            yield from refused_parts(value, f"{place}.{key}")


def refuse_or(request: WireRequest, turn: WireTurn) -> WireTurn:
    """The turn, unless a tool of this Chat Completions request cannot be compiled."""
    tools = [tool["function"] for tool in request.body.get("tools", ())]
    if any(True for tool in tools for _ in refused_parts(tool["parameters"])):
        return WireTurn(status=400, error="Failed to initialize samplers: failed to parse grammar")
    return turn
