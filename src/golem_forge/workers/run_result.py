"""RunResult: what one `WorkerRuntime.run` came to. Plain data; `ui.exit_codes` gives its exit code."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from golem_forge.workers.models.layer import Usage


class RunStatus(StrEnum):
    COMPLETED = "completed"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    """An orderly end (`success` is true); the exit code says the rest."""
    TERMINATED = "terminated"
    """Interrupted by SIGTERM."""
    LIMIT = "limit"
    """Budget, iterations or context."""
    MODEL_UNAVAILABLE = "model_unavailable"
    """No key, no network, or the retries used up."""
    INVALID_CONFIG = "invalid_config"
    """A worker, a model or an input that cannot be used as it is written."""
    NOT_TRUSTED = "not_trusted"
    """Refused before it could start: the program is not trusted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    success: bool
    status: RunStatus
    response: str = ""
    partial: str = ""
    """The text so far of a run that did not come to its answer."""
    error: str = ""
    """What went wrong and what to do next; empty when nothing did."""
    usage: Usage = field(default_factory=Usage)
    cost: float | None = None
    """USD; None where the price of a model is not known."""
    tool_call_count: int = 0
    worker: str = ""
