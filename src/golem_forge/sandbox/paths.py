"""From the text of a path to a place: which zone, and which components below it. Text only; the disk is not asked.

Takes what a tool was given, gives a Place, refuses INVALID_PATH and whatever `refuse` says of a path in no zone.
The order of the checks is the order in which a path can lie: as text, then as an address, then as a host path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from golem_forge.core.root_links import process_link
from golem_forge.sandbox.errors import SandboxError, invalid_path
from golem_forge.sandbox.zones import Zone

MAX_PATH_BYTES: Final = 4096
MAX_NAME_BYTES: Final = 255
_TOOLS_FOLDERS: Final = (
    *((home, ".forge", "tools") for home in ("~", "$HOME", "${HOME}", "root")),
    *((homes, "*", ".forge", "tools") for homes in ("home", "Users")),
    *((variable, "tools") for variable in ("$FORGE_HOME", "${FORGE_HOME}")),
)
"""Spellings of FORGE_HOME/tools, component by component."""


@dataclass(frozen=True, slots=True)
class Place:
    """An address before links are looked at. Without a zone it is `/`, the list of zones."""

    zone: Zone | None
    parts: tuple[str, ...]

    @property
    def virtual(self) -> str:
        return self.zone.virtual(self.parts) if self.zone else "/"


def locate(
    path: object, zones: Mapping[str, Zone], default_zone: str | None, refuse: Callable[[str], SandboxError]
) -> Place:
    text = checked_text(path)
    if link := process_link(text):
        # `/proc/self/root/x` is `/x` for whoever reads it. The root of another process may be another one, and where
        # `..` follows, a shell and the kernel mean different paths: those lie in no zone.
        if link.name != "root" or not link.own or ".." in text.split("/"):
            raise refuse(text)
        text = f"/{link.rest}"
    if not text.startswith("/") and default_zone is None:
        raise refuse(text)
    base = () if text.startswith("/") or default_zone is None else (default_zone,)
    parts = fold(text, base)
    if not parts:
        return Place(None, ())
    if zone := zones.get(parts[0]):
        return Place(zone, parts[1:])
    hits = [(len(rest), zone, rest) for zone in zones.values() if (rest := zone.inside(parts)) is not None]
    if not hits:
        raise refuse("/" + "/".join(parts))
    _, zone, rest = min(hits, key=lambda hit: hit[0])
    return Place(zone, rest)


def checked_text(path: object) -> str:
    """The path itself if it can be one at all."""
    if not isinstance(path, str):
        raise invalid_path(str(path), "not a string")
    if not path:
        raise invalid_path(path, "empty")
    if "\0" in path:
        raise invalid_path(path, "contains NUL")
    if not path.isascii() or len(path) > MAX_NAME_BYTES:
        _must_fit(path)
    if path.lstrip("/").split("/", 1)[0] == "~":
        raise invalid_path(path, "home directories are not addressable")
    return path


def _must_fit(path: str) -> None:
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        raise invalid_path(path, "not UTF-8") from None
    if size > MAX_PATH_BYTES or any(len(name.encode()) > MAX_NAME_BYTES for name in path.split("/")):
        raise invalid_path(path, "too long")


def fold(path: str, base: Sequence[str] = ()) -> tuple[str, ...]:
    """Components of the path below `base`, with `.`, `..` and `//` folded as text."""
    if "/." not in path and "//" not in path and not path.startswith("."):
        inner = path.strip("/")
        return (*base, *inner.split("/")) if inner else tuple(base)
    parts = list(base)
    for name in path.split("/"):
        if name in ("", "."):
            continue
        if name == "..":
            if not parts:
                raise invalid_path(path, "escapes the root")
            parts.pop()
        else:
            parts.append(name)
    return tuple(parts)


def below_tools_folder(path: str, folders: Sequence[str]) -> tuple[str, ...] | None:
    """What a text names below the folder of user tools, in a spelling that people know: `~/.forge/tools/x`, with a
    variable, or as a path of the host (`folders`, and the usual homes). None: it names something else."""
    if "tools" not in path or path[:1] not in ("~", "$", "/"):
        return None
    try:
        parts = fold(path)
    except SandboxError:
        return None
    for folder in (*_TOOLS_FOLDERS, *(tuple(filter(None, folder.split("/"))) for folder in folders)):
        if len(parts) >= len(folder) and all(name in ("*", part) for name, part in zip(folder, parts, strict=False)):
            return parts[len(folder) :]
    return None


def has_control_character(name: str) -> bool:
    """C0, DEL and C1: such names can be listed, but tools neither make nor open them."""
    return not name.isprintable() and any(char < " " or "\x7f" <= char <= "\x9f" for char in name)
