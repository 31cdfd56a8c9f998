"""Fetching one page: which addresses may be asked, which redirects are followed, how much is read.

Threat: a page that leads somewhere nobody approved. The name is looked up once and every hop is checked anew; redirects
are followed on the same host; what leaves the host (or its port, except from http to https) is not followed but told.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urljoin

from golem_forge.core.decisions import Status
from golem_forge.core.errors import ForgeError, ToolFailed
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.network import lazy_addresses
from golem_forge.tools.context import HostPermission, HostRule
from golem_forge.toolsets.web.http_client import (
    MAX_URL,
    BodyTooLarge,
    WebAddress,
    declared_length,
    http_get,
    read_body,
    read_url,
)

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from golem_forge.sandbox.network.addresses import Lookup
    from golem_forge.sandbox.network.loopback import SessionLoopback
    from golem_forge.toolsets.web.http_client import HttpResponse

MAX_BODY: Final = 5 * 1024 * 1024


MAX_REDIRECTS: Final = 5


_USUAL_PORTS: Final = frozenset({80, 443})


_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})


_WITHOUT_BODY: Final = frozenset({204, 205, 304})


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedPage:
    address: WebAddress
    status: int
    content_type: str
    """The header as the server wrote it."""
    body: bytes | None
    """None if it was not read because it is no text; `size` says what is known of it."""
    size: str


@dataclass(frozen=True, slots=True)
class OffsiteRedirect:
    """The page is at another place, which nobody has approved."""

    url: str
    status: int


FetchResult = FetchedPage | OffsiteRedirect


def check_address(address: WebAddress, permission: HostPermission) -> None:
    """Checks an address without a lookup. Raises `policy_denied`."""
    rule = f"{{host: '{address.host}', ports: [{address.port}]"
    if address.port not in _USUAL_PORTS and not permission.listed:
        text = f"Port {address.port} is not fetched; only 80 and 443 are, or what a host rule lists"
        raise _denied(f"{text}: {rule}, verdict: ask}}.", "PORT_NOT_LISTED")
    if address.is_literal and not permission.private and not lazy_addresses.is_public(address.host):
        text = f"'{address.host}' is a private address; only a rule in your own rules file allows it"
        raise _denied(f"{text}: {rule}, private: true, verdict: ask}}.", "PRIVATE_ADDRESS")


async def fetch(address: WebAddress, host_rule: HostRule, wants: Callable[[str], bool], lookup: Lookup) -> FetchResult:
    """`wants(content type)`: whether the body is worth reading."""
    addresses = await _resolve_host(address, lookup)

    def get(address: WebAddress) -> AbstractAsyncContextManager[HttpResponse]:
        _check_addresses(address, host_rule, addresses)
        return http_get(address, addresses)

    return await _follow(address, get, lambda one, other: _is_same_origin(one, other, host_rule), wants)


async def fetch_inside(address: WebAddress, loopback: SessionLoopback, wants: Callable[[str], bool]) -> FetchResult:
    """Fetches from a server in the session's loopback. A redirect to another port or host is returned, not followed."""

    def get(address: WebAddress) -> AbstractAsyncContextManager[HttpResponse]:
        port, name = address.port, address.host
        return http_get(address, (), lambda tls, limit: loopback.connect(port, tls=tls, name=name, limit=limit))

    def stays(one: WebAddress, other: WebAddress) -> bool:
        return (one.scheme, one.host, one.port) == (other.scheme, other.host, other.port)

    return await _follow(address, get, stays, wants)


async def _follow(
    address: WebAddress,
    get: Callable[[WebAddress], AbstractAsyncContextManager[HttpResponse]],
    stays: Callable[[WebAddress, WebAddress], bool],
    wants: Callable[[str], bool],
) -> FetchResult:
    """Follows redirects as long as they stay at one place; another place is returned."""
    for _ in range(MAX_REDIRECTS + 1):
        async with get(address) as answer:
            location = answer.headers.get("location") if answer.status in _REDIRECTS else None
            if not location:
                return await _read_response(address, answer, wants)
        following = _redirect_target(address, location)
        if not stays(address, following):
            return OffsiteRedirect(following.url, answer.status)
        address = following
    raise ToolFailed(f"More than {MAX_REDIRECTS} redirects; the last one leads to {address.url}")


async def _resolve_host(address: WebAddress, lookup: Lookup) -> tuple[str, ...]:
    if address.is_literal:
        return (address.host,)
    try:
        return await lookup(address.host, address.port)
    except (OSError, UnicodeError):
        raise ToolFailed(f"Host '{address.host}' was not found.", code="HOST_NOT_FOUND") from None


def _check_addresses(address: WebAddress, host_rule: HostRule, addresses: tuple[str, ...]) -> None:
    permission = host_rule(address.host, address.port)
    check_address(address, permission)
    if permission.private:
        return
    try:
        lazy_addresses.refuse_private(addresses)
    except lazy_addresses.PrivateAddress:
        text = f"Host '{address.host}' resolves to a private address."
        raise ForgeError(text, status=Status.SANDBOX_DENIED, code="PRIVATE_ADDRESS") from None


def _redirect_target(address: WebAddress, location: str) -> WebAddress:
    # Header bytes were read one by one; what is no ASCII among them is sent back as it came.
    escaped = quote(location.encode("latin-1"), safe="/%:@!$&'()*+,;=~-._?#[]")
    try:
        url = urljoin(address.url, escaped)
        if len(url) > MAX_URL:
            raise ValueError("the URL is too long")
        return read_url(url)
    except ValueError as error:
        raise ToolFailed(f"{address.url} redirects to what is not fetched: {error}") from None


def _is_same_origin(address: WebAddress, following: WebAddress, host_rule: HostRule) -> bool:
    """Whether a redirect stays at what was approved: the same `host:port`, or the step from http to https."""
    if following.host != address.host:
        return False
    if (following.scheme, following.port) == (address.scheme, address.port):
        return True
    if (address.scheme, following.scheme) != ("http", "https"):
        return False
    permission = host_rule(following.host, following.port)
    if permission.blocked:
        raise _denied(f"Redirects to {following.url}, and a rule blocks '{following.target}'.", "HOST_BLOCKED")
    return following.port == 443 or permission.listed


async def _read_response(address: WebAddress, answer: HttpResponse, wants: Callable[[str], bool]) -> FetchedPage:
    headers = answer.headers
    content_type = headers.get("content-type", "")
    length = declared_length(headers)
    plain = not headers.get("content-encoding")
    body: bytes | None = b""
    size = "0"
    if answer.status not in _WITHOUT_BODY:
        wanted = wants(content_type)
        if not wanted and plain and length is not None:
            body, size = None, str(length)
        else:
            try:
                if wanted and plain and length is not None and length > MAX_BODY:
                    raise BodyTooLarge
                body = await read_body(answer.reader, headers, MAX_BODY)
                size = str(len(body))
            except BodyTooLarge:
                size = str(length) if plain and length is not None else f"more than {MAX_BODY}"
                if wanted:
                    text = f"'{address.url}' is {size} bytes; the limit is {MAX_BODY}. Fetch a smaller page."
                    raise SandboxError("TOO_LARGE", text, path=address.url) from None
                body = None
    return FetchedPage(address=address, status=answer.status, content_type=content_type, body=body, size=size)


def _denied(text: str, code: str) -> ForgeError:
    return ForgeError(text, status=Status.POLICY_DENIED, code=code)
