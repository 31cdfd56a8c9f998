"""The watchdog's own process: ends every tree it was told of when Forge is gone, however Forge ended.

Runs as a program of its own in a bare interpreter, started by `Watchdog`, in a session of its own. SOCKET brings one
message for each tree, with a handle (pidfd) of the tree's root; its end, or the end of the process behind FORGE, means
that Forge is gone or needs us no longer. Threat: a child that took over the first process of its namespace, and with it
the death signal that ties the tree to Forge. Nobody in there can see this process, and a handle cannot be outrun.
"""

from __future__ import annotations

# The public modules `signal` and `socket` load `enum` and `selectors`: 28 ms instead of 13.
import _signal  # type: ignore[import-not-found]  # has no stub
import _socket
import os
import select

SOCKET, FORGE = 3, 4
_HANDLES = 4
"""Of one message; each has one."""


def main() -> None:
    for number in _signal.valid_signals():
        try:
            _signal.signal(number, _signal.SIG_IGN)
        except (OSError, ValueError):  # not to be changed
            continue
    for handle in _held_at_the_end():
        try:
            _signal.pidfd_send_signal(handle, _signal.SIGKILL)
        except OSError:  # gone by itself
            continue
    os._exit(0)


def _held_at_the_end() -> set[int]:
    """Returns when Forge is gone."""
    wire = _socket.socket(fileno=SOCKET)
    poll = select.poll()
    held: set[int] = set()
    for number in (SOCKET, FORGE):
        poll.register(number, select.POLLIN)
    _introduce(wire)
    while True:
        ready = {number for number, _ in poll.poll()}
        if SOCKET in ready:
            said, brought = _received(wire)
            held = _alive(held) | brought
            if not said:
                return held
        elif FORGE in ready:
            return held


def _alive(held: set[int]) -> set[int]:
    """Without those that are over, and with them everybody in their namespace. Asked now and then: to be woken by each
    end would take the processor from Forge, which is busy with the same."""
    poll = select.poll()
    for handle in held:
        poll.register(handle, select.POLLIN)
    over = {handle for handle, _ in poll.poll(0)}
    for handle in over:
        os.close(handle)
    return held - over


def _introduce(wire: _socket.socket) -> None:
    """By number, for a Forge that is the first process of a container: it has to collect us one day."""
    try:
        wire.send(b"%d" % os.getpid())
    except OSError:  # gone before we came, but what it told us is still there
        return


def _received(wire: _socket.socket) -> tuple[bytes, set[int]]:
    try:
        said, beside, _, _ = wire.recvmsg(1, _socket.CMSG_SPACE(4 * _HANDLES))
    except ConnectionResetError:  # told once if Forge went without reading; what it said before comes after that
        return _received(wire)
    except OSError:
        return b"", set()
    data = b"".join(content for _, _, content in beside)
    return said, set(memoryview(data).cast("i"))


if __name__ == "__main__":
    main()
