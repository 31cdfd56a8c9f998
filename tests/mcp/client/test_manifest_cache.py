"""mcp.md §2: the manifest cache. Case 7's ages, other digests, clocks that go backwards, and files that are broken."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.tables import table

from golem_forge.config.mcp_spec import ServerSpec
from golem_forge.mcp.client import manifest as manifest_cache
from golem_forge.mcp.client.manifest import Freshness, ManifestCache
from golem_forge.mcp.client.model import ServerManifest
from golem_forge.storage.home import ForgeHome

SPEC = ServerSpec(name="git", scope="/p", origin="forge.yaml:3", command="uvx", args=("a",), env={"TOKEN": "sk-canary"})
NOW = 1_800_000_000.0
MINUTE, HOUR = 60, 3600


def manifest(spec: ServerSpec = SPEC, **more: Any) -> ServerManifest:
    own: dict[str, Any] = {
        "fetched_at": NOW,
        "protocol": "2026-07-28",
        "info": {"name": "x", "version": "1"},
        "instructions": "Be kind.",
        "tools": ({"name": "a", "inputSchema": {"type": "object"}}, "no tool", {"name": "lone \ud800"}),
        "prompts": ({"name": "p"},),
        "has_resources": True,
        "diagnostics": ("d",),
    }
    return ServerManifest(server=spec.name, scope=spec.scope, config_digest=spec.digest, **(own | more))


@pytest.fixture
def cache(home: ForgeHome) -> ManifestCache:
    return ManifestCache(home)


def folder(tmp_path: Path) -> Path:
    return tmp_path / "home" / "cache" / "mcp"


def test_what_is_stored_is_what_is_loaded(cache: ManifestCache, tmp_path: Path) -> None:
    assert cache.load(SPEC, NOW) is None
    assert not (tmp_path / "home").exists()
    cache.store(manifest())
    assert ManifestCache(ForgeHome(tmp_path / "home")).load(SPEC, NOW) == (manifest(), Freshness.FRESH)
    (file,) = folder(tmp_path).iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "sk-canary" not in file.read_text()


@table(
    ("age", "ttl_ms", "expected"),
    [
        (2 * MINUTE, 0, Freshness.FRESH),
        (10 * MINUTE, 0, Freshness.FRESH),
        (11 * MINUTE, 0, Freshness.STALE),
        (24 * HOUR, 0, Freshness.STALE),
        (24 * HOUR + 1, 0, None),
        (25 * HOUR, 0, None),
        (30, 60_000, Freshness.FRESH),
        (61, 60_000, Freshness.STALE),
        (5 * HOUR, 6 * HOUR * 1000, Freshness.FRESH),
        (25 * HOUR, 10**15, None),
        (2 * MINUTE, -5, Freshness.FRESH),
        (-1, 0, None),
        (-1, 10**15, None),
    ],
)
def test_7_ages(cache: ManifestCache, age: float, ttl_ms: int, expected: Freshness | None) -> None:
    cache.store(manifest(ttl_ms=ttl_ms))
    found = cache.load(SPEC, NOW + age)
    assert (found and found[1]) == expected
    if expected is None:
        assert cache.load(SPEC, NOW) is None, "what was discarded must not come back with the clock"


def test_7_another_config_discards_it_for_good(cache: ManifestCache, tmp_path: Path) -> None:
    cache.store(manifest())
    assert cache.load(replace(SPEC, args=("b",)), NOW) is None
    assert list(folder(tmp_path).iterdir()) == []
    assert cache.load(SPEC, NOW) is None


def test_storing_another_config_removes_the_old_one(cache: ManifestCache, tmp_path: Path) -> None:
    cache.store(manifest())
    cache.store(manifest(replace(SPEC, args=("b",))))
    assert len(list(folder(tmp_path).iterdir())) == 1


def test_servers_and_scopes_are_apart(cache: ManifestCache) -> None:
    specs = [SPEC, replace(SPEC, scope="/q"), replace(SPEC, name="Git"), replace(SPEC, name="git-2")]
    for spec in specs:
        cache.store(manifest(spec, instructions=f"{spec.scope} {spec.name}"))
    for spec in specs:
        found = cache.load(spec, NOW)
        assert found is not None
        assert found[0].instructions == f"{spec.scope} {spec.name}"
    cache.forget(SPEC.scope, SPEC.name)
    assert cache.load(SPEC, NOW) is None
    assert cache.load(specs[1], NOW) is not None


@table(
    "change",
    [
        {"server": "other"},
        {"scope": "/other"},
        {"config_digest": "other"},
        {"version": 2},
        {"fetched_at": "now"},
        {"fetched_at": None},
        {"fetched_at": float("nan")},
        {"ttl_ms": True},
        {"tools": {}},
        {"info": []},
        {"has_resources": 1},
        {"unknown": 1},
    ],
)
def test_a_tampered_file_is_not_used(cache: ManifestCache, tmp_path: Path, change: dict[str, Any]) -> None:
    cache.store(manifest())
    (file,) = folder(tmp_path).iterdir()
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    assert cache.load(SPEC, NOW) is None


@table("content", [b"", b"[]", b"\xff", b"null", b"[" * 200_000, b'{"version": 1}'])
def test_a_broken_file_is_none(cache: ManifestCache, tmp_path: Path, content: bytes) -> None:
    cache.store(manifest())
    (file,) = folder(tmp_path).iterdir()
    file.write_bytes(content)
    assert cache.load(SPEC, NOW) is None
    cache.store(manifest())
    assert cache.load(SPEC, NOW) is not None


def test_a_link_and_a_pipe_are_none(cache: ManifestCache, tmp_path: Path) -> None:
    cache.store(manifest())
    (file,) = folder(tmp_path).iterdir()
    os.rename(file, tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", file)
    assert cache.load(SPEC, NOW) is None
    os.unlink(file)
    os.mkfifo(file)
    assert cache.load(SPEC, NOW) is None


def test_a_manifest_over_its_bound_is_neither_kept_nor_read(
    cache: ManifestCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.store(manifest())
    (file,) = folder(tmp_path).iterdir()
    monkeypatch.setattr(manifest_cache, "MAX_CACHED_BYTES", file.stat().st_size - 1)
    assert cache.load(SPEC, NOW) is None
    cache.store(manifest())
    assert not file.exists(), "an old one must not stand for the one that was too large"


def test_a_manifest_that_is_no_json_is_not_kept(cache: ManifestCache) -> None:
    deep: list[Any] = []
    for _ in range(50_000):
        deep = [deep]
    cache.store(manifest(tools=(deep,)))
    assert cache.load(SPEC, NOW) is None
    while deep:
        deep = deep.pop()


def test_a_cache_that_cannot_be_written_fails_nothing(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("in the way")
    cache = ManifestCache(ForgeHome(tmp_path / "home"))
    cache.store(manifest())
    assert cache.load(SPEC, NOW) is None
