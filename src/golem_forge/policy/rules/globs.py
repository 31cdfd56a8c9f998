"""The patterns that rules are written in: host names in their one spelling, groups of hosts, and the globs of `core`.

`normal_host` gives a host in its one spelling: lower case, no final dot, IDNA as ASCII, addresses in their shortest
form; ValueError with the reason for anything that is not a host. A host pattern is such a name, or `*.` before one with
at least two labels. `places_of_group` gives the hosts that the name of a group stands for on this machine.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from functools import lru_cache

from golem_forge.core.globs import GROUPS, HostGroup, named_group
from golem_forge.core.globs import name_glob as name_glob
from golem_forge.core.globs import path_glob as path_glob
from golem_forge.core.globs import path_matches_glob as path_matches_glob
from golem_forge.core.regex import regex
from golem_forge.sandbox.host import person_environ
from golem_forge.sandbox.network.registries import group_places, mirror_places

_LABEL = regex(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")


@lru_cache(maxsize=1024)
def normal_host(text: str) -> str:
    if "://" in text:
        raise ValueError("write the host alone, without a scheme")
    if "/" in text:
        raise ValueError("write the host alone, without a path")
    if text.startswith("[") or text.count(":") > 1 or _is_numeric(text):
        return _normal_address(text)
    if ":" in text:
        raise ValueError("write the host alone; ports have their own key, `ports`")
    name = text.strip().lower().removesuffix(".")
    if not name.isascii():
        try:
            name = name.encode("idna").decode("ascii").lower()
        except UnicodeError:
            raise ValueError("is not a host name") from None
        if _is_numeric(name):  # digits of another script that spell an address
            raise ValueError("is not a usable address; write it in plain digits")
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in name.split(".")):
        raise ValueError("is not a host name")
    return name


def host_pattern(text: str) -> str:
    """Returns a rule's `host` in normal form. Raises ValueError."""
    if not text.startswith("*."):
        if "*" in text:
            raise ValueError("`*` may only stand as `*.` before a domain, like *.example.com")
        return normal_host(text)
    parent = text[2:]
    if "*" in parent:
        raise ValueError("`*` may only stand once, at the front")
    domain = normal_host(parent)
    if "." not in domain or _is_numeric(domain):
        raise ValueError("`*.` needs a domain with at least two labels, like *.example.com")
    return f"*.{domain}"


def places_of_group(group: str) -> tuple[tuple[str, int], ...]:
    """Its hosts, in their one spelling, and ports. What the person's settings name and is no host is left out."""
    found: dict[tuple[str, int], None] = {}
    for host, port in group_places(HostGroup(group), person_environ()):
        with contextlib.suppress(ValueError):
            found[normal_host(host), port] = None
    return tuple(found)


def group_targets(word: str) -> tuple[str, ...]:
    """`group:python` as `host:port` each; empty for any other word. Raises ValueError for a group that there is not."""
    group = named_group(word)
    if group is None:
        return ()
    return tuple(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in places_of_group(group))


def expand_groups(network: Iterable[str]) -> list[str]:
    """A list of hosts with the hosts of each group in its place, each once."""
    return list(dict.fromkeys(host for word in network for host in group_targets(word) or (word,)))


def groups_with(places: Iterable[tuple[str, int]]) -> tuple[str, ...] | None:
    """The groups that these hosts belong to, as few as there can be; None: one belongs to none."""
    found: list[str] = []
    for place in places:
        if not any(place in places_of_group(group) for group in found):
            group = next((group for group in GROUPS if place in places_of_group(group)), None)
            if group is None:
                return None
            found.append(group)
    return tuple(found)


def is_mirror(host: str, port: int) -> bool:
    """Whether the person's own settings name this host as a mirror of a package registry."""
    for named, at in mirror_places(person_environ()):
        with contextlib.suppress(ValueError):
            if (normal_host(named), at) == (host, port):
                return True
    return False


def host_matches(pattern: str, host: str) -> bool:
    """Both in normal form. `*.a.b` is every subdomain of a.b, not a.b itself."""
    return host.endswith(pattern[1:]) if pattern.startswith("*.") else host == pattern


def is_own_machine(host: str) -> bool:
    """Whether a host in normal form is the loopback of this machine."""
    return host in ("localhost", "::1") or (host.startswith("127.") and _is_numeric(host))


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


def _is_numeric(text: str) -> bool:
    """Whether the last label is a number: such a name is an address or a trick (`0x7f.1`), never a domain."""
    return bool(re.fullmatch(r"(0x[0-9a-f]*|[0-9]+)", text.lower().rstrip(".").rpartition(".")[2]))


def _normal_address(text: str) -> str:
    import ipaddress

    try:
        return str(ipaddress.ip_address(text.removeprefix("[").removesuffix("]").removesuffix(".")))
    except ValueError:
        raise ValueError("is not a usable address; write an IPv4 or IPv6 address in its usual form") from None
