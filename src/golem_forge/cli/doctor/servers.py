"""MCP servers, as they are configured and as they were when last asked. Nothing is started."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from golem_forge.cli.doctor.findings import Finding, note, ok
from golem_forge.config.home import ForgeHome
from golem_forge.config.program import Program

if TYPE_CHECKING:
    from golem_forge.workers.mcp.known import Known


def look_at_servers(program: Program, home: ForgeHome) -> Iterator[Finding]:
    """Only where there are any. One that does not work is no reason for anything else not to."""
    yield from (note("mcp", warning, "correct or remove that key") for warning in program.mcp.warnings)
    if not program.mcp.servers:
        return
    from golem_forge.mcp.client.definitions.manifest_cache import ManifestCache
    from golem_forge.mcp.client.trust.trust_book import TrustBook
    from golem_forge.workers.mcp.known import Place

    place = Place(home=home, program=program, book=TrustBook(home), cache=ManifestCache(home))
    if place.book.problem:
        yield note("mcp", place.book.problem, "approve them again: forge mcp approve NAME")
    yield from (_finding(known) for known in place.all())
    if _sdk_is_missing():
        yield note("mcp", "the package mcp is not installed: no server can be used", "pip install 'golem-forge[mcp]'")


def _finding(known: Known) -> Finding:
    from golem_forge.mcp.client.state import State

    name, listing = known.spec.name, known.listing
    if known.state is State.FAILED:
        return note("mcp", f"{name} cannot be used: {known.error}", f"repair it in {known.spec.origin}")
    if known.state is State.PENDING:
        return note("mcp", f"{name} waits for your approval ({known.spec.origin})", f"forge mcp approve {name}")
    if known.state is State.DISABLED:
        return ok("mcp", f"{name} is switched off ({known.spec.origin})")
    if listing is None:
        return ok("mcp", f"{name} is approved; what it offers is not known yet")
    offered = f"{name} offers {known.offered} {'tool' if known.offered == 1 else 'tools'}"
    if listing.held:
        return note("mcp", f"{offered}, {len(listing.held)} held back", f"forge mcp show {name} says why")
    return ok("mcp", offered)


def _sdk_is_missing() -> bool:
    from importlib.util import find_spec

    return find_spec("mcp") is None
