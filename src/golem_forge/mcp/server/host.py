"""Host and Guest: the session behind `forge mcp serve`, as the server needs it. Filled by `workers/`, or by a test.

The server speaks the protocol and keeps connections; whatever a client asks for is done by its Guest, through the one
path. A Guest is one client's place: its own memory of approvals, its own outputs, the worker's tools.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from golem_forge.core.call import Outcome
from golem_forge.core.signal import InterruptSignal
from golem_forge.events.redaction import Redactor
from golem_forge.mcp.server.served_call import ServedCalls
from golem_forge.tools.tool import Tool

Progress = Callable[[float, float | None, str], None]
"""(progress, total or None, message); called on the loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientFacts:
    caller_name: str = ""
    """The name of its token, for the journal (`mcp:NAME`); empty over stdio."""


class Guest(Protocol):
    async def call(self, name: str, args: Any, *, call_id: str, cancel: InterruptSignal, progress: Progress) -> Outcome:
        """One call as `Caller.MCP` through the one path, under this id. `cancel` ends it and whatever it started.

        Never raises for what the call does. What needs approval is asked through a `GuestApproval` of this guest.
        """
        ...

    def output(self, handle: str) -> Path | None:
        """The kept output of this handle. The server only asks for handles that this client was given."""
        ...

    async def aclose(self) -> None:
        """The client is gone: what it agreed to is forgotten."""
        ...


class Host(Protocol):
    @property
    def calls(self) -> ServedCalls:
        """Every call under way, by id: how a question that comes up in one finds the client who made it."""
        ...

    @property
    def redactor(self) -> Redactor:
        """What the session knows to be secret."""
        ...

    async def gathered(self) -> None:
        """Awaited before a client's list: what is just being asked for the first time gets a moment, once.

        A client that lists once and listens to no news would never hear of it otherwise.
        """
        ...

    def offered(self) -> tuple[Tool, ...]:
        """What `Caller.MCP` is shown, after a look for changes; the very same tuple until something changed.

        Called twice a second while anybody is connected, so it must be cheap.
        """
        ...

    def admit(self, client: ClientFacts) -> Guest:
        """Once per connection of the handshake era, once per token on modern HTTP."""
        ...

    async def aclose(self) -> None:
        """Ends the session and every process of it."""
        ...
