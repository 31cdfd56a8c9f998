"""Package registries: the hosts of each group, and the person's settings that name mirrors, for commands and builds.

`person_mirrors` takes the person's environment and gives what commands get of it: the variables of MIRRORS, without
the user names, passwords and tokens that stand in their addresses, and which of them held such a thing. `group_places`
gives the hosts of one group: the public ones and the mirrors. `mirror_places` gives the mirrors alone, which the
person's own settings name, so that they may be at a private address.

Threat: a variable is read by code that a command chose. Only names of the table are handed on, none of which starts
anything, and of an address nothing that lets somebody in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from golem_forge.core.globs import HostGroup
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.core.regex import regex
from golem_forge.events.redaction import NO_CREDENTIAL, classify_name

Place = tuple[str, int]
"""A host and a port."""


PUBLIC_HOSTS: Final[dict[HostGroup, tuple[str, ...]]] = {
    HostGroup.PYTHON: ("pypi.org", "files.pythonhosted.org"),
    HostGroup.NODE: ("registry.npmjs.org", "registry.yarnpkg.com"),
    HostGroup.RUST: ("index.crates.io", "static.crates.io", "crates.io", "static.rust-lang.org"),
    HostGroup.GO: ("proxy.golang.org", "sum.golang.org"),
}
"""The default hosts of each group's programs, at port 443."""


@dataclass(frozen=True, slots=True)
class MirrorVariables:
    """Variables of one group that commands get as the person has them."""

    group: HostGroup
    addresses: str
    """Patterns of names, divided by spaces: these hold addresses, one or several."""
    settings: str = ""
    """Names of others, without an address: which hosts need no TLS, which index goes first."""


MIRRORS: Final = (
    MirrorVariables(
        HostGroup.PYTHON,
        "PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_FIND_LINKS UV_DEFAULT_INDEX UV_INDEX UV_INDEX_URL UV_EXTRA_INDEX_URL"
        " UV_FIND_LINKS UV_PYTHON_INSTALL_MIRROR PDM_PYPI_URL PIPENV_PYPI_MIRROR",
        "PIP_TRUSTED_HOST PIP_NO_INDEX UV_NO_INDEX UV_INSECURE_HOST UV_INDEX_STRATEGY UV_EXCLUDE_NEWER UV_NATIVE_TLS"
        " UV_SYSTEM_CERTS UV_PRERELEASE",
    ),
    MirrorVariables(
        HostGroup.NODE,
        "npm_config_registry NPM_CONFIG_REGISTRY pnpm_config_registry PNPM_CONFIG_REGISTRY YARN_REGISTRY"
        " YARN_NPM_REGISTRY_SERVER COREPACK_NPM_REGISTRY BUN_CONFIG_REGISTRY",
        "YARN_UNSAFE_HTTP_WHITELIST",
    ),
    MirrorVariables(
        HostGroup.RUST,
        "CARGO_REGISTRIES_[A-Z0-9_]{1,64}_INDEX RUSTUP_DIST_SERVER RUSTUP_UPDATE_ROOT",
        "CARGO_REGISTRY_DEFAULT",
    ),
    MirrorVariables(HostGroup.GO, "GOPROXY GOSUMDB", "GOPRIVATE GONOPROXY GONOSUMDB GOINSECURE"),
)
_ADDRESS_NAMES: Final = {row.group: regex("|".join(row.addresses.split())) for row in MIRRORS}
_SETTING_NAMES: Final = frozenset(name for row in MIRRORS for name in row.settings.split())
_LONGEST: Final = 8192
_MOST_PLACES: Final = 32
_BETWEEN: Final = regex(r"[\s,|]+")
_CREDENTIALS: Final = regex(r"(?<=://)[^/@\s]*@")
_QUERY: Final = regex(r"(https?://[^\s,|?#]*)\?([^\s,|#]*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirrors:
    env: dict[str, str] = field(default_factory=dict)
    """Variables for commands."""
    stripped: tuple[str, ...] = ()
    """Names of variables whose addresses held a user name, a password or a token."""
    places: dict[HostGroup, tuple[Place, ...]] = field(default_factory=dict)

    @property
    def notice(self) -> str:
        """Returns a notice for the person; empty if no credentials were removed."""
        if not self.stripped:
            return ""
        names = " and ".join(self.stripped) if len(self.stripped) < 3 else ", ".join(self.stripped)
        return (
            f"Commands get {names} without the user name, password or token in it: they can read what they are given. "
            "Use an index that needs none from inside, or install such packages yourself."
        )


def person_mirrors(environ: Mapping[str, str]) -> Mirrors:
    env: dict[str, str] = {}
    stripped: list[str] = []
    places: dict[HostGroup, dict[Place, None]] = {}
    for name, value in environ.items():
        if not value or len(value) > _LONGEST or not value.isprintable():
            continue
        if name in _SETTING_NAMES:
            env[name] = value
        elif group := next((each for each, names in _ADDRESS_NAMES.items() if names.fullmatch(name)), None):
            env[name] = without_credentials(value)
            if env[name] != value:
                stripped.append(name)
            found = (place for word in _BETWEEN.split(value) if (place := place_of(word)) is not None)
            places.setdefault(group, {}).update(dict.fromkeys(found))
    return Mirrors(
        env=env,
        stripped=tuple(sorted(stripped)),
        places={group: tuple(found)[:_MOST_PLACES] for group, found in places.items()},
    )


def group_places(group: HostGroup, environ: Mapping[str, str]) -> tuple[Place, ...]:
    """The public hosts, then the mirrors that the environment names."""
    public = ((host, 443) for host in PUBLIC_HOSTS[group])
    return tuple(dict.fromkeys((*public, *person_mirrors(environ).places.get(group, ()))))


def mirror_places(environ: Mapping[str, str]) -> frozenset[Place]:
    return frozenset(place for places in person_mirrors(environ).places.values() for place in places)


def group_of_place(place: Place, environ: Mapping[str, str]) -> HostGroup | None:
    return next((group for group in HostGroup if place in group_places(group, environ)), None)


def without_credentials(text: str) -> str:
    """Addresses in it without `user:password@`, and without a query that names a token."""
    return _QUERY.sub(lambda found: found[0] if _is_plain(found[2]) else found[1], _CREDENTIALS.sub("", text))


def _is_plain(query: str) -> bool:
    return all(classify_name(name) == NO_CREDENTIAL for name, _ in parse_qsl(query, keep_blank_values=True))


def place_of(address: str) -> Place | None:
    """The host and port of an address on the network, also after `name=` or `sparse+`; None for anything else."""
    url = address[address.find("http") :] if "http" in address else ""
    try:
        parts = urlsplit(url.strip())
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if not host or parts.scheme not in ("http", "https"):
        return None
    return host.removesuffix("."), port or (443 if parts.scheme == "https" else 80)


def host_text(place: Place) -> str:
    """`host`, or `host:port` where that is not 443."""
    host, port = place
    named = f"[{host}]" if ":" in host else host
    return named if port == 443 else f"{named}:{port}"


def hosts_of(addresses: Iterable[str]) -> list[str]:
    return [host_text(place) for each in addresses if (place := place_of(each)) is not None]


def with_file_hosts(hosts: Iterable[str]) -> Iterator[str]:
    """The public Python index has its files elsewhere."""
    python = PUBLIC_HOSTS[HostGroup.PYTHON]
    for host in hosts:
        yield from python if host == python[0] else (host,)
