"""A server that does what a test says, for what happens below the protocol: lines, pipes, processes, the environment.

Each request `{method, params}` is one of the functions at the foot; its answer is what the function gives. The second
word of its command line, `MARK`, is on every process it makes, so that a test can find who is left.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

MARK = sys.argv[1] if len(sys.argv) > 1 else "puppet"
LIMIT = 60
"""Seconds; nobody outlives this, whatever else fails."""
_STUBBORN = f"import signal,sys,time\nfor n in (1,2,3,13,15): signal.signal(n, signal.SIG_IGN)\ntime.sleep({LIMIT})\n"


def out(data: bytes) -> None:
    os.set_blocking(1, True)
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


def world() -> dict[str, Any]:
    return {"env": dict(os.environ), "cwd": os.getcwd(), "argv": sys.argv}


def write(path: str, text: str) -> str:
    with open(os.path.expanduser(path), "w", encoding="utf-8") as file:
        file.write(text)
    return os.path.realpath(os.path.expanduser(path))


def read(path: str) -> str:
    with open(os.path.expanduser(path), encoding="utf-8") as file:
        return file.read()


def link(path: str, to: str) -> None:
    os.symlink(to, os.path.expanduser(path))


def remove(path: str) -> None:
    os.unlink(os.path.expanduser(path))


def say(text: str, times: int = 1) -> None:
    """Raw bytes on standard output, as latin-1."""
    for _ in range(times):
        out(text.encode("latin-1"))


def complain(text: str, times: int = 1) -> None:
    for _ in range(times):
        sys.stderr.write(text)
    sys.stderr.flush()


def stubborn() -> None:
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def breed(count: int = 2) -> None:
    """Children in sessions of their own that ignore what can be ignored and hold standard output."""
    for _ in range(count):
        subprocess.Popen([sys.executable, "-S", "-c", _STUBBORN, MARK], start_new_session=True)


def deaf(seconds: float = LIMIT, until: str = "") -> None:
    """Reads nothing for a while, or until there is such a file."""
    end = time.monotonic() + min(seconds, LIMIT)
    while time.monotonic() < end and not (until and os.path.exists(until)):
        time.sleep(0.02)


def mute() -> None:
    """Standard output is closed, but it lives."""
    os.close(1)
    time.sleep(LIMIT)


def leave(code: int) -> None:
    os._exit(code)


def linger() -> None:
    """Stays when its input ends."""
    global _lingers
    _lingers = True


_lingers = False
ACTS = {
    act.__name__: act
    for act in (world, write, read, link, remove, say, complain, stubborn, breed, deaf, mute, leave, linger)
}


def main() -> None:
    signal.alarm(LIMIT)
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        try:
            answer = {"result": {"value": ACTS[message["method"]](**message.get("params", {}))}}
        except OSError as error:
            answer = {"error": {"code": error.errno, "message": str(error.strerror)}}
        out(json.dumps({"jsonrpc": "2.0", "id": message["id"]} | answer).encode() + b"\n")
    while _lingers:
        time.sleep(1)


if __name__ == "__main__":
    main()
