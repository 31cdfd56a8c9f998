"""The throw-away place of a probe: zones, secrets, sockets and a terminal to attempt things at, and their fate.

Made by Forge for one level's try, removed afterwards. `asked` tells the child inside what to attempt; `touched` is the
other half of the evidence: whatever the child says, nothing outside may have changed and nobody may have called.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import glob
import os
import pty
import secrets
import select
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from golem_forge.sandbox.limits import Limits
from golem_forge.sandbox.walls.levels import Level
from golem_forge.sandbox.walls.seccomp_numbers import PROCESSORS

_GIT: Final = {"HEAD", "config", "hooks", "objects", "refs"}
LIMITS: Final = Limits(cpu_s=60, file_size=1 << 16, open_files=64)
FORBIDDEN_CALLS: Final = (
    *("ptrace", "process_vm_readv", "process_vm_writev", "io_uring_setup", "bpf", "perf_event_open", "keyctl"),
    *("add_key", "mount", "umount2", "pivot_root", "move_mount", "open_tree", "fsopen", "fsmount", "mount_setattr"),
    *("kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module"),
)
_SYSTEM_PYTHON: Final = "/usr/bin/python3"
_UNREACHABLE: Final = -1
"""As every argument: a call that nothing refuses fails by another name, and does no harm."""

_LONGEST_PLACE: Final = 60
"""The name of a socket has 107 bytes."""


@dataclass(slots=True)
class Ground:
    level: Level
    root: Path = field(default_factory=lambda: _new_root())
    canary: str = field(default_factory=lambda: secrets.token_hex(16))
    sockets: dict[str, socket.socket] = field(default_factory=dict)
    terminal: tuple[int, int] = (-1, -1)
    _before: dict[Path, tuple[int, ...]] = field(default_factory=dict)

    @property
    def zone(self) -> Path:
        return self.root / "zone"

    @property
    def closed(self) -> Path:
        return self.root / "closed"

    @property
    def outside(self) -> Path:
        return self.root / "outside"

    @property
    def forge_home(self) -> Path:
        return self.root / "home"

    @property
    def abstract(self) -> str:
        return f"forge-probe-{self.canary[:8]}"

    def __enter__(self) -> Self:
        try:
            self._lay_out()
            self._listen()
            self.terminal = pty.openpty()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for made in self.sockets.values():
            made.close()
        for descriptor in self.terminal:
            with contextlib.suppress(OSError):
                os.close(descriptor)
        shutil.rmtree(self.root, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.unlink(f"/usr/{self.abstract}")  # only where walls did not hold

    def asked(self) -> dict[str, Any]:
        """For the child; what stands in for Forge adds its own `parent` and `session`."""
        numbers = PROCESSORS[os.uname().machine].numbers
        return {
            "zone": str(self.zone),
            "closed": str(self.closed),
            "outside": str(self.outside),
            "canary": self.canary,
            "names": ["FORGE_PROBE"],
            "mark": self.abstract,
            "abstract": self.abstract,
            "unix": str(self.outside / "socket"),
            "tcp": self.sockets["tcp"].getsockname()[1],
            "udp": self.sockets["udp"].getsockname()[1],
            "terminal": os.ttyname(self.terminal[1]),
            "hidden": self.level is Level.FULL,
            "calls": {name: [numbers[name], *[_UNREACHABLE] * 6] for name in FORBIDDEN_CALLS if name in numbers},
            "limits": {"CPU": LIMITS.cpu_s, "FSIZE": LIMITS.file_size, "NOFILE": LIMITS.open_files, "CORE": 0},
        }

    def touched(self) -> Iterator[str]:
        """Guarantees that were broken, whatever the child said."""
        if any(_state(path) != before for path, before in self._before.items()) or self._more_names():
            yield "G1"
            yield "G3"
        if set(os.listdir(self.zone / ".git")) != _GIT:
            yield "G3"
        for name, guarantee in {"tcp": "G5", "udp": "G5", "stream": "G6", "datagram": "G6", "abstract": "G6"}.items():
            if select.select([self.sockets[name]], [], [], 0)[0]:
                yield guarantee

    def held_by_somebody(self) -> bool:
        """Whether a process from inside still lives: it holds the lock."""
        with open(self.closed / "lock", "rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                return error.errno == errno.EWOULDBLOCK
        return False

    def _lay_out(self) -> None:
        for folder in (self.zone / ".git" / "hooks", self.zone / "deep" / "er", self.closed, self.outside):
            folder.mkdir(parents=True)
        self.forge_home.mkdir()
        for path in (self.outside / "file", self.zone / ".env", self.zone / "deep" / "er" / "id_rsa"):
            path.write_text(self.canary)
        for path in (self.closed / "file", self.closed / "lock", self.zone / ".git" / "config", self.zone / "plain"):
            path.write_text("plain\n")
        (self.zone / "to_secret").symlink_to(".env")
        for name in ("objects", "refs"):
            (self.zone / ".git" / name).mkdir()
        (self.zone / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
        watched = (
            self.outside / "file",
            self.closed / "file",
            self.zone / ".git" / "config",
            self.zone / ".git" / "hooks",
            self.zone / ".git" / "HEAD",
        )
        self._before = {path: _state(path) for path in watched}

    def _more_names(self) -> bool:
        names = {*os.listdir(self.outside), *os.listdir(self.closed)}
        return not names <= {"file", "lock", "socket", "datagrams"} or os.path.lexists(f"/usr/{self.abstract}")

    def _listen(self) -> None:
        places: dict[str, tuple[int, int, Any]] = {
            "tcp": (socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
            "udp": (socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
            "stream": (socket.AF_UNIX, socket.SOCK_STREAM, str(self.outside / "socket")),
            "datagram": (socket.AF_UNIX, socket.SOCK_DGRAM, str(self.outside / "datagrams")),
            "abstract": (socket.AF_UNIX, socket.SOCK_STREAM, "\0" + self.abstract),
        }
        for name, (family, kind, address) in places.items():
            self.sockets[name] = made = socket.socket(family, kind)
            made.bind(address)
            if kind == socket.SOCK_STREAM:
                made.listen()


def _new_root() -> Path:
    """In the temporary directory, unless its path is too long for a socket's name: then in a shorter one."""
    places = [tempfile.gettempdir(), "/tmp", "/var/tmp"]  # noqa: S108 - a directory of its own is made there
    short = [place for place in places if len(os.fsencode(os.path.realpath(place))) <= _LONGEST_PLACE]
    for place in short:
        with contextlib.suppress(OSError):
            return Path(os.path.realpath(tempfile.mkdtemp(prefix="forge-probe-", dir=place)))
    return Path(os.path.realpath(tempfile.mkdtemp(prefix="forge-probe-")))


def interpreter() -> tuple[str, tuple[str, ...]]:
    """A Python that can run inside, and what must be shown for it: nothing if it belongs to the system, which saves
    looking through a whole installation for secrets."""
    if os.access(_SYSTEM_PYTHON, os.X_OK) and glob.glob("/usr/lib*/python3.*/lib-dynload/_ctypes.*"):
        return _SYSTEM_PYTHON, ()
    base = os.path.realpath(sys.base_prefix)
    return os.path.realpath(sys.executable), () if base in ("/usr", "/usr/local") else (base,)


def _state(path: Path) -> tuple[int, ...]:
    try:
        info = path.stat()
    except OSError:
        return ()
    return info.st_ino, info.st_mode, info.st_size, info.st_mtime_ns, info.st_uid
