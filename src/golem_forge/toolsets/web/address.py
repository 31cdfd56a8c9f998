"""WebAddress: a URL taken apart once, in the one form that is judged, shown and requested.

`read_url` raises ValueError with the problem for what webfetch never fetches: other schemes, user info, and hosts
that are numbers in disguise. Threat: two readers that see different hosts in one text (`http://a\\@b`, `http://0x7f.1`,
full-width digits), so every doubtful form is refused instead of being repaired.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, urlsplit

from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.regex import regex
from golem_forge.policy.rules.globs import normal_host

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
        """`host:port`, as rules and people know it."""
        return f"{self.shown_host}:{self.port}"

    @property
    def authority(self) -> str:
        """For the Host header: the port only where it is not the scheme's own."""
        return self.shown_host if self.port == _DEFAULT_PORTS[self.scheme] else self.target

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.authority}{self.resource}"


def read_url(text: str) -> WebAddress:
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
