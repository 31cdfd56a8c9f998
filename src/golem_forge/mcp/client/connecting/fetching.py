"""What a server offers, asked for raw and to the last page, as a Manifest. Nothing in it is believed yet.

Threat: a list without end, or one of gigabytes. A repeated cursor, 100 pages, 5000 entries or 32 MiB end it with a
diagnostic; what came until then counts.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from golem_forge.config.mcp.spec import ServerSpec
from golem_forge.core.visible import visible
from golem_forge.mcp.client.connecting.link import Link, Refused
from golem_forge.mcp.client.definitions.manifest import Manifest
from golem_forge.tools.json_values import compact

MOST_PAGES: Final = 100
MOST_ENTRIES: Final = 5000
MOST_BYTES: Final = 32 * 1024 * 1024
MOST_INSTRUCTIONS: Final = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Pages:
    entries: tuple[Any, ...] = ()
    ttl_ms: int = 0
    """The shortest that any page gave; 0: none did."""
    diagnostics: tuple[str, ...] = ()


async def all_pages(link: Link, method: str, member: str) -> Pages:
    """Every entry under `member` of the results of `method`. Raises what `Link.request` raises."""
    entries: list[Any] = []
    seen: set[str] = set()
    ttls: list[int] = []
    size = 0
    cursor: str | None = None

    def ended(why: str = "") -> Pages:
        said = (f"{method} of {link.server}: {why}",) if why else ()
        return Pages(entries=tuple(entries), ttl_ms=min(ttls, default=0), diagnostics=said)

    for _ in range(MOST_PAGES):
        page = await link.request(method, {} if cursor is None else {"cursor": cursor})
        found = page.get(member)
        if not isinstance(found, list):
            return ended(f"a page without a list of {member}")
        ttls.append(_ttl(page))
        size += len(_written(found))
        if size > MOST_BYTES:
            return ended(f"more than {MOST_BYTES // 1024 // 1024} MiB; the rest was left out")
        room = MOST_ENTRIES - len(entries)
        entries += found[:room]
        cursor = page.get("nextCursor")
        if len(found) > room or (cursor is not None and len(found) == room):
            return ended(f"more than {MOST_ENTRIES} {member}; the rest was left out")
        if cursor is None:
            return ended()
        if not isinstance(cursor, str):
            return ended("a cursor that is no text; the rest was left out")
        if cursor in seen:
            return ended("a cursor came twice; the list ended there")
        seen.add(cursor)
    return ended(f"more than {MOST_PAGES} pages; the rest was left out")


async def fetch_manifest(link: Link, spec: ServerSpec) -> Manifest:
    """What the server offers now. What it does not declare is not asked for."""
    tools = await all_pages(link, "tools/list", "tools") if link.offers("tools") else Pages()
    prompts = await _prompts(link)
    session = link.session
    info = session.server_info
    entries, unfit = _fit(link, tools.entries)
    return Manifest(
        server=spec.name,
        scope=spec.scope,
        config_digest=spec.digest,
        fetched_at=time.time(),
        ttl_ms=tools.ttl_ms,
        protocol=link.version,
        info=info.model_dump(mode="json", by_alias=True, exclude_none=True, include=_SHOWN) if info is not None else {},
        instructions=(session.instructions or "")[:MOST_INSTRUCTIONS],
        tools=entries,
        prompts=prompts.entries,
        has_resources=link.offers("resources"),
        diagnostics=(*tools.diagnostics, *unfit, *prompts.diagnostics),
    )


_SHOWN: Final = {"name", "version", "title"}


async def _prompts(link: Link) -> Pages:
    """A server whose prompts cannot be listed still has its tools."""
    if not link.offers("prompts"):
        return Pages()
    try:
        return await all_pages(link, "prompts/list", "prompts")
    except Refused as error:
        return Pages(diagnostics=(f"prompts/list of {link.server}: {error.message} ({error.code})",))


def _fit(link: Link, entries: Sequence[Any]) -> tuple[tuple[Any, ...], list[str]]:
    """In the new era a tool that asks for impossible headers must not be offered at all."""
    if not link.is_modern:
        return tuple(entries), []
    from golem_forge.mcp import sdk

    kept, unfit = [], []
    for entry in entries:
        schema = entry.get("inputSchema") if isinstance(entry, dict) else None
        why = sdk.find_invalid_x_mcp_header(schema) if isinstance(schema, dict) and _asks_headers(schema) else None
        if why is None:
            kept.append(entry)
        else:
            name = visible(str(entry.get("name"))[:100])
            unfit.append(f"tool {name!r} of {link.server} was left out: invalid x-mcp-header ({visible(why[:200])})")
    return tuple(kept), unfit


def _asks_headers(schema: dict[str, Any]) -> bool:
    return "x-mcp-header" in _written(schema)


def _written(data: Any) -> str:
    try:
        return compact(data)
    except (ValueError, RecursionError):  # NaN came over the wire; the entry is judged later, alone
        return repr(data)


def _ttl(page: dict[str, Any]) -> int:
    ttl = page.get("ttlMs")
    return int(ttl) if isinstance(ttl, int | float) and not isinstance(ttl, bool) and 0 < ttl < 1e12 else 0
