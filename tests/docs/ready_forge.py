"""A `forge` that starts at once: every command is a process of its own, forked from one that has imported everything.

The pages and the tests of commands run hundreds of them, and nearly all of their time was the same imports again and
again. Nothing else is shared: each command has its own process, directory, environment and streams, runs `cli.main`
(or, as `python FILE …`, the program in a file), and ends with its threads joined, its exit functions run and its
streams flushed. It does not wait for the disk: see disks.

    ready_forge.py SOCKET [WALLS [PEOPLE [TESTS WORD…]]]    imports, prints `ready`, then forks for whoever asks

WALLS: see known_walls. It ends, and takes the directory of its socket with it, when nobody holds a lock on the file
PEOPLE any more: those who do may be killed at any time. TESTS: the socket of a second process, which has also imported
the tests that `pytest WORD…` would run, for the processes of a run (tests/docs/ready_tests.py).
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import gc
import importlib
import io
import marshal
import os
import pkgutil
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

_ELSEWHERE = (".run.client", ".run.shown", ".__main__")
"""Programs that run inside the walls, and entry points."""
LOOKS_UP_S = 1.0
_HUGE = 2 << 20
_COLLAPSE = 25
"""MADV_COLLAPSE: the kernel puts small pages together at once."""
_THEIRS = (
    *("pydantic.main", "pydantic.fields", "jsonschema_rs", "ruamel.yaml", "sqlite3", "asyncio", "subprocess"),
    *("prompt_toolkit.patch_stdout", "prompt_toolkit.shortcuts", "rich.console", "rich.markdown", "rich.syntax"),
    *("pydantic_ai.models.anthropic", "pydantic_ai.models.openai", "pydantic_ai.providers.openai_compatible"),
    *("openai.resources.responses.responses", "openai.resources.chat.completions.completions"),
    *("pydantic_ai.providers.openai", "pydantic_ai.models.openrouter", "pydantic_ai.models.google", "PIL.Image"),
    *("pydantic_ai.providers.google", "google.genai.client"),
    *("genai_prices.data", "prompt_toolkit.input.vt100", "pygments.lexers.python"),
    *("anyio._backends._asyncio", "encodings.idna", "encodings.utf_8_sig", "psycopg", "procrastinate"),
    *("opentelemetry.sdk.trace.export", "opentelemetry.sdk.metrics.export"),
    *(f"opentelemetry.exporter.otlp.proto.http.{each}_exporter" for each in ("trace", "metric")),
)
"""What Forge itself imports only where it is needed: the clients of the models are most of a command's time."""
_MODELS = ("anthropic:claude-sonnet-5-5", "openai:gpt-5", "openai-compatible:local", "google:gemini-3-pro-preview")
_ROOT = str(Path(__file__).parents[2])


def serve(place: str, walls: str = "", people: str = "", tests: str = "", *words: str) -> None:
    """Returns in the process that is to be a command; its words are then in `sys.argv`."""
    gc.disable()  # nearly all that is made here stays: looking for rubbish took a third of the time
    _import_all()
    _beside("disks").need_no_waiting()
    _beside("machine").forget_model_servers()
    _beside("machine").answer_for_directories()
    _ask_models()
    desk = _listen(place)
    has_tests = bool(tests) and os.fork() > 0
    if has_tests:
        desk.close()
        desk, walls = _listen(tests), ""
        _import_tests(words)
    if walls:
        _beside("known_walls").told(Path(walls))
    gc.collect()
    gc.freeze()  # or every command copies all of it when it first collects
    gc.enable()
    _make_pages_huge()
    if has_tests or not tests:
        print("ready", flush=True)
    with desk:
        wire = _wait_on_people(desk, people)
    _become(wire, walls)


def _listen(place: str) -> socket.socket:
    desk = socket.socket(socket.AF_UNIX)
    desk.bind(place)
    desk.listen(16)
    return desk


def _make_pages_huge() -> None:
    """A fork copies the table of pages, fifty thousand small ones: half of what `forge --version` took. Where the
    kernel has no huge pages, everything stays as it is."""
    library = ctypes.CDLL(None)
    for line in Path("/proc/self/maps").read_text().splitlines():
        place, rights, _, _, _, *file = line.split()
        if rights.startswith("rw") and file in ([], ["[heap]"]):
            begin, end = (int(number, 16) for number in place.split("-"))
            begin += -begin % _HUGE
            if end - begin >= _HUGE:
                library.madvise(ctypes.c_void_p(begin), ctypes.c_size_t((end - begin) // _HUGE * _HUGE), _COLLAPSE)


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


def _import_all() -> None:
    import golem_forge

    found = (module.name for module in pkgutil.walk_packages(golem_forge.__path__, "golem_forge."))
    for name in (*_THEIRS, *(name for name in found if not any(part in name for part in _ELSEWHERE))):
        with contextlib.suppress(Exception):  # said by the command that needs it
            importlib.import_module(name)
    _make_lazy_parts()


def _import_tests(words: tuple[str, ...]) -> None:
    """As pytest does when it looks for them. What cannot be imported is told by the processes of the run. Nothing is
    captured: a library that keeps `sys.stderr` as it is imported would have a file that is closed by then."""
    import pytest

    with contextlib.redirect_stdout(io.StringIO()):
        pytest.main(["--collect-only", "--capture=no", *words])
    gc.unfreeze()  # the tests that were found: each process finds its own
    gc.disable()


def _make_lazy_parts() -> None:
    """What a command makes when it first needs it: methods of records, patterns, models of native tools."""
    from golem_forge.core.regex import regex
    from golem_forge.toolsets import TOOL_LIST

    lazy_pattern = type(regex(""))
    for name, module in list(sys.modules.items()):
        for made in list(vars(module).values()) if name.startswith("golem_forge") else ():
            if isinstance(made, lazy_pattern):
                _ = made.groups
            elif isinstance(made, type) and "__lazy_fields__" in vars(made):
                for method in ("__init__", "__eq__", "__hash__"):
                    getattr(made, method)
    for tool in TOOL_LIST:
        _ = tool.input, tool.input_schema


def _ask_models() -> None:
    """One question to each client of a model, here: their libraries make the classes for an answer when the first one
    comes, which takes longer than all the rest of a command. A command whose client still makes them says the same."""
    import asyncio

    from golem_forge.agent.model.interface import Request, UserMessage
    from golem_forge.agent.model.selection import open_model
    from golem_forge.config.run_block import ProviderSettings

    sys.path.insert(0, _ROOT)
    try:
        from tests.wire.server import WireCall, WireServer, WireTurn
    finally:
        sys.path.remove(_ROOT)
        for module in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
            del sys.modules[module]  # a program may have its own

    async def ask(name: str, server: WireServer) -> None:
        provider = name.partition(":")[0]
        settings = ProviderSettings(base_url=server.base_url(provider), key_env="KEY")
        model = open_model(name, settings={provider: settings}, environ={"KEY": "x"}, script_root=Path("/"))
        async for _ in model.stream(Request(system="", messages=(UserMessage(text="Hello"),))):
            pass
        await model.aclose()

    for name in _MODELS:
        turn = WireTurn(say="Hello", calls=(WireCall(name="a", args={}),))
        with contextlib.suppress(Exception), WireServer([turn]) as server:  # said by the command that needs it
            asyncio.run(ask(name, server))


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
