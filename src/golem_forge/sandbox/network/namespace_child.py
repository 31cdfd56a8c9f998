"""Opens one listening socket inside the network namespace of another process and hands it to its parent.

Run as `python -I -S namespace_child.py <pid> <port>` with a Unix socket as standard input. Says nothing; exit 0 means
that the socket was sent. It is a process of its own because only one with a single thread may change its user
namespace. Nothing of it stays behind in the namespace but the socket.
"""

import ctypes
import fcntl
import os
import socket
import sys

_NEW_USER = 0x10000000
_NEW_NET = 0x40000000
_GET_USER_NAMESPACE = 0xB701
_LIBC = ctypes.CDLL(None, use_errno=True)


def _enter(namespace: int, kind: int) -> None:
    if _LIBC.setns(namespace, kind) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _enter_network(pid: int) -> None:
    network = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    if os.path.samestat(os.fstat(network), os.stat("/proc/self/ns/net")):
        raise OSError("that process has no network namespace of its own")
    try:
        _enter(network, _NEW_NET)
    except PermissionError:
        # A plain user has power over that namespace only from inside the user namespace that owns it. The command
        # itself runs in one nested further down, so the owner is asked for, not the process.
        owner = fcntl.ioctl(network, _GET_USER_NAMESPACE)
        _enter(owner, _NEW_USER)
        _enter(network, _NEW_NET)


def main() -> None:
    pid, port = int(sys.argv[1]), int(sys.argv[2])
    parent = socket.socket(fileno=os.dup(0))
    _enter_network(pid)
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.bind(("127.0.0.1", port))
    listener.listen(64)
    socket.send_fds(parent, [b"!"], [listener.fileno()])


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        # for the person who reads `forge doctor`: the system's word for what failed, without paths
        sys.exit(error.strerror or str(error))
