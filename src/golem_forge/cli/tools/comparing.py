"""Two versions of a tool beside each other: what it may do, then its files as a unified diff.

Both may be a stranger's: nothing printed can steer the terminal, and what a diff does not tell (a binary, hidden
characters, a file too long to be shown) is said as a warning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from golem_forge.cli.plain import complain, one_line

if TYPE_CHECKING:
    from golem_forge.custom.manifest import Manifest
    from golem_forge.custom.registry.folder import FolderFiles


def show_difference(verb: str, name: str, old: FolderFiles, new: FolderFiles) -> None:
    from golem_forge.custom.trust.card_files import CardFiles

    before, after = _manifest(name, old), _manifest(name, new)
    for line in _reach(before, after):
        print(one_line(line))
    entrypoint = after.entrypoint if after else before.entrypoint if before else ""
    shown = CardFiles(new, entrypoint, old)
    print(shown.changes())
    for warning in shown.warnings:
        complain(f"tools {verb}", f"warning: {warning}")


def _reach(before: Manifest | None, after: Manifest | None) -> list[str]:
    """Version and permissions, as far as they differ; without a readable version before, all there are."""
    from golem_forge.custom.trust.permissions import compared, permissions

    if after is None:
        return []
    if before is None:
        return [f"version: {after.version}", *compared(None, permissions(after))[0]]
    lines, changed = compared(permissions(before), permissions(after))
    differing = [line for line in lines if line.partition(":")[0] in changed]
    same = before.version == after.version
    return [*([] if same else [f"version: {before.version} -> {after.version}"]), *differing]


def _manifest(name: str, files: FolderFiles) -> Manifest | None:
    from golem_forge.custom.diagnostic import Unusable
    from golem_forge.custom.manifest import MANIFEST
    from golem_forge.custom.manifest.reading import read_manifest

    try:
        return read_manifest(files.files[MANIFEST], folder=name) if MANIFEST in files.files else None
    except Unusable:
        return None
