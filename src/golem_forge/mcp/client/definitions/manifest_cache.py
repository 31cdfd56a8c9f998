"""ManifestCache: what servers said of themselves when last asked, so that a session can offer their tools unasked.

One file for each server and config digest in FORGE_HOME/cache/mcp/, definitions only. `load` gives a manifest that may
be used and whether it should be refreshed, or None: too old, of another config, from the future, too large, broken.
What was discarded is removed. A cache that cannot be written is no cache: nothing fails for it.
Threat: a manifest is a stranger's text on disk; it is checked and held against the pins like one that came just now.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import fields
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from golem_forge.config.home import ForgeHome
from golem_forge.config.mcp.spec import ServerSpec
from golem_forge.core.canonical import sha256_hex
from golem_forge.mcp.client.definitions.manifest import Manifest
from golem_forge.mcp.client.trust.own_files import read_whole, replace_whole

MAX_BYTES: Final = 16 << 20
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

    def load(self, spec: ServerSpec, now: float) -> tuple[Manifest, Freshness] | None:
        """`now`: `time.time()`"""
        path = self._path(spec.scope, spec.name, spec.digest)
        self._remove_others(spec.scope, spec.name, path)
        manifest = _read(path)
        if manifest is None or not _is_of(manifest, spec):
            return None
        age = now - manifest.fetched_at
        if not 0 <= age <= USABLE_SECONDS:
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        fresh = manifest.ttl_ms / 1000 if manifest.ttl_ms > 0 else FRESH_SECONDS
        return manifest, Freshness.FRESH if age <= fresh else Freshness.STALE

    def store(self, manifest: Manifest) -> None:
        path = self._path(manifest.scope, manifest.server, manifest.config_digest)
        try:
            content = json.dumps({"version": _VERSION, **_as_json(manifest)}, separators=(",", ":")).encode()
        except (ValueError, TypeError, RecursionError):
            return
        with contextlib.suppress(OSError):
            if len(content) > MAX_BYTES:
                path.unlink(missing_ok=True)
                return
            self._home.ensure(*_FOLDER)
            replace_whole(path, content)
        self._remove_others(manifest.scope, manifest.server, path)

    def forget(self, scope: str, server: str) -> None:
        self._remove_others(scope, server, None)

    def _path(self, scope: str, server: str, digest: str) -> Path:
        return self._home.path.joinpath(*_FOLDER, f"{_stem(scope, server)}-{sha256_hex(digest)[:16]}.json")

    def _remove_others(self, scope: str, server: str, kept: Path | None) -> None:
        """Of the same server: a config that was edited back must not bring an old list with it."""
        stem = f"{_stem(scope, server)}-"
        with contextlib.suppress(OSError):
            for entry in os.scandir(self._home.path.joinpath(*_FOLDER)):
                if entry.name.startswith(stem) and (kept is None or entry.name != kept.name):
                    with contextlib.suppress(OSError):
                        os.unlink(entry.path)


class ManifestReader(ManifestCache):
    """For a look: what others kept is read, and nothing is kept."""

    def store(self, manifest: Manifest) -> None:
        pass


def _stem(scope: str, server: str) -> str:
    """The hash alone would do; the name is for whoever looks into the folder."""
    shown = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in server[:32])
    return f"{shown}-{sha256_hex(f'{scope}{chr(0)}{server}')[:16]}"


def _is_of(manifest: Manifest, spec: ServerSpec) -> bool:
    return (manifest.scope, manifest.server, manifest.config_digest) == (spec.scope, spec.name, spec.digest)


def _as_json(manifest: Manifest) -> dict[str, Any]:
    return {field.name: getattr(manifest, field.name) for field in fields(Manifest)}


def _read(path: Path) -> Manifest | None:
    try:
        return _manifest(json.loads(read_whole(path, MAX_BYTES)[0]))
    except (OSError, ValueError, TypeError, RecursionError):
        return None


def _manifest(data: Any) -> Manifest | None:
    """None for anything that `store` would not have written."""
    if not isinstance(data, dict) or data.pop("version", None) != _VERSION or data.keys() != _SHAPE.keys():
        return None
    if any(type(data[name]) not in kinds for name, kinds in _SHAPE.items()):
        return None
    lists = {name: tuple(data[name]) for name, kinds in _SHAPE.items() if list in kinds}
    return Manifest(**{**data, **lists})


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
