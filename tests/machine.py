"""What the machine of a test run has besides is not seen: its model servers, its environment, its agents' sockets.

A person who runs the tests may have a key in the environment, a model server on port 8080, an agent that signs for
them, a language, a time zone and a umask of their own. Whoever needs one of these in a test puts it there.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_KEPT = {
    *("PATH", "HOME", "TMPDIR", "PWD", "CI"),
    *("FORGE_UPDATE_PINNED", "FORGE_PICTURES", "SSL_CERT_FILE", "SSL_CERT_DIR", "LD_LIBRARY_PATH"),
}
_KEPT_FAMILIES = ("PYTEST_", "PYTHON", "COV", "PIP_", "UV_", "PLAYWRIGHT_")
"""Of the run itself, and of what installs packages."""
GIT_CONFIG = "GIT_CONFIG_GLOBAL"
"""What stands in the person's own HOME counts for nobody; that of a test does, which takes this away."""
_SET = {"LANG": "C.UTF-8", "TZ": "UTC", "TERM": "xterm-256color", "GIT_CONFIG_NOSYSTEM": "1", GIT_CONFIG: os.devnull}
_UMASK = 0o022


NEW_DIRECTORY = "FORGE_TEST_NEW_DIRECTORY"
"""In the environment of a command: its directory is one that nobody was asked about yet."""


def answer_for_directories() -> None:
    """The person was asked once how Forge works in each directory, and said: ask before each change. Tests of that
    question set NEW_DIRECTORY."""
    from golem_forge.agent import runtime

    is_answered = runtime.is_answered

    def answered(*place: Any) -> bool:
        return NEW_DIRECTORY not in os.environ or is_answered(*place)

    runtime.is_answered = answered  # type: ignore[assignment]


def _find_python_before_shims() -> None:
    """A version manager's `python3` on PATH is a shell script that looks for the Python: it takes four times as long as
    the Python itself, in each of hundreds of commands."""
    from golem_forge.sandbox.host import base_python

    places = os.environ["PATH"].split(os.pathsep)
    shims = [at for at, place in enumerate(places) if Path(place).name == "shims"]
    if shims:
        places.insert(shims[0], str(Path(base_python()).parent))
        os.environ["PATH"] = os.pathsep.join(places)


def forget_environment() -> None:
    """From now on, in this process and those it starts. Language, time zone and umask are the same everywhere too."""
    for name in list(os.environ):
        if name not in _KEPT and not name.startswith(_KEPT_FAMILIES):
            del os.environ[name]
    os.environ.update(_SET)
    _find_python_before_shims()
    if os.geteuid() == 0:  # tests of root become other accounts too, which may not get into a directory of root's
        os.environ.pop("TMPDIR", None)
        tempfile.tempdir = None
    time.tzset()
    os.umask(_UMASK)


def forget_model_servers() -> None:
    """Nobody listens on the usual ports of model servers."""
    from golem_forge.agent.model import setup

    setup.LOCAL_PORTS = ()  # type: ignore[misc,assignment]


def read_rules_at_once() -> None:
    """A call that touches nothing sees the rules as they are too, however soon after their file was written."""
    from golem_forge.policy.rules import book

    book.CHECK_EVERY = 0.0  # type: ignore[misc]


_PATIENT_S = 10.0
"""So long a call of exec_command waits unless it says otherwise."""


def wait_for_commands(patience: float) -> None:
    """A call that gives a command ten seconds or more to end gives it `patience` seconds, for a machine that is busy: a
    command that takes longer goes on as a session, which is another result."""
    from golem_forge.toolsets.exec.sessions import RunningCommand

    wait = RunningCommand.wait

    async def wait_for_the_end(self: RunningCommand, seconds: float) -> None:
        await wait(self, patience if seconds >= _PATIENT_S else seconds)

    RunningCommand.wait = wait_for_the_end  # type: ignore[method-assign]


_FIRST_PORT, _PORTS = 10_000, 20_000
_numbers = itertools.count()


def free_port() -> int:
    """For a server that must have the same port again later. It is none of those that the kernel gives to whoever asks
    for any: another process would get it while the server is away."""
    while True:
        port = _FIRST_PORT + (os.getpid() * 61 + next(_numbers)) % _PORTS
        with socket.socket() as found:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                found.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


@contextlib.contextmanager
def alone(meeting: Path) -> Iterator[None]:
    """One process after the other."""
    with open(meeting / "alone", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
