"""Pins: a server's checked list, held against the definitions its tools were first seen with.

`held_against` gives the list as it may be offered: the tools of a first list are pinned and trusted, those that came
later are `new`, and those whose definition changed are held with `drift` and a diff until a person pins the new text or
the server returns to the old one. A tool that is gone keeps its pin.
Threat: a server that shows harmless definitions until it is trusted, and others afterwards.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from golem_forge.core.errors import ForgeError
from golem_forge.mcp.client.definitions.definition import Familiarity, HeldTool, Listing, Reason, RemoteTool
from golem_forge.mcp.client.definitions.listing import shown_name
from golem_forge.mcp.client.trust.drift import definition_diff, definition_of

if TYPE_CHECKING:
    from golem_forge.mcp.client.trust.trust_book import Pin, TrustBook


def held_against(listing: Listing, book: TrustBook, scope: str) -> Listing:
    """Where pins cannot be written, every tool without one is new: it asks, and nothing is taken on trust."""
    server, diagnostics = listing.server, listing.diagnostics
    pins = book.pins(scope, server)
    if not book.listed(scope, server) or any(tool.name not in pins for tool in listing.tools):
        try:
            book.note(scope, server, listing.tools)
        except ForgeError as error:
            diagnostics = (*diagnostics, f"definitions could not be pinned: {error.message}")
        pins = book.pins(scope, server)
    tools: list[RemoteTool] = []
    drifted: list[HeldTool] = []
    for tool in listing.tools:
        pin = pins.get(tool.name)
        if pin is None or pin.digest == tool.digest:
            tools.append(replace(tool, familiarity=_familiarity(pin)))
        else:
            drifted.append(_drifted(tool, pin))
    return replace(listing, tools=tuple(tools), held=(*listing.held, *drifted), diagnostics=diagnostics)


def _familiarity(pin: Pin | None) -> Familiarity:
    return Familiarity.NEW if pin is None else Familiarity(pin.state.value)


def _drifted(tool: RemoteTool, pin: Pin) -> HeldTool:
    name = shown_name(tool.name)
    return HeldTool(
        server=tool.server,
        name=name,
        reason=Reason.DRIFT,
        message="its definition is not the one that was pinned; a person can read the change and agree to it with: "
        f"forge mcp approve {tool.server} {name}",
        diff=definition_diff(pin.definition, definition_of(tool)),
        tool=tool,
    )
