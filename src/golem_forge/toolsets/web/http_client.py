r"""The HTTP/1.1 client of the web tools: one GET or POST over one connection, its body, and the text of the body.

Written by hand, because every byte must be bounded. Takes the checked addresses of a host; gives status, headers and a
reader for the body. Sends no cookie, no credential, no referrer, and uses no proxy. Raises ToolFailed for a server that
cannot be reached or understood, or a body that ends early or is damaged; BodyTooLarge as soon as there is one byte too
many. Threat: a server may lie about lengths, never stop, or send a small archive of something huge; so nothing is
inflated further than one piece beyond the limit, and no length is believed.

`WebAddress` is a URL taken apart once, in the one form that is judged, shown and requested. Threat: two readers that
see different hosts in one text (`http://a\@b`, `http://0x7f.1`, full-width digits), so every doubtful form is refused
instead of being repaired.
"""

from __future__ import annotations

import codecs
import re
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final
from urllib.parse import quote, urlsplit

from golem_forge._version import __version__
from golem_forge.core.errors import ToolFailed
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.lazy_module import asyncio, ssl
from golem_forge.core.regex import regex
from golem_forge.policy.rules.model import normal_host
from golem_forge.sandbox.network import lazy_addresses

MAX_URL: Final = 4096
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_NO_PLACE: Final = regex(r"[\x00-\x20\x7f-\xa0\\]|\s")
_NUMBER: Final = regex(r"(0x[0-9a-f]*|[0-9]+)\.?")
_QUAD: Final = regex(r"(0|[1-9][0-9]{0,2})(\.(0|[1-9][0-9]{0,2})){3}")
_NUMERIC_HOST: Final = "a host that is a number must be an IPv4 address like 93.184.216.34, or an IPv6 one in brackets"
_SAFE_PATH: Final = "/%:@!$&'()*+,;=~-._"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebAddress:
    scheme: str
    host: str
    """Normal form; an IPv6 address without brackets."""
    port: int
    resource: str
    """Path and query, as they stand in the request line."""
    is_literal: bool

    @property
    def shown_host(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host

    @property
    def target(self) -> str:
        """The name for rules and people, `host:port`."""
        return f"{self.shown_host}:{self.port}"

    @property
    def authority(self) -> str:
        """The value of the Host header: with the port only if it is not the scheme's default."""
        return self.shown_host if self.port == _DEFAULT_PORTS[self.scheme] else self.target

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.authority}{self.resource}"


def read_url(text: str) -> WebAddress:
    """Raises ValueError with the problem for what webfetch never fetches: other schemes, user info, and hosts that are
    numbers in disguise."""
    if found := _NO_PLACE.search(text):
        raise ValueError(f"{found[0]!a} has no place in a URL")
    parts = urlsplit(text)
    if parts.scheme not in _DEFAULT_PORTS:
        raise ValueError("only http:// and https:// URLs are fetched")
    if "@" in parts.netloc:
        raise ValueError("a URL with user name or password is not fetched; leave that part out")
    try:
        port = parts.port if parts.port is not None else _DEFAULT_PORTS[parts.scheme]
    except ValueError:
        port = 0
    if not port:
        raise ValueError("the port is not a number from 1 to 65535")
    host, literal = _host(parts.netloc)
    resource = quote(parts.path, safe=_SAFE_PATH) or "/"
    if parts.query:
        resource += "?" + quote(parts.query, safe=_SAFE_PATH + "?")
    return WebAddress(scheme=parts.scheme, host=host, port=port, resource=resource, is_literal=literal)


def _host(netloc: str) -> tuple[str, bool]:
    if netloc.startswith("["):
        inner, _, rest = netloc[1:].partition("]")
        if "%" in inner or ":" not in inner or (rest and rest[0] != ":"):
            raise ValueError("the address in brackets is not IPv6")
        return normal_host(f"[{inner}]"), True
    name, _, _ = netloc.partition(":")
    if not name:
        raise ValueError("the host is missing")
    if _QUAD.fullmatch(name):
        return normal_host(name), True
    try:
        host = normal_host(name)
    except ValueError:
        if _is_number(name):
            raise ValueError(_NUMERIC_HOST) from None
        raise ValueError("the host is not a host name") from None
    if _is_number(name) or _is_number(host):  # the second: digits of other scripts become plain ones
        raise ValueError(_NUMERIC_HOST)
    return host, False


def _is_number(name: str) -> bool:
    """A last label that is a number makes the whole an address, for every resolver that still knows the old forms."""
    return bool(_NUMBER.fullmatch(name.lower().removesuffix(".").rpartition(".")[2]))


MAX_HEADERS: Final = 1 << 16
_STATUS_LINE: Final = regex(r"HTTP/1\.[0-9] ([1-5][0-9]{2})( .*)?")
_HEADER_LINE: Final = regex(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+)[ \t]*:(.*)")
_ONE_VALUE: Final = frozenset({"content-type", "location"})
_ACCEPT: Final = (
    "text/html, application/xhtml+xml, text/*;q=0.9, application/json;q=0.9, application/xml;q=0.9, */*;q=0.1"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpResponse:
    status: int
    headers: dict[str, str]
    """Headers by lower-case name."""
    reader: asyncio.StreamReader


Dial = Callable[["ssl.SSLContext | None", int], Awaitable[tuple["asyncio.StreamReader", "asyncio.StreamWriter"]]]
"""(TLS context or None, longest line) → a connection. Raises OSError."""


def http_get(
    address: WebAddress, addresses: Sequence[str], dial: Dial | None = None
) -> AbstractAsyncContextManager[HttpResponse]:
    """`dial`: connects elsewhere than to these addresses."""
    headers = {"Accept": _ACCEPT, "Accept-Encoding": ACCEPTED_ENCODINGS}
    return _http_request(address, addresses, _request("GET", address, headers), dial)


def http_post(
    address: WebAddress, addresses: Sequence[str], body: bytes, headers: Mapping[str, str]
) -> AbstractAsyncContextManager[HttpResponse]:
    """`headers`: names and values that Forge made, none that others wrote."""
    return _http_request(
        address, addresses, _request("POST", address, {**headers, "Content-Length": str(len(body))}) + body
    )


@asynccontextmanager
async def _http_request(
    address: WebAddress, addresses: Sequence[str], request: bytes, dial: Dial | None = None
) -> AsyncIterator[HttpResponse]:
    tls = await _tls_context() if address.scheme == "https" else None
    try:
        if dial is not None:
            reader, writer = await dial(tls, MAX_HEADERS)
        else:
            reader, writer = await lazy_addresses.connect(
                addresses, address.port, tls=tls, name=address.host, limit=MAX_HEADERS
            )
    except ssl.SSLCertVerificationError as error:
        why = error.verify_message or "it does not verify"
        raise ToolFailed(f"The certificate of '{address.host}' is not trusted: {why}.", code="TLS_FAILED") from None
    except ssl.SSLError:
        text = f"'{address.target}' does not speak TLS in a way that is safe to use."
        raise ToolFailed(text, code="TLS_FAILED") from None
    except OSError:
        raise ToolFailed(f"Could not connect to '{address.target}'.", code="CONNECT_FAILED") from None
    try:
        writer.write(request)
        status, headers = await _read_head(reader)
        yield HttpResponse(status=status, headers=headers, reader=reader)
    except OSError:
        raise ToolFailed(f"The connection to '{address.target}' broke off.", code="CONNECT_FAILED") from None
    finally:
        writer.transport.abort()  # nothing more is wanted, and a slow farewell would keep the call waiting


async def _tls_context() -> ssl.SSLContext:
    """The system's certificates, read off the loop: there are many."""
    context = await lazy_addresses.run_in_thread(ssl.create_default_context)
    context.set_alpn_protocols(["http/1.1"])
    return context


def _request(method: str, address: WebAddress, headers: Mapping[str, str]) -> bytes:
    lines = [
        f"{method} {address.resource} HTTP/1.1",
        f"Host: {address.authority}",
        f"User-Agent: golem-forge/{__version__}",
        *(f"{name}: {value}" for name, value in headers.items()),
        "Connection: close",
    ]
    return "\r\n".join([*lines, "", ""]).encode("ascii")


async def _read_head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    """The final answer's; interim ones (1xx) are passed over, and count towards the same bound."""
    room = MAX_HEADERS
    while True:
        lines: list[str] = []
        while True:
            try:
                line = await reader.readline()
            except ValueError:
                line = b"x" * (MAX_HEADERS + 1)
            room -= len(line)
            if room < 0:
                raise ToolFailed(f"The server sent more than {MAX_HEADERS} bytes of headers.")
            if not line.endswith(b"\n"):
                raise ToolFailed("The server closed the connection without an answer.")
            text = line.rstrip(b"\r\n").decode("latin-1")
            if not text:
                break
            lines.append(text)
        found = _STATUS_LINE.fullmatch(lines[0]) if lines else None
        if found is None:
            raise ToolFailed("The server does not answer in HTTP/1.")
        status = int(found[1])
        if status == 101 or status >= 200:
            return status, _parse_headers(lines[1:])


def _parse_headers(lines: list[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in lines:
        found = _HEADER_LINE.fullmatch(line)
        if found is None:
            continue  # a folded or broken line says nothing that is needed
        name, value = found[1].lower(), found[2].strip()
        if name not in headers:
            headers[name] = value
        elif name not in _ONE_VALUE:
            headers[name] += f", {value}"
    return headers


ACCEPTED_ENCODINGS: Final = "gzip, deflate"
"""Encodings that can be decompressed in pieces with a limit."""
_PIECE_BYTES: Final = 1 << 16
_SIZE_LINE: Final = regex(rb"([0-9A-Fa-f]{1,15})[ \t]*(;[^\r\n]*)?\r?\n")
_MAX_TRAILERS: Final = 100
_DAMAGED: Final = "The server's page is damaged (chunked encoding)."


class BodyTooLarge(Exception):
    pass


async def read_body(reader: asyncio.StreamReader, headers: Mapping[str, str], limit: int) -> bytes:
    encoding = headers.get("content-encoding", "").strip().lower()
    body = bytearray()

    def keep(piece: bytes) -> None:
        body.extend(piece)
        if len(body) > limit:
            raise BodyTooLarge

    if encoding in ("", "identity"):
        await _receive(reader, headers, keep)
    elif encoding in ("gzip", "x-gzip", "deflate"):
        inflating = _Inflater(keep, gzip=encoding != "deflate")
        await _receive(reader, headers, inflating.feed)
        inflating.finish()
    else:
        raise ToolFailed(f"The server sent an encoding that was not asked for: {encoding[:40]!a}.")
    return bytes(body)


def declared_length(headers: Mapping[str, str]) -> int | None:
    """Returns the Content-Length; None if the server does not send it. Raises ToolFailed for a malformed one."""
    text = headers.get("content-length", "")
    if "transfer-encoding" in headers or not text:
        return None
    values = {each.strip() for each in text.split(",")}
    only = values.pop()
    if values or not re.fullmatch(r"[0-9]{1,15}", only, re.ASCII):
        raise ToolFailed("The server's Content-Length is not a number.")
    return int(only)


async def _receive(reader: asyncio.StreamReader, headers: Mapping[str, str], take: Callable[[bytes], None]) -> None:
    if transfer := headers.get("transfer-encoding", "").strip().lower():
        if transfer != "chunked":
            raise ToolFailed(f"The server sent a transfer encoding that is not known: {transfer[:40]!a}.")
        await _receive_chunks(reader, take)
    elif (length := declared_length(headers)) is not None:
        await _receive_exactly(reader, length, take)
    else:
        while piece := await reader.read(_PIECE_BYTES):
            take(piece)


async def _receive_exactly(reader: asyncio.StreamReader, length: int, take: Callable[[bytes], None]) -> None:
    while length:
        piece = await reader.read(min(length, _PIECE_BYTES))
        if not piece:
            raise ToolFailed(f"The connection ended {length} bytes before the end of the page.")
        length -= len(piece)
        take(piece)


async def _receive_chunks(reader: asyncio.StreamReader, take: Callable[[bytes], None]) -> None:
    while True:
        found = _SIZE_LINE.fullmatch(await _read_line(reader))
        if found is None:
            raise ToolFailed(_DAMAGED)
        size = int(found[1], 16)
        if not size:
            break
        await _receive_exactly(reader, size, take)
        if (await _read_line(reader)).strip():
            raise ToolFailed(_DAMAGED)
    for _ in range(_MAX_TRAILERS):
        if not (await _read_line(reader)).strip():
            return


async def _read_line(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readline()
    except ValueError:  # longer than the reader's limit
        raise ToolFailed(_DAMAGED) from None


class _Inflater:
    """gzip (also several archives in a row) or deflate (with its header or bare)."""

    def __init__(self, take: Callable[[bytes], None], *, gzip: bool) -> None:
        self._take = take
        self._gzip = gzip
        self._inflater = zlib.decompressobj(31) if gzip else None
        self._whole = False
        """One archive came to its end."""
        self._done = False

    def feed(self, data: bytes) -> None:
        while data and not self._done:
            data = self._feed_one(data)

    def _feed_one(self, data: bytes) -> bytes:
        """Decompresses data and returns the rest, which belongs to the next archive."""
        if self._inflater is None:  # "deflate" is used for two formats; the first byte of one ends in 8
            self._inflater = zlib.decompressobj(31 if self._gzip else 15 if data[0] & 0x0F == 8 else -15)
        inflater, full = self._inflater, True
        while (data or full) and not inflater.eof:
            try:
                plain = inflater.decompress(data, _PIECE_BYTES)
            except zlib.error:
                if not self._whole:
                    raise ToolFailed("The compressed page is damaged.") from None
                self._done = True  # what follows a whole archive is padding
                return b""
            self._take(plain)
            data, full = inflater.unconsumed_tail, len(plain) == _PIECE_BYTES
        if not inflater.eof:
            return b""
        self._whole, self._inflater = True, None
        self._done = not self._gzip
        return inflater.unused_data

    def finish(self) -> None:
        if self._inflater is not None and not self._done and not self._whole:
            raise ToolFailed("The compressed page ended early.")


_BYTE_ORDER_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_CHARSET_HEADER: Final = regex(r"charset\s*=\s*[\"']?([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE)
_CHARSET_META: Final = regex(rb"<meta\s[^>]{0,500}?charset\s*=\s*[\"']?\s*([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE)
_XML_ENCODING: Final = regex(rb"\s*<\?xml\s[^>]{0,200}?encoding\s*=\s*[\"']([A-Za-z0-9_.:-]{1,40})")
_INSPECTED_BYTES: Final = 2048
_NO_CHARACTER_SETS: Final = frozenset(
    {"idna", "punycode", "unicode_escape", "unicode-escape", "raw_unicode_escape", "raw-unicode-escape"}
    | {"undefined", "utf-7", "mbcs", "oem"}
)
_BROWSER_CODECS: Final = {"iso8859-1": "cp1252", "ascii": "cp1252", "iso8859-9": "cp1254", "gb2312": "gb18030"}


def decode_page(body: bytes, content_type: str) -> str:
    """The text of a page. A byte order mark wins over the header, the header over what the page says of itself; nothing
    said means UTF-8. What does not fit becomes U+FFFD. Threat: Python knows "encodings" that are programs (rot13,
    unicode_escape) or take forever (idna); only real character sets are used."""
    for mark, name in _BYTE_ORDER_MARKS:
        if body.startswith(mark):
            return body[len(mark) :].decode(name, "replace")
    said = _CHARSET_HEADER.search(content_type)
    codec = _known_codec(said[1]) if said else None
    if codec is None and (said_inside := _declared_charset(body)):
        codec = _known_codec(said_inside)
        if codec is not None and codec.startswith("utf-16"):
            codec = None  # it was just read as ASCII
    return body.decode(codec or "utf-8", "replace")


def _declared_charset(body: bytes) -> str:
    beginning = body[:_INSPECTED_BYTES]
    found = _XML_ENCODING.match(beginning) or _CHARSET_META.search(beginning)
    return found[1].decode("ascii") if found else ""


def _known_codec(name: str) -> str | None:
    try:
        codec = codecs.lookup(name)
        b"x".decode(codec.name, "replace")  # raises LookupError for what makes no text
    except (LookupError, ValueError, UnicodeError):
        return None
    if codec.name in _NO_CHARACTER_SETS:
        return None
    return _BROWSER_CODECS.get(codec.name, codec.name)
