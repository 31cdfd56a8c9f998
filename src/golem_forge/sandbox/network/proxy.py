"""HostProxy: the one way out of a child's network namespace, to exactly the granted `host:port` pairs.

Takes a listening socket that only the child can reach (`open_listener` opens it inside the child's namespace, by
the program `namespace_child.py`; WALLS_UNAVAILABLE if the system refuses: the command must not start then). A
granted name is looked up here (the child has no DNS), its addresses are checked, and the connection goes to a
checked address. Everything else gets 403 and is recorded in `refused`. Bounded: connections, head size, idle time.
`close` ends all connections. Where the user's own way out is an HTTP proxy (`HTTPS_PROXY`), granted hosts are
reached through it by name; a name known here to be private is refused first.

Threat: a request head that two readers understand differently. Lines that are no plain headers are refused, and the
forwarded head is written anew with the host that was checked. Only CONNECT and absolute-form HTTP are accepted.
Where a host has credentials (`sandbox.network.credentials`), absolute-form HTTP to it goes out by TLS.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import subprocess
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from golem_forge.config.sandbox_block import TLS_PORT
from golem_forge.core.lazy_dataclass import dataclass, field, replace
from golem_forge.core.regex import regex
from golem_forge.sandbox.errors import walls_unavailable
from golem_forge.sandbox.host import isolated
from golem_forge.sandbox.network.addresses import Lookup, PrivateAddress, connect, lookup, refuse_private, run_in_thread
from golem_forge.sandbox.network.credentials import MAX_ANSWER_HEAD, HeaderCredentials, Refused, exchange
from golem_forge.sandbox.network.port_forward import ClientServer, relay
from golem_forge.sandbox.walls.model import HostGrant

MAX_CONNECTIONS: Final = 64
MAX_HEAD: Final = 1 << 16
MAX_RECORDS: Final = 100
IDLE_SECONDS: Final = 60.0
CONNECT_SECONDS: Final = 20.0
_NOT_GRANTED: Final = "not among the approved hosts"
PRIVATE_ADDRESS: Final = "resolves to a private address"
_PROXY_VARIABLES: Final = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")
_MOST_ANSWER: Final = 1 << 14


_Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _ProxyAnswer(Exception):
    """Ends a client's request with a status of our own."""

    def __init__(self, status: str, text: str) -> None:
        super().__init__(text)
        body = f"{text}\n".encode()
        head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
        self.data = head.encode() + b"Connection: close\r\n\r\n" + body


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """The person's own HTTP proxy."""

    host: str
    port: int
    authorization: str = field(default="", repr=False)
    """The value of Proxy-Authorization; empty: none."""
    direct: tuple[str, ...] = ()
    """Names of NO_PROXY: these hosts, and what is below them, are reached without it."""

    def leads_to(self, host: str) -> bool:
        return not any(name == "*" or host == name or host.endswith(f".{name}") for name in self.direct)

    def request(self, host: str, port: int) -> bytes:
        target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        credentials = f"Proxy-Authorization: {self.authorization}\r\n" if self.authorization else ""
        return f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{credentials}\r\n".encode("latin-1")


def user_proxy(environ: Mapping[str, str]) -> Upstream | None:
    """Returns the person's HTTP proxy; None if their programs connect directly, or through another kind of proxy."""
    said = next((environ[name] for name in _PROXY_VARIABLES if environ.get(name)), "")
    try:
        parts = urlsplit(said if "://" in said else f"http://{said}")
        host, port = parts.hostname, parts.port or 80
    except ValueError:
        return None
    if not host or parts.scheme != "http":
        return None
    user = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    direct = (name.strip() for name in (environ.get("NO_PROXY") or environ.get("no_proxy") or "").split(","))
    return Upstream(
        host=host,
        port=port,
        authorization=f"Basic {b64encode(user.encode()).decode()}" if parts.username else "",
        direct=tuple(
            normalize_host(name.strip().removeprefix("*").removeprefix(".") or name) for name in direct if name.strip()
        ),
    )


class HostProxy(ClientServer):
    def __init__(
        self,
        grants: Sequence[HostGrant],
        *,
        upstream: Upstream | None = None,
        lookup: Lookup = lookup,
        idle_seconds: float = IDLE_SECONDS,
        credentials: HeaderCredentials | None = None,
        tls: Callable[[], ssl.SSLContext] = ssl.create_default_context,
    ) -> None:
        """`tls`: makes what the person's programs verify servers with."""
        super().__init__(limit=MAX_HEAD)
        self._credentials = credentials
        self._make_tls = tls
        self._tls: ssl.SSLContext | None = None
        self._grants = tuple(grants)
        self._upstream = upstream
        self._lookup = lookup
        self._idle_seconds = idle_seconds
        self._refused: dict[tuple[str, int, str], None] = {}
        self._unreached: dict[str, None] = {}

    @property
    def refused(self) -> tuple[dict[str, Any], ...]:
        """`{host, port, why}` for each target that was refused, in order, each once."""
        return tuple({"host": host, "port": port, "why": why} for host, port, why in self._refused)

    @property
    def unreached(self) -> tuple[str, ...]:
        """Granted `host:port` that this computer does not reach either. Few programs show what a proxy says."""
        return tuple(self._unreached)

    @property
    def passed_by(self) -> tuple[str, ...]:
        """Hosts with credentials that the child reached only by its own TLS tunnels; see HeaderCredentials."""
        return self._credentials.passed_by if self._credentials is not None else ()

    async def serve_inside(self, pid: int) -> None:
        """Serves on a socket in the network namespace of a process. Raises WALLS_UNAVAILABLE."""
        await self.serve(await open_listener(pid))

    async def _serve_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if len(self._clients) > MAX_CONNECTIONS:
                raise _ProxyAnswer("503 Service Unavailable", f"More than {MAX_CONNECTIONS} connections at once.")
            await self._serve_request(reader, writer)
        except _ProxyAnswer as answer:
            await _send(writer, answer.data)

    async def _serve_request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await self._read_head(reader)
        if self._credentials is not None and request.is_for(self._credentials):
            await self._serve_credential(request, self._credentials, (reader, writer))
            return
        addresses = await self._checked(request)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                far_reader, far_writer = await self._connected(request, addresses)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):  # a TimeoutError is an OSError too
            raise self._no_answer(request, f"{request.host}:{request.port} does not answer.") from None
        try:
            if request.forward is None:
                if self._credentials is not None:
                    self._credentials.tunnelled(request.host)
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                far_writer.write(request.forward)
            await relay((reader, far_writer), (far_reader, writer), self._idle_seconds)
        finally:
            self._drop(far_writer)

    async def _serve_credential(self, request: ProxyRequest, store: HeaderCredentials, client: _Stream) -> None:
        """Forwards a request with its credential by TLS, to the port that the host was granted for."""
        request = replace(request, port=TLS_PORT)
        try:
            going = store.prepare(request.host, request.method, request.target, request.headers, minor=request.minor)
            addresses = await self._checked(request)
            store.tell(going.use)
            server = await self._connected_by_tls(request, addresses)
        except Refused as error:
            raise self._credential_refusal(request, error) from None
        try:
            await exchange(going, client, server, store, self._idle_seconds)
        except Refused as error:
            raise _ProxyAnswer(f"{error.status.value} {error.status.phrase}", str(error)) from None
        except BaseException:  # an answer that ends early must not look complete
            client[1].transport.abort()
            raise
        finally:
            server[1].transport.abort()

    async def _connected_by_tls(self, request: ProxyRequest, addresses: tuple[str, ...]) -> _Stream:
        """Connects to the host by TLS. Raises _ProxyAnswer."""
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                if self._tls is None:
                    context = await run_in_thread(self._make_tls)
                    context.set_alpn_protocols(["http/1.1"])
                    self._tls = context
                if self._beyond(request.host) is None:
                    return await connect(
                        addresses, request.port, tls=self._tls, name=request.host, limit=MAX_ANSWER_HEAD
                    )
                reader, writer = await self._connected(request, addresses)
                try:
                    await writer.start_tls(self._tls, server_hostname=request.host)
                except BaseException:
                    writer.transport.abort()
                    raise
                return reader, writer
        except ssl.SSLError as error:
            why = getattr(error, "verify_message", "") or "its TLS cannot be used"
            raise _ProxyAnswer("502 Bad Gateway", f"{request.host} was not asked: {why}.") from None
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            raise self._no_answer(request, f"{request.host}:{request.port} does not answer.") from None

    def _credential_refusal(self, request: ProxyRequest, error: Refused) -> _ProxyAnswer:
        if error.status is HTTPStatus.FORBIDDEN and len(self._refused) < MAX_RECORDS:
            self._refused[request.host, request.port, str(error).rstrip(".")] = None
        return _ProxyAnswer(f"{error.status.value} {error.status.phrase}", str(error))

    async def _read_head(self, reader: asyncio.StreamReader) -> ProxyRequest:
        try:
            async with asyncio.timeout(self._idle_seconds):
                return read_request(await reader.readuntil(b"\r\n\r\n"))
        except asyncio.LimitOverrunError:
            raise _ProxyAnswer(
                "431 Request Header Fields Too Large", f"More than {MAX_HEAD} bytes of headers."
            ) from None
        except BadRequest as error:
            raise _ProxyAnswer("400 Bad Request", str(error)) from None

    def _beyond(self, host: str) -> Upstream | None:
        return self._upstream if self._upstream is not None and self._upstream.leads_to(host) else None

    async def _connected(
        self, request: ProxyRequest, addresses: tuple[str, ...]
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connects to a checked address, or through the person's proxy. Raises OSError, IncompleteReadError."""
        beyond = self._beyond(request.host)
        if beyond is None:
            return await connect(addresses, request.port)
        reader, writer = await connect(await self._lookup(beyond.host, beyond.port), beyond.port, limit=_MOST_ANSWER)
        try:
            writer.write(beyond.request(request.host, request.port))
            answer = await reader.readuntil(b"\r\n\r\n")
        except BaseException:
            writer.transport.abort()
            raise
        if answer.split(b" ", 2)[1:2] != [b"200"]:
            writer.transport.abort()
            status = answer.split(b"\r\n", 1)[0].decode("latin-1")[:100]
            raise _ProxyAnswer(
                "502 Bad Gateway", f"Your proxy did not connect to {request.host}:{request.port}: {status}"
            )
        return reader, writer

    async def _checked(self, request: ProxyRequest) -> tuple[str, ...]:
        """The addresses of a granted host. Nothing is looked up for one that was not granted. Empty: only the person's
        proxy knows them."""
        grant = find_grant(self._grants, request.host, request.port)
        if grant is None:
            raise self._refusal(request, _NOT_GRANTED)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                addresses = await self._lookup(request.host, request.port)
        except (OSError, UnicodeError):
            if self._beyond(request.host) is not None:
                return ()
            raise self._no_answer(request, f"Host '{request.host}' was not found.") from None
        if not grant.private:
            try:
                refuse_private(addresses)
            except PrivateAddress:
                raise self._refusal(request, PRIVATE_ADDRESS) from None
        return addresses

    def _refusal(self, request: ProxyRequest, why: str) -> _ProxyAnswer:
        if len(self._refused) < MAX_RECORDS:
            self._refused[request.host, request.port, why] = None
        return _ProxyAnswer("403 Forbidden", f"Blocked by the sandbox: {request.host}:{request.port} ({why}).")

    def _no_answer(self, request: ProxyRequest, text: str) -> _ProxyAnswer:
        if len(self._unreached) < MAX_RECORDS:
            self._unreached[f"{request.host}:{request.port}"] = None
        return _ProxyAnswer("502 Bad Gateway", text)


async def _send(writer: asyncio.StreamWriter, data: bytes) -> None:
    with contextlib.suppress(OSError, TimeoutError):
        writer.write(data)
        async with asyncio.timeout(5):
            await writer.drain()


_REQUEST_LINE: Final = regex(r"([A-Z]{1,20}) ([!-~]{1,8192}) HTTP/1\.([01])")
_HEADER: Final = regex(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00\r\n]*)")
_AUTHORITY: Final = regex(r"(\[[0-9a-fA-F:.]{2,45}\]|[A-Za-z0-9._-]{1,254})(?::([0-9]{1,5}))?")
_ABSOLUTE: Final = regex(r"(?i:http)://([^/?#@]+)([/?][^#]*)?")
_NOT_SENT_ON: Final = frozenset(
    {"host", "connection", "keep-alive", "proxy-connection", "proxy-authorization", "proxy-authenticate", "upgrade"}
)


class BadRequest(Exception):
    """Raised for a malformed request; the text is the answer's body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyRequest:
    host: str
    port: int
    forward: bytes | None
    """The head to send on; None for CONNECT, where nothing of it is."""
    method: str = "CONNECT"
    target: str = ""
    """Path and query."""
    headers: tuple[tuple[str, str], ...] = ()
    minor: str = "1"

    def is_for(self, store: HeaderCredentials) -> bool:
        """A request in plain HTTP to a host that has credentials."""
        return self.forward is not None and self.port == 80 and store.has(self.host)


def read_request(head: bytes) -> ProxyRequest:
    lines = head.decode("latin-1").split("\r\n")
    found = _REQUEST_LINE.fullmatch(lines[0])
    if found is None:
        raise BadRequest("This is an HTTP proxy.")
    method, target, minor = found.groups()
    headers: list[tuple[str, str]] = []
    for line in lines[1:]:
        header = _HEADER.fullmatch(line)
        if header is not None:
            headers.append((header[1], header[2]))
        elif line:
            raise BadRequest("A header line is malformed.")
    if method == "CONNECT":
        host, port = _authority(target, None)
        return ProxyRequest(host=host, port=port, forward=None)
    absolute = _ABSOLUTE.fullmatch(target)
    if absolute is None:
        raise BadRequest("Only CONNECT and http:// URLs are proxied.")
    authority, path = absolute.groups(default="")
    host, port = _authority(authority, 80)
    path = path if path.startswith("/") else f"/{path}"
    kept = [f"{name}: {value}" for name, value in headers if name.lower() not in _NOT_SENT_ON]
    # `close`: a connection that stayed open could carry a second request, for a host that nobody checked.
    shown = f"[{host}]" if ":" in host else host
    first = [f"{method} {path} HTTP/1.{minor}", f"Host: {shown}{'' if port == 80 else f':{port}'}", "Connection: close"]
    return ProxyRequest(
        host=host,
        port=port,
        forward="\r\n".join([*first, *kept, "", ""]).encode("latin-1"),
        method=method,
        target=path,
        headers=tuple(headers),
        minor=minor,
    )


def _authority(text: str, default: int | None) -> tuple[str, int]:
    found = _AUTHORITY.fullmatch(text)
    port = int(found[2]) if found and found[2] else default
    if found is None or port is None or not 0 < port < 65536:
        raise BadRequest("The target is not host:port.")
    return normalize_host(found[1]), port


def normalize_host(text: str) -> str:
    """Lower case, no final dot, no brackets around an address: one spelling to compare and to show."""
    return text.strip().removeprefix("[").removesuffix("]").lower().removesuffix(".")


def find_grant(grants: Sequence[HostGrant], host: str, port: int) -> HostGrant | None:
    """An exact grant goes before a pattern, whose `private` was not meant for this very host."""
    fitting = [grant for grant in grants if grant.port == port and _matches(normalize_host(grant.host), host)]
    return min(fitting, key=lambda grant: grant.host.startswith("*."), default=None)


def _matches(pattern: str, host: str) -> bool:
    if pattern.startswith("*."):
        return host.endswith(pattern[1:]) and len(host) >= len(pattern)
    return host == pattern


PROXY_PORT: Final = 3128
"""Fixed, because the child's environment is written before its namespace exists; nobody else is in there."""
_PATIENCE: Final = 10.0
_CHILD_PROGRAM: Final = Path(__file__).with_name("namespace_child.py")
_VARIABLES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
_YARN_VARIABLE: Final = "YARN_HTTPS_PROXY"
"""Yarn from version 2 on reads no other. Its sister for http is left out: Yarn knows no NO_PROXY, and a registry by
plain http is a service of this computer, which is there without the proxy."""


def proxy_environment() -> dict[str, str]:
    """Returns the proxy variables, in both spellings because programs read one or the other."""
    address = f"http://127.0.0.1:{PROXY_PORT}"
    names = [*_VARIABLES, *(name.lower() for name in _VARIABLES), _YARN_VARIABLE]
    return {**dict.fromkeys(names, address), "NO_PROXY": "", "no_proxy": ""}


async def open_listener(pid: int) -> socket.socket:
    return (await run_in_thread(partial(open_listeners_blocking, pid, [f"127.0.0.1:{PROXY_PORT}"])))[0]


def open_listeners_blocking(pid: int, places: Sequence[str]) -> list[socket.socket]:
    """Sockets that listen at each `host:port` in the network namespace of a process. Raises WALLS_UNAVAILABLE."""
    try:
        return open_sockets_blocking((str(pid), *places), len(places))
    except OSError as error:
        raise walls_unavailable(
            f"the proxy or a port for a service could not be opened inside ({error})",
            "Run the command without `network`, or see `forge doctor`.",
        ) from None


def open_sockets_blocking(orders: Sequence[str], count: int, before: Sequence[str] = ()) -> list[socket.socket]:
    """Opens sockets through `namespace_child.py`. `before`: words that start it inside the namespace. Raises OSError
    with the reason.
    """
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            child = subprocess.Popen(
                [*before, *isolated(str(_CHILD_PROGRAM), *orders)],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env={},
                cwd="/",
            )
        try:
            ours.settimeout(_PATIENCE)
            descriptors = socket.recv_fds(ours, 1, count, socket.MSG_CMSG_CLOEXEC)[1]
            found = [socket.socket(fileno=each) for each in descriptors]
            words = child.communicate(timeout=_PATIENCE)[1]
        except (TimeoutError, subprocess.TimeoutExpired):
            child.kill()
            child.communicate()
            raise OSError("it took too long") from None
    if len(found) != count:
        for each in found:
            each.close()
        lines = words.decode("utf-8", "replace").strip().splitlines()
        raise OSError(lines[-1][:200] if lines else "no reason given")
    return found
