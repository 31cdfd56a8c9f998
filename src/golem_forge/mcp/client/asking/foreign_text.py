"""Text that a server wrote and a person reads: nothing hidden in it, and no longer than it has a right to be."""

from __future__ import annotations

from golem_forge.core.visible import visible


def shown(text: str, most_bytes: int) -> str:
    """Every hidden character visible; what is too long is cut between characters and says so."""
    clear = visible(text)
    encoded = clear.encode("utf-8", "replace")
    if len(encoded) <= most_bytes:
        return clear
    return encoded[:most_bytes].decode("utf-8", "ignore") + f"… [{len(encoded) - most_bytes} bytes more]"
