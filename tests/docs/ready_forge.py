"""A `forge` that starts at once: every command is a process of its own, forked from one that has imported everything.

The pages and the tests of commands run hundreds of them, and nearly all of their time was the same imports again and
again. Nothing else is shared: each command has its own process, directory, environment and streams, runs `cli.main`,
and ends with its threads joined, its exit functions run and its streams flushed.

    ready_forge.py serve SOCKET [WALLS]  imports, prints `ready`, then forks for whoever asks; WALLS: see known_walls
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
import types

_LENGTH = 8
_ELSEWHERE = (".inside.client", ".inside.shown", ".__main__")
"""Programs that run inside the walls, and entry points."""
_THEIRS = ("pydantic.main", "pydantic.fields", "jsonschema_rs", "ruamel.yaml", "sqlite3", "asyncio", "subprocess")


def call(place: str, words: list[str]) -> int:
    with order(place, words, cwd=os.getcwd(), env=dict(os.environ), streams=(0, 1, 2)) as wire:
        begun(wire)
        return ended(wire)


def order(
    place: str, words: list[str], *, cwd: str, env: dict[str, str], streams: tuple[int, ...], walls_known: bool = False
) -> socket.socket:
    """The connection on which the command's process and its end are said."""
    told = {"words": words, "cwd": cwd, "env": env, "umask": _umask(), "walls_known": walls_known}
    text = json.dumps(told).encode()
    wire = socket.socket(socket.AF_UNIX)
    wire.connect(place)
    head = len(text).to_bytes(_LENGTH, "big")
    wire.sendmsg([head], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", streams))])
    wire.sendall(text)
    return wire


def begun(wire: socket.socket) -> int:
    """The command's process."""
    return int.from_bytes(wire.recv(_LENGTH, socket.MSG_WAITALL), "big")


def ended(wire: socket.socket) -> int:
    """Its exit code."""
    said = wire.recv(16)
    return int(said) if said else 70


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def serve(place: str, walls: str = "") -> None:
    """Returns in the process that is to be a command; its words are then in `sys.argv`."""
    from pathlib import Path

    _import_all()
    if walls:
        _known_walls().told(Path(walls))
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
        wire.sendall(command.to_bytes(_LENGTH, "big"))
        _, status = os.waitpid(command, 0)
        wire.sendall(str(os.waitstatus_to_exitcode(status) % 256).encode())
        os._exit(0)
    _become(wire)


def _become(wire: socket.socket) -> None:
    import time
    from pathlib import Path

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
    os.umask(said["umask"])
    if said["walls_known"]:
        _known_walls().always(Path(sys.argv[3]))
    time.tzset()
    sys.argv = ["forge", *said["words"]]


def _known_walls() -> types.ModuleType:
    from importlib.util import module_from_spec, spec_from_file_location

    place = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "known_walls.py")
    spec = spec_from_file_location("known_walls", place)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
        with contextlib.suppress(Exception):  # said by the command that needs it
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
    serve(*sys.argv[2:])
    _end(_run())
