"""Puts masks on paths inside the mount namespace of another process: thousands of them, in one go.

Run as `python -I -S mask_child.py <pid>` with the places as standard input: each one byte, `f` for a file or `d` for a
directory, and an absolute path as that process sees it, ended by a NUL. Says nothing; exit 0 means that every mask
stands. It is a process of its own because only one with a single thread may change its user namespace. A place that is
gone, a link, or of the other kind stops it: then the command must not start. Threat: a path that somebody exchanges
meanwhile, so each is opened without following a link and the mask goes onto what was opened.
"""

import ctypes
import fcntl
import os
import stat
import sys

_NEW_USER = 0x10000000
_NEW_MOUNTS = 0x00020000
_GET_USER_NAMESPACE = 0xB701
_OPEN_TREE, _MOVE_MOUNT, _FSOPEN, _FSCONFIG, _FSMOUNT, _FSPICK, _OPENAT2 = 428, 429, 430, 431, 432, 433, 437
_SET_FLAG, _CREATE, _RECONFIGURE = 0, 6, 7
_EMPTY_PATH = 0x08
_CLONE = 0x01
_ONTO_DESCRIPTOR = 0x04 | 0x40
_NO_LINKS = 0x04
_HERE = -100
_LIBC = ctypes.CDLL(None, use_errno=True)


def _call(*words: object) -> int:
    result: int = _LIBC.syscall(*(ctypes.c_long(each) if isinstance(each, int) else each for each in words))
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def _enter(namespace: int, kind: int) -> None:
    if _LIBC.setns(namespace, kind) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _nothing() -> int:
    """A read-only file system of its own, mounted nowhere, that holds an empty file `f` and an empty directory `d`
    which nobody may open."""
    context = _call(_FSOPEN, b"tmpfs", 1)
    _call(_FSCONFIG, context, _CREATE, None, None, 0)
    root = _call(_FSMOUNT, context, 1, 0)
    os.close(os.open("f", os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0, dir_fd=root))
    os.mkdir("d", 0, dir_fd=root)
    picked = _call(_FSPICK, root, b"", _EMPTY_PATH)
    _call(_FSCONFIG, picked, _SET_FLAG, b"ro", None, 0)
    _call(_FSCONFIG, picked, _RECONFIGURE, None, None, 0)
    return root


def _namespaces(pid: int) -> list[int]:
    """Descriptors of the mount namespaces of a process and of its children: a command whose mount table is hidden
    stands in a copy, which says what it cannot rename or remove."""
    with open(f"/proc/{pid}/task/{pid}/children", "rb") as file:
        pids = [pid, *map(int, file.read().split())]
    found = {}
    for each in pids:
        opened = os.open(f"/proc/{each}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
        found[os.fstat(opened).st_ino] = opened
    if os.stat("/proc/self/ns/mnt").st_ino in found:
        raise OSError("that process has no mount namespace of its own")
    return list(found.values())


def main() -> None:
    places = sys.stdin.buffer.read().split(b"\0")[:-1]
    first, *others = _namespaces(int(sys.argv[1]))
    for each in others:
        if os.fork() == 0:
            _put_up(each, places)
            return
        if os.wait()[1] != 0:
            sys.exit(1)  # the other one has said why
    _put_up(first, places)


def _put_up(mounts: int, places: list[bytes]) -> None:
    _enter(fcntl.ioctl(mounts, _GET_USER_NAMESPACE), _NEW_USER)
    _enter(mounts, _NEW_MOUNTS)
    nothing = _nothing()
    how = (ctypes.c_uint64 * 3)(os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, 0, _NO_LINKS)
    for each in places:
        kind = each[:1]
        place = _call(_OPENAT2, _HERE, each[1:], how, ctypes.sizeof(how))
        mode = os.fstat(place).st_mode
        if stat.S_ISLNK(mode) or stat.S_ISDIR(mode) != (kind == b"d"):
            raise OSError("something else stands at a path that was to be hidden")
        mask = _call(_OPEN_TREE, nothing, kind, _CLONE | os.O_CLOEXEC)
        _call(_MOVE_MOUNT, mask, b"", place, b"", _ONTO_DESCRIPTOR)
        os.close(mask)
        os.close(place)


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        # for the person who reads the refusal: the system's word for what failed, without paths
        sys.exit(error.strerror or str(error))
