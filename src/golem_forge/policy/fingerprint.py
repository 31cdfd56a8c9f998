"""Fingerprints: the identity of one call. An approval is for a fingerprint, and for nothing else.

`args_key` (16 hex) is shown to people and is the same for the same call anywhere. `fingerprint` (64 hex) also holds
the tool's definition, the worker and the resolved targets; host paths exist only inside the hash.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from golem_forge.core.effects import Effect
from golem_forge.core.json import canonical, quoted, sha256_hex


def args_key(tool: str, args: dict[str, Any]) -> str:
    return sha256_hex(f"{tool}:{canonical(args)}")[:16]


def fingerprint(*, tool: str, definition: str, args: dict[str, Any], worker: str, targets: Iterable[str]) -> str:
    return both_keys(tool=tool, definition=definition, args=args, worker=worker, targets=targets)[0]


def both_keys(
    *, tool: str, definition: str, args: dict[str, Any], worker: str, targets: Iterable[str]
) -> tuple[str, str]:
    """(fingerprint, args_key). The fingerprint hashes the canonical JSON of six members, joined by hand: its keys
    never change."""
    written = canonical(args)
    resolved = canonical(sorted(set(targets))) if targets else "[]"
    whole = (
        f'{{"args":{written},"definition":{quoted(definition)},"targets":{resolved},'
        f'"tool":{quoted(tool)},"v":1,"worker":{quoted(worker)}}}'
    )
    return sha256_hex(whole), sha256_hex(f"{tool}:{written}")[:16]


def targets_of(effects: Iterable[Effect], further: Iterable[str] = ()) -> list[str]:
    return sorted({*(effect.fingerprint_target() for effect in effects), *further})
