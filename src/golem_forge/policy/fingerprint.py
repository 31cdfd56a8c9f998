"""Fingerprints: the identity of one call. An approval is for a fingerprint, and for nothing else.

`args_key` (16 hex) is shown to people and is the same for the same call anywhere. `fingerprint` (64 hex) also holds the
tool's definition, the worker and the resolved targets; host paths exist only inside the hash. A directory that lies
elsewhere on each machine of a session has a name of its own there (`DirectoryNames`): an answer counts on all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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


DirectoryNames = Mapping[str, str]


"""Host directory → its name in fingerprints."""


def targets_of(
    effects: Iterable[Effect], further: Iterable[str] = (), names: DirectoryNames | None = None
) -> list[str]:
    found = {*(effect.fingerprint_target() for effect in effects), *further}
    for directory, name in (names or {}).items():
        found = {_renamed(each, directory, name) for each in found}
    return sorted(found)


def _renamed(target: str, directory: str, name: str) -> str:
    """`write /srv/clone/a.txt` → `write workspace:3f2a/a.txt`; only a whole path, behind the verb."""
    verb, blank, path = target.partition(" ")
    inside = path == directory or path.startswith(f"{directory}/")
    return f"{verb}{blank}{name}{path[len(directory) :]}" if inside else target
