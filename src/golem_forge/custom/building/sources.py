"""Where dependencies come from: hosts that must be asked for, and directories of this machine that need no asking.

`python_sources` reads the person's settings of uv, or else of pip, the script's own words to uv and its lock;
`go_sources` the person's GOPROXY and GOSUMDB. Both give Sources: what a person is asked about, and what the installer
is told inside the walls.

Threats: credentials. Those in the address of an index go to that index only; variables that name an index by a word
(`UV_INDEX_<NAME>_PASSWORD`) are not handed on, because a script could give another address that name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from golem_forge.custom.building.script_block import ScriptBlock
from golem_forge.sandbox.walls.job import HostDirectory, HostGrant
from golem_forge.tools.context import HostRule

_PYPI: Final = ("pypi.org", "files.pythonhosted.org")
_GO_PROXY: Final = "https://proxy.golang.org"
_GO_SUMS: Final = "sum.golang.org"
_LINKS: Final = "/forge/links"
_HANDED_ON: Final = ("UV_INDEX_STRATEGY", "UV_EXCLUDE_NEWER", "UV_NATIVE_TLS", "UV_SYSTEM_CERTS", "UV_PRERELEASE")
_INDEXES: Final = {"UV_DEFAULT_INDEX": " ", "UV_INDEX_URL": " ", "UV_INDEX": " ", "UV_EXTRA_INDEX_URL": " "}
_PLACES: Final = {**_INDEXES, "UV_FIND_LINKS": ","}
"""Variable → what stands between its values."""
_OF_PIP: Final = {
    "PIP_INDEX_URL": ("UV_DEFAULT_INDEX", "UV_INDEX_URL"),
    "PIP_EXTRA_INDEX_URL": ("UV_INDEX", "UV_EXTRA_INDEX_URL"),
    "PIP_FIND_LINKS": ("UV_FIND_LINKS",),
    "PIP_NO_INDEX": ("UV_NO_INDEX",),
}
"""What pip reads → the names of uv's own for it. uv does not read pip's; whoever set them up for pip means both."""
_FALSE: Final = frozenset({"", "0", "false", "no", "off", "f", "n"})
_URL: Final = re.compile(r"https?://[^\s\"'<>,;\]}]+")
_MOST_HOSTS: Final = 32
_USER: Final = re.compile(r"(?<=://)[^/@\s]*@")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    hosts: tuple[str, ...] = ()
    """`host`, or `host:port` where that is not 443."""
    own: frozenset[str] = frozenset()
    """Those of them that the person's own settings name: they may be at a private address."""
    flags: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    shown: tuple[HostDirectory, ...] = ()

    def grants(self, approved: Iterable[str], host_rule: HostRule) -> tuple[HostGrant, ...]:
        """A private address is reached where the person's settings name the host, or a rule of theirs says so."""
        return tuple(_grant(host, host in self.own, host_rule) for host in approved)


def without_credentials(text: str) -> str:
    """Addresses in it without `user:password@`."""
    return _USER.sub("", text)


def python_sources(environ: Mapping[str, str], block: ScriptBlock, lock: bytes) -> Sources:
    local = _Local()
    environ = _with_pips(environ)
    env = {name: environ[name] for name in _HANDED_ON if environ.get(name)}
    own: list[str] = []
    for name, between in _PLACES.items():
        if values := [each for each in environ.get(name, "").split(between) if each.strip()]:
            env[name] = between.join(local.inside(each.strip()) for each in values)
            own += [host for each in values if (host := _host(each))]
    no_index = environ.get("UV_NO_INDEX", "").lower() not in _FALSE
    if no_index:
        own = [host for each in environ.get("UV_FIND_LINKS", "").split(",") if (host := _host(each))]
    replaced = no_index or any(environ.get(name) for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL"))
    usual = () if replaced else _PYPI
    if lock:
        named = [host for url in _URL.findall(lock.decode("utf-8", "replace")) if (host := _host(url))]
        hosts = _with_files(named)
    else:
        named = [host for text in _texts((block.dependencies, block.uv)) if (host := _host(_first_url(text)))]
        hosts = _with_files((*usual, *own, *named))
    return Sources(
        hosts=tuple(dict.fromkeys(hosts))[:_MOST_HOSTS],
        own=frozenset(own),
        flags=("--no-index",) if no_index else (),
        env=env,
        shown=tuple(local.shown),
    )


def _with_pips(environ: Mapping[str, str]) -> Mapping[str, str]:
    """uv's settings, and pip's where uv has none of that kind."""
    found = {
        uvs[0]: re.sub(r"\s+", _PLACES.get(uvs[0], " "), environ[pips].strip())
        for pips, uvs in _OF_PIP.items()
        if environ.get(pips, "").strip() and not any(environ.get(name) for name in uvs)
    }
    return {**environ, **found} if found else environ


def go_sources(environ: Mapping[str, str]) -> Sources:
    local = _Local()
    said = environ.get("GOPROXY", "") or _GO_PROXY
    # Never `direct`: that would start version control programs on addresses which the module names.
    chosen = [each for each in re.split(r"[,|]", said) if each not in ("direct", "off", "")]
    own = [host for each in chosen if (host := _host(each))] if environ.get("GOPROXY") else []
    sums = environ.get("GOSUMDB", "") or _GO_SUMS
    hosts = [host for each in chosen if (host := _host(each))]
    if sums != "off" and hosts:
        hosts.append(_host(sums.split()[-1]) or sums.split("+")[0].split()[0])
    env = {
        "GOPROXY": ",".join(local.inside(each) for each in chosen) or "off",
        "GOSUMDB": sums if hosts else "off",  # nothing to ask; a directory of one's own is trusted as it is
        "GONOSUMDB": environ.get("GONOSUMDB", "") or environ.get("GOPRIVATE", ""),
        "GONOPROXY": "none",
    }
    return Sources(hosts=tuple(dict.fromkeys(hosts)), own=frozenset(own), env=env, shown=tuple(local.shown))


class _Local:
    """Directories of this machine among the sources, each shown read-only at a place of its own."""

    def __init__(self) -> None:
        self.shown: list[HostDirectory] = []

    def inside(self, value: str) -> str:
        """A source as it is called inside the walls: `name=` and addresses stay as they are."""
        name, equals, rest = value.partition("=") if re.match(r"[A-Za-z0-9_.-]+=", value) else ("", "", value)
        path = unquote(urlsplit(rest).path) if rest.startswith("file://") else os.path.expanduser(rest)
        if not path.startswith("/") or not os.path.isdir(path):
            return value
        inner = f"{_LINKS}/{len(self.shown)}"
        self.shown.append(HostDirectory(os.path.realpath(path), inner))
        return name + equals + ("file://" + inner if rest.startswith("file://") else inner)


def _host(address: str) -> str:
    """Of an address on the network; empty for anything else."""
    url = address[address.find("http") :] if "http" in address else ""
    try:
        parts = urlsplit(url.strip())
        host, port = parts.hostname, parts.port
    except ValueError:
        return ""
    if not host or parts.scheme not in ("http", "https"):
        return ""
    port = port or (443 if parts.scheme == "https" else 80)
    named = f"[{host}]" if ":" in host else host
    return named if port == 443 else f"{named}:{port}"


def _first_url(text: str) -> str:
    found = _URL.search(text)
    return found[0] if found else ""


def _with_files(hosts: Iterable[str]) -> Iterator[str]:
    """The public index has its files elsewhere."""
    for host in hosts:
        yield from _PYPI if host == _PYPI[0] else (host,)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from (text for each in value.values() for text in _texts(each))
    elif isinstance(value, (list, tuple)):
        yield from (text for each in value for text in _texts(each))


def _grant(host: str, own: bool, host_rule: HostRule) -> HostGrant:
    name, colon, port = host.rpartition(":")
    if colon and port.isdecimal() and not name.endswith(":"):
        place, number = name.strip("[]"), int(port)
    else:
        place, number = host.strip("[]"), 443
    return HostGrant(place, number, own or host_rule(place, number).private)
