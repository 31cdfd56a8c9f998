"""Two versions of a tool beside each other: what it may do, then its files as a unified diff."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golem_forge.cli.plain import complain, one_line

if TYPE_CHECKING:
    from golem_forge.custom.registry.folder import FolderFiles


def show_difference(verb: str, name: str, old: FolderFiles, new: FolderFiles) -> None:
    """What is printed cannot steer the terminal: it was made safe where the difference was worked out."""
    from golem_forge.custom.versions import difference

    found = difference(name, old, new)
    for line in found.reach:
        print(one_line(line))
    print(found.changes)
    for warning in found.warnings:
        complain(f"tools {verb}", f"warning: {warning}")
