"""Credentials at the proxy: a child asks `http://HOST/…`, the request goes out by TLS, and a header gets its value only
where the child wrote a placeholder.

`HeaderCredentials` takes the entries of `sandbox.credentials` for the hosts of one child, and the environment that has
their values; `prepare` takes one request of the child and gives an OutgoingRequest, or refuses (Refused: status and a
sentence). `exchange` sends it over a connection that somebody opened and verified, and passes the answer on. There is
one request a connection, in both directions.

Threat: the child is hostile, the server is not, but may answer with what it was sent. So: a path is accepted in its one
plain spelling only, and held against the lists decoded; every head is written anew and every body framed anew, so that
what follows a request can never become one; TRACE, upgrades, ranges, and headers by which servers take another method
or path are refused. Answers come uncompressed, without cookies (a session for the credential's owner), and with every
spelling of the value taken out, in heads and bodies, across pieces; a body is passed on in whole lines, in pieces of a
fixed size, and at its end, so that the time of an echo says nothing of the value. Redirects are passed on; nobody here
follows one. A server that encodes what it echoes in a way of its own is beyond this: choose paths that do not echo.
"""

from __future__ import annotations

import asyncio
import base64
import re
import unicodedata
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Final
from urllib.parse import unquote

from golem_forge.config.sandbox_block import PLACEHOLDER, HostCredential, credential_parts, decoded_basic
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.regex import regex
from golem_forge.events.redaction import Redactor, StreamRedactor

MOST_REQUESTS: Final = 1000
"""Maximum requests of one child to all hosts that have credentials, also those without a placeholder: an answer tells
whether a value that the child guessed is right. Each use is a line of the journal.
"""
MAX_ANSWER_HEAD: Final = 1 << 16
_LONGEST_PATH: Final = 2048
_MOST_INTERIM: Final = 8
_PIECE: Final = 1 << 16
_PLACEHOLDER: Final = regex(rf"{PLACEHOLDER}([A-Za-z0-9_]+)")
_VALUE: Final = regex(r"[!-~][ -~]{6,16382}[!-~]")
"""Shorter ones could not be told from ordinary text, in base64 least of all."""
_ESCAPE: Final = regex(r"%([0-9A-Fa-f]{2})?")
_PLAIN_PATH: Final = regex(r"/(?:[A-Za-z0-9._~!$&'()*+,=:@/-]|%[0-9A-Fa-f]{2})*")
_NEVER_ESCAPED: Final = regex(r"[A-Za-z0-9._~/\\%;?#\x00-\x1f\x7f-]")
"""Characters that need no escape in a path, or that servers which decode twice would read differently."""
_SEPARATES: Final = regex(r"[./\\%;?#]")
_CONTROL: Final = regex(r"[\x00-\x08\x0a-\x1f\x7f]")
_LENGTH: Final = regex(r"[0-9]{1,15}")
_CHUNK: Final = regex(rb"([0-9A-Fa-f]{1,8})(?:[ \t]*;[^\r\n]{0,200})?\r\n")
_STATUS: Final = regex(r"HTTP/1\.[01] ([1-5][0-9]{2})(?: [^\r\n\x00]*)?")
_HEADER: Final = regex(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00\r\n]*)")
_HOP_BY_HOP: Final = frozenset(
    {"connection", "keep-alive", "proxy-connection", "proxy-authorization", "proxy-authenticate", "upgrade", "te"}
    | {"trailer", "transfer-encoding", "content-length", "http2-settings"}
)
_WRITTEN_HERE: Final = (
    _HOP_BY_HOP | {"host", "expect", "range", "if-range"} | {"accept-encoding", "accept-charset", "a-im"}
)
_WIDE_CHARSET: Final = regex(r"charset\s*=\s*\W?(?:utf-?(?:7|16|32)|ucs|iso-10646|csunicode)", re.IGNORECASE)
"""Spellings of text in which no value would be found."""
_OTHER_REQUESTS: Final = regex(
    r"x-(?:[a-z0-9-]+-)?(?:method|ur[il]|path|host|server|prefix)(?:-override)?|forwarded|destination"
)
"""Headers by which some servers take another method, path or host than the request line says."""
_NOT_PASSED_BACK: Final = _HOP_BY_HOP | {"set-cookie", "set-cookie2", "alt-svc", "content-encoding"}

Headers = Sequence[tuple[str, str]]


class Refused(Exception):
    """Raised for a refused request; `status` and the text go to the child."""

    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class CredentialUse:
    """The record of one use for the journal."""

    variable: str
    host: str
    method: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingRequest:
    head: bytes
    """The request line and headers, without the headers that frame the body and without the empty line."""
    method: str
    length: int | None
    """Length of the body; None if it comes in chunks."""
    use: CredentialUse | None
    """None if the child wrote no placeholder, so that no credential was inserted."""
    continues: bool
    """The child waits for a word before it sends the body."""
    chunks: bool
    """Whether the child understands an answer in chunks."""


class HeaderCredentials:
    """Inserts credentials into the requests of one child. `told` is called before each use; if it raises, the request
    is refused.
    """

    def __init__(
        self,
        entries: Sequence[HostCredential],
        environ: Mapping[str, str],
        told: Callable[[CredentialUse], None],
    ) -> None:
        self._entries = tuple(entries)
        self._told = told
        self._requests = 0
        self._tunnels: dict[str, None] = {}
        self._used: set[str] = set()
        self._values: dict[HostCredential, str] = {}
        self._redactor = Redactor()
        for entry in entries:
            value = entry.value(environ)
            # What cannot be taken out of answers, or cannot stand in a header, is as good as not there.
            if _VALUE.fullmatch(value) and not any(
                self._redactor.add_secret(entry.variable, part) for part in credential_parts(value)
            ):
                self._values[entry] = value

    def __repr__(self) -> str:
        return f"HeaderCredentials({len(self._entries)} entries)"

    def has(self, host: str) -> bool:
        return any(entry.host == host for entry in self._entries)

    def tunnelled(self, host: str) -> None:
        """Records that the child speaks TLS to this host by itself."""
        if self.has(host):
            self._tunnels[host] = None

    @property
    def passed_by(self) -> tuple[str, ...]:
        """Hosts that the child reached by tunnels alone, into which nothing is put."""
        return tuple(host for host in self._tunnels if host not in self._used)

    def prepare(self, host: str, method: str, target: str, headers: Headers, *, minor: str) -> OutgoingRequest:
        """`target`: path and query as the child wrote them; `minor`: of its HTTP version."""
        placed = [index for index, (_, value) in enumerate(headers) if _placeholder(value)]
        if len(placed) > 1 or _placeholder(target):
            raise Refused(HTTPStatus.BAD_REQUEST, "A placeholder stands once, in the header of its credential.")
        if any(_CONTROL.search(value) for _, value in headers):
            raise Refused(HTTPStatus.BAD_REQUEST, "A header holds a control character.")
        kept = list(headers)
        use = None
        if placed:
            entry, use = self._granted(host, method, target, headers[placed[0]])
            if sum(_key(name) == _key(entry.header) for name, _ in headers) > 1:
                raise Refused(HTTPStatus.BAD_REQUEST, f"There are two {entry.header} headers.")
            if odd := next((name for name, _ in headers if _OTHER_REQUESTS.fullmatch(_key(name))), ""):
                raise Refused(HTTPStatus.BAD_REQUEST, f"{odd} is not sent with a credential.")
            kept[placed[0]] = (entry.header, _filled(headers[placed[0]][1], self._values[entry]))
        length, chunked = _framing(headers)
        if chunked and minor != "1":
            raise Refused(HTTPStatus.BAD_REQUEST, "HTTP/1.0 has no chunks.")
        dropped = _WRITTEN_HERE | _connection_names(headers)
        shown = f"[{host}]" if ":" in host else host
        lines = [f"{method} {target} HTTP/1.1", f"Host: {shown}", "Accept-Encoding: identity", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in kept if _key(name) not in dropped]
        return OutgoingRequest(
            head="\r\n".join([*lines, ""]).encode("latin-1"),
            method=method,
            length=None if chunked else length,
            use=use,
            continues=any(_key(name) == "expect" for name, _ in headers) and minor == "1",
            chunks=minor == "1",
        )

    def tell(self, use: CredentialUse | None) -> None:
        """Counts and reports a request before it is sent. Raises Refused if there were too many or a use could not be
        recorded.
        """
        self._requests += 1
        if self._requests > MOST_REQUESTS:
            text = f"One command may send {MOST_REQUESTS} requests to hosts with credentials. Start another one."
            raise Refused(HTTPStatus.TOO_MANY_REQUESTS, text)
        try:
            if use is not None:
                self._told(use)
                self._used.add(use.host)
        except Exception:
            raise Refused(HTTPStatus.BAD_GATEWAY, "The use of a credential could not be recorded.") from None

    def _granted(
        self, host: str, method: str, target: str, header: tuple[str, str]
    ) -> tuple[HostCredential, CredentialUse]:
        variable = _placeholder(header[1])
        name = _key(header[0])
        entries = [each for each in self._entries if (each.host, each.variable) == (host, variable)]
        if not entries:
            raise Refused(HTTPStatus.FORBIDDEN, f"{variable} is no credential for {host} (sandbox.credentials).")
        if all(_key(each.header) != name for each in entries):
            raise Refused(HTTPStatus.FORBIDDEN, f"{variable} is sent to {host} in {entries[0].header} only.")
        entries = [each for each in entries if each in self._values]
        if not entries:
            why = "is not set where Forge was started, is shorter than 8 characters, or cannot stand in a header"
            raise Refused(HTTPStatus.BAD_GATEWAY, f"{variable} {why}.")
        path = plain_path(target)
        entry = next((each for each in entries if _key(each.header) == name and each.allows(method, path)), None)
        if entry is None:
            allowed = "; ".join(each.describe() for each in entries)
            text = f"{variable} is not for {method} {path[:200]}; sandbox.credentials allows {allowed}."
            raise Refused(HTTPStatus.FORBIDDEN, text)
        return entry, CredentialUse(variable, host, method, path)

    def redacted(self, text: str) -> str:
        return self._redactor.redact_secrets(text)

    def stream(self) -> StreamRedactor:
        return StreamRedactor(self._redactor, by_lines=True)


def _key(name: str) -> str:
    """Normalises a header's name. Some servers read `_` as `-`."""
    return name.lower().replace("_", "-")


def plain_path(target: str) -> str:
    """The decoded path of a request target, without its query. Refuses every spelling but the plain one: what one
    server takes for a name, another takes for a way out of the directory."""
    written = target.partition("?")[0]
    if len(written) > _LONGEST_PATH or not _PLAIN_PATH.fullmatch(written):
        raise Refused(HTTPStatus.BAD_REQUEST, "The path is too long, or holds a character that must be escaped.")
    if any(part in (".", "..") for part in written.split("/")) or "//" in written:
        raise Refused(HTTPStatus.BAD_REQUEST, "Write the path without `.`, `..` and `//`.")
    for escape in _ESCAPE.finditer(written):
        if _NEVER_ESCAPED.fullmatch(chr(int(escape[1], 16))):
            raise Refused(HTTPStatus.BAD_REQUEST, f"{escape[0]} is not accepted in the path of a credential.")
    try:
        decoded = unquote(written, errors="strict")
    except UnicodeDecodeError:
        raise Refused(HTTPStatus.BAD_REQUEST, "The path is not UTF-8.") from None
    if not decoded.isprintable():
        raise Refused(HTTPStatus.BAD_REQUEST, "The path holds a control character.")
    # A wide full stop or slash is one to servers that normalize what they decoded.
    if any(_SEPARATES.search(unicodedata.normalize("NFKC", char)) for char in decoded if not char.isascii()):
        raise Refused(HTTPStatus.BAD_REQUEST, "The path holds another spelling of a dot, a slash or a percent sign.")
    return decoded


def _placeholder(value: str) -> str:
    """The variable that is meant; empty if there is no placeholder, also not inside `Basic …`."""
    found = _PLACEHOLDER.search(value) or _PLACEHOLDER.search(decoded_basic(value))
    return found[1] if found else ""


def _filled(value: str, secret: str) -> str:
    if _PLACEHOLDER.search(value):
        return _PLACEHOLDER.sub(lambda _: secret, value, count=1)
    joined = _PLACEHOLDER.sub(lambda _: secret, decoded_basic(value), count=1)
    return f"Basic {base64.b64encode(joined.encode()).decode()}"


def _connection_names(headers: Headers) -> frozenset[str]:
    named = (value for name, value in headers if _key(name) == "connection")
    return frozenset(word.strip().lower() for value in named for word in value.split(","))


def _framing(headers: Headers) -> tuple[int, bool]:
    """(length, whether the body comes in chunks). Refuses what two readers could understand differently."""
    lengths = [value.strip(" \t") for name, value in headers if _key(name) == "content-length"]
    codings = [value.strip(" \t").lower() for name, value in headers if _key(name) == "transfer-encoding"]
    if len(lengths) + len(codings) > 1 or codings not in ([], ["chunked"]):
        raise Refused(HTTPStatus.BAD_REQUEST, "The length of the body is given twice, or in a way that is not clear.")
    if lengths and not _LENGTH.fullmatch(lengths[0]):
        raise Refused(HTTPStatus.BAD_REQUEST, "Content-Length is not a number.")
    return int(lengths[0]) if lengths else 0, bool(codings)


async def exchange(
    request: OutgoingRequest,
    client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    server: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    store: HeaderCredentials,
    idle_seconds: float,
) -> None:
    """One request and its answer. Raises Refused before anything of the answer was passed on, OSError,
    IncompleteReadError and TimeoutError where a side went away: the child's connection must then be cut."""
    (reader, writer), (far_reader, far_writer) = client, server
    if request.continues:
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    sending = asyncio.ensure_future(_send_request(request, reader, far_writer, idle_seconds))
    answering = asyncio.ensure_future(_read_answer_head(far_reader))
    try:
        # A server may answer before it has the whole body. One that is silent waits for what the child still sends.
        await asyncio.wait((sending, answering), return_when=asyncio.FIRST_COMPLETED)
        if sending.done():
            sending.result()
            async with asyncio.timeout(idle_seconds):
                await asyncio.wait((answering,))
        status, headers = answering.result()
        body, chunked, length = _answer_body(request, status, headers)
        writer.write(_answer_head(status, headers, request, store, body=body))
        if body:
            filter_ = store.stream()
            pieces = _chunks(far_reader, idle_seconds) if chunked else _pieces(far_reader, length, idle_seconds)
            async for piece in pieces:
                await _pass_back(writer, filter_.feed(piece.decode("latin-1")), request, idle_seconds)
            await _pass_back(writer, filter_.finish(), request, idle_seconds)
            if request.chunks:
                writer.write(b"0\r\n\r\n")
        async with asyncio.timeout(idle_seconds):
            await writer.drain()
    finally:
        for task in (sending, answering):
            task.cancel()
        await asyncio.gather(sending, answering, return_exceptions=True)


async def _send_request(
    request: OutgoingRequest, reader: asyncio.StreamReader, far_writer: asyncio.StreamWriter, idle_seconds: float
) -> None:
    framing = (
        b"Transfer-Encoding: chunked\r\n" if request.length is None else b"Content-Length: %d\r\n" % request.length
    )
    if request.length == 0 and request.method in ("GET", "HEAD", "OPTIONS", "DELETE"):
        framing = b""
    far_writer.write(request.head + framing + b"\r\n")
    chunked = request.length is None
    pieces = _chunks(reader, idle_seconds) if chunked else _pieces(reader, request.length, idle_seconds)
    try:
        async for piece in pieces:
            far_writer.write(b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece)
            async with asyncio.timeout(idle_seconds):
                await far_writer.drain()
    except asyncio.IncompleteReadError:
        raise Refused(HTTPStatus.BAD_REQUEST, "The body ends early, or its chunks are malformed.") from None
    except ConnectionError:
        return  # the server has hung up: what it answered says why
    if chunked:
        far_writer.write(b"0\r\n\r\n")


async def _pass_back(writer: asyncio.StreamWriter, text: str, request: OutgoingRequest, idle_seconds: float) -> None:
    if not text:
        return
    data = text.encode("latin-1")
    writer.write(b"%x\r\n%s\r\n" % (len(data), data) if request.chunks else data)
    async with asyncio.timeout(idle_seconds):
        await writer.drain()


async def _pieces(reader: asyncio.StreamReader, length: int | None, idle_seconds: float) -> AsyncIterator[bytes]:
    """`length` None: to the end of the connection. Raises IncompleteReadError where less comes."""
    left = length
    while left is None or left > 0:
        async with asyncio.timeout(idle_seconds):
            piece = await reader.read(_PIECE if left is None else min(left, _PIECE))
        if not piece:
            if left:
                raise asyncio.IncompleteReadError(b"", left)
            return
        left = None if left is None else left - len(piece)
        yield piece


async def _chunks(reader: asyncio.StreamReader, idle_seconds: float) -> AsyncIterator[bytes]:
    """Yields the chunks of a body without extensions and trailers. Raises IncompleteReadError for a malformed chunk."""
    while True:
        line = await _line(reader, idle_seconds)
        found = _CHUNK.fullmatch(line)
        if found is None:
            raise asyncio.IncompleteReadError(b"", None)
        size = int(found[1], 16)
        if size == 0:
            break
        async for piece in _pieces(reader, size, idle_seconds):
            yield piece
        async with asyncio.timeout(idle_seconds):
            if await reader.readexactly(2) != b"\r\n":
                raise asyncio.IncompleteReadError(b"", None)
    for _ in range(100):
        if await _line(reader, idle_seconds) == b"\r\n":
            return
    raise asyncio.IncompleteReadError(b"", None)


async def _line(reader: asyncio.StreamReader, idle_seconds: float) -> bytes:
    try:
        async with asyncio.timeout(idle_seconds):
            return await reader.readuntil(b"\n")
    except asyncio.LimitOverrunError:
        raise asyncio.IncompleteReadError(b"", None) from None


async def _read_answer_head(reader: asyncio.StreamReader) -> tuple[int, list[tuple[str, str]]]:
    for _ in range(_MOST_INTERIM):
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except (asyncio.LimitOverrunError, asyncio.IncompleteReadError, OSError):
            raise _bad_answer("it sent no head, or one that is too long") from None
        lines = head.decode("latin-1").split("\r\n")[:-2]
        found = _STATUS.fullmatch(lines[0])
        headers = [_HEADER.fullmatch(line) for line in lines[1:]]
        if found is None or None in headers:
            raise _bad_answer("it does not answer in HTTP/1")
        status = int(found[1])
        if status == 101:
            raise _bad_answer("it changes the protocol")
        if status >= 200:
            return status, [(one[1], one[2].strip()) for one in headers if one is not None]
    raise _bad_answer("it sends interim answers without end")


def _answer_body(request: OutgoingRequest, status: int, headers: Headers) -> tuple[bool, bool, int | None]:
    """(whether there is one, whether it comes in chunks, its length)"""
    values = {_key(name): value.lower() for name, value in headers}
    if any(value.lower() != "identity" for name, value in headers if _key(name) in ("content-encoding", "im")):
        raise _bad_answer("it compresses its answer, which cannot be looked through")
    if request.use is not None and _WIDE_CHARSET.search(values.get("content-type", "")):
        raise _bad_answer("it writes its answer in UTF-16 or the like, which cannot be looked through")
    if request.use is not None and status == HTTPStatus.PARTIAL_CONTENT:
        raise _bad_answer("it sends a part of its answer")
    try:
        length, chunked = _framing(headers)
    except Refused:
        raise _bad_answer("the length of its answer is not clear") from None
    body = request.method != "HEAD" and status not in (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED)
    return body, chunked, length if "content-length" in values else None


def _answer_head(
    status: int, headers: Headers, request: OutgoingRequest, store: HeaderCredentials, *, body: bool
) -> bytes:
    """The words of the status are ours: the server's could be anything."""
    dropped = (_NOT_PASSED_BACK if request.use is not None else _HOP_BY_HOP) | _connection_names(headers)
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "Unknown"
    lines = [f"HTTP/1.1 {status} {phrase}"]
    lines += [
        f"{name}: {store.redacted(value)}"
        for name, value in headers
        if _key(name) not in dropped and store.redacted(name) == name
    ]
    if body and request.chunks:
        lines.append("Transfer-Encoding: chunked")
    return "\r\n".join([*lines, "Connection: close", "", ""]).encode("latin-1")


def _bad_answer(why: str) -> Refused:
    return Refused(HTTPStatus.BAD_GATEWAY, f"The answer of the server is not passed on: {why}.")
