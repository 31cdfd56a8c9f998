"""Which environment variables may be handed to a child (sandbox.md §11): a name, gives why not.

Threat: a variable that decides what code runs there (`LD_PRELOAD`, `BASH_ENV`) is a command in another coat, and one
that Forge sets itself (`PATH`, `HOME`, `FORGE_*`) must say what Forge means.
"""

from __future__ import annotations

import re
from typing import Final

VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}")
_REFUSED_NAMES: Final = frozenset({"BASH_ENV", "ENV", "PATH", "HOME"})
_REFUSED_STARTS: Final = ("LD_", "BASH_FUNC_", "FORGE_")


def refused_name(name: str) -> str:
    """Why a variable of this name is not handed to a child; empty if it is."""
    if not VARIABLE.fullmatch(name):
        return "is not the name of a variable (letters, digits and _)"
    if name in _REFUSED_NAMES or name.startswith(_REFUSED_STARTS):
        return "cannot be given to a child: Forge sets it, or it decides what code runs there"
    return ""
