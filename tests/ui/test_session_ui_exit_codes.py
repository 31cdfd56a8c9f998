"""Every ending has its exit code (workers.md §13; W46)."""

from __future__ import annotations

import asyncio

import pytest

from golem_forge.agent.model.interface import ModelError
from golem_forge.agent.run_result import RunResult, RunStatus
from golem_forge.core.errors import ConfigError, ForgeError
from golem_forge.ui.session_ui import exit_code, exit_code_for

CODES = {
    RunStatus.COMPLETED: 0,
    RunStatus.FAILED: 1,
    RunStatus.INVALID_CONFIG: 2,
    RunStatus.NOT_TRUSTED: 3,
    RunStatus.LIMIT: 4,
    RunStatus.MODEL_UNAVAILABLE: 5,
    RunStatus.INTERRUPTED: 130,
    RunStatus.TERMINATED: 143,
}


@pytest.mark.parametrize("status", list(RunStatus))
@pytest.mark.parametrize("success", [True, False])
def test_the_status_decides(status: RunStatus, success: bool) -> None:
    assert exit_code(RunResult(success=success, status=status)) == CODES[status]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("forge.yaml:1: no"), 2),
        (ForgeError("no", code="NOT_TRUSTED"), 3),
        (ForgeError("no", code="BUDGET_EXCEEDED"), 4),
        (ModelError("no key", code="MODEL_KEY_MISSING"), 5),
        (KeyboardInterrupt(), 130),
        (asyncio.CancelledError(), 130),
        (ForgeError("no"), 1),
        (RuntimeError("no"), 1),
    ],
)
def test_an_exception_instead_of_a_result(error: BaseException, code: int) -> None:
    assert exit_code_for(error) == code
