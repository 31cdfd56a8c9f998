"""`forge` commands that start at once, as `subprocess.run` gives them: processes forked from one that is ready.

Where a test is about a process itself (its start, signals, a terminal, closed streams), it runs the real command.
See docs/ready_forge.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from .docs import ready_forge

_A_PIPE_HOLDS = 1000


class ReadyForge:
    def __init__(self, place: str) -> None:
        self._place = place

    def __call__(
        self,
        *words: str,
        cwd: Path,
        env: Mapping[str, str],
        stdin: str = "",
        timeout: float = 50,
        walls_known: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        """Until the command has ended and nobody holds its streams any more. `walls_known`: `forge doctor`, which
        tries the walls each time, is told of them too."""
        with contextlib.ExitStack() as mine:
            with contextlib.ExitStack() as theirs:
                inside = _piped(theirs, stdin)
                out, their_out = _pipe(mine, theirs)
                err, their_err = _pipe(mine, theirs)
                wire = ready_forge.order(
                    self._place,
                    list(words),
                    cwd=str(cwd),
                    env=dict(env),
                    streams=(inside, their_out, their_err),
                    walls_known=walls_known,
                )
            mine.enter_context(wire)
            process = ready_forge.begun(wire)
            said = _read((out, err, wire.fileno()), timeout)
            if said is None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
                raise subprocess.TimeoutExpired(["forge", *words], timeout)
        code = int(said[2])
        return subprocess.CompletedProcess(["forge", *words], code, said[0].decode(), said[1].decode())


def _pipe(reader: contextlib.ExitStack, writer: contextlib.ExitStack) -> tuple[int, int]:
    ends = os.pipe()
    reader.callback(os.close, ends[0])
    writer.callback(os.close, ends[1])
    return ends


def _piped(theirs: contextlib.ExitStack, text: str) -> int:
    """A pipe with the text, which ends after it."""
    read, write = os.pipe()
    theirs.callback(os.close, read)
    if len(text) > _A_PIPE_HOLDS:
        threading.Thread(target=_write, args=(write, text), daemon=True).start()
    else:
        _write(write, text)
    return read


def _write(stream: int, text: str) -> None:
    with contextlib.suppress(BrokenPipeError), open(stream, "w", encoding="utf-8") as pipe:
        pipe.write(text)


def _read(streams: tuple[int, ...], within: float) -> list[bytes] | None:
    """All of each until its end; None: that took too long."""
    said = dict.fromkeys(streams, b"")
    end = time.monotonic() + within
    with selectors.DefaultSelector() as waiting:
        for stream in streams:
            waiting.register(stream, selectors.EVENT_READ)
        while waiting.get_map():
            if not (found := waiting.select(max(0, end - time.monotonic()))):
                return None
            for key, _ in found:
                data = os.read(key.fd, 65536)
                said[key.fd] += data
                if not data:
                    waiting.unregister(key.fd)
    return list(said.values())


@contextlib.contextmanager
def serving(walls: Path) -> Iterator[ReadyForge]:
    with tempfile.TemporaryDirectory(prefix="forge-") as short:  # the address of a socket has little room
        place = os.path.join(short, "ready")
        server = subprocess.Popen(
            [sys.executable, ready_forge.__file__, "serve", place, str(walls)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == b"ready\n"
            yield ReadyForge(place)
        finally:
            server.kill()
            server.communicate()
