"""Where the server can be reached: the page's address, and the control socket for commands of the same user.

`ListenAddress`: loopback and a free port by default. Refuses (ForgeError) an address that other machines reach without
an allowed host name: with any name allowed, a foreign page could point its own name here (DNS rebinding).
The control socket in FORGE_HOME/state/web, named by port, serves `forge web link` and `forge web status`. A request is
one word on one line, the answer one line of JSON. Raises OSError where there can be no socket.
Threat: whoever is answered gets in. Directory (0700) and socket (0600) belong to this user, and the kernel is asked who
is at the other end (SO_PEERCRED). A socket is named only when it listens, so one that refuses is stale and removed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import socket
import stat
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from golem_forge.core.errors import ForgeError
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.net.server_guard import AllowedHosts, check_bind, has_port, is_host, is_loopback, url_host
from golem_forge.storage.home import DIRECTORY_FLAGS, ForgeHome


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenAddress:
    host: str = "127.0.0.1"
    port: int = 0
    """0 means any free port."""
    allow_hosts: tuple[str, ...] = ()
    """Names besides the loopback ones, `NAME` with any port or `NAME:PORT`; behind a proxy the one people type."""

    def hosts(self, port: int) -> AllowedHosts:
        return AllowedHosts(port, self.allow_hosts)

    def address(self, port: int) -> str:
        """Returns the address that a person opens."""
        if is_loopback(self.host) or not self.allow_hosts:
            return f"http://{url_host(self.host)}:{port}/"
        name = self.allow_hosts[0]
        return f"http://{name}/" if has_port(name) else f"http://{name}:{port}/"


def check_address(listen: ListenAddress) -> None:
    """Checks the address before anything listens. Raises ForgeError."""
    for name in listen.allow_hosts:
        if not is_host(name):
            raise ForgeError(
                f"--allow-host {name!r} is not a host name; write NAME or NAME:PORT, without http://",
                code="BIND_REFUSED",
            )
    check_bind(listen.host, listen.allow_hosts)


LINK: Final = "link"
STATUS: Final = "status"
_DIRECTORY_PARTS: Final = ("state", "web")
_SUFFIX: Final = ".sock"
_MAX_ADDRESS: Final = 100
"""Bytes of a socket's path; the kernel takes 107, others fewer."""
_MAX_BYTES: Final = 1 << 16
_TIMEOUT_S: Final = 5.0
_MAX_UNNAMED_S: Final = 60.0
"""Seconds; more than a server takes from making its socket to naming it."""
_CREDENTIALS: Final = struct.Struct("3i")

ControlAnswers = Mapping[str, Callable[[], dict[str, Any]]]
"""Request → the function that makes its answer."""


class ControlSocket:
    def __init__(self, home: ForgeHome, port: int, answers: ControlAnswers) -> None:
        self._home = home
        self._name = f"{port}-{secrets.token_hex(4)}{_SUFFIX}"
        self._answers = answers
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        make_directory(self._home)
        with _directory(self._home) as place:
            _remove_stale(place)
            unnamed = f".{self._name}"
            listener = socket.socket(socket.AF_UNIX)
            try:
                listener.setblocking(False)
                listener.bind(place.address(unnamed))
                os.chmod(unnamed, 0o600, dir_fd=place.fd)
                listener.listen(8)
                os.rename(unnamed, self._name, src_dir_fd=place.fd, dst_dir_fd=place.fd)
                self._server = await asyncio.start_unix_server(self._serve, sock=listener, limit=_MAX_BYTES)
            except BaseException:
                listener.close()
                for name in (unnamed, self._name):
                    with contextlib.suppress(OSError):
                        os.unlink(name, dir_fd=place.fd)
                raise

    async def close(self) -> None:
        """Closes the socket; safe to call twice."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        with contextlib.suppress(OSError), _directory(self._home) as place:
            os.unlink(self._name, dir_fd=place.fd)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if not _is_same_user(writer.get_extra_info("socket")):
                return
            async with asyncio.timeout(_TIMEOUT_S):
                asked = (await reader.readuntil(b"\n")).decode("ascii", "replace").strip()
                make = self._answers.get(asked)
                answer = make() if make is not None else {"problem": "this server does not know that request"}
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        except (OSError, EOFError, asyncio.LimitOverrunError):  # TimeoutError is an OSError
            pass
        finally:
            writer.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningServer:
    name: str
    """The name of its socket."""
    status: Mapping[str, Any]

    @property
    def port(self) -> int:
        return int(self.status["port"])


def running_servers(home: ForgeHome) -> list[RunningServer]:
    """Returns the servers of this home, by port. Raises PermissionError if the directory of the sockets is not this
    user's.
    """
    found = []
    try:
        with _directory(home) as place:
            for name in sorted(os.listdir(place.fd)):
                if name.endswith(_SUFFIX) and not name.startswith("."):
                    status = _ask(place, name, STATUS)
                    if status is not None and isinstance(status.get("port"), int):
                        found.append(RunningServer(name=name, status=status))
    except FileNotFoundError:
        return []
    return sorted(found, key=lambda one: one.port)


def ask_server(home: ForgeHome, server: RunningServer, request: str) -> dict[str, Any] | None:
    """Asks a running server; None if it has ended or does not answer."""
    try:
        with _directory(home) as place:
            return _ask(place, server.name, request)
    except FileNotFoundError:
        return None


def make_directory(home: ForgeHome) -> Path:
    """FORGE_HOME/state/web, for this user alone. Raises OSError, also where it is another user's."""
    made = home.ensure(*_DIRECTORY_PARTS)
    with _directory(home) as place:
        os.chmod(place.path, 0o700)
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class _Directory:
    path: str
    fd: int

    def address(self, name: str) -> str:
        """A path that fits into a socket's address, however long the directory's own is."""
        plain = os.path.join(self.path, name)
        return plain if len(os.fsencode(plain)) <= _MAX_ADDRESS else f"/proc/self/fd/{self.fd}/{name}"


@contextlib.contextmanager
def _directory(home: ForgeHome) -> Iterator[_Directory]:
    path = os.path.join(home.path, *_DIRECTORY_PARTS)
    fd = os.open(path, DIRECTORY_FLAGS)
    try:
        about = os.fstat(fd)
        if about.st_uid != os.getuid() or stat.S_IMODE(about.st_mode) & 0o022:
            raise PermissionError("other users can write to the directory state/web of FORGE_HOME; remove it")
        yield _Directory(path=path, fd=fd)
    finally:
        os.close(fd)


def _remove_stale(place: _Directory) -> None:
    """Removes sockets without a server, also unnamed ones unless their server may still be starting."""
    for name in os.listdir(place.fd):
        if name.endswith(_SUFFIX) and not (name.startswith(".") and _is_young(place, name)):
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as trying:
                trying.settimeout(_TIMEOUT_S)
                _connect(trying, place, name)


def _is_young(place: _Directory, name: str) -> bool:
    try:
        return time.time() - os.stat(name, dir_fd=place.fd, follow_symlinks=False).st_mtime < _MAX_UNNAMED_S
    except OSError:
        return True  # it has its name by now


def _ask(place: _Directory, name: str, request: str) -> dict[str, Any] | None:
    try:
        with socket.socket(socket.AF_UNIX) as asking:
            asking.settimeout(_TIMEOUT_S)
            _connect(asking, place, name)
            if not _is_same_user(asking):
                return None
            asking.sendall(request.encode() + b"\n")
            answer = b""
            while not answer.endswith(b"\n") and len(answer) < _MAX_BYTES and (piece := asking.recv(_MAX_BYTES)):
                answer += piece
        said = json.loads(answer)
    except (OSError, ValueError):
        return None
    return said if isinstance(said, dict) else None


def _connect(client: socket.socket, place: _Directory, name: str) -> None:
    try:
        client.connect(place.address(name))
    except ConnectionRefusedError:
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=place.fd)
        raise


def _is_same_user(connection: Any) -> bool:
    if not hasattr(socket, "SO_PEERCRED"):  # the modes of directory and socket hold there
        return True
    _, uid, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return bool(uid == os.getuid())
