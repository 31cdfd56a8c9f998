"""The watchdog's own process: ends every tree it was told of when Forge is gone, however Forge ended.

Runs as a program of its own in a bare interpreter, started by `Watchdog`, in a session of its own. SOCKET brings one
message for each tree, with a handle (pidfd) of the tree's root and the signal that ends the tree; its end, or the end
of the process behind FORGE, means that Forge is gone or needs us no longer. A message without a handle is a beat: its
byte says for how many seconds Forge may be silent before the trees are ended, 0 that it may be silent for ever. So a
Forge that was stopped (SIGSTOP, a frozen machine) loses what it started before others go on in its place. A message
with the number of a pipe says that a bwrap is about to start with it: if Forge and bwrap die while bwrap holds its
inner process back, that one would wait for ever, and nobody has a handle of it yet.
Threat: a child that took over the first process of its namespace, and with it the death signal that ties the tree to
Forge. Nobody in there can see this process, and a handle cannot be outrun.
"""

from __future__ import annotations

# The public modules `signal` and `socket` load `enum` and `selectors`: 28 ms instead of 13.
import _signal  # type: ignore[import-not-found]  # has no stub
import _socket
import os
import select
from time import monotonic

SOCKET, FORGE = 3, 4
END_ALL = 12
"""The signal that tells a launcher to end all its processes. A launcher that is killed would leave them running."""
_HANDLES = 4
"""Maximum number of handles in one message; a message normally has one."""
PIPE_NUMBER_BYTES = 8
READY = 9
"""The descriptor of that pipe in a bwrap and in what it starts, until the command itself runs."""
_STARTS = 64
"""Number of newest trees that may still be starting."""
_ROUNDS = 3
"""One that was being made while we looked is found by the next."""


def main() -> None:
    for number in _signal.valid_signals():
        try:
            _signal.signal(number, _signal.SIG_IGN)
        except (OSError, ValueError):  # not to be changed
            continue
    starts: list[bytes] = []
    _end(_held_at_the_end(starts))
    for _ in range(_ROUNDS if starts else 0):
        _end_unfinished({b"pipe:[%d]" % int.from_bytes(number, "little") for number in starts})
    os._exit(0)


def _end(trees: dict[int, int]) -> None:
    for handle, number in trees.items():
        try:
            _signal.pidfd_send_signal(handle, number)
            _signal.pidfd_send_signal(handle, _signal.SIGCONT)  # one that was stopped would end nobody
        except OSError:  # gone by itself
            continue


def _end_unfinished(pipes: set[bytes]) -> None:
    """Every bwrap that still has one of these pipes under READY."""
    for pid in os.listdir(b"/proc"):
        try:
            if not pid.isdigit() or os.readlink(b"/proc/%b/fd/%d" % (pid, READY)) not in pipes:
                continue
            with open(b"/proc/%b/comm" % pid, "rb") as name:
                if name.read() == b"bwrap\n":
                    os.kill(int(pid), _signal.SIGKILL)
        except OSError:  # gone, or somebody else's
            continue


def _held_at_the_end(starts: list[bytes]) -> dict[int, int]:
    """Returns when Forge is gone. `starts` gets the pipes of the newest starts."""
    wire = _socket.socket(fileno=SOCKET)
    poll = select.poll()
    held: dict[int, int] = {}
    for number in (SOCKET, FORGE):
        poll.register(number, select.POLLIN)
    _introduce(wire)
    silent_until = 0.0
    while True:
        left = max(0.0, silent_until - monotonic()) * 1000 if silent_until else None
        ready = {number for number, _ in poll.poll(left)}
        if not ready:
            _end(held)
            held, silent_until = {}, 0.0
        elif SOCKET in ready:
            said, brought = _received(wire)
            held = _alive(held) | dict.fromkeys(brought, said[0] if said else 0)
            if not said:
                return held
            if len(said) == PIPE_NUMBER_BYTES:
                starts[:] = [*starts[1 - _STARTS :], said]
            elif not brought:
                silent_until = monotonic() + said[0] if said[0] else 0.0
        elif FORGE in ready:
            return held


def _alive(held: dict[int, int]) -> dict[int, int]:
    """Returns the handles of processes that still run and closes the others. It is polled now and then: a wake-up for
    each end would take CPU time from Forge.
    """
    poll = select.poll()
    for handle in held:
        poll.register(handle, select.POLLIN)
    over = {handle for handle, _ in poll.poll(0)}
    for handle in over:
        os.close(handle)
    return {handle: number for handle, number in held.items() if handle not in over}


def _introduce(wire: _socket.socket) -> None:
    """Sends our pid to a Forge that is the first process of a container, because it has to reap us."""
    try:
        wire.send(b"%d" % os.getpid())
    except OSError:  # gone before we came, but what it told us is still there
        return


def _received(wire: _socket.socket) -> tuple[bytes, set[int]]:
    try:
        said, beside, _, _ = wire.recvmsg(PIPE_NUMBER_BYTES, _socket.CMSG_SPACE(4 * _HANDLES))
    except ConnectionResetError:  # told once if Forge went without reading; what it said before comes after that
        return _received(wire)
    except OSError:
        return b"", set()
    data = b"".join(content for _, _, content in beside)
    return said, set(memoryview(data).cast("i"))


if __name__ == "__main__":
    main()
