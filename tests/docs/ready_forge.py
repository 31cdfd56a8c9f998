"""A `forge` that starts at once: every command is a process of its own, forked from one that has imported everything.

The pages run well over a hundred commands, and nearly all of their time was the same imports again and again. Nothing
else is shared: each command has its own process, directory, environment and streams, runs `cli.main`, and ends with
its threads joined, its exit functions run and its streams flushed.

    ready_forge.py serve SOCKET          imports, prints `ready`, then forks for whoever asks
    ready_forge.py call SOCKET WORD…     in place of `forge WORD…`: hands over its streams, gives back the exit code
"""

from __future__ import annotations

import array
import contextlib
import gc
import json
import os
import socket
import sys

_LENGTH = 8
_ELSEWHERE = (".inside.client", ".inside.shown", ".__main__")
"""Programs that run inside the walls, and entry points."""
_THEIRS = ("pydantic.main", "pydantic.fields", "jsonschema_rs", "ruamel.yaml", "sqlite3", "asyncio", "subprocess")


def call(place: str, words: list[str]) -> int:
    order = json.dumps({"words": words, "cwd": os.getcwd(), "env": dict(os.environ)}).encode()
    with socket.socket(socket.AF_UNIX) as wire:
        wire.connect(place)
        head = len(order).to_bytes(_LENGTH, "big")
        wire.sendmsg([head], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))])
        wire.sendall(order)
        said = wire.recv(16)
    return int(said) if said else 70


def serve(place: str) -> None:
    """Returns in the process that is to be a command; its words are then in `sys.argv`."""
    _import_all()
    gc.collect()
    gc.freeze()  # or every command copies all of it when it first collects
    with socket.socket(socket.AF_UNIX) as desk:
        desk.bind(place)
        desk.listen(16)
        print("ready", flush=True)
        while True:
            wire, _ = desk.accept()
            _reap()
            if os.fork():
                wire.close()
                continue
            break
    command = os.fork()
    if command:
        _, status = os.waitpid(command, 0)
        wire.sendall(str(os.waitstatus_to_exitcode(status) % 256).encode())
        os._exit(0)
    _become(wire)


def _become(wire: socket.socket) -> None:
    import time

    head, rights, _, _ = wire.recvmsg(_LENGTH, socket.CMSG_SPACE(3 * array.array("i").itemsize))
    streams = array.array("i")
    streams.frombytes(rights[0][2])
    size, order = int.from_bytes(head, "big"), b""
    while len(order) < size:
        order += wire.recv(size - len(order))
    wire.close()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    said = json.loads(order)
    os.chdir(said["cwd"])
    os.environ.clear()
    os.environ.update(said["env"])
    time.tzset()
    sys.argv = ["forge", *said["words"]]


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _import_all() -> None:
    import importlib
    import pkgutil

    import golem_forge

    found = (module.name for module in pkgutil.walk_packages(golem_forge.__path__, "golem_forge."))
    for name in (*_THEIRS, *(name for name in found if not any(part in name for part in _ELSEWHERE))):
        importlib.import_module(name)


def _run() -> int:
    from golem_forge.cli.main import main

    try:
        return main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1


def _end(code: int) -> None:
    """What an interpreter does at its end, but for taking every module apart, which is most of that time."""
    import atexit
    import threading

    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if not stream.closed:
            with contextlib.suppress(BrokenPipeError):
                stream.flush()
    os._exit(code)


if __name__ == "__main__":
    if sys.argv[1] == "call":
        sys.exit(call(sys.argv[2], sys.argv[3:]))
    serve(sys.argv[2])
    _end(_run())
