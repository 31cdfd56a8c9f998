"""ServerSpec: one configured MCP server, as forge.yaml and `.mcp.json` say together, unexpanded.

Plain data: `servers.py` reads it, `mcp/client` starts what it names. `${NAME}` stands in it as written;
values of the environment are put in at the last moment and appear in no copy of a spec.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final, Literal

from golem_forge.config.modes import Setting
from golem_forge.core.canonical import digest
from golem_forge.core.verdict import Verdict

NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


class Trust(StrEnum):
    """Whether a server's annotations and instructions count."""

    UNTRUSTED = "untrusted"
    TRUSTED = "trusted"


class Login(StrEnum):
    NONE = "none"
    OAUTH = "oauth"
    BEARER = "bearer"


@dataclass(frozen=True, slots=True)
class Auth:
    kind: Login = Login.NONE
    variable: str = ""
    """`bearer_env`: the name of the variable that holds the token."""


@dataclass(frozen=True, kw_only=True)
class ServerSpec:
    name: str
    """Valid: `^[A-Za-z0-9][A-Za-z0-9_-]{0,31}$`, no `__`."""
    scope: str
    """Whose server of that name it is: the program's root, or empty for the person's own config. Two programs may both
    have a `docs`; what was agreed to for one says nothing of the other."""
    origin: str
    """`forge.yaml:7` or `.mcp.json`."""
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    pass_env: tuple[str, ...] = ()
    cwd: str = ""
    """A zone address, `/workspace/sub`; empty: the first zone, else its own home."""
    zones: Mapping[str, Literal["ro", "rw"]] = field(default_factory=lambda: NOTHING)
    network: bool | tuple[str, ...] = True
    """The host's network, none, or these `host[:port]`."""
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    auth: Auth = Auth()
    enabled: bool = True
    required: bool = False
    trust: Trust = Trust.UNTRUSTED
    """As it counts: an untrusted program's word for it does not."""
    allow: tuple[str, ...] = ("*",)
    deny: tuple[str, ...] = ()
    always_load: tuple[str, ...] = ()
    approval_default: Setting[Verdict] | None = None
    approval_tools: Mapping[str, Setting[Verdict]] = field(default_factory=dict)
    """By raw tool name."""
    sampling: Verdict = Verdict.ASK
    connect_timeout: float = 30
    idle_timeout: float = 120
    total_timeout: float = 600
    close_after: float = 300
    protocol: Literal["auto", "legacy"] = "auto"
    problem: str = ""
    """Why it cannot be used as it is written (`SSE is not supported; use streamable HTTP`): it is shown as failed."""

    @property
    def is_http(self) -> bool:
        return bool(self.url)

    @cached_property
    def described(self) -> dict[str, Any]:
        """What a person agrees to when they let it start, in the words of the file; the digest is over this."""
        if self.is_http:
            auth = {"bearer_env": self.auth.variable} if self.auth.kind is Login.BEARER else self.auth.kind.value
            return {"url": self.url, "headers": dict(self.headers), "auth": auth}
        return {
            "command": self.command,
            "args": list(self.args),
            "env": dict(self.env),
            "pass_env": list(self.pass_env),
            "cwd": self.cwd,
            "zones": dict(self.zones),
            "network": self.network if isinstance(self.network, bool) else list(self.network),
        }

    @cached_property
    def digest(self) -> str:
        return digest(self.described)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deferral:
    """forge.yaml's `tools`: when definitions are too many to be sent with every request."""

    above: int = 40
    """More tools than this, or"""
    tokens: int = 8000
    """more than this (bytes ÷ 4)."""
    always_load: tuple[str, ...] = ()
    """Globs of names that are sent all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpSettings:
    """What a program and its person configured, as it counts now."""

    servers: Mapping[str, ServerSpec] = field(default_factory=dict)
    """By name, in name order."""
    deferral: Deferral = Deferral()
    warnings: tuple[str, ...] = ()
    """What `.mcp.json` says that Forge does not know, with file and key."""
