"""`scripts/run_tests.py`: what a run exits with, and who gets a second try. Only pytest itself is played."""

from __future__ import annotations

import json
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "scripts" / "run_tests.py"


@pytest.fixture
def script(tmp_path: Path) -> Any:
    spec = spec_from_file_location("run_tests", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    module.FAILED = tmp_path / "lastfailed"
    return module


def play(script: Any, *runs: tuple[int, list[str]]) -> list[tuple[str, ...]]:
    """Each run of pytest exits with its code and leaves its failures; gives what it was started with."""
    started: list[tuple[str, ...]] = []

    def pytest(*arguments: str) -> int:
        code, failed = runs[len(started)]
        started.append(arguments)
        script.FAILED.write_text(json.dumps(dict.fromkeys(failed, True)))
        return code

    script.pytest = pytest
    return started


def test_a_green_run_is_over(script: Any) -> None:
    started = play(script, (0, []))
    assert script.main(["-k", "zones"]) == 0
    assert [run[-2:] for run in started] == [("-k", "zones")]


def test_who_passes_alone_is_named(script: Any, capsys: Any) -> None:
    started = play(script, (1, ["tests/test_a.py::test_it"]), (0, []))
    assert script.main([]) == 0
    assert "--last-failed" in started[1]
    assert started[1][:2] == ("-n", "0")
    assert capsys.readouterr().out.endswith("mend it:\n  tests/test_a.py::test_it\n")


def test_who_fails_alone_too_has_failed(script: Any) -> None:
    play(script, (1, ["tests/test_a.py::test_it"]), (1, ["tests/test_a.py::test_it"]))
    assert script.main([]) == 1


@pytest.mark.parametrize(
    ("code", "failed"), [(1, ["a", "b", "c", "d"]), (1, []), (2, ["a"]), (3, ["a"]), (5, [])], ids=str
)
def test_anything_else_gets_no_second_try(script: Any, code: int, failed: list[str]) -> None:
    started = play(script, (code, failed))
    assert script.main([]) == code
    assert len(started) == 1


def test_an_earlier_runs_failures_are_not_this_ones(script: Any) -> None:
    script.FAILED.write_text('{"tests/test_old.py::test_it": true}')
    script.pytest = lambda *arguments: 1
    assert script.main([]) == 1
