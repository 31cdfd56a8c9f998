"""MCP servers as pages see them: as the session's pool has them, or as they would start where it does not run here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from golem_forge.mcp.client.definitions.definition import Listing
    from golem_forge.mcp.client.definitions.names import Identity
    from golem_forge.mcp.client.pool import Pool
    from golem_forge.mcp.client.state import ServerStatus
    from golem_forge.ui.web.api.subject import Subject
    from golem_forge.workers.mcp.known import Known, Place
    from golem_forge.workers.runtime import WorkerRuntime


def pool_of(runtime: WorkerRuntime) -> tuple[Pool | None, tuple[str, ...]]:
    """And the servers that the root worker has, by name; what it was not given is, for it, not there."""
    from golem_forge.mcp.client.pool_place import PoolPlace

    place = runtime.path.parts.get(PoolPlace)
    return place.pool, place.servers_of(runtime.path.worker)


def known_here(runtime: WorkerRuntime) -> list[tuple[Known, ServerStatus | None]]:
    """On the loop: a pool belongs to it."""
    from golem_forge.workers.mcp.known import known_in

    pool, names = pool_of(runtime)
    servers = runtime.servers
    if pool is None or servers is None:
        return []
    return [(known_in(servers, name), pool.status(name)) for name in names]


def place_of(subject: Subject) -> Place:
    """Off the loop. Raises ConfigError."""
    from golem_forge.workers.mcp.known import look

    return look(subject.root, subject.home)


def told(known: list[tuple[Known, ServerStatus | None]]) -> list[dict[str, Any]]:
    """Pure; it may take a moment, since differences are worked out."""
    from golem_forge.workers.mcp.known import names_of

    names = names_of(each.listing for each, _ in known)
    return [_server(each, status, names) for each, status in known]


def _server(known: Known, status: ServerStatus | None, names: Mapping[Identity, str]) -> dict[str, Any]:
    from golem_forge.events.clock import iso
    from golem_forge.mcp.client.trust.trust_book import server_card
    from golem_forge.workers.mcp.server_facts import facts, prompt_names

    listing, manifest = known.listing, known.manifest
    retry_at = status.retry_at if status is not None else None
    return facts(known) | {
        "retry_at": iso(retry_at) if retry_at is not None else None,
        "digest": known.spec.digest,
        "card": server_card(known.spec),
        "config_diff": known.config_diff or None,
        "last_words": status.stderr if status is not None else (),
        "offers": _offers(known, listing, names) if listing is not None else [],
        "held_back": _held(listing, names) if listing is not None else [],
        "prompts": prompt_names(manifest) if manifest is not None else [],
        "diagnostics": listing.diagnostics if listing is not None else (),
    }


def _offers(known: Known, listing: Listing, names: Mapping[Identity, str]) -> list[dict[str, Any]]:
    from golem_forge.mcp.client.trust.agreeing import definition_at_stake, is_waiting
    from golem_forge.workers.mcp.server_facts import tools_json

    told = tools_json(known.spec, listing.tools, names)
    for each, tool in zip(told, listing.tools, strict=True):
        each["definition"] = definition_at_stake(tool)[1] if is_waiting(tool) else ""
    return told


def _held(listing: Listing, names: Mapping[Identity, str]) -> list[dict[str, Any]]:
    from golem_forge.workers.mcp.server_facts import held_json

    told = held_json(listing.held, names)
    for each, held in zip(told, listing.held, strict=True):
        each["digest"] = held.tool.digest if held.tool is not None else ""
    return told
