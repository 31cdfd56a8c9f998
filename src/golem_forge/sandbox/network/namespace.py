"""The proxy's listening socket, opened from outside in the network namespace that walls made for one child.

Takes the pid of any process in that namespace, gives a listening socket on its loopback. Nothing runs inside for it,
and nothing inside can reach through it but what the proxy lets through. Raises `WALLS_UNAVAILABLE` if the system does
not allow it: the command must not start then.
"""

from __future__ import annotations

import socket
import subprocess
from functools import partial
from pathlib import Path
from typing import Final

from golem_forge.sandbox.errors import SandboxError, walls_unavailable
from golem_forge.sandbox.host import isolated
from golem_forge.sandbox.network.off_loop import off_the_loop

PROXY_PORT: Final = 3128
"""Fixed, because the child's environment is written before its namespace exists; nobody else is in there."""
_PATIENCE: Final = 10.0
_CHILD: Final = Path(__file__).with_name("namespace_child.py")
_VARIABLES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


def proxy_environment(port: int = PROXY_PORT) -> dict[str, str]:
    """What tells programs of the proxy. Both spellings, because programs read one or the other."""
    address = f"http://127.0.0.1:{port}"
    names = [*_VARIABLES, *(name.lower() for name in _VARIABLES)]
    return {**dict.fromkeys(names, address), "NO_PROXY": "", "no_proxy": ""}


async def open_listener(pid: int, port: int = PROXY_PORT) -> socket.socket:
    return await off_the_loop(partial(open_listener_blocking, pid, port))


def open_listener_blocking(pid: int, port: int = PROXY_PORT) -> socket.socket:
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            child = subprocess.Popen(
                isolated(str(_CHILD), str(pid), str(port)),
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env={},
                cwd="/",
            )
        try:
            ours.settimeout(_PATIENCE)
            listener = _received(ours)
            words = child.communicate(timeout=_PATIENCE)[1]
        except (TimeoutError, subprocess.TimeoutExpired):
            child.kill()
            child.communicate()
            raise _unavailable("it took too long") from None
    if listener is None:
        lines = words.decode("utf-8", "replace").strip().splitlines()
        raise _unavailable(lines[-1][:200] if lines else "no reason given")
    return listener


def _received(ours: socket.socket) -> socket.socket | None:
    """None: the other side ended without sending one."""
    _, descriptors, _, _ = socket.recv_fds(ours, 1, 1)
    return socket.socket(fileno=descriptors[0]) if descriptors else None


def _unavailable(why: str) -> SandboxError:
    return walls_unavailable(
        f"the proxy could not be opened inside ({why})", "Run the command without `network`, or see `forge doctor`."
    )
