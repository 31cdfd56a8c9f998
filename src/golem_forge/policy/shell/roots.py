"""Paths that nobody empties on purpose, and devices that nobody writes to: judged from the words alone."""

from __future__ import annotations

import posixpath
import re
from fnmatch import fnmatchcase

from golem_forge.core.root_links import process_link

from .names import names

_TOP_LEVEL = names(
    "bin boot dev etc home lib lib32 lib64 libx32 media mnt nix opt proc root run sbin srv sys tmp usr var"
    " Applications Library System Users Volumes private"
)
_HARMLESS_DEVICES = names("null zero full random urandom tty stdin stdout stderr fd pts shm")
_SAME_ROOT = re.compile(r"(?:/+\.)+(?=/|$)")  # other names of `/`

_HOME = re.compile(r"(?:~(?:[A-Za-z_][\w-]*)?|\$HOME|\$\{HOME[^}]*\})(/.*)?", re.DOTALL)
_EVERYTHING = re.compile(r"[*.?]*")


def joined(path: str, here: str) -> str:
    """`path` seen from the directory `here`, both as written. What a process has for its root or its directory is not
    known here, so that of any process counts as ours: `/proc/$PPID/root/etc` is `/etc`."""
    if (link := process_link(path)) is not None:
        path = f"/{link.rest}" if link.name == "root" else link.rest or "."
    if not here or path.startswith(("/", "~", "$")):
        return path
    return f"{here}/{path}"


def is_root_like(path: str) -> bool:
    """`/`, a home directory or a top-level system directory, or all that is in one."""
    home = _HOME.fullmatch(path)
    if home:
        return _EVERYTHING.fullmatch(posixpath.normpath(home[1] or "/").lstrip("/")) is not None
    if not path.startswith("/"):
        return False
    path = _SAME_ROOT.sub("", path, count=1) if _SAME_ROOT.match(path) else path
    parts = posixpath.normpath("/" + path.lstrip("/")).strip("/").split("/")
    if _EVERYTHING.fullmatch(parts[0]):
        return len(parts) == 1 or _EVERYTHING.fullmatch(parts[1]) is not None
    top = [name for name in _TOP_LEVEL if fnmatchcase(name, parts[0])]
    if len(parts) == 1:
        return bool(top)
    # What lies in /tmp is anyone's to throw away.
    return len(parts) == 2 and _EVERYTHING.fullmatch(parts[1]) is not None and bool(set(top) - {"tmp"})


def is_raw_device(path: str) -> bool:
    """A device whose content would be overwritten, or a pattern that may name one (`/d*/sda`)."""
    if not path.startswith("/"):
        return False
    path = _SAME_ROOT.sub("", path, count=1) if _SAME_ROOT.match(path) else path
    parts = posixpath.normpath("/" + path.lstrip("/")).split("/")
    if len(parts) < 3 or not fnmatchcase("dev", parts[1].replace("[^", "[!")):
        return False
    return parts[2] not in _HARMLESS_DEVICES
