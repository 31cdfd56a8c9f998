"""Handing a patch on: a script that is nothing but one call of apply_patch becomes that call, before it is judged.

Takes the raw arguments, under their names or aliases. What does not fit the schema is left for validation to refuse.
"""

from __future__ import annotations

import posixpath
from typing import Any

from golem_forge.toolsets.edit.command import rebased, split_patch_command
from golem_forge.toolsets.exec.settings import ALIASES


def handed_on(args: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
    if any(alias in args and real in args for alias, real in ALIASES.items()):
        return None
    given = {ALIASES.get(name, name): value for name, value in args.items()}
    text, workdir = given.get("cmd"), given.get("workdir", "")
    if not isinstance(text, str) or not isinstance(workdir, str):
        return None
    found = split_patch_command(text)
    if found is None:
        return None
    return "apply_patch", {"input": rebased(found.patch, posixpath.join(workdir, found.directory))}
