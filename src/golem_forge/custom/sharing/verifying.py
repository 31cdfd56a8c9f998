"""Verifying: every tool in `tools.lock` held against the files it was imported with.

Gives one Drift for each that differs; an empty list if all are as they were. Changes nothing.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

from golem_forge.config.home import ForgeHome
from golem_forge.custom.diagnostic import Unusable
from golem_forge.custom.registry.folder import read_folder
from golem_forge.custom.sharing.lock import read_lock
from golem_forge.custom.sharing.staging import TOOLS

MISSING: Final = "missing"
UNREADABLE: Final = "unreadable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    name: str
    expected: str
    """The digest it was imported with."""
    found: str
    """Its digest now, `missing` or `unreadable`."""

    @property
    def text(self) -> str:
        if self.found in (MISSING, UNREADABLE):
            return f"{self.name}: {self.found}; imported as {self.expected}"
        return f"{self.name}: changed since it was imported: {self.expected} is now {self.found}"


def verify(home: ForgeHome) -> list[Drift]:
    found: list[Drift] = []
    for name, locked in read_lock(home).items():
        present = _digest(home, name)
        if present != locked.digest:
            found.append(Drift(name=name, expected=locked.digest, found=present))
    return found


def _digest(home: ForgeHome, name: str) -> str:
    folder = home.path / TOOLS / os.path.basename(name)
    if not folder.is_dir():
        return MISSING
    try:
        return read_folder(folder).digest
    except Unusable:
        return UNREADABLE
