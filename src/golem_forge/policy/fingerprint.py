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
    return _args_key(tool, canonical(args))


def fingerprint(*, tool: str, definition: str, args: dict[str, Any], worker: str, targets: Iterable[str]) -> str:
    return _fingerprint(tool, definition, canonical(args), worker, targets)


def both_keys(
    *, tool: str, definition: str, args: dict[str, Any], worker: str, targets: Iterable[str]
) -> tuple[str, str]:
    """(fingerprint, args_key), with the arguments written out once."""
    written = canonical(args)
    return _fingerprint(tool, definition, written, worker, targets), _args_key(tool, written)


def _args_key(tool: str, args: str) -> str:
    return sha256_hex(f"{tool}:{args}")[:16]


def _fingerprint(tool: str, definition: str, args: str, worker: str, targets: Iterable[str]) -> str:
    """The canonical JSON of all six members, put together by hand: its keys never change."""
    reached = canonical(sorted(set(targets))) if targets else "[]"
    return sha256_hex(
        f'{{"args":{args},"definition":{quoted(definition)},"targets":{reached},'
        f'"tool":{quoted(tool)},"v":1,"worker":{quoted(worker)}}}'
    )


def targets_of(effects: Iterable[Effect], further: Iterable[str] = ()) -> list[str]:
    return sorted({*(effect.fingerprint_target() for effect in effects), *further})
