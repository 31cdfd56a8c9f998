"""The loopback of a session: a network namespace that its commands share, and single ports of the host's own loopback.

`SessionLoopback` is a network namespace with a loopback and nothing else, held by descriptors, without a process.
`make_loopback` lets bubblewrap make it, because a machine's profile may allow namespaces to that program alone, and
tries once whether a command can join it. It raises LoopbackUnavailable with the reason where the system refuses; each
command then has a loopback of its own. `hold` gives the words that go before those of bubblewrap: nsenter enters the
owning user namespace and then this one. `connect` reaches a server in there from this process, by sockets that were
opened inside; `listening` says who listens. `SessionLoopbacks` is a part of the session: one namespace for each set of
zones, made with the first command.

Threats: a descriptor of the namespace that reaches a child would be power over everything in it, so nsenter opens it
through Forge's own /proc entry and nothing is inherited. A number that is closed and used again could lead a command
into another session, so each start holds descriptors of its own until its command runs. The namespace is made without
`--disable-userns`, because each command's own user namespace lies below it; theirs cannot have further ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import select
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import lru_cache, partial
from ipaddress import IPv4Address, IPv6Address
from itertools import islice
from typing import TYPE_CHECKING, Final

from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.text import one_line
from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.network.addresses import ThreadLimitReached, connect, run_in_thread
from golem_forge.sandbox.network.port_forward import PortForward, Streams
from golem_forge.sandbox.network.proxy import open_listeners_blocking, open_sockets_blocking
from golem_forge.sandbox.walls.bubblewrap import find_bwrap, find_system_program
from golem_forge.sandbox.walls.model import HostGrant

if TYPE_CHECKING:
    from golem_forge.sandbox.walls.walls import Walls


NAME: Final = "localhost"
_ADDRESSES: Final = ("127.0.0.1", "::1")
"""The addresses of `localhost`, inside and outside."""


class HostServices:
    """Single ports of this machine's own loopback, reachable at the same address in one call's namespace.

    Takes grants such as `localhost:5432` that a rule with `private: true` or a person allowed for this call.
    `serve_inside` opens a listening socket for each in the namespace of the call's process (WALLS_UNAVAILABLE if the
    system refuses: the command must not start then) and passes its connections on, TCP only, to exactly that port. Each
    connection is told to `reached` before it is made, for the journal. `close` ends all of them.
    """

    def __init__(self, grants: Sequence[HostGrant], reached: Callable[[HostGrant], None]) -> None:
        self._grants = tuple(grants)
        self._forwards = [
            PortForward(partial(connect, _addresses(grant), grant.port), seen=partial(reached, grant))
            for grant in self._grants
        ]

    async def serve_inside(self, pid: int) -> None:
        wanted = [
            (forward, address, grant.port)
            for forward, grant in zip(self._forwards, self._grants, strict=True)
            for address in _addresses(grant)
        ]
        try:
            await self._serve(pid, wanted)
        except SandboxError:  # a machine without IPv6: the name has the other address, too
            least = [each for each in wanted if ":" not in each[1]]
            if len(least) == len(wanted) or len({each[0] for each in least}) < len(self._forwards):
                raise
            await self._serve(pid, least)

    async def _serve(self, pid: int, wanted: Sequence[tuple[PortForward, str, int]]) -> None:
        places = [f"{address}:{port}" for _, address, port in wanted]
        listeners = await run_in_thread(partial(open_listeners_blocking, pid, places))
        for (forward, _, _), listener in zip(wanted, listeners, strict=True):
            await forward.serve(listener)

    def close(self) -> None:
        """May be called twice, or before `serve_inside`."""
        for forward in self._forwards:
            forward.close()


def _addresses(grant: HostGrant) -> tuple[str, ...]:
    return _ADDRESSES if grant.host == NAME else (grant.host,)


def bypassing(grants: Sequence[HostGrant]) -> str:
    """Returns the value of NO_PROXY: hosts that are reached directly inside the namespace and not through the proxy."""
    return ",".join(dict.fromkeys(place for grant in grants for place in (grant.host, *_addresses(grant))))


_GET_USER_NAMESPACE: Final = 0xB701
_PATIENCE_S: Final = 10.0
_MADE_WITH: Final = ("--unshare-user", "--unshare-net", "--ro-bind", "/", "/", "--cap-drop", "ALL")
_TRIED_WITH: Final = ("--unshare-user", "--disable-userns", "--ro-bind", "/", "/", "--cap-drop", "ALL")
_ENVIRONMENT: Final = {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}
_MOST_SAID: Final = 200
_AT_ONCE: Final = 8
"""Number of sockets that one helper process opens inside."""
OWN_LOOPBACK: Final = "each command has a loopback of its own, so no other command reaches a server in it"


class LoopbackUnavailable(Exception):
    """The text is the reason, in words that follow a colon."""


class NamespaceHold:
    """Descriptors of one namespace, for as long as somebody needs to enter it."""

    def __init__(self, user: int, network: int) -> None:
        self._descriptors = [user, network]
        here = f"/proc/{os.getpid()}/fd"
        self.words: Final = (
            find_system_program("nsenter") or "nsenter",
            f"--user={here}/{user}",
            f"--net={here}/{network}",
            "--preserve-credentials",
            "--",
        )
        """What goes before the words of a program that is to run in there."""
        self.descriptors: Final = (user, network)

    def close(self) -> None:
        """Closes the descriptors. May be called twice."""
        while self._descriptors:
            os.close(self._descriptors.pop())


class SessionLoopback:
    def __init__(self, user: int, network: int) -> None:
        """Takes ownership of the descriptors."""
        self._hold = NamespaceHold(user, network)
        self.number = os.fstat(network).st_ino
        """By which the system knows it: `net:[number]`."""
        self.closed = False
        self._sockets: dict[socket.AddressFamily, list[socket.socket]] = {}
        """Opened inside and not used yet: a process in between takes far longer than a connection."""
        self._opening = asyncio.Lock()

    def hold(self) -> NamespaceHold:
        """The caller closes it. Raises OSError where it is closed, or no descriptor is left."""
        if self.closed:
            raise OSError("the session has ended")
        user, network = self._hold.descriptors
        copy = os.dup(user)
        try:
            return NamespaceHold(copy, os.dup(network))
        except OSError:
            os.close(copy)
            raise

    def close(self) -> None:
        """Releases the namespace, which ends with its last process."""
        self.closed = True
        self._hold.close()
        for each in self._sockets.values():
            while each:
                each.pop().close()

    async def connect(
        self, port: int, *, tls: ssl.SSLContext | None = None, name: str = "", limit: int = 1 << 16
    ) -> Streams:
        """Connects to a listener inside, on 127.0.0.1 or else on ::1. Raises OSError."""
        failure: OSError | None = None
        for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
            try:
                ours = await self._take(family)
            except OSError as error:  # a machine without IPv6
                failure = failure or error
                continue
            try:
                ours.setblocking(False)
                await asyncio.get_running_loop().sock_connect(ours, (address, port))
                return await asyncio.open_connection(
                    sock=ours, ssl=tls, server_hostname=name if tls else None, limit=limit
                )
            except BaseException as error:
                ours.close()
                if not isinstance(error, OSError) or isinstance(error, ssl.SSLError):
                    raise
                failure = failure or error
        raise failure or OSError("no address")

    async def _take(self, family: socket.AddressFamily) -> socket.socket:
        async with self._opening:
            ready = self._sockets.setdefault(family, [])
            if not ready:
                held = self.hold()
                try:
                    opened = await run_in_thread(partial(_open_inside, held, family))
                except ThreadLimitReached:
                    held.close()
                    raise
                if self.closed:
                    for each in opened:
                        each.close()
                    raise OSError("the session has ended")
                ready += opened
            return ready.pop()

    def listening(self) -> tuple[ListeningPort, ...]:
        """Returns what listens inside, by port. Reads /proc, so call it in a thread."""
        found = {each.port: each for each in reversed(tuple(_listening(self.number)))}
        return tuple(found[port] for port in sorted(found))


def _open_inside(held: NamespaceHold, family: socket.AddressFamily) -> list[socket.socket]:
    """Closes what it is given: whoever waits for it may have left."""
    kind = "tcp6" if family is socket.AF_INET6 else "tcp4"
    try:
        return open_sockets_blocking(("0", f"{kind}*{_AT_ONCE}"), _AT_ONCE, held.words)
    finally:
        held.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class ListeningPort:
    port: int
    address: str
    command: str = ""
    """Its words, as the process wrote them: show them escaped and without secrets. Empty: nobody was found."""
    since: float = 0.0
    """Start time of that process in seconds since the epoch; 0 if unknown."""


_LISTENS: Final = "0A"
_MOST_LISTENING: Final = 200
_MOST_LINES: Final = 10_000
_MOST_PROCESSES: Final = 4_096
_MOST_DESCRIPTORS: Final = 50_000
_LONGEST_COMMAND: Final = 4_096


def _listening(number: int) -> Iterator[ListeningPort]:
    inside = _processes_in(number)
    if not inside:
        return
    sockets = dict(_listening_sockets(inside[0]))
    owners = _owners(inside, {f"socket:[{each}]" for each in sockets})
    for inode, (address, port) in sockets.items():
        pid = owners.get(f"socket:[{inode}]")
        yield ListeningPort(
            port=port, address=address, command=_command_of(pid) if pid else "", since=_began(pid) if pid else 0.0
        )


def _processes_in(number: int) -> list[int]:
    name, found = f"net:[{number}]", []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{entry}/ns/net") == name:
                    found.append(int(entry))
                    if len(found) == _MOST_PROCESSES:
                        break
    return found


def _listening_sockets(pid: int) -> Iterator[tuple[str, tuple[str, int]]]:
    """(inode, (address, port)) of what listens in the namespace of a process."""
    left = _MOST_LISTENING
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/net/{table}", "rb") as file:
            for line in islice(file, _MOST_LINES):
                words = line.decode("ascii", "replace").split()
                if len(words) > 9 and words[3] == _LISTENS and left:
                    left -= 1
                    address, _, port = words[1].rpartition(":")
                    yield words[9], (_address(address), int(port, 16))


def _address(text: str) -> str:
    """Parses an address as the kernel writes it: words of four bytes, each in the byte order of the processor."""
    raw = b"".join(bytes.fromhex(text[at : at + 8])[::-1] for at in range(0, len(text), 8))
    return str(IPv4Address(raw) if len(raw) == 4 else IPv6Address(raw))


def _owners(pids: list[int], links: set[str]) -> dict[str, int]:
    """Returns for each socket the first process that has it open."""
    found: dict[str, int] = {}
    left = _MOST_DESCRIPTORS
    for pid in pids:
        if len(found) == len(links) or left <= 0:
            break
        with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/fd") as entries:
            for entry in islice(entries, left):
                left -= 1
                with contextlib.suppress(OSError):
                    link = os.readlink(entry.path)
                    if link in links:
                        found.setdefault(link, pid)
    return found


def _command_of(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read(_LONGEST_COMMAND).rstrip(b"\0").replace(b"\0", b" ").decode("utf-8", "replace")
    except OSError:
        return ""


def _began(pid: int) -> float:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            ticks = int(file.read(_LONGEST_COMMAND).rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0.0
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK")


async def make_loopback() -> SessionLoopback:
    return await run_in_thread(make_loopback_blocking)


def make_loopback_blocking() -> SessionLoopback:
    bwrap, nsenter = find_bwrap(), find_system_program("nsenter")
    if bwrap is None or nsenter is None:
        raise LoopbackUnavailable(f"{'bubblewrap' if bwrap is None else 'nsenter of util-linux'} is not installed")
    try:
        made = _made(bwrap)
    except subprocess.TimeoutExpired:
        raise LoopbackUnavailable("it took too long") from None
    except OSError as error:
        raise LoopbackUnavailable(error.strerror or "the system refused") from None
    try:
        _try_to_join(bwrap, made)
    except BaseException:
        made.close()
        raise
    return made


def _made(bwrap: str) -> SessionLoopback:
    """Taken from a process that waits in it; what waits ends with the pipe that it reads from."""
    read, write = os.pipe()
    try:
        with subprocess.Popen(
            [bwrap, *_MADE_WITH, "--info-fd", str(write), "--", "/bin/sh", "-c", "printf .; read -r line; exit 0"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=(write,),
            env=_ENVIRONMENT,
            cwd="/",
        ) as child:
            try:
                assert child.stdout is not None
                select.select([child.stdout], [], [], _PATIENCE_S)  # the byte says that the loopback is up
                os.set_blocking(child.stdout.fileno(), False)
                found = _namespaces_of(read) if child.stdout.read(1) else None
                words = child.communicate(timeout=_PATIENCE_S)[1]
            except BaseException:
                child.kill()
                raise
    finally:
        os.close(read)
        os.close(write)
    if found is None or child.returncode:
        if found is not None:
            found.close()
        raise LoopbackUnavailable(_last_words(words))
    return found


def _namespaces_of(info: int) -> SessionLoopback:
    pid = json.loads(os.read(info, 4096))["child-pid"]
    network = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if os.path.samestat(os.fstat(network), os.stat("/proc/self/ns/net")):
            raise LoopbackUnavailable("bubblewrap made no network namespace")
        user = fcntl.ioctl(network, _GET_USER_NAMESPACE)
    except BaseException:
        os.close(network)
        raise
    return SessionLoopback(user, network)


@lru_cache(maxsize=4)
def _tried_before(bwrap: str, user: int) -> list[str]:
    """Returns the cached result of this process's first attempt: an empty list before it, `""` if it worked."""
    return []


def _try_to_join(bwrap: str, made: SessionLoopback) -> None:
    """Tests once per process whether the namespace can be entered. Raises LoopbackUnavailable."""
    known = _tried_before(bwrap, os.geteuid())
    if not known:
        known.append(_joining_problem(bwrap, made))
    if known[0]:
        raise LoopbackUnavailable(known[0])


def _joining_problem(bwrap: str, made: SessionLoopback) -> str:
    held = made.hold()
    try:
        tried = subprocess.run(
            [*held.words, bwrap, *_TRIED_WITH, "--", "/bin/sh", "-c", "exec readlink /proc/self/ns/net"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE_S,
            env=_ENVIRONMENT,
            cwd="/",
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return "it cannot be joined"
    finally:
        held.close()
    if tried.stdout.strip() == f"net:[{made.number}]".encode():
        return ""
    return f"it cannot be joined ({_last_words(tried.stderr)})"


def _last_words(said: bytes) -> str:
    lines = said.decode("utf-8", "replace").strip().splitlines()
    return one_line(lines[-1].rpartition(": ")[2])[:_MOST_SAID] if lines else "no reason given"


def loopback_key(walls: Walls, guest: str) -> Hashable:
    """Returns the key of a shared loopback: workers of one caller (`guest`: a client of a served session) with the same
    zones, modes and path rules share it.
    """
    return (guest, walls.sharing_key())


class SessionLoopbacks:
    """A part of the session. Who shares one is said by a key: whose calls they are, and their zones."""

    def __init__(self) -> None:
        self._made: dict[Hashable, SessionLoopback] = {}
        self._lock = asyncio.Lock()
        self._closed = False
        self.problem = ""
        """Why commands of this session have a loopback each; empty: they share one, or none ran yet."""

    @property
    def made(self) -> tuple[SessionLoopback, ...]:
        """Returns all loopbacks, also those of sub-workers with other zones."""
        return tuple(self._made.values())

    def find(self, key: Hashable) -> SessionLoopback | None:
        """Returns the loopback of this key, or None if it was not made yet."""
        return self._made.get(key)

    async def get(self, key: Hashable) -> SessionLoopback | None:
        """Returns the loopback of this key and makes it when first needed; None if that failed (see `problem`)."""
        async with self._lock:
            if key not in self._made and not self.problem and not self._closed:
                try:
                    self._made[key] = await make_loopback()
                except (LoopbackUnavailable, OSError) as error:
                    self.problem = str(error)
            return self._made.get(key)

    async def aclose(self) -> None:
        self._closed = True
        async with self._lock:
            while self._made:
                self._made.popitem()[1].close()
