"""`forge` commands that start at once, as `subprocess` gives them: processes forked from one that is ready.

`ready_forge("log", "verify", cwd=…, env=…)` is `subprocess.run`, `.start(["forge", …])` is `subprocess.Popen`,
`.on_a_terminal` is `ptyprocess.PtyProcess.spawn`, `.expecting` is `pexpect.spawn`; `.forge` is the path of a command
that others can start. In place of `forge WORD…` most take `python FILE …` too, a program that finds everything
imported. Where a test is about how the command itself starts (its imports, its streams, what is installed), it runs the
real one. See docs/ready_forge.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import selectors
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, AnyStr, Generic, Self
from unittest import mock

import pexpect
import ptyprocess

from .deadlines import PATIENCE, ROOM, WHOLE
from .docs import ready_call
from .machine import alone

_SERVER = Path(ready_call.__file__).with_name("ready_forge.py")

_A_PIPE_HOLDS = 1000

_STARTED: list[subprocess.Popen[bytes]] = []
"""Kept, or Python would complain that nobody waited for it."""


class ReadyForge:
    def __init__(self, place: str) -> None:
        self.place = place
        self.forge = _command(place, "forge")
        """An executable file, for programs that start the command themselves."""
        self.python = _command(place, "python")
        """The same for `python FILE …`."""

    def __call__(
        self,
        *words: str,
        cwd: Path,
        env: Mapping[str, str],
        stdin: str = "",
        timeout: float = WHOLE,
        walls_known: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        """Until the command has ended and nobody holds its streams any more. `walls_known`: `forge doctor`, which
        tries the walls each time, is told of them too."""
        return self._run(["forge", *words], cwd, env, stdin, timeout, walls_known)

    def program(
        self, *words: str, cwd: Path, env: Mapping[str, str], timeout: float = WHOLE
    ) -> subprocess.CompletedProcess[str]:
        """`python WORD…`, of which the first is a file."""
        return self._run(["python", *words], cwd, env, "", timeout, False)

    def _run(
        self, words: list[str], cwd: Path, env: Mapping[str, str], stdin: str, timeout: float, walls_known: bool
    ) -> subprocess.CompletedProcess[str]:
        with contextlib.ExitStack() as mine:
            with contextlib.ExitStack() as theirs:
                streams, (out, err) = _streams(mine, theirs, stdin)
                wire = mine.enter_context(self._order(words, cwd, env, streams, walls_known=walls_known))
            process = ready_call.begun(wire)
            said = _read((out, err, wire.fileno()), timeout)
            if said is None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
                raise subprocess.TimeoutExpired(words, timeout)
        return subprocess.CompletedProcess(words, int(said[2]), said[0].decode(), said[1].decode())

    def start(
        self, command: Sequence[str], *, cwd: Path, env: Mapping[str, str], start_new_session: bool = False
    ) -> Started[str]:
        """Left running, with nothing on its standard input."""
        wire, _, out, err = self._begin(command, cwd, env, start_new_session)
        texts = (os.fdopen(stream, encoding="utf-8") for stream in (out, err))
        return Started(list(command), wire, None, *texts)

    def start_with_input(self, command: Sequence[str], *, cwd: Path, env: Mapping[str, str]) -> Started[bytes]:
        """Left running; all three streams are pipes, of bytes."""
        wire, given, out, err = self._begin(command, cwd, env, False, give=True)
        assert given is not None
        return Started(list(command), wire, os.fdopen(given, "wb"), os.fdopen(out, "rb"), os.fdopen(err, "rb"))

    def start_with_log(self, command: Sequence[str], log: Path, *, cwd: Path, env: Mapping[str, str]) -> Process:
        """Left running, with nothing on its standard input; what it says is added to the file."""
        with open(os.devnull) as nothing, log.open("ab") as file:
            streams = (nothing.fileno(), file.fileno(), file.fileno())
            return Process(list(command), self._order(list(command), cwd, env, streams))

    def _begin(
        self, command: Sequence[str], cwd: Path, env: Mapping[str, str], leads: bool, *, give: bool = False
    ) -> tuple[socket.socket, int | None, int, int]:
        mine, given = contextlib.ExitStack(), None
        with mine, contextlib.ExitStack() as theirs:
            streams, (out, err) = _streams(mine, theirs, "")
            if give:
                inside, given = os.pipe()
                theirs.callback(os.close, inside)
                mine.callback(os.close, given)
                streams = (inside, *streams[1:])
            wire = self._order(list(command), cwd, env, streams, leads=leads)
            mine.pop_all()  # whoever asked has them from here on
        return wire, given, out, err

    def on_a_terminal(
        self, command: Sequence[str], *, cwd: str | None, env: Mapping[str, str], dimensions: tuple[int, int]
    ) -> OnATerminal:
        """`command`: `forge WORD…`, or `python FILE …`; it leads the session that has the terminal."""
        ours, theirs = pty.openpty()
        try:
            fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", *dimensions, 0, 0))
            wire = self._order(list(command), Path(cwd or os.getcwd()), env, (theirs, theirs, theirs), leads=True)
        finally:
            os.close(theirs)
        return OnATerminal(list(command), wire, ours)

    def expecting(self, words: Sequence[str], **how: Any) -> Expecting:
        """`forge WORD…` on a terminal, for `pexpect`."""
        return Expecting(self, words, **how)

    def _order(
        self,
        words: list[str],
        cwd: Path,
        env: Mapping[str, str],
        streams: tuple[int, ...],
        *,
        walls_known: bool = False,
        leads: bool = False,
    ) -> socket.socket:
        wire = socket.socket(socket.AF_UNIX)
        wire.connect(self.place)
        ready_call.order(
            wire, words, cwd=str(cwd), env=dict(env), streams=streams, walls_known=walls_known, leads=leads
        )
        return wire


class Process:
    """One that was ordered: it is no child of this process, so its end comes over the connection."""

    def __init__(self, words: list[str], wire: socket.socket) -> None:
        self.args = words
        self._wire = wire
        self.pid = ready_call.begun(wire)
        self.returncode: int | None = None
        """As `subprocess` has it: a signal's number below zero."""

    def poll(self) -> int | None:
        return self.end(0)

    def end(self, within: float | None) -> int | None:
        """The code, if it ended within so many seconds."""
        if self.returncode is None:
            self._wire.settimeout(within)
            with contextlib.suppress(TimeoutError, BlockingIOError):
                self.returncode = ready_call.ended(self._wire)
                self._wire.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def wait(self, timeout: float | None = None) -> int:
        code = self.end(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return code

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


class Started(Process, Generic[AnyStr]):
    """As a `subprocess.Popen` whose streams are pipes."""

    def __init__(
        self, words: list[str], wire: socket.socket, given: IO[AnyStr] | None, out: IO[AnyStr], err: IO[AnyStr]
    ) -> None:
        super().__init__(words, wire)
        self.stdin: IO[AnyStr] | None = given
        self.stdout: IO[AnyStr] = out
        self.stderr: IO[AnyStr] = err

    def communicate(self, timeout: float | None = None) -> tuple[AnyStr, AnyStr]:
        """What is still to be read, once nothing more is written to it."""
        if self.stdin is not None and not self.stdin.closed:
            with contextlib.suppress(BrokenPipeError):
                self.stdin.close()
        said: list[Any] = [None, None]
        readers = [
            threading.Thread(target=_read_all, args=(stream, said, at), daemon=True)
            for at, stream in enumerate((self.stdout, self.stderr))
        ]
        end = None if timeout is None else time.monotonic() + timeout
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join(None if end is None else max(0.0, end - time.monotonic()))
            if reader.is_alive():
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
        self.wait(None if end is None else max(0.0, end - time.monotonic()))
        return said[0], said[1]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                stream.close()
        self.wait()


class OnATerminal(ptyprocess.PtyProcess):  # type: ignore[misc]
    """One that leads the session of a terminal of its own."""

    def __init__(self, command: list[str], wire: socket.socket, terminal: int) -> None:
        self._process = Process(command, wire)
        super().__init__(self._process.pid, terminal)

    def isalive(self) -> bool:
        return self._has_ended(0) is None

    def wait(self) -> int | None:
        self._has_ended(None)
        return self.exitstatus  # type: ignore[no-any-return]

    def close(self, force: bool = True) -> None:
        """It has lost its terminal then, which ends it; if not, it is killed."""
        if not self.closed:
            self.fileobj.close()
            self.fd, self.closed = -1, True
        if self._has_ended(ROOM) is None and force:
            self._process.send_signal(signal.SIGKILL)
            self._has_ended(PATIENCE)

    def _has_ended(self, within: float | None) -> int | None:
        code = self._process.end(within)
        if code is not None:
            self.terminated, self.status = True, code
            self.exitstatus, self.signalstatus = (code, None) if code >= 0 else (None, -code)
        return code


class Expecting(pexpect.spawn):  # type: ignore[misc]
    """A `pexpect.spawn` of one that is ready."""

    def __init__(self, ready: ReadyForge, words: Sequence[str], **how: Any) -> None:
        self._ready = ready
        super().__init__(ready.forge, list(words), **how)

    def _spawnpty(self, args: list[Any], **how: Any) -> OnATerminal:
        words = [word.decode() if isinstance(word, bytes) else word for word in args[1:]]
        made = self._ready.on_a_terminal(
            ["forge", *words], cwd=how["cwd"], env=how["env"], dimensions=how.get("dimensions", (24, 80))
        )
        made.setecho(how["echo"])
        return made


def run_in_process(
    capture: Any, *words: str, cwd: Path, env: Mapping[str, str], stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """`forge WORD…` in this process, where only words, texts and codes matter; nothing is on its standard input.
    `capture`: the fixture `capfd`."""
    from golem_forge.cli.main import main

    assert not stdin
    capture.readouterr()
    with (
        open(os.devnull) as nothing,
        mock.patch.object(sys, "stdin", nothing),
        mock.patch.dict(os.environ, env, clear=True),
        contextlib.chdir(cwd),
    ):
        try:
            code = main(list(words))
        except SystemExit as ended:
            code = int(ended.code or 0)
    return subprocess.CompletedProcess(words, code, *capture.readouterr())


def _command(place: str, name: str) -> str:
    file = Path(place).with_name(name)
    if not file.exists():
        file.write_text(f'#!/bin/sh\nexec {sys.executable} -IS {ready_call.__file__} {place} {name} "$@"\n')
        file.chmod(0o755)
    return str(file)


def _read_all(stream: IO[Any], said: list[Any], at: int) -> None:
    said[at] = stream.read()


def _streams(
    mine: contextlib.ExitStack, theirs: contextlib.ExitStack, stdin: str
) -> tuple[tuple[int, int, int], tuple[int, int]]:
    """The command's three, and our ends of the last two."""
    inside = _piped(theirs, stdin)
    out, their_out = _pipe(mine, theirs)
    err, their_err = _pipe(mine, theirs)
    return (inside, their_out, their_err), (out, err)


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
def serving(meeting: Path, walls: Path | None) -> Iterator[ReadyForge]:
    """One for all processes that come to the same directory, `meeting`: the first starts it, it ends when the last has
    gone, however that was. Whoever asks before it has imported all waits. `walls`: see known_walls; None: each command
    tries them, as the real one does."""
    named = meeting / "ready.place"
    with open(meeting / "ready.people", "a") as people:
        fcntl.flock(people, fcntl.LOCK_SH)
        with alone(meeting):
            if not named.exists() or not os.path.exists(named.read_text()):
                named.write_text(_start(people.name, walls))
            forge = ReadyForge(named.read_text())
        yield forge


def _start(people: str, walls: Path | None) -> str:
    """Where it listens: in a directory that it removes at its end."""
    place = os.path.join(tempfile.mkdtemp(prefix="forge-"), "ready")  # the address of a socket has little room
    with socket.socket(socket.AF_UNIX) as desk:
        desk.bind(place)
        desk.listen(64)
        server = subprocess.Popen(
            [sys.executable, str(_SERVER), place, "" if walls is None else str(walls), people, str(desk.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,  # never read, and open to the end: a command cannot turn a file into a pipe
            stderr=subprocess.STDOUT,
            pass_fds=[desk.fileno()],
            start_new_session=True,  # a Ctrl+C is for the tests, who end in order and still need it
        )
    _STARTED.append(server)
    return place
