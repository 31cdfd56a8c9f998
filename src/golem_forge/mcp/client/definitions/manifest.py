"""Manifest: what a server said of itself when it was last asked. Definitions only, no results.

`manifest_cache.py` keeps it per server and config digest, so that a session can offer tools of servers that do not run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    server: str
    scope: str
    config_digest: str
    fetched_at: float
    """`time.time()`"""
    ttl_ms: int = 0
    """The server's own; 0: it did not say."""
    protocol: str = ""
    info: Mapping[str, Any] = field(default_factory=dict)
    instructions: str = ""
    tools: tuple[Any, ...] = ()
    """Raw entries, as they came."""
    prompts: tuple[Any, ...] = ()
    """Raw entries."""
    has_resources: bool = False
    diagnostics: tuple[str, ...] = ()
