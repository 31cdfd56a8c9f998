"""Callables that the server pool needs from the layers above and may not import. Filled by `agent`, tests or an
embedder.

Every default fails closed: without a person to ask, nothing is approved.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from golem_forge.config.mcp_spec import ServerSpec
from golem_forge.core.decisions import Verdict
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.mcp.client.model import ServerStatus
from golem_forge.tools.context import HostRule, ToolContext, no_host_rule

if TYPE_CHECKING:
    from golem_forge.sandbox.walls.walls import Walls


@dataclass(frozen=True, slots=True, kw_only=True)
class FormAnswer:
    """What a person did with a form: `accept` (with values), `decline` or `cancel`."""

    action: str = "cancel"
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ElicitationForm:
    """A question of a server, headed by its name."""

    server: str
    message: str
    fields: tuple[Mapping[str, Any], ...] = ()
    """As `tools.forms.derive_fields` gives them."""
    schema: Mapping[str, Any] = field(default_factory=dict)
    """The requested schema; values are checked against it before they are sent."""
    url: str = ""
    """Instead of fields: a page that only the person opens."""
    key: str = ""
    """How the server itself calls this question, where it has a name for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingRequest:
    server: str
    messages: tuple[Mapping[str, Any], ...]
    """`{role, content}` as MCP writes them."""
    system_prompt: str = ""
    max_tokens: int = 4096
    """Already bounded."""
    temperature: float | None = None
    stop_sequences: tuple[str, ...] = ()
    verdict: Verdict = Verdict.ASK
    """What the config says: `preApproved` needs no card."""
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
    """Whether anybody is there to answer a card."""
    tell: Callable[[ServerStatus], None] = _ignore_status
    walls_for: Callable[[ServerSpec], Walls] = _no_walls
    """Walls around exactly the zones the spec names, with its modes. Raises ForgeError for a zone it cannot have."""
    host_rule: HostRule = no_host_rule
    """What the person's rules say of a host that a spec names: whether it may be at a private address."""
