"""remove_tree, empty_directory: remove what lies in a directory, however deep, whatever permissions its owner took
away.

What cannot be removed stays, and nothing is raised for it. The launcher loads this file too, in a bare interpreter:
it imports only `os`. Threats: a tree so deep that no recursion, no descriptor per level and no path reaches its end,
so every directory is first moved up to the top; an entry that is exchanged for a link meanwhile, so none is followed.
"""

from __future__ import annotations

import os

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_TRIES = 3


def remove_tree(path: str | bytes, *, dir_fd: int | None = None) -> None:
    """A directory with everything in it; a link or a file stays."""
    for _ in range(_TRIES):  # somebody may put something into it meanwhile
        try:
            _make_accessible(path, dir_fd)
            top = os.open(path, _OPEN, dir_fd=dir_fd)
        except OSError:
            return
        try:
            empty_directory(top)
            os.rmdir(path, dir_fd=dir_fd)
            return
        except OSError:
            continue
        finally:
            os.close(top)


def empty_directory(top: int) -> None:
    """Removes everything in an open directory. Raises OSError if it cannot be listed."""
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
    """Returns the subdirectories, made accessible, and removes everything else in the directory."""
    found = []
    with os.scandir(inside) as entries:
        listed = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, directory in listed:
        try:
            if directory:
                _make_accessible(name, inside)
                found.append(name)
            else:
                os.unlink(name, dir_fd=inside)
        except OSError:
            continue
    return found


def _make_accessible(name: str | bytes, parent: int | None) -> None:
    """Its owner may list and change a directory again. Raises OSError where there is none."""
    handle = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        os.chmod(f"/proc/self/fd/{handle}", 0o700)
    except OSError:  # another user's, or no /proc
        return
    finally:
        os.close(handle)
