"""`SessionUI`: what `forge run` drives to show a session; several of them combined; and the exit codes of a run.

    initialize        before the runtime's: from now on it shows what happens, and may be asked
    finished(result)  the worker has answered; the session is still open
    stay(result)      returns once the session may be closed: at once, or when the person has seen the answer
    shutdown          after the runtime's end

`exit_requested` is set when the person leaves, or by `request_exit`. Of combined UIs the first one decides when the
person leaves. `exit_code` maps a RunResult, `exit_code_for` an exception that ended the run before it had a result.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final, Protocol

from golem_forge.agent.model.interface import ModelError
from golem_forge.agent.run_result import RunResult, RunStatus
from golem_forge.agent.trust import NotTrusted
from golem_forge.core.errors import ConfigError, ForgeError


class SessionUI(Protocol):
    @property
    def exit_requested(self) -> asyncio.Event: ...

    @property
    def exit_code(self) -> int:
        """The exit code with which the person left; 0 before."""

    async def initialize(self) -> None: ...

    def finished(self, result: RunResult) -> None: ...

    async def stay(self, result: RunResult) -> None: ...

    def request_exit(self, code: int = 0) -> None: ...

    async def shutdown(self) -> None: ...


class CombinedUI:
    def __init__(self, leading: SessionUI, *others: SessionUI) -> None:
        self._leading = leading
        self._all = [leading, *others]

    @property
    def bus(self) -> Any:
        """The bus, which all of them share."""
        return getattr(self._leading, "bus", None)

    async def initialize(self) -> None:
        for adapter in self._all:
            await adapter.initialize()

    async def join(self, adapter: SessionUI) -> None:
        """Adds a UI during the session."""
        await adapter.initialize()
        self._all.append(adapter)

    async def shutdown(self) -> None:
        failed: list[Exception] = []
        for adapter in reversed(self._all):
            try:
                await adapter.shutdown()
            except Exception as error:
                failed.append(error)
        if failed:
            raise failed[0]

    def finished(self, result: RunResult) -> None:
        for adapter in self._all:
            adapter.finished(result)

    async def stay(self, result: RunResult) -> None:
        await self._leading.stay(result)

    @property
    def exit_requested(self) -> asyncio.Event:
        return self._leading.exit_requested

    @property
    def exit_code(self) -> int:
        return self._leading.exit_code

    def request_exit(self, code: int = 0) -> None:
        self._leading.request_exit(code)


ANSWER: Final = 0
FAILED: Final = 1
CONFIGURATION: Final = 2
"""Exit code for configuration problems and wrong usage."""
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
    match error:
        case KeyboardInterrupt() | asyncio.CancelledError():
            return INTERRUPTED
        case ConfigError():
            return CONFIGURATION
        case NotTrusted():
            return NOT_TRUSTED
        case ModelError():
            return MODEL_UNAVAILABLE
        case ForgeError():
            return _BY_CODE.get(error.code, FAILED)
    return FAILED


def status_for(error: BaseException) -> RunStatus:
    """The status of a run that ended like this before it began."""
    code = exit_code_for(error)
    return next(status for status, each in _BY_STATUS.items() if each == code)
