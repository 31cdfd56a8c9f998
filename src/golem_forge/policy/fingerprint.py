"""Fingerprints: the identity of one call. An approval is for a fingerprint, and for nothing else.

`args_key` (16 hex) is shown to people and is the same for the same call anywhere. `fingerprint` (64 hex) also holds
the tool's definition, the worker and the resolved targets; host paths exist only inside the hash.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from golem_forge.core.canonical import canonical, digest, sha256_hex
from golem_forge.core.effects import Effect


def args_key(tool: str, args: dict[str, Any]) -> str:
    return sha256_hex(f"{tool}:{canonical(args)}")[:16]


def fingerprint(*, tool: str, definition: str, args: dict[str, Any], worker: str, targets: Iterable[str]) -> str:
    return digest(
        {
            "v": 1,
            "tool": tool,
            "definition": definition,
            "args": args,
            "worker": worker,
            "targets": sorted(set(targets)),
        }
    )


def targets_of(effects: Iterable[Effect], further: Iterable[str] = ()) -> list[str]:
    return sorted({*(effect.fingerprint_target() for effect in effects), *further})
