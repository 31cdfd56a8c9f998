"""remove_tree: removes a directory with everything in it, however deep, whatever permissions its owner took away.

Takes a host path; what cannot be removed stays, and nothing is raised. The launcher loads this file too, in a bare
interpreter: it imports only `os`. Threat: a tree so deep that no recursion, no descriptor per level and no path
reaches its end; so every directory is first moved up to the top. Call it when no process works in there any more.
"""

from __future__ import annotations

import os

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(path: str | bytes) -> None:
    try:
        top = os.open(path, _OPEN)
    except OSError:
        return
    try:
        _empty(top)
        os.rmdir(path)
    except OSError:
        return
    finally:
        os.close(top)


def _empty(top: int) -> None:
    taken = set(os.listdir(top))
    waiting = _directories(top)
    number = 0
    while waiting:
        name = waiting.pop()
        try:
            inner = os.open(name, _OPEN, dir_fd=top)
        except OSError:
            continue
        try:
            for each in _directories(inner):
                while (fresh := f"{number:x}") in taken:
                    number += 1
                taken.add(fresh)
                try:
                    os.rename(each, fresh, src_dir_fd=inner, dst_dir_fd=top)
                except OSError:
                    continue
                waiting.append(fresh)
        finally:
            os.close(inner)
        try:
            os.rmdir(name, dir_fd=top)
        except OSError:
            continue


def _directories(inside: int) -> list[str]:
    """Those of a directory, made enterable. Everything else in it is removed."""
    found = []
    with os.scandir(inside) as entries:
        listed = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, directory in listed:
        try:
            if directory:
                os.chmod(name, 0o700, dir_fd=inside)
                found.append(name)
            else:
                os.unlink(name, dir_fd=inside)
        except OSError:
            continue
    return found
