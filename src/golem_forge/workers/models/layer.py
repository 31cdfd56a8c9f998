"""What the loop needs of a model, whoever provides it. `stream` gives deltas, then exactly one `Completed`, or raises.

The layer never retries, never executes a tool and never looks at a clock: `workers.models.asking` does the first, the
one path the second. A cancelled `stream` closes its connection at once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from golem_forge.core.errors import ForgeError
from golem_forge.core.verdict import Status
from golem_forge.workers.messages import AssistantMessage, Message


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOffer:
    """A tool as a model is shown it."""

    name: str
    description: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    system: str
    messages: Sequence[Message]
    tools: Sequence[ToolOffer] = ()
    max_output_tokens: int | None = None
    attachment: Any = None
    """(digest) → bytes of an attachment in `messages`; None where there are none."""
    schema_of: Callable[[str], Mapping[str, Any]] | None = None
    """(name) → the schema of what a model may call though it is not in `tools`, or not by that spelling; {}: nothing.
    For layers that read arguments themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one request as the provider counted them. `cached` is part of `input`."""

    input: int = 0
    output: int = 0
    cached: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input=self.input + other.input, output=self.output + other.output, cached=self.cached + other.cached
        )

    @property
    def total(self) -> int:
        return self.input + self.output


class Finish(StrEnum):
    """Why a response ended."""

    STOP = "stop"
    LENGTH = "length"
    """Cut at the token limit: none of its calls may run."""
    REFUSED = "refused"
    """The provider withheld it (content filter)."""


@dataclass(frozen=True, slots=True)
class TextDelta:
    text: str


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageSoFar:
    """What the provider has counted although the response is not complete; for requests that are stopped."""

    usage: Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """The response ended normally. `message` has the whole text and every call."""

    message: AssistantMessage
    usage: Usage
    finish: Finish = Finish.STOP


ModelEvent = TextDelta | ThinkingDelta | UsageSoFar | Completed


class ModelError(ForgeError):
    """A request failed. `retryable`: the same request may succeed later (connection, 408, 429, 5xx)."""

    def __init__(
        self, message: str, *, retryable: bool = False, retry_after: float | None = None, code: str = ""
    ) -> None:
        super().__init__(message, status=Status.EXECUTION_FAILED, code=code or "MODEL_UNAVAILABLE")
        self.retryable = retryable
        self.retry_after = retry_after
        """Seconds the provider asked us to wait."""


class Model(Protocol):
    @property
    def name(self) -> str:
        """`provider:name`, as configured."""
        ...

    @property
    def context_window(self) -> int | None:
        """In tokens; None if nobody knows."""
        ...

    @property
    def max_output_tokens(self) -> int:
        """What is asked for when nothing else is said."""
        ...

    @property
    def calls_natively(self) -> bool:
        """False: tools go through the XML format."""
        ...

    def takes(self, media_type: str) -> bool:
        """Whether an attachment of this type can be sent."""
        ...

    def stream(self, request: Request) -> AsyncIterator[ModelEvent]: ...

    async def aclose(self) -> None: ...
