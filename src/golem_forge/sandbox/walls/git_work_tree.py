"""Whether a repository's work tree is the directory that it stands in.

Threat: `core.worktree` makes git take another directory for the work tree, `/` for instance, and look for files there.
Git reads it from the repository's own files only (`config`, `config.worktree`), not from what these include.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from golem_forge.sandbox.protected import GIT_FILE
from golem_forge.sandbox.walls.git_config import WORKTREE, ConfigSyntaxError, read_config

_LARGEST: Final = 1 << 20
_GIT_LINK: Final = "gitdir: "


def is_repository(directory: str) -> bool:
    """Git stops here on its way up: at a `.git`, or in a directory that is a repository itself."""
    return os.path.lexists(os.path.join(directory, GIT_FILE)) or _is_git_directory(directory)


def keeps_its_work_tree(directory: str, host_path: Callable[[str], str]) -> bool:
    """Of a repository. A `.git` that is a file is followed; what cannot be read or understood counts as no, links among
    it, for they may lead elsewhere inside walls. `host_path`: where an absolute path of the walls is on the host."""
    if not os.path.lexists(os.path.join(directory, GIT_FILE)):
        return False  # a bare repository: without a work tree, or with one elsewhere
    try:
        git = _git_directory(os.path.realpath(directory), host_path)
        common = _text(os.path.join(git, "commondir")).rstrip("\r\n")
        places = {git, _followed(git, common, host_path)}
        settings = [
            setting
            for place in places
            for name in ("config", "config.worktree")
            for setting in read_config(_text(os.path.join(place, name)))
            if setting.name == WORKTREE
        ]
    except (OSError, ConfigSyntaxError, ValueError):
        return False
    # Relative ones are the same inside walls, where zones stand elsewhere.
    return all(
        setting.value
        and not os.path.isabs(setting.value)
        and os.path.realpath(os.path.join(git, setting.value)) == os.path.realpath(directory)
        for setting in settings
    )


def _is_git_directory(directory: str) -> bool:
    return all(os.path.lexists(os.path.join(directory, name)) for name in ("HEAD", "objects", "refs"))


def _followed(start: str, path: str, host_path: Callable[[str], str]) -> str:
    found = os.path.normpath(host_path(path) if os.path.isabs(path) else os.path.join(start, path))
    if not os.path.isdir(found) or os.path.realpath(found) != found:
        raise ValueError("no directory, or behind a link")
    return found


def _git_directory(directory: str, host_path: Callable[[str], str]) -> str:
    git = os.path.join(directory, GIT_FILE)
    if os.path.isdir(git) and not os.path.islink(git):
        return git
    text = _text(git)
    if not text.startswith(_GIT_LINK):
        raise ValueError("no link to a repository")
    return _followed(directory, text.removeprefix(_GIT_LINK).rstrip("\r\n"), host_path)


def _text(path: str) -> str:
    """Empty where there is none. Raises OSError, and ValueError for what is larger than settings are."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    with open(handle, encoding="utf-8", errors="surrogateescape", newline="") as file:
        text = file.read(_LARGEST + 1)
    if len(text) > _LARGEST:
        raise ValueError("too large")
    return text
