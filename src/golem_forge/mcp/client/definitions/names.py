"""Names: what a model calls a server's tool: `<server>__<tool>`, or that with a hash where it would not do.

`tool_names` takes every raw identity there is and gives each its name. It depends on the set alone, never on an order,
and a name changes only with the tools it would have met. Raw names go on the wire; rules and pins never see these.

Threats: two tools of one name (a call judged for one would run the other), and a server that calls a tool by the very
name that another one has been given, or searches for two whose short hashes are equal.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable
from typing import Final

from golem_forge.config.mcp.names import server_name

__all__ = ["Identity", "server_name", "tool_names"]

MAX_BYTES: Final = 64
Identity = tuple[str, str]
"""(server, tool), raw."""

_OTHER: Final = re.compile(r"[^A-Za-z0-9_-]")
_HASH_DIGITS: Final = (0, 8, 16, 24)
"""Of each step: a plain name has no hash. The second is the rule; the others are for hashes that meet. The last leaves
39 bytes, in which the longest server name and `__` still stand."""


def tool_names(identities: Iterable[Identity]) -> dict[Identity, str]:
    """The name of each; no two are equal, ignoring case."""
    plain = {identity: f"{_part(identity[0])}__{_part(identity[1])}" for identity in identities}
    met = Counter(name.lower() for name in plain.values())
    steps = {
        identity: 0 if _stays(identity, name) and met[name.lower()] == 1 else 1 for identity, name in plain.items()
    }
    names = {identity: _at_step(identity, plain[identity], step) for identity, step in steps.items()}
    while True:
        concerned = _to_be_moved(names, steps)
        if not concerned:
            return names
        for identity in concerned:
            steps[identity] += 1
            names[identity] = _at_step(identity, plain[identity], steps[identity])


def _part(raw: str) -> str:
    return _OTHER.sub("_", raw) or "_"


def _stays(identity: Identity, plain: str) -> bool:
    return plain == f"{identity[0]}__{identity[1]}" and len(plain) <= MAX_BYTES


def _at_step(identity: Identity, plain: str, step: int) -> str:
    digits = _HASH_DIGITS[step]
    return f"{plain[: MAX_BYTES - 1 - digits]}_{_hash(chr(0).join(identity))[:digits]}" if digits else plain


def _to_be_moved(names: dict[Identity, str], steps: dict[Identity, int]) -> list[Identity]:
    """Of those that meet, the ones with the shortest hash: a name by the rule is not given up for its imitation."""
    by_name: dict[str, list[Identity]] = {}
    for identity, name in names.items():
        by_name.setdefault(name.lower(), []).append(identity)
    concerned: list[Identity] = []
    for group in by_name.values():
        if len(group) > 1:
            lowest = min(steps[identity] for identity in group)
            if lowest < len(_HASH_DIGITS) - 1:
                concerned += [identity for identity in group if steps[identity] == lowest]
    return concerned


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
