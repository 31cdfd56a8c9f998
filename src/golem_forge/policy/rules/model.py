"""Rule: one sentence of policy, as loaded, with the place it came from, because people ask why; and its patterns.

The builtin rules block three ways to destroy a machine; no mode and no approval lets them through. A person can drop
one by id with `builtin_off` in their own rules.yaml; then such a command asks as a danger does.

`normal_host` gives a host in its one spelling: lower case, no final dot, IDNA as ASCII, addresses in their shortest
form; ValueError with the reason for anything that is not a host. A host pattern is such a name, or `*.` before one with
at least two labels. `places_of_group` gives the hosts that the name of a group stands for on this machine. The globs of
paths are those of `core`.
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
from collections.abc import Iterable
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final

from golem_forge.core.decisions import Verdict
from golem_forge.core.effects import Effect, Verb
from golem_forge.core.globs import GROUPS, HostGroup, named_group
from golem_forge.core.globs import name_glob as name_glob
from golem_forge.core.globs import path_glob as path_glob
from golem_forge.core.globs import path_matches_glob as path_matches_glob
from golem_forge.core.json import digest
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.core.regex import regex
from golem_forge.sandbox.host import person_environ
from golem_forge.sandbox.network.registries import group_places, host_text, mirror_places

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
    try:
        return str(ipaddress.ip_address(text.removeprefix("[").removesuffix("]").removesuffix(".")))
    except ValueError:
        raise ValueError("is not a usable address; write an IPv4 or IPv6 address in its usual form") from None


PATH_VERBS: Final = (Verb.READ, Verb.WRITE, Verb.DELETE)
SECRET_PATH: Final = "secret_path"
OBEYED_PATH: Final = "obeyed_path"
PATH_FLOORS: Final = frozenset({SECRET_PATH, OBEYED_PATH})
"""Danger ids that a path rule can accept."""


class RuleKind(StrEnum):
    """The subject of a rule; also its key in the file."""

    COMMAND = "command"
    TOOL = "tool"
    PATH = "path"
    MCP = "mcp"
    HOST = "host"
    GROUP = "group"
    """All hosts of a group of package registries: the public ones, and the mirrors that the environment names."""
    MODE = "mode"
    """The approval mode in which sessions of a directory start: a stored answer, not a rule about calls."""


class RuleOrigin(StrEnum):
    """The source of a rule. Only the person's own file may accept dangers."""

    BUILTIN = "builtin"
    USER = "user"
    REMEMBERED = "remembered"
    PROJECT = "project"
    SESSION = "session"


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleScope:
    """Limits a rule; empty fields do not limit it."""

    worker: str = ""
    """A glob for the worker path."""
    project: str = ""
    """The program's real host directory."""
    until: str = ""
    until_time: float | None = None
    """Expiry, in seconds since the epoch."""

    def describe(self) -> str:
        parts = (("worker", self.worker), ("project", self.project), ("until", self.until))
        return ", ".join(f"{name} {value}" for name, value in parts if value)


ANYWHERE: Final = RuleScope()
NO_IDS: Final[frozenset[str]] = frozenset()
HTTPS: Final = frozenset({443})
"""The ports of most rules; one object shared by all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArgTest:
    """A test of one argument; all parts that are set must hold."""

    name: str
    one_of: tuple[Any, ...] | None = None
    """A plain value in the rule is a choice of one."""
    glob: str | None = None
    minimum: float | None = None
    maximum: float | None = None
    absent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    kind: RuleKind
    verdict: Verdict
    id: str
    origin: RuleOrigin
    written: dict[str, Any] = field(compare=False, repr=False)
    """The mapping as written in YAML, without `id` unless it was written."""
    reason: str = ""
    file: str = ""
    line: int = 0
    scope: RuleScope = ANYWHERE
    accept: frozenset[str] = NO_IDS
    """Floors this rule lifts for what it matches: danger ids (command), PATH_FLOORS (path)."""
    command: tuple[tuple[str, ...], ...] = ()
    """Alternatives for each of the first words."""
    exact: bool = False
    danger: str = ""
    """Builtin rules match by danger id instead of a pattern."""
    tool: str = ""
    args: tuple[ArgTest, ...] = ()
    path: str = ""
    access: tuple[Verb, ...] = PATH_VERBS
    servers: tuple[str, ...] = ()
    mcp_tools: tuple[str, ...] = ()
    host: str = ""
    ports: frozenset[int] = HTTPS
    private: bool = False
    """The host may resolve to an address in a private range."""
    group: str = ""
    places: tuple[tuple[str, int], ...] = ()
    """For a group rule: its hosts and ports when the rule was read."""
    mode: str = ""

    def __hash__(self) -> int:
        return hash((self.origin, self.id))

    def to_yaml(self) -> dict[str, Any]:
        return dict(self.written)

    def describe(self) -> str:
        """Describes in one line what the rule matches: `command git status|log`, `path /workspace/docs/** (write)`."""
        return f"{self.kind.value} {self._subject()}"

    def _subject(self) -> str:
        if self.kind is RuleKind.COMMAND:
            if self.danger:
                return self.danger
            words = " ".join("|".join(token) for token in self.command)
            return f"{words} (exactly)" if self.exact else words
        if self.kind is RuleKind.PATH:
            verbs = [verb.value for verb in PATH_VERBS if verb in self.access]
            return f"{self.path} ({', '.join(verbs)})"
        if self.kind is RuleKind.MCP:
            return f"{'|'.join(self.servers)}/{'|'.join(self.mcp_tools)}"
        if self.kind is RuleKind.MODE:
            return f"{self.mode} (how sessions of this directory start)"
        if self.kind is RuleKind.GROUP:
            return f"{self.group} ({', '.join(map(host_text, self.places))})"
        if self.kind is RuleKind.HOST:
            return f"{self.host} (port {', '.join(map(str, sorted(self.ports)))})"
        return f"{self.tool} (with {', '.join(test.name for test in self.args)})" if self.args else self.tool


@dataclass(frozen=True, slots=True)
class RuleFile:
    """The content of a rule file."""

    rules: tuple[Rule, ...]
    builtin_off: frozenset[str] = frozenset()
    warnings: tuple[str, ...] = ()
    """Warnings of `forge rules check` about a usable file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A rule that matched, and the part of the call that it matched."""

    rule: Rule
    effect: Effect | None = None
    """None if it matched the call as a whole."""
    subject: str = ""
    index: int = -1
    """Position of `effect` among the call's effects."""


def rule_id(written: dict[str, Any]) -> str:
    """The id of a rule that was given none: the same words have the same id, in any key order."""
    return digest({key: value for key, value in written.items() if key != "id"})[:12]


_REASONS: Final = {
    "wipe_root": "this would delete the system or a home directory",
    "wipe_device": "this would overwrite a device",
    "fork_bomb": "this would start processes without end",
}
BUILTIN_IDS: Final = frozenset(_REASONS)


def builtin_rules() -> tuple[Rule, ...]:
    return tuple(
        Rule(
            kind=RuleKind.COMMAND,
            verdict=Verdict.BLOCKED,
            id=id_,
            origin=RuleOrigin.BUILTIN,
            written={"command": id_, "verdict": Verdict.BLOCKED.value, "reason": reason},
            reason=reason,
            danger=id_,
        )
        for id_, reason in _REASONS.items()
    )
