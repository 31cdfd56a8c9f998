"""The `forge` command that tools with `calls` find inside, as a folder on disk that can be shown read-only.

Written once below FORGE_HOME/cache/inside/<digest>, for the Python that Forge itself runs on, so that it also works
for tools in other languages; safe to delete. Refuses (ToolFailed) a Python whose own place must stay hidden.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from golem_forge.core.errors import ToolFailed
from golem_forge.sandbox.host import base_python
from golem_forge.sandbox.walls.forbidden import Forbidden
from golem_forge.sandbox.walls.job import HostDirectory
from golem_forge.sandbox.walls.toolchains import in_system

if TYPE_CHECKING:
    from golem_forge.config.home import ForgeHome

BIN: Final = "/forge/bin"
_COMMAND: Final = "forge"
_LIBRARY: Final = "forge_tool.py"


def client_folder(home: ForgeHome) -> tuple[HostDirectory, ...]:
    """What to show: the folder with the command, at `/forge/bin`, and the interpreter that it needs."""
    prefix = os.path.realpath(sys.base_prefix)
    if in_system(prefix):
        further: tuple[HostDirectory, ...] = ()
    else:
        forbidden = Forbidden(os.path.expanduser("~"), os.fspath(home.path))
        if why := forbidden.why(prefix, prefix, os.stat(prefix)):
            raise ToolFailed(f"Tools cannot call others: the directory of this Python {why}. Install Forge elsewhere.")
        further = (HostDirectory(prefix, prefix),)
    return (HostDirectory(os.path.realpath(_written(home, _files(base_python()))), BIN), *further)


def _files(interpreter: str) -> dict[str, bytes]:
    source = Path(__file__).parent / "client"
    return {
        _COMMAND: _head(interpreter).encode() + (source / "forge_command.py").read_bytes(),
        _LIBRARY: (source / _LIBRARY).read_bytes(),
    }


def _head(interpreter: str) -> str:
    """For a shell the lines that start Python, for Python a text: the kernel's own `#!` takes neither a long path nor
    one with a space."""
    import shlex

    return f"#!/bin/sh\n''':'\nexec {shlex.quote(interpreter)} -E -s -S -B \"$0\" \"$@\"\n'''\n"


def _written(home: ForgeHome, files: dict[str, bytes]) -> Path:
    import hashlib
    import tempfile

    from golem_forge.custom.rooms import remove_tree

    content = hashlib.sha256()
    for name, data in files.items():
        content.update(f"{name}\0{len(data)}\0".encode() + data)
    parent = home.ensure("cache", "inside")
    place = parent / content.hexdigest()[:32]
    if _holds(place, files):
        return place
    made = Path(tempfile.mkdtemp(dir=parent))
    try:
        for name, data in files.items():
            (made / name).write_bytes(data)
            (made / name).chmod(0o500 if name == _COMMAND else 0o400)
        made.chmod(0o700)
        if os.path.lexists(place):
            place.rename(Path(tempfile.mkdtemp(dir=parent)) / "old")  # something else, or damaged
        made.rename(place)
    except OSError:
        remove_tree(made)
        if not _holds(place, files):  # else another Forge was quicker
            raise
    return place


def _holds(place: Path, files: dict[str, bytes]) -> bool:
    try:
        return sorted(os.listdir(place)) == sorted(files) and all(
            (place / name).read_bytes() == data for name, data in files.items()
        )
    except OSError:
        return False
