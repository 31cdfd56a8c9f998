"""Opens sockets inside the network namespace of another process and hands them to its parent.

Run as `python -I -S namespace_child.py <pid> <order>…` with a Unix socket as standard input. An order is `host:port`, a
socket that listens there, or `tcp4*8` or `tcp6*8`, so many sockets that are not connected yet. The pid 0 stands for
itself: it was started inside. Says nothing; exit 0 means that all of them were sent, in order. It is a process of its
own because only one with a single thread may change its user namespace. Nothing of it stays behind in the namespace but
the sockets.
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


def _opened(order: str) -> "list[socket.socket]":
    kind, star, count = order.partition("*")
    if star:
        family = socket.AF_INET6 if kind == "tcp6" else socket.AF_INET
        return [socket.socket(family, socket.SOCK_STREAM) for _ in range(int(count))]
    host, _, port = order.rpartition(":")
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    listener.bind((host, int(port)))
    listener.listen(64)
    return [listener]


def main() -> None:
    pid, orders = int(sys.argv[1]), sys.argv[2:]
    parent = socket.socket(fileno=os.dup(0))
    if pid:
        _enter_network(pid)
    opened = [each for order in orders for each in _opened(order)]
    socket.send_fds(parent, [b"!"], [each.fileno() for each in opened])


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        # for the person who reads `forge doctor`: the system's word for what failed, without paths
        sys.exit(error.strerror or str(error))
