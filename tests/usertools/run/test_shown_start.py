"""A script that was started ahead says, does and ends exactly as one that Python started itself."""

from __future__ import annotations

import importlib.util
import json
import marshal
import os
import py_compile
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE

import pytest
from tests.deadlines import PATIENCE

from golem_forge.usertools.run.interpreter import starter_folder

PYTHON = os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable)
COMMAND = (PYTHON, "-E", "-s", "-S", "-B", "-X", "pycache_prefix=/forge/none")
ENV = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": "/nonexistent"}
STARTER = os.path.join(starter_folder(), "start.py")

SCRIPTS = {
    "prints": """
print(sorted(globals()), __name__, __file__, __doc__, __builtins__, __spec__, __package__)
print(list(globals()), __loader__.name, __loader__.path, type(__loader__))
import sys
print(sys.argv, sys.orig_argv, sys.path, sys.flags, sys.executable, sys.prefix, sys.dont_write_bytecode)
print(sys.getrecursionlimit(), sys.exc_info(), sys.excepthook is sys.__excepthook__, len(sys.path_hooks), sys.meta_path)
print(sorted(sys.modules), sorted(sys.path_importer_cache))
print([hasattr(sys, name) for name in ("last_value", "last_traceback", "ps1")])
import os; print(sorted(os.environ.items())); os.system('env | sort')
import time; print(time.tzname, time.localtime(0).tm_hour, time.timezone)
import os; print(sorted(os.listdir('/proc/self/fd')), os.umask(0), os.getcwd(), os.getsid(0) > 0)
import signal
print([(s, str(signal.getsignal(s))[:30]) for s in signal.valid_signals()])
import warnings; warnings.warn('old', DeprecationWarning); print('on')
import inspect
def f():
    return 1
print(inspect.getsource(f), inspect.getfile(f))
def f(a: int): ...
print(f.__annotations__)
import sibling; print(sibling.VALUE, sibling.__file__, sibling.__cached__)
try: import pytest
except ImportError as e: print(e)
""",
    "standard input": """
import sys
print(sys.stdin, sys.stdin.seekable(), sys.stdin.isatty(), sys.stdin.line_buffering, sys.stdin.fileno(), sys.stdin.name)
print(sys.stdin is sys.__stdin__, sys.stdin.encoding, sys.stdin.errors, sys.stdin.buffer.raw.closefd)
print(len(sys.stdin.read()), repr(sys.stdin.read()))
""",
    "lines": "import sys\nfor line in sys.stdin: print(repr(line[:20]))\ntry: input()\nexcept EOFError: print('end')",
    "exit 3": "import sys; print('out'); sys.exit(3)",
    "exit with words": "import sys; print('out'); sys.exit('no good')",
    "exit none": "raise SystemExit",
    "failure": """
def outer():
    inner()
def inner():
    {}["missing"]
try:
    outer()
except KeyError as error:
    raise ValueError("bad") from error
""",
    "failure without a frame of ours in the hook": """
import sys, traceback
def hook(kind, error, trace):
    print(kind, error, [frame.filename for frame in traceback.extract_tb(trace)], error.__traceback__ is trace)
    print(sys.last_traceback is trace, sys.excepthook is hook)
sys.excepthook = hook
import atexit
atexit.register(lambda: print("last", sys.last_value, sys.last_traceback.tb_frame.f_code.co_filename))
1 / 0
""",
    "syntax": "print('never')\nimport (\n",
    "interrupted": "print('a', flush=True)\nraise KeyboardInterrupt",
    "killed": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "terminated": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "threads and atexit": """
import atexit, threading, time
atexit.register(print, "at exit")
def late():
    time.sleep(0.05)
    print("late", threading.main_thread().is_alive(), threading.main_thread().name)
threading.Thread(target=late).start()
print("main", threading.current_thread() is threading.main_thread())
""",
    "threads and failure": """
import atexit, threading, time
atexit.register(print, "at exit")
threading.Thread(target=lambda: (time.sleep(0.05), print("late"))).start()
raise RuntimeError("over")
""",
    "a failing thread": "import threading\nt = threading.Thread(target=lambda: 1 / 0, name='t')\nt.start()\nt.join()",
    "unflushed": "import sys; sys.stdout.write('no newline'); sys.stderr.write('neither')",
    "data classes": """
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple
import pickle
@dataclass
class A:
    x: int = 1
class B(Enum):
    C = 1
class D(NamedTuple):
    e: int
for one in (A(), B.C, D(2)):
    print(one, pickle.loads(pickle.dumps(one)) == one, type(one).__module__, pickle.dumps(one))
print(__annotations__)
x: int = 3
print(__annotations__)
""",
    "future": "from __future__ import annotations\ndef f(a: nothing): ...\nprint(f.__annotations__)",
    "encoded": "# -*- coding: latin-1 -*-\nprint('é')",
    "multiprocessing": """
import multiprocessing, sys
def double(x):
    return 2 * x, __name__, len(sys.argv)
if __name__ == "__main__":
    for way in ("spawn", "fork"):
        with multiprocessing.get_context(way).Pool(1) as pool:
            print(way, pool.map(double, [1, 2]))
""",
    "a broken pipe": "import os, sys\nos.close(1)\nprint('x')\nsys.stdout.flush()",
}
INPUTS = {"standard input": b"caf\xc3\xa9\n" * 50_000, "lines": b"one\ntwo\r\nthree"}


@contextmanager
def _started_ahead(cwd: Path) -> Iterator[tuple[socket.socket, subprocess.Popen[bytes]]]:
    """The end that gives the order, and the interpreter that waits for it."""
    ours, theirs = socket.socketpair()
    command = [*COMMAND, STARTER]
    with ours, subprocess.Popen(command, stdin=theirs, stdout=PIPE, stderr=PIPE, env=ENV, cwd=cwd) as child:
        theirs.close()
        yield ours, child


def _ahead(script: Path, argv: list[str], env: dict[str, str], stdin: bytes) -> subprocess.CompletedProcess[bytes]:
    with _started_ahead(script.parent) as (ours, child):
        changes = {name.encode(): value.encode() for name, value in env.items()}
        content = marshal.dumps((str(script), argv, changes, stdin or None, []), 4)
        ours.sendall(len(content).to_bytes(8, "big") + content)
        ours.close()
        out, err = child.communicate(timeout=PATIENCE)
    return subprocess.CompletedProcess([], child.returncode, out, err)


def _directly(script: Path, argv: list[str], env: dict[str, str], stdin: bytes) -> subprocess.CompletedProcess[bytes]:
    if stdin:
        descriptor = os.memfd_create("stdin")
        os.write(descriptor, stdin)
        os.lseek(descriptor, 0, 0)
    else:
        descriptor = os.open(os.devnull, os.O_RDONLY)
    try:
        return subprocess.run(
            [*COMMAND, script, *argv],
            stdin=descriptor,
            capture_output=True,
            env=ENV | env,
            cwd=script.parent,
            timeout=PATIENCE,
        )
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("name", SCRIPTS)
def test_what_was_started_ahead_cannot_be_told_apart(tmp_path: Path, name: str) -> None:
    script = tmp_path / "tool.py"
    script.write_text(SCRIPTS[name], encoding="latin-1" if name == "encoded" else "utf-8")
    (tmp_path / "sibling.py").write_text("VALUE = 'beside'\n")
    given = (script, ["--a=b c", "é"], {"TZ": "Asia/Tokyo", "FORGE_CALL_ID": "c1"}, INPUTS.get(name, b""))
    expected = _directly(*given)
    got = _ahead(*given)
    assert (got.returncode, got.stdout.decode("utf-8", "replace"), got.stderr.decode()) == (
        expected.returncode,
        expected.stdout.decode("utf-8", "replace"),
        expected.stderr.decode(),
    )


def test_of_bytecode_only_the_librarys_is_read(tmp_path: Path) -> None:
    """What a person read is what runs: bytecode beside a source, valid by its own word, is left alone."""
    script, sibling, other = (tmp_path / name for name in ("tool.py", "sibling.py", "other.py"))
    script.write_text("import json, sibling\nprint(sibling.VALUE, sibling.__cached__, json.__cached__, sep='\\n')\n")
    sibling.write_text("VALUE = 'shown'\n")
    other.write_text("VALUE = 'hidden'\n")
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    beside = importlib.util.cache_from_source(str(sibling))
    py_compile.compile(str(other), cfile=beside, doraise=True, invalidation_mode=unchecked)
    value, of_sibling, of_library = _ahead(script, [], {}, b"").stdout.decode().splitlines()
    assert value == "shown"
    assert of_sibling.startswith("/forge/none/")
    assert of_library == importlib.util.cache_from_source(json.__file__)


@pytest.mark.parametrize("sent", [b"", b"\0\0\0", (100).to_bytes(8, "big") + b"half an order"])
def test_without_a_whole_order_it_leaves_silently(sent: bytes, tmp_path: Path) -> None:
    with _started_ahead(tmp_path) as (ours, child):
        ours.sendall(sent)
        ours.close()
        assert child.communicate(timeout=PATIENCE) == (b"", b"")
    assert child.returncode == 0


def test_the_order_cannot_be_read_again(tmp_path: Path) -> None:
    """What came with it (a secret in the environment) is not left in memory that is easy to reach, nor the socket."""
    script = tmp_path / "tool.py"
    script.write_text(
        "import sys, gc\nframe = sys._getframe().f_back\nfound = []\nwhile frame is not None:\n"
        "    found += [name for name, value in frame.f_locals.items() if 'canary' in repr(value)[:9999]]\n"
        "    frame = frame.f_back\nprint([name for name in found if name not in ('names',)])\n"
    )
    assert _ahead(script, [], {"KEY": "canary"}, b"").stdout == b"[]\n"


def test_only_the_starting_program_is_shown() -> None:
    assert set(os.listdir(starter_folder())) - {"__pycache__"} == {"start.py"}  # an installer compiles what it finds
