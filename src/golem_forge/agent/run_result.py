"""RunResult: the result of one `WorkerRuntime.run`, as plain data (`ui.session_ui` maps it to an exit code).

`unless_interrupted` awaits a coroutine until the interrupt signal is given; then it cancels the coroutine and raises
RunInterrupted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from enum import StrEnum
from typing import Any, TypeVar

from golem_forge.agent.model.interface import Finish, TokenUsage
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.core.signals import InterruptSignal


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
    """What went wrong and what to do next; empty if nothing did."""
    warning: str = ""
    """A problem of an answer that came (for example that it is empty), and what to do next."""
    usage: TokenUsage = field(default_factory=TokenUsage)
    cost: float | None = None
    """USD; None where the price of a model is not known."""
    tool_call_count: int = 0
    worker: str = ""
    finish: Finish = Finish.STOP
    """Why the model's last response ended: at its end, at the model's own limit, or because it withheld an answer."""


T = TypeVar("T")


class RunInterrupted(Exception):
    """The signal was given; `reason` is who gave it, in words."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    @property
    def status(self) -> RunStatus:
        return RunStatus.TERMINATED if self.reason == "terminated" else RunStatus.INTERRUPTED


async def unless_interrupted(signal: InterruptSignal, work: Coroutine[Any, Any, T]) -> T:
    """The work is cancelled the moment the signal is given, from whichever thread."""
    if signal:
        work.close()
        raise RunInterrupted(signal.reason or "")
    loop = asyncio.get_running_loop()
    task = loop.create_task(work)
    forget = signal.listen(lambda _: loop.call_soon_threadsafe(task.cancel))
    try:
        return await task
    except asyncio.CancelledError:
        mine = asyncio.current_task()
        if signal and not (mine is not None and mine.cancelling()):
            raise RunInterrupted(signal.reason or "") from None
        raise
    finally:
        forget()
        if not task.done():
            task.cancel()
