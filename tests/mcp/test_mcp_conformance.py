"""`make conformance` can fail, by what the baseline does not name and by what it names wrongly.

The suite itself takes minutes and is not run here (mcp.md §17, case 41).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import conformance

    return conformance


def found(script: Any, scenario: str, *problems: str) -> Any:
    return script.Found(side="server", revision="2025-11-25", scenario=scenario, problems=problems)


@pytest.mark.parametrize(
    ("problems", "baseline", "code"),
    [
        ((), (), 0),
        (("check: broken",), (), 1),
        (("check: broken",), ("ping",), 0),
        (("check: broken",), ("ping:check",), 0),
        (("check: broken",), ("ping:other",), 1),
        (("check: broken", "more: broken"), ("ping:check",), 1),
        ((), ("ping",), 1),
        (("check: broken",), ("ping:check", "ping:other"), 1),
        (("check: broken",), ("ping", "never-ran"), 0),
    ],
)
def test_the_baseline_is_exact(script: Any, problems: tuple[str, ...], baseline: tuple[str, ...], code: int) -> None:
    assert (
        script.judged([found(script, "ping", *problems)], {"server": frozenset(baseline), "client": frozenset()})
        == code
    )


def test_warnings_are_printed_and_fail_nothing(script: Any, capsys: pytest.CaptureFixture[str]) -> None:
    warned = script.Found(
        side="server", revision="2025-11-25", scenario="ping", problems=(), warnings=("check: should say more",)
    )
    assert script.judged([script.show(warned)], {"server": frozenset(), "client": frozenset()}) == 0
    told = capsys.readouterr().out
    assert "warning: check: should say more" in told and "1 warnings" in told


def test_a_run_that_ran_nothing_is_no_success(script: Any) -> None:
    assert script.judged([], {"server": frozenset(), "client": frozenset()}) == 1


def test_case_41_the_baseline_excuses_nothing(script: Any) -> None:
    assert script.read_baseline() == {"client": frozenset(), "server": frozenset()}
