"""What of a server's list a person can agree to: changed definitions, and new ones. What was read is what is pinned."""

from __future__ import annotations

from collections.abc import Iterator

from golem_forge.mcp.client.definitions.definition import Familiarity, HeldTool, Listing, RemoteTool
from golem_forge.mcp.client.trust.drift import definition_diff, definition_of


def every(listing: Listing) -> Iterator[HeldTool | RemoteTool]:
    yield from listing.held
    yield from listing.tools


def is_waiting(one: HeldTool | RemoteTool) -> bool:
    """What a person can agree to: a changed definition, or a new one."""
    return one.tool is not None if isinstance(one, HeldTool) else one.familiarity is Familiarity.NEW


def waiting(listing: Listing) -> list[HeldTool | RemoteTool]:
    return [one for one in every(listing) if is_waiting(one)]


def definition_at_stake(one: HeldTool | RemoteTool) -> tuple[RemoteTool, str]:
    """Of one that waits: what would be pinned, and the text to read first, the change or the whole of a new one."""
    if isinstance(one, HeldTool):
        assert one.tool is not None, "only what waits can be agreed to"
        return one.tool, one.diff
    return one, definition_diff({}, definition_of(one))
