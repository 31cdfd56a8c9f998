"""A server's manifest: fetched page by page, refetched when the server announces changes, cached on disk.

`fetch_manifest` asks for every page; nothing in the answer is trusted yet. `RefetchDebounce` refetches half a second
after the last notification and at least every five seconds; after a list that was slow to check it waits ten times as
long as the check took. `ManifestCache` keeps one file per server and config digest in FORGE_HOME/cache/mcp/, so that a
session can offer the tools of servers that do not run. Manifests that are too old, too large, broken, of another config
or from the future are discarded; write errors are ignored.

Threat: a list without end (a repeated cursor, 100 pages, 5000 entries or 32 MiB end it with a diagnostic), a flood of
notifications, and a cached manifest, which is as untrusted as a fresh one: it is validated and compared with the pins.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import fields
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from golem_forge.config.mcp_spec import ServerSpec
from golem_forge.core.json import compact_json, sha256_hex
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.text import escape_control_chars
from golem_forge.mcp import lazy_sdk as sdk
from golem_forge.mcp.client.model import ServerManifest
from golem_forge.mcp.client.transport import ErrorResponse, ServerLink
from golem_forge.storage.home import ForgeHome, read_json, write_private

MOST_PAGES: Final = 100
MOST_ENTRIES: Final = 5000
MOST_BYTES: Final = 32 * 1024 * 1024
MOST_INSTRUCTIONS: Final = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPages:
    entries: tuple[Any, ...] = ()
    ttl_ms: int = 0
    """The shortest that any page gave; 0: none did."""
    diagnostics: tuple[str, ...] = ()


async def all_pages(link: ServerLink, method: str, member: str) -> ListPages:
    """Every entry under `member` of the results of `method`. Raises what `ServerLink.request` raises."""
    entries: list[Any] = []
    seen: set[str] = set()
    ttls: list[int] = []
    size = 0
    cursor: str | None = None

    def ended(why: str = "") -> ListPages:
        said = (f"{method} of {link.server}: {why}",) if why else ()
        return ListPages(entries=tuple(entries), ttl_ms=min(ttls, default=0), diagnostics=said)

    for _ in range(MOST_PAGES):
        page = await link.request(method, {} if cursor is None else {"cursor": cursor})
        found = page.get(member)
        if not isinstance(found, list):
            return ended(f"a page without a list of {member}")
        ttls.append(_ttl(page))
        size += len(_as_text(found))
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
            return ended("a cursor that is not text; the rest was left out")
        if cursor in seen:
            return ended("a cursor came twice; the list ended there")
        seen.add(cursor)
    return ended(f"more than {MOST_PAGES} pages; the rest was left out")


async def fetch_manifest(link: ServerLink, spec: ServerSpec) -> ServerManifest:
    """Asks the server for its present offer; skips lists that it does not declare."""
    tools = await all_pages(link, "tools/list", "tools") if link.offers("tools") else ListPages()
    prompts = await _prompts(link)
    session, info = link.session, {}
    if session.server_info is not None:
        keys = {"name", "version", "title"}
        info = session.server_info.model_dump(mode="json", by_alias=True, exclude_none=True, include=keys)
    entries, unfit = _without_invalid_headers(link, tools.entries)
    return ServerManifest(
        server=spec.name,
        scope=spec.scope,
        config_digest=spec.digest,
        fetched_at=time.time(),
        ttl_ms=tools.ttl_ms,
        protocol=link.version,
        info=info,
        instructions=(session.instructions or "")[:MOST_INSTRUCTIONS],
        tools=entries,
        prompts=prompts.entries,
        has_resources=link.offers("resources"),
        diagnostics=(*tools.diagnostics, *unfit, *prompts.diagnostics),
    )


async def _prompts(link: ServerLink) -> ListPages:
    """A server whose prompts cannot be listed still has its tools."""
    if not link.offers("prompts"):
        return ListPages()
    try:
        return await all_pages(link, "prompts/list", "prompts")
    except ErrorResponse as error:
        return ListPages(diagnostics=(f"prompts/list of {link.server}: {error.message} ({error.code})",))


def _without_invalid_headers(link: ServerLink, entries: Sequence[Any]) -> tuple[tuple[Any, ...], list[str]]:
    """Removes tools with impossible header requests, which the newer protocol forbids to offer."""
    if not link.is_modern:
        return tuple(entries), []
    usable, unfit = [], []
    for entry in entries:
        schema = entry.get("inputSchema") if isinstance(entry, dict) else None
        asks = isinstance(schema, dict) and "x-mcp-header" in _as_text(schema)
        why = sdk.find_invalid_x_mcp_header(schema) if asks else None
        if why is None:
            usable.append(entry)
        else:
            name, shown = escape_control_chars(str(entry.get("name"))[:100]), escape_control_chars(why[:200])
            unfit.append(f"tool {name!r} of {link.server} was left out: invalid x-mcp-header ({shown})")
    return tuple(usable), unfit


def _as_text(data: Any) -> str:
    try:
        return compact_json(data)
    except (ValueError, RecursionError):  # NaN came over the wire; the entry is judged later, alone
        return repr(data)


def _ttl(page: dict[str, Any]) -> int:
    ttl = page.get("ttlMs")
    return int(ttl) if isinstance(ttl, int | float) and not isinstance(ttl, bool) and 0 < ttl < 1e12 else 0


DEBOUNCE_S: Final = 0.5
DEBOUNCE_MAX_S: Final = 5.0
REST_FACTOR: Final = 10.0
"""Pause before the next list, as a multiple of the time that the last one took."""


class RefetchDebounce:
    def __init__(self, refetch: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """`refetch` must not raise."""
        self._refetch = refetch
        self._first: float | None = None
        """Of the notices that no refetch has answered yet."""
        self._last = 0.0
        self._rested = 0.0
        """Nothing is asked for again before."""
        self._timer: asyncio.TimerHandle | None = None
        self._running: asyncio.Task[None] | None = None
        self._stopped = False

    @property
    def _loop(self) -> asyncio.AbstractEventLoop:
        """The one that runs: a session may be made before there is any."""
        return asyncio.get_running_loop()

    def changed(self) -> None:
        self._last = self._loop.time()
        if self._first is None:
            self._first = self._last
            self._arm()

    def note_cost(self, seconds: float) -> None:
        """Records how long the processing of a list blocked the loop."""
        self._rested = self._loop.time() + REST_FACTOR * seconds

    def stop(self) -> None:
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        if self._running is not None:
            self._running.cancel()

    def _arm(self) -> None:
        if self._timer is None and self._running is None and self._first is not None and not self._stopped:
            self._timer = self._loop.call_at(self._due(), self._look)

    def _due(self) -> float:
        assert self._first is not None
        return max(self._rested, min(self._last + DEBOUNCE_S, max(self._first + DEBOUNCE_MAX_S, self._loop.time())))

    def _look(self) -> None:
        self._timer = None
        if self._due() > self._loop.time():
            self._arm()
            return
        self._first = None
        self._running = self._loop.create_task(self._refetch())
        self._running.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._running = None
        if not task.cancelled():
            task.exception()
        if self._first is not None:  # noticed meanwhile: its half second starts now
            self._first = self._last = self._loop.time()
        self._arm()


MAX_CACHED_BYTES: Final = 16 << 20
FRESH_SECONDS: Final = 600.0
USABLE_SECONDS: Final = 24 * 3600.0
_FOLDER: Final = ("cache", "mcp")
_VERSION: Final = 1


class Freshness(StrEnum):
    FRESH = "fresh"
    STALE = "stale"
    """Used at once and refreshed in the background."""


class ManifestCache:
    def __init__(self, home: ForgeHome) -> None:
        self._home = home

    def load(self, spec: ServerSpec, now: float) -> tuple[ServerManifest, Freshness] | None:
        """Returns the cached manifest and its freshness, or None. `now`: `time.time()`."""
        path = self._path(spec.scope, spec.name, spec.digest)
        self._remove_others(spec.scope, spec.name, path)
        try:
            manifest = _manifest(read_json(path, MAX_CACHED_BYTES))
        except (OSError, ValueError, TypeError, RecursionError):
            return None
        wanted = (spec.scope, spec.name, spec.digest)
        if manifest is None or (manifest.scope, manifest.server, manifest.config_digest) != wanted:
            return None
        age = now - manifest.fetched_at
        if not 0 <= age <= USABLE_SECONDS:
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        fresh = manifest.ttl_ms / 1000 if manifest.ttl_ms > 0 else FRESH_SECONDS
        return manifest, Freshness.FRESH if age <= fresh else Freshness.STALE

    def store(self, manifest: ServerManifest) -> None:
        path = self._path(manifest.scope, manifest.server, manifest.config_digest)
        data = {field.name: getattr(manifest, field.name) for field in fields(ServerManifest)}
        try:
            content = json.dumps({"version": _VERSION, **data}, separators=(",", ":")).encode()
        except (ValueError, TypeError, RecursionError):
            return
        with contextlib.suppress(OSError):
            if len(content) > MAX_CACHED_BYTES:
                path.unlink(missing_ok=True)
                return
            self._home.ensure(*_FOLDER)
            write_private(path, content)
        self._remove_others(manifest.scope, manifest.server, path)

    def forget(self, scope: str, server: str) -> None:
        self._remove_others(scope, server, None)

    def _path(self, scope: str, server: str, digest: str) -> Path:
        return self._home.path.joinpath(*_FOLDER, f"{_stem(scope, server)}-{sha256_hex(digest)[:16]}.json")

    def _remove_others(self, scope: str, server: str, kept: Path | None) -> None:
        """Removes the server's other manifests: a config that was edited back must not bring an old list with it."""
        stem = f"{_stem(scope, server)}-"
        with contextlib.suppress(OSError):
            for entry in os.scandir(self._home.path.joinpath(*_FOLDER)):
                if entry.name.startswith(stem) and (kept is None or entry.name != kept.name):
                    with contextlib.suppress(OSError):
                        os.unlink(entry.path)


class ReadOnlyManifestCache(ManifestCache):
    """Reads the cache and writes nothing; for listings."""

    def store(self, manifest: ServerManifest) -> None:
        pass


def _stem(scope: str, server: str) -> str:
    """The hash alone would do; the name is for whoever looks into the folder."""
    shown = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in server[:32])
    return f"{shown}-{sha256_hex(f'{scope}{chr(0)}{server}')[:16]}"


def _manifest(data: Any) -> ServerManifest | None:
    """Reads a stored manifest; None for anything that `store` would not have written."""
    if not isinstance(data, dict) or data.pop("version", None) != _VERSION or data.keys() != _SHAPE.keys():
        return None
    if any(type(data[name]) not in kinds for name, kinds in _SHAPE.items()):
        return None
    lists = {name: tuple(data[name]) for name, kinds in _SHAPE.items() if list in kinds}
    return ServerManifest(**{**data, **lists})


_SHAPE: Final[dict[str, tuple[type, ...]]] = {
    "server": (str,),
    "scope": (str,),
    "config_digest": (str,),
    "fetched_at": (float, int),
    "ttl_ms": (int,),
    "protocol": (str,),
    "info": (dict,),
    "instructions": (str,),
    "tools": (list,),
    "prompts": (list,),
    "has_resources": (bool,),
    "diagnostics": (list,),
}
