"""The Python that module hosts run in: Forge's own, with its installed packages, shown read-only inside the walls.

Gives the command and the directories to show. Packages stand at `/opt/forge/python/…`, so that no traceback names a
place of the host; the interpreter itself stands where it was built to stand. Where there are no mounts (levels
landlock and off) everything is used in its own place. Refuses (ToolFailed) an interpreter whose home must stay hidden.
"""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from golem_forge.core.errors import ToolFailed
from golem_forge.sandbox.host import base_python
from golem_forge.sandbox.walls.forbidden import Forbidden
from golem_forge.sandbox.walls.job import HostDirectory
from golem_forge.sandbox.walls.levels import Level
from golem_forge.sandbox.walls.toolchains import in_system

_INNER: Final = "/opt/forge/python"
_OWN: Final = f"{_INNER}/forge"
_PACKAGES: Final = f"{_INNER}/packages"
SNAPSHOT: Final = "/opt/forge/module"


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    argv: tuple[str, ...]
    shown: tuple[HostDirectory, ...]

    def with_directory(self, directory: HostDirectory) -> Interpreter:
        return Interpreter(argv=self.argv, shown=(*self.shown, directory))


def interpreter(
    level: Level, *, forge_home: Path, further: Iterable[str] = (), packages: Iterable[str] = ()
) -> Interpreter:
    """`further`: where packages are installed besides Forge's own place; `packages`: single ones, each shown alone."""
    forbidden = Forbidden(os.path.expanduser("~"), os.fspath(forge_home))
    base = os.path.realpath(sys.base_prefix)
    if not in_system(base) and (why := _why(forbidden, base)):
        raise ToolFailed(f"Module tools cannot run: the directory of this Python {why}. Install Forge in another one.")
    package = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", ".."))
    libraries = [path for path in _libraries(further) if not _why(forbidden, path)]
    full = level is Level.FULL
    if not full:
        own_library = os.path.dirname(package)
        libraries = [own_library, *(path for path in libraries if path != own_library)]
    places = [HostDirectory(path, f"{_INNER}/{number}" if full else path) for number, path in enumerate(libraries)]
    own = HostDirectory(package, f"{_OWN}/{os.path.basename(package)}" if full else package)
    program = os.path.join(own.inner, "workers", "modules", "host_child.py")
    places += [HostDirectory(one, f"{_PACKAGES}/{os.path.basename(one)}") for one in packages if full]
    search = list(dict.fromkeys((os.path.dirname(own.inner), *map(_searched, places))))
    return Interpreter(
        argv=(base_python(), "-I", "-S", "-B", program, *search),
        shown=(*(() if in_system(base) else (HostDirectory(base, base),)), own, *places),
    )


def _searched(place: HostDirectory) -> str:
    """What goes on Python's path for it."""
    return _PACKAGES if place.inner.startswith(f"{_PACKAGES}/") else place.inner


def _libraries(further: Iterable[str]) -> list[str]:
    paths = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    if site.ENABLE_USER_SITE:
        paths.append(site.getusersitepackages())
    found = (os.path.realpath(path) for path in (*paths, *further) if os.path.isdir(path))
    return list(dict.fromkeys(found))


def _why(forbidden: Forbidden, path: str) -> str:
    return forbidden.why(path, path, os.stat(path))
