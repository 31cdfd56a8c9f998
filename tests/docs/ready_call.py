"""Asks a forge that is ready (see ready_forge) for a command, and says how it ended.

    ready_call.py SOCKET WORD…    in place of `WORD…`: hands over its streams, gives back the exit code

It is started for every single command of a page, so it imports next to nothing.
"""

from __future__ import annotations

import _socket
import marshal
import os
import sys

LENGTH = 8
A_DESCRIPTOR = 4


def call(place: str, words: list[str]) -> int:
    wire = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    wire.connect(place)
    order(wire, words, cwd=os.getcwd(), env=dict(os.environ), streams=(0, 1, 2), walls_known=True)
    begun(wire)
    code = ended(wire)
    return code if code >= 0 else 128 - code


def order(
    wire: _socket.socket,
    words: list[str],
    *,
    cwd: str,
    env: dict[str, str],
    streams: tuple[int, ...],
    walls_known: bool = False,
    leads: bool = False,
) -> None:
    """Then the command's process and its end are said on the connection. `words`: the program's name first. `leads`: it
    has a session of its own, and its standard input, if that is a terminal, is the terminal of that session."""
    told = {"words": words, "cwd": cwd, "env": env, "umask": _umask(), "walls_known": walls_known, "leads": leads}
    text = marshal.dumps(told)
    rights = b"".join(stream.to_bytes(A_DESCRIPTOR, sys.byteorder) for stream in streams)
    head = len(text).to_bytes(LENGTH, "big")
    wire.sendmsg([head], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
    wire.sendall(text)


def begun(wire: _socket.socket) -> int:
    """The command's process. Never 0, which would be everybody's for whoever sends a signal."""
    said = wire.recv(LENGTH, _socket.MSG_WAITALL)
    if len(said) < LENGTH:
        raise ConnectionError("the forge that was ready has ended")
    return int.from_bytes(said, "big")


def ended(wire: _socket.socket) -> int:
    """Its exit code; a signal counts as its number below zero."""
    said = wire.recv(16)
    return int(said) if said else 70


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


if __name__ == "__main__":
    sys.exit(call(sys.argv[1], sys.argv[2:]))
