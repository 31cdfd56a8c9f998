"""Where an MCP server may be: an address over https, or http to this machine; and the hosts its process may reach.

Each function takes what was written and gives why it cannot be used, or nothing. Asked twice about a URL: when it is
read, and when `${NAME}` has become text. Threat: a value that moves the host (`${X}` = `a@evil.test/`), a spelling that
two readers take for two hosts, a password written into the address.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

LONGEST_URL: Final = 8192
_UNUSUAL: Final = re.compile(r"[^\x21-\x7e]|[\\<>\"^`{|}]")
_DECIDED: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#$]+[/?#]")
"""As much of an address as fixes the host."""
_LABEL: Final = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER: Final = re.compile(r"0x[0-9a-f]*|[0-9]+")
_PORT: Final = re.compile(r"[1-9][0-9]{0,4}")
_HIGHEST_PORT: Final = 65535


def url_problem(url: str) -> str:
    """Why this address, as it will be used, is none; the text does not repeat it, for it may hold credentials."""
    if len(url) > LONGEST_URL or _UNUSUAL.search(url):
        return "expected an address like https://host/mcp, in plain characters"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return "expected an address like https://host/mcp"
    if parts.username is not None or parts.password is not None:
        return "an address holds no credentials: use `headers` or `auth`"
    if parts.scheme not in ("https", "http") or not host or port == 0:
        return "expected an address like https://host/mcp"
    if _host_problem(host):
        return "expected an address like https://host/mcp: its host is not a usable one"
    if parts.scheme == "http" and not is_loopback(host):
        return "http is only for this machine (localhost, 127.0.0.1, [::1]); use https"
    return ""


def unexpanded_url_problem(url: str) -> str:
    """The same while `${NAME}` still stands in it: said as soon as the text alone decides it."""
    if "${" not in url:
        return url_problem(url)
    literal = url[: url.index("${")]
    if decided := _DECIDED.match(literal):
        return url_problem(decided[0])
    fits = any(f"{scheme}://".startswith(literal) or literal.startswith(f"{scheme}://") for scheme in ("http", "https"))
    return "" if fits else "expected an address like https://host/mcp"


def is_loopback(host: str) -> bool:
    import ipaddress

    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def normal_target(written: str) -> str:
    """A `host` or `host:port` in one spelling: lower case, IPv6 in brackets. Raises ValueError with the reason."""
    if "*" in written:
        raise ValueError("name one host; patterns belong in rules")
    if "://" in written or "/" in written:
        raise ValueError("write the host alone, without scheme and path")
    host, port = written, ""
    if written.startswith("["):
        host, bracket, rest = written[1:].partition("]")
        if not bracket or ":" not in host or (rest and not rest.startswith(":")):
            raise ValueError("is not a usable address; write IPv6 as [2001:db8::1]:443")
        port = rest[1:]
        missing = rest == ":"
    elif written.count(":") > 1:
        raise ValueError("is not a usable address; write IPv6 as [2001:db8::1]:443")
    else:
        host, colon, port = written.partition(":")
        missing = bool(colon) and not port
    if missing:
        raise ValueError("has no port after its `:`")
    if port and not (_PORT.fullmatch(port) and int(port) <= _HIGHEST_PORT):
        raise ValueError(f"a port is a number from 1 to {_HIGHEST_PORT}")
    host = host.lower().removesuffix(".")
    if why := _host_problem(host):
        raise ValueError(why)
    shown = f"[{host}]" if ":" in host else host
    return f"{shown}:{port}" if port else shown


def _host_problem(host: str) -> str:
    import ipaddress

    name = host.lower().removesuffix(".")
    if ":" in name or _NUMBER.fullmatch(name.rpartition(".")[2]):  # an address, or a trick like `0x7f.1`
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return "is not a usable address; write an IPv4 or IPv6 address in its usual form"
        return ""
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in name.split(".")):
        return "is not a host name (write other scripts as xn--…)"
    return ""
