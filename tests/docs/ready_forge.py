"""A `forge` that starts at once: every command is a process of its own, forked from one that has imported everything.

The pages and the tests of commands run hundreds of them, and nearly all of their time was the same imports again and
again. Nothing else is shared: each command has its own process, directory, environment and streams, runs `cli.main`
(or, as `python FILE …`, the program in a file), and ends with its threads joined, its exit functions run and its
streams flushed. It does not wait for the disk: see disks.

    ready_forge.py SOCKET [WALLS [PEOPLE [LISTENING]]]    imports, prints `ready`, then forks for whoever asks

WALLS: see known_walls. It ends, and takes the directory of its socket with it, when nobody holds a lock on the file
PEOPLE any more: those who do may be killed at any time. LISTENING: the descriptor of the socket, if whoever starts it
has opened it already, so that others can ask before it is ready.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import gc
import io
import marshal
import os
import runpy
import select
import shutil
import signal
import socket
import sys
import termios
import threading
import time
import traceback
import types
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from ready_call import A_DESCRIPTOR, LENGTH

LOOKS_UP_S = 1.0
_ROOT = str(Path(__file__).parents[2])


def serve(place: str, walls: str = "", people: str = "", listening: str = "") -> None:
    """Returns in the process that is to be a command; its words are then in `sys.argv`."""
    gc.disable()  # nearly all that is made here stays: looking for rubbish took a third of the time
    warm = _beside("warm")
    _warm_up(warm)
    _beside("disks").need_no_waiting()
    machine = _beside("machine")
    machine.forget_model_servers()
    machine.answer_for_directories()
    machine.wait_for_commands(_beside("deadlines").WHOLE)
    desk = socket.socket(fileno=int(listening)) if listening else _listen(place)
    if walls:
        _beside("known_walls").told(Path(walls))
    gc.collect()
    gc.freeze()  # or every command copies all of it when it first collects
    gc.enable()
    warm.make_pages_huge()
    print("ready", flush=True)
    with desk:
        wire = _wait_on_people(desk, people)
    _become(wire, walls)


def _warm_up(warm: types.ModuleType) -> None:
    sys.path.insert(0, _ROOT)
    try:
        warm.warm_up()
    finally:
        sys.path.remove(_ROOT)
        for module in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
            del sys.modules[module]  # a program may have its own


def _listen(place: str) -> socket.socket:
    desk = socket.socket(socket.AF_UNIX)
    desk.bind(place)
    desk.listen(16)
    return desk


def _wait_on_people(desk: socket.socket, people: str) -> socket.socket:
    """Forks for each, and says how each command ended. Returns in a command, with the wire of whoever asked for it."""
    ended, tells = os.pipe()
    for end in (ended, tells):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(tells)
    running: dict[int, socket.socket] = {}
    while True:
        ready, _, _ = select.select([desk, ended], [], [], LOOKS_UP_S)
        if not ready and people:
            _end_if_nobody_is_left(people, os.path.dirname(desk.getsockname()))
        if ended in ready:
            os.read(ended, 4096)
            _tell_ended(running)
        if desk not in ready:
            continue
        wire, _ = desk.accept()
        if not (command := os.fork()):
            break
        running[command] = wire
        with contextlib.suppress(OSError):  # whoever asked may be gone
            wire.sendall(command.to_bytes(LENGTH, "big"))
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGHUP):  # the run may be one that outlives its terminal; a person's is not
        signal.signal(number, signal.SIG_DFL)
    for other in running.values():
        other.close()
    os.close(ended)
    os.close(tells)
    return wire


def _end_if_nobody_is_left(people: str, place: str) -> None:
    """Whoever comes while it ends waits for the lock, finds the place gone, and starts another."""
    with contextlib.suppress(FileNotFoundError), open(people) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        shutil.rmtree(place, ignore_errors=True)
        os._exit(0)
    shutil.rmtree(place, ignore_errors=True)
    os._exit(0)


def _tell_ended(running: dict[int, socket.socket]) -> None:
    while running:
        command, status = os.waitpid(-1, os.WNOHANG)
        if not command:
            return
        wire = running.pop(command, None)
        if wire is not None:  # it was a command, and not the process that forks them
            with wire, contextlib.suppress(OSError):
                wire.sendall(str(os.waitstatus_to_exitcode(status)).encode())


def _become(wire: socket.socket, walls: str) -> None:
    head, rights, _, _ = wire.recvmsg(LENGTH, socket.CMSG_SPACE(3 * A_DESCRIPTOR))
    given = rights[0][2]
    streams = [int.from_bytes(given[at : at + A_DESCRIPTOR], sys.byteorder) for at in range(0, 12, A_DESCRIPTOR)]
    size, order = int.from_bytes(head, "big"), b""
    while len(order) < size:
        order += wire.recv(size - len(order))
    wire.close()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    said = marshal.loads(order)
    if said["leads"]:
        _lead()
    os.chdir(said["cwd"])
    os.environ.clear()
    os.environ.update(said["env"])
    os.umask(said["umask"])
    if said["walls_known"] and walls:
        _beside("known_walls").always(Path(walls))
    if os.environ.get("PYTHONUNBUFFERED"):
        _write_at_once()
    time.tzset()
    sys.argv = said["words"]


def _lead() -> None:
    os.setsid()
    if os.isatty(0):
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _write_at_once() -> None:
    for name, number in (("stdout", 1), ("stderr", 2)):
        was = getattr(sys, name)
        raw = io.FileIO(number, "w", closefd=False)
        stream = io.TextIOWrapper(raw, encoding=was.encoding, errors=was.errors, write_through=True)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _beside(name: str) -> types.ModuleType:
    """A module of the tests, which are no package for a program that is started by its path."""
    place = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), f"{name}.py")
    spec = spec_from_file_location(name, place)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _run() -> int:
    """`forge WORD…`, or `python FILE …`, as an interpreter runs it."""
    try:
        if sys.argv[0] == "python":
            return _run_file()
        from golem_forge.cli.main import main

        return main()
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except Exception:
        traceback.print_exc()
        return 1


def _run_file() -> int:
    del sys.argv[0]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    runpy.run_path(sys.argv[0], run_name="__main__")
    return 0


def _end(code: int) -> None:
    """What an interpreter does at its end, but for taking every module apart, which is most of that time."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if not stream.closed:
            with contextlib.suppress(BrokenPipeError):
                stream.flush()
    os._exit(code)


if __name__ == "__main__":
    serve(*sys.argv[1:])
    _end(_run())
