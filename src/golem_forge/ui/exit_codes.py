"""Exit codes of `forge run`: what a shell learns of how it ended. Pure."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from golem_forge.core.errors import ConfigError, ForgeError
from golem_forge.workers.models.layer import ModelError
from golem_forge.workers.run_result import RunResult, RunStatus
from golem_forge.workers.trusting import NotTrusted

ANSWER: Final = 0
FAILED: Final = 1
CONFIGURATION: Final = 2
"""Usage too."""
NOT_TRUSTED: Final = 3
LIMIT: Final = 4
MODEL_UNAVAILABLE: Final = 5
INTERRUPTED: Final = 130
TERMINATED: Final = 143

_BY_STATUS: Final[Mapping[RunStatus, int]] = {
    RunStatus.COMPLETED: ANSWER,
    RunStatus.FAILED: FAILED,
    RunStatus.INVALID_CONFIG: CONFIGURATION,
    RunStatus.NOT_TRUSTED: NOT_TRUSTED,
    RunStatus.LIMIT: LIMIT,
    RunStatus.MODEL_UNAVAILABLE: MODEL_UNAVAILABLE,
    RunStatus.INTERRUPTED: INTERRUPTED,
    RunStatus.TERMINATED: TERMINATED,
}
_BY_CODE: Final[Mapping[str, int]] = {
    "NOT_TRUSTED": NOT_TRUSTED,
    "BUDGET_EXCEEDED": LIMIT,
    "SESSION_NOT_FOUND": CONFIGURATION,
    "SESSION_AMBIGUOUS": CONFIGURATION,
    "NOTHING_TO_RESUME": CONFIGURATION,
    "START_INTERRUPTED": INTERRUPTED,
    "START_TERMINATED": TERMINATED,
}
"""ForgeError.code → exit code, for errors that end a run before it has a result."""


def exit_code(result: RunResult) -> int:
    return _BY_STATUS[result.status]


def exit_code_for(error: BaseException) -> int:
    """For a run that ended with an exception instead of a result."""
    if isinstance(error, KeyboardInterrupt | asyncio.CancelledError):
        return INTERRUPTED
    if isinstance(error, ConfigError):
        return CONFIGURATION
    if isinstance(error, NotTrusted):
        return NOT_TRUSTED
    if isinstance(error, ModelError):
        return MODEL_UNAVAILABLE
    if isinstance(error, ForgeError):
        return _BY_CODE.get(error.code, FAILED)
    return FAILED


def status_for(error: BaseException) -> RunStatus:
    """The status of a run that ended like this before it began."""
    code = exit_code_for(error)
    return next(status for status, each in _BY_STATUS.items() if each == code)
