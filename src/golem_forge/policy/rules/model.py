"""Rule: one sentence of policy, as loaded, with the place it came from, because people ask why.

The builtin rules block three ways to destroy a machine; no mode and no approval lets them through. A person can drop
one by id with `builtin_off` in their own rules.yaml; then such a command asks as a danger does.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final

from golem_forge.core.decisions import Verdict
from golem_forge.core.effects import Effect, Verb
from golem_forge.core.json import digest
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.sandbox.network.registries import host_text

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
