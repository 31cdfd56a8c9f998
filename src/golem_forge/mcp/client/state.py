"""What is known of one server at this moment. Shown as it is: never `ready` for what was not seen to answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

SERVER_NOT_FOUND: Final = "SERVER_NOT_FOUND"
"""The code of the error that whatever looks for a server by its name raises."""


class State(StrEnum):
    DISABLED = "disabled"
    """Switched off in the config."""
    PENDING = "pending"
    """Waits for a person's first approval."""
    KNOWN = "known"
    """Not running; its tools are served from the cached manifest."""
    CONNECTING = "connecting"
    READY = "ready"
    NEEDS_LOGIN = "needs_login"
    BACKOFF = "backoff"
    """Will be tried again at `retry_at`."""
    FAILED = "failed"
    """Gave up; says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerStatus:
    server: str
    state: State
    error: str = ""
    retry_at: float | None = None
    """`time.time()` of the next try."""
    tools: int | None = None
    """How many are offered; None: not known yet."""
    stderr: tuple[str, ...] = ()
    """The last 20 lines, redacted; only where it failed."""
    protocol: str = ""
    """The negotiated version, once it was."""
    info: Mapping[str, Any] = field(default_factory=dict)
    """`{name, version, title?}` as the server introduced itself."""
