"""Host names in one spelling, and the patterns that rules write for them.

`normal_host` gives lower case, no final dot, IDNA as ASCII, addresses in their shortest form; ValueError with the
reason for anything that is not a host. A pattern is such a name, or `*.` before one with at least two labels.
"""

from __future__ import annotations

import re
from functools import lru_cache

_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")


@lru_cache(maxsize=1024)
def normal_host(text: str) -> str:
    if "://" in text:
        raise ValueError("write the host alone, without a scheme")
    if "/" in text:
        raise ValueError("write the host alone, without a path")
    if text.startswith("[") or text.count(":") > 1 or _numeric(text):
        return _address(text)
    if ":" in text:
        raise ValueError("write the host alone; ports have their own key, `ports`")
    name = text.strip().lower().removesuffix(".")
    if not name.isascii():
        try:
            name = name.encode("idna").decode("ascii").lower()
        except UnicodeError:
            raise ValueError("is not a host name") from None
        if _numeric(name):  # digits of another script that spell an address
            raise ValueError("is not a usable address; write it in plain digits")
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in name.split(".")):
        raise ValueError("is not a host name")
    return name


def host_pattern(text: str) -> str:
    """A rule's `host` in normal form."""
    if not text.startswith("*."):
        if "*" in text:
            raise ValueError("`*` may only stand as `*.` before a domain, like *.example.com")
        return normal_host(text)
    parent = text[2:]
    if "*" in parent:
        raise ValueError("`*` may only stand once, at the front")
    domain = normal_host(parent)
    if "." not in domain or _numeric(domain):
        raise ValueError("`*.` needs a domain with at least two labels, like *.example.com")
    return f"*.{domain}"


def host_matches(pattern: str, host: str) -> bool:
    """Both in normal form. `*.a.b` is every subdomain of a.b, not a.b itself."""
    return host.endswith(pattern[1:]) if pattern.startswith("*.") else host == pattern


@lru_cache(maxsize=1024)
def host_and_port(target: str) -> tuple[str, int] | None:
    """A `net` effect's `host:port`; None for what is not a network host (`mcp://server`)."""
    if "://" in target:
        return None
    host, colon, port = target.rpartition(":")
    if not colon or not port.isdigit():
        return None
    try:
        return normal_host(host), int(port)
    except ValueError:
        return None


def _numeric(text: str) -> bool:
    """Whether the last label is a number: such a name is an address or a trick (`0x7f.1`), never a domain."""
    return bool(re.fullmatch(r"(0x[0-9a-f]*|[0-9]+)", text.lower().rstrip(".").rpartition(".")[2]))


def _address(text: str) -> str:
    import ipaddress

    try:
        return str(ipaddress.ip_address(text.removeprefix("[").removesuffix("]").removesuffix(".")))
    except ValueError:
        raise ValueError("is not a usable address; write an IPv4 or IPv6 address in its usual form") from None
