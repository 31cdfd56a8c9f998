"""The records of the MCP client: states of servers, manifests, tools as a server defines them, their names, and hooks.

`ServerState` is never `ready` for a server that has not answered. `ServerManifest` holds what a server said of itself
when it was last asked: definitions only, no results. `tool_names` gives every tool the name that callers use:
`<server>__<tool>`, or that with a hash where it is too long, has other characters or collides. It depends on the set of
tools alone, never on their order. Raw names go on the wire; rules and pins use raw names only.

Threat: two tools with one name (a call that was judged for one would run the other), a server that gives its tool the
name of another server's tool, or that searches for two tools with equal short hashes.

`Hooks` are callables that the pool needs from the layers above and may not import; `agent`, tests or an embedder fill
them. Every default fails closed: without a person to ask, nothing is approved.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from golem_forge.config.mcp_spec import ServerSpec
from golem_forge.core.decisions import Verdict
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.core.regex import regex
from golem_forge.tools.context import HostRule, ToolContext, no_host_rule

if TYPE_CHECKING:
    from golem_forge.sandbox.walls.walls import Walls


SERVER_NOT_FOUND: Final = "SERVER_NOT_FOUND"
"""The code of the error that whatever looks for a server by its name raises."""


class ServerState(StrEnum):
    DISABLED = "disabled"
    """Switched off in the config."""
    PENDING = "pending"
    """Waits for a person's first approval; or it is approved and has never answered."""
    KNOWN = "known"
    """Not running; its tools are served from the cached manifest."""
    CONNECTING = "connecting"
    READY = "ready"
    NEEDS_LOGIN = "needs_login"
    BACKOFF = "backoff"
    """Will be tried again at `retry_at`."""
    FAILED = "failed"
    """Gave up, with a reason."""


def offer_unknown(server: str) -> str:
    """Returns the note for an approved server that never answered (`pending`), or did so more than a day
    ago (`known`).
    """
    return f"what it offers is not known yet; run: forge mcp test {server}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerStatus:
    server: str
    state: ServerState
    error: str = ""
    retry_at: float | None = None
    """Time of the next try, as `time.time()`."""
    tools: int | None = None
    """Number of offered tools; None if unknown."""
    stderr: tuple[str, ...] = ()
    """The last 20 lines, redacted; only where it failed."""
    protocol: str = ""
    """The negotiated version; empty before."""
    info: Mapping[str, Any] = field(default_factory=dict)
    """`{name, version, title?}` as the server introduced itself."""


class HoldReason(StrEnum):
    """Why a tool is not in the catalog."""

    SCHEMA_INVALID = "schema_invalid"
    ENTRY_INVALID = "entry_invalid"
    HIDDEN_TEXT = "hidden_text"
    DRIFT = "drift"


class Familiarity(StrEnum):
    """Whether a usable definition is pinned."""

    PINNED = "pinned"
    NEW = "new"
    """It appeared after the server was first pinned; its first call asks, whatever the config says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteTool:
    server: str
    name: str
    """Raw: what goes on the wire, and what rules, pins and statistics know it by."""
    description: str
    """Never empty."""
    input_schema: Mapping[str, Any]
    title: str = ""
    output_schema: Mapping[str, Any] | None = None
    annotations: Mapping[str, Any] = field(default_factory=dict)
    """The hints as sent; which of them count depends on trust."""
    digest: str = ""
    """The pin: over name, title, description, both schemas and annotations."""
    familiarity: Familiarity = Familiarity.PINNED

    @property
    def identity(self) -> tuple[str, str]:
        return self.server, self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldTool:
    """Quarantined, alone: the rest of its server works."""

    server: str
    name: str
    """Raw, made visible; `#3` for an entry without a usable name."""
    reason: HoldReason
    message: str
    diff: str = ""
    """`drift`: unified diff from the pinned definition to the present one."""
    tool: RemoteTool | None = None
    """`drift`: the definition that a person may approve."""

    @property
    def identity(self) -> tuple[str, str]:
        return self.tool.identity if self.tool is not None else (self.server, self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerToolList:
    """One server's tools, checked one by one and held against the pins."""

    server: str
    tools: tuple[RemoteTool, ...] = ()
    held: tuple[HeldTool, ...] = ()
    diagnostics: tuple[str, ...] = ()
    """Problems of the whole list: a repeated cursor, too many pages."""

    @property
    def identities(self) -> tuple[Identity, ...]:
        """Returns the identities of all its tools, also of those held back."""
        return (*(tool.identity for tool in self.tools), *(held.identity for held in self.held))


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerManifest:
    server: str
    scope: str
    config_digest: str
    fetched_at: float
    """Time as `time.time()`."""
    ttl_ms: int = 0
    """The server's own TTL; 0 if it gave none."""
    protocol: str = ""
    info: Mapping[str, Any] = field(default_factory=dict)
    instructions: str = ""
    tools: tuple[Any, ...] = ()
    """The raw entries."""
    prompts: tuple[Any, ...] = ()
    """Raw entries."""
    has_resources: bool = False
    diagnostics: tuple[str, ...] = ()


MAX_TOOL_NAME_BYTES: Final = 64
Identity = tuple[str, str]
"""(server, tool), both as the server names them."""

_OTHER: Final = regex(r"[^A-Za-z0-9_-]")
_HASH_DIGITS: Final = (0, 8, 16, 24)
"""Hash digits of each step: a plain name has none. The second is the rule; the others resolve colliding hashes. The
last leaves 39 bytes, in which the longest server name and `__` still fit.
"""


def tool_names(identities: Iterable[Identity]) -> dict[Identity, str]:
    """The name of each; no two are equal, ignoring case."""
    plain = {identity: f"{_sanitized(identity[0])}__{_sanitized(identity[1])}" for identity in identities}
    met = Counter(name.lower() for name in plain.values())
    steps = {
        identity: 0 if _is_usable(identity, name) and met[name.lower()] == 1 else 1 for identity, name in plain.items()
    }
    names = {identity: _hashed_name(identity, plain[identity], step) for identity, step in steps.items()}
    while True:
        concerned = _colliding(names, steps)
        if not concerned:
            return names
        for identity in concerned:
            steps[identity] += 1
            names[identity] = _hashed_name(identity, plain[identity], steps[identity])


def _sanitized(raw: str) -> str:
    return _OTHER.sub("_", raw) or "_"


def _is_usable(identity: Identity, plain: str) -> bool:
    return plain == f"{identity[0]}__{identity[1]}" and len(plain) <= MAX_TOOL_NAME_BYTES


def _hashed_name(identity: Identity, plain: str, step: int) -> str:
    digits = _HASH_DIGITS[step]
    return f"{plain[: MAX_TOOL_NAME_BYTES - 1 - digits]}_{_hash(chr(0).join(identity))[:digits]}" if digits else plain


def _colliding(names: dict[Identity, str], steps: dict[Identity, int]) -> list[Identity]:
    """Returns the colliding identities with the shortest hash: a name that follows the rule is not given up for an
    imitation.
    """
    by_name: dict[str, list[Identity]] = {}
    for identity, name in names.items():
        by_name.setdefault(name.lower(), []).append(identity)
    concerned: list[Identity] = []
    for group in by_name.values():
        if len(group) > 1:
            lowest = min(steps[identity] for identity in group)
            if lowest < len(_HASH_DIGITS) - 1:
                concerned += [identity for identity in group if steps[identity] == lowest]
    return concerned


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class FormAnswer:
    """A person's answer to a form: `accept` (with values), `decline` or `cancel`."""

    action: str = "cancel"
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ElicitationForm:
    """A server's question, shown with its name."""

    server: str
    message: str
    fields: tuple[Mapping[str, Any], ...] = ()
    """The fields from `tools.forms.derive_fields`."""
    schema: Mapping[str, Any] = field(default_factory=dict)
    """The requested schema; values are checked against it before they are sent."""
    url: str = ""
    """Instead of fields: a page that only the person opens."""
    key: str = ""
    """The server's own name for this question, if it has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingRequest:
    server: str
    messages: tuple[Mapping[str, Any], ...]
    """Messages as in MCP: `{role, content}`."""
    system_prompt: str = ""
    max_tokens: int = 4096
    """The limit, already bounded."""
    temperature: float | None = None
    stop_sequences: tuple[str, ...] = ()
    verdict: Verdict = Verdict.ASK
    """The config's verdict; `preApproved` needs no card."""
    by_tool: bool = False
    """A running tool asks, and `server` is its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingAnswer:
    text: str = ""
    model: str = ""
    stop_reason: str = "endTurn"
    refused: str = ""
    """Why there is none: a person denied it, nobody can be asked, the budget is spent."""


async def _no_form(form: ElicitationForm, ctx: ToolContext) -> FormAnswer:
    return FormAnswer()


async def _no_sampling(request: SamplingRequest, ctx: ToolContext) -> SamplingAnswer:
    return SamplingAnswer(refused="nobody can be asked")


async def _deny_server(spec: ServerSpec, card: str, diff: str) -> bool:
    return False


def _ignore_status(status: ServerStatus) -> None:
    return None


def _no_walls(spec: ServerSpec) -> Walls:
    raise RuntimeError("this pool cannot start processes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    ask_form: Callable[[ElicitationForm, ToolContext], Awaitable[FormAnswer]] = _no_form
    """`ctx`: of the call on whose behalf the server asks."""
    sample: Callable[[SamplingRequest, ToolContext], Awaitable[SamplingAnswer]] = _no_sampling
    """Shows the card, asks the worker's model, counts its usage."""
    approve_server: Callable[[ServerSpec, str, str], Awaitable[bool]] = _deny_server
    """(spec, the card's text, diff to what was approved before or empty) → a person said yes."""
    can_ask: Callable[[], bool] = lambda: False
    """Whether somebody can answer a card."""
    tell: Callable[[ServerStatus], None] = _ignore_status
    walls_for: Callable[[ServerSpec], Walls] = _no_walls
    """Walls around exactly the zones the spec names, with its modes. Raises ForgeError for a zone it cannot have."""
    host_rule: HostRule = no_host_rule
    """Returns what the person's rules allow for a host in a spec: whether it may have a private address."""
