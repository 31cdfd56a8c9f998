"""Directories that no child is ever shown, however they got onto a PATH or into `sandbox.read`.

Takes the person's home and FORGE_HOME, gives `why`: the reason a directory must not be shown, or nothing. Threat: one
careless PATH entry (`~`, `/`, a link to either) would show keys, rules and grants to every command. So a directory is
judged by its spelling, by its real path, and by identity against what it may contain.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

KEY_DIRECTORIES: Final = (".ssh", ".aws", ".gnupg")
_KEYS: Final = frozenset(KEY_DIRECTORIES)
_NOT_BELOW: Final = ("/proc", "/sys", "/dev", "/run", "/var/run")
"""Walls have their own of these, or none: they hold sockets, devices and other processes."""
_NOT_WHOLE: Final = frozenset({"/", "/etc", "/home", "/var", "/var/lib", "/tmp", "/var/tmp"})  # noqa: S108 (refused, not used)


class Forbidden:
    def __init__(self, home: str, forge_home: str, zones: Sequence[str] = ()) -> None:
        self._home = os.path.realpath(home)
        self._forge = os.path.realpath(forge_home)
        named = (os.path.join(self._home, name) for name in KEY_DIRECTORIES)
        self._keys = tuple(os.path.realpath(path) if os.path.islink(path) else path for path in named)
        self._zones = tuple(zones)
        self._above_home = _identities(self._home)
        self._above_forge = _identities(self._forge)

    def why(self, spelled: str, real: str, status: os.stat_result) -> str:
        """Empty: it may be shown. `status` is the directory's own."""
        identity = (status.st_dev, status.st_ino)
        if identity in self._above_home:
            return "is or contains the home directory"
        if identity in self._above_forge:
            return "is, contains or lies in FORGE_HOME"
        for path in {spelled, real}:
            if is_below(self._home, path):
                return "is or contains the home directory"
            if is_below(path, self._forge) or is_below(self._forge, path):
                return "is, contains or lies in FORGE_HOME"
            if any(is_below(path, keys) or is_below(keys, path) for keys in self._keys):
                return "is, contains or lies in a directory of keys"
            if not _KEYS.isdisjoint(path.split("/")):
                return "lies in a directory of keys"
            if path in _NOT_WHOLE or any(is_below(path, system) for system in _NOT_BELOW):
                return "is a directory of the system that walls do not show"
            if any(is_below(zone, path) and zone != path for zone in self._zones):
                return "contains a zone"
        if any(os.path.lexists(f"{real}/{name}") for name in KEY_DIRECTORIES):
            return "contains a directory of keys"
        return ""


def is_below(path: str, directory: str) -> bool:
    """Both absolute and folded; a directory is below itself."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def _identities(path: str) -> frozenset[tuple[int, int]]:
    """Of a directory and of everything that contains it, as far as it exists."""
    found = set()
    while True:
        try:
            status = os.stat(path)
            found.add((status.st_dev, status.st_ino))
        except OSError:
            pass
        if path == "/":
            return frozenset(found)
        path = os.path.dirname(path)
