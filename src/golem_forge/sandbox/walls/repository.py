"""What git needs from outside a zone: the repository of a linked worktree, and who the person is.

`shared_repository` gives the directory to show read-only; it must point back at the zone, or a `.git` file could name
any directory of the host. `identity` gives the text of a `.gitconfig` with name and e-mail only: everything else in
the person's own file (aliases, helpers, hooks paths, credentials) is theirs.
"""

from __future__ import annotations

import os
from collections.abc import Container, Sequence
from pathlib import Path
from typing import Final

from golem_forge.sandbox.walls.git_config import ConfigSyntaxError, read_config
from golem_forge.sandbox.zones import Zone

_MOST: Final = 256 * 1024


def shared_repository(zone: Zone) -> str | None:
    """The real directory of the repository that the zone's root is a linked worktree of, if it says so itself."""
    pointer = os.path.join(zone.host, ".git")
    if not _is_plain_file(pointer):
        return None
    said = _text(pointer).strip()
    if not said.startswith("gitdir:"):
        return None
    own = os.path.realpath(os.path.join(zone.host, said.removeprefix("gitdir:").strip()))
    worktrees = os.path.dirname(own)
    common = os.path.dirname(worktrees)
    if os.path.basename(worktrees) != "worktrees" or not os.path.isfile(os.path.join(common, "HEAD")):
        return None
    back = _text(os.path.join(own, "gitdir")).strip()
    if not back or os.path.realpath(os.path.join(own, back)) != os.path.realpath(pointer):
        return None
    shared = _text(os.path.join(own, "commondir")).strip()
    if os.path.realpath(os.path.join(own, shared or ".")) != common:
        return None
    return None if _contains(common, zone.host) or _contains(zone.host, common) else common


def is_bare(parts: Sequence[str], names: Container[str]) -> bool:
    """Whether git takes a directory with these names in it for a repository, though it is called otherwise."""
    if "HEAD" not in names or ".git" in (part.casefold() for part in parts):
        return False
    return ("objects" in names and "refs" in names) or "commondir" in names


def repository_above(zone: Zone) -> bool:
    """Whether the zone lies inside a repository whose root no child can see."""
    if os.path.lexists(os.path.join(zone.host, ".git")):
        return False
    place = Path(zone.host)
    return any(os.path.lexists(above / ".git" / "HEAD") or (above / ".git").is_file() for above in place.parents)


def identity(home: str, config_home: str) -> str:
    """The text of a `.gitconfig` with the person's name and e-mail; empty if they gave neither."""
    said: dict[str, str] = {}
    for file in (os.path.join(config_home, "git", "config"), os.path.join(home, ".gitconfig")):
        said |= _user(_text(file))
    lines = [f"\t{key} = {_quoted(said[key])}" for key in ("name", "email") if said.get(key)]
    return "\n".join(("[user]", *lines, "")) if lines else ""


def global_ignores(home: str, config_home: str) -> bytes:
    """The content of the person's `core.excludesFile`, or of the file that git reads without that setting."""
    place = os.path.join(config_home, "git", "ignore")
    for file in (os.path.join(config_home, "git", "config"), os.path.join(home, ".gitconfig")):
        named = _settings(_text(file)).get("core.excludesfile")
        if named:
            place = os.path.join(home, named.removeprefix("~/"))
    return _text(place).encode("utf-8", "replace")


def _user(text: str) -> dict[str, str]:
    names = {f"user.{key}": key for key in ("name", "email")}
    return {names[name]: value for name, value in _settings(text).items() if name in names}


def _settings(text: str) -> dict[str, str]:
    """The last value of each key."""
    try:
        return {one.name: one.value for one in read_config(text) if one.value is not None}
    except ConfigSyntaxError:  # git refuses the whole file too
        return {}


def _quoted(value: str) -> str:
    """One line, whatever the value: a line break in a name must not begin a section."""
    printable = "".join(char for char in value if char.isprintable())
    return '"' + printable.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _text(path: str) -> str:
    """The content of a small regular file; empty for anything else."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    with os.fdopen(fd, "rb") as file:
        try:
            return file.read(_MOST).decode("utf-8", "replace").replace("\0", "")
        except OSError:
            return ""


def _is_plain_file(path: str) -> bool:
    return os.path.isfile(path) and not os.path.islink(path)


def _contains(directory: str, other: str) -> bool:
    return other == directory or other.startswith(directory + "/")
