"""The soak's own accounting: it finds what it looks for. The soak itself is `make soak`."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from benchmarks.soak.ledger import Ledger
from benchmarks.soak.sessions import Played, write_script
from tests.deadlines import PATIENCE

ROOT = Path(__file__).resolve().parents[2]


def begun(name: str) -> dict[str, Any]:
    return {"type": "begun", "ts": "t1", "call": f"c-{name}", "tool": "effect", "args": {"name": name}}


def finished(name: str, status: str = "success", error: str = "") -> dict[str, Any]:
    return {"type": "finished", "ts": "t2", "call": f"c-{name}", "status": status, "error": error}


WHOLE = [begun("a"), finished("a")]
CRASHED = [begun("a"), finished("a", "interrupted", "may have run before the crash")]
DENIED = [{**begun("a"), "type": "proposed"}, finished("a", "approval_denied")]


@pytest.mark.parametrize(
    ("records", "lines", "promise"),
    [
        (WHOLE, "a", ""),
        (CRASHED, "", ""),
        (CRASHED, "a", ""),
        (DENIED, "", ""),
        (WHOLE, "", "lost"),
        (WHOLE, "a a", "doubled"),
        (CRASHED, "a a", "doubled"),
        (DENIED, "a", "unrecorded"),
        ([], "a", "unrecorded"),
        (WHOLE, "a b", "unrecorded"),
        ([*WHOLE, *WHOLE], "a", "repeated"),
        ([], "", "left_out"),
        ([begun("a")], "a", "unsettled"),
    ],
)
def test_the_ledger_finds_a_broken_promise(records: list[dict[str, Any]], lines: str, promise: str) -> None:
    ledger, done = Ledger(), Counter(lines.split())
    ledger.add_session(Played(worker="plain", turns=(), names=("a",)), "finished", records, done)
    ledger.add_lines(done, ["a"])
    broken = [each.split()[-2].rstrip(":") for each in ledger.broken()]
    assert promise in broken if promise else broken == []


def test_a_command_in_the_background_may_end_before_its_line_and_never_has_two() -> None:
    ledger = Ledger()
    ledger.add_session(Played(worker="walled", turns=(), names=("a",), background=True), "finished", WHOLE, Counter())
    assert ledger.broken() == []
    ledger.add_lines(Counter("aa"), ["a"])
    assert ledger.broken() == ["effects or calls doubled: 1"]


def test_every_kind_of_session_names_each_of_its_effects_once() -> None:
    chance = random.Random(1)
    workers = set()
    for number in range(60):
        played = write_script(chance, number)
        workers.add((played.worker, played.background))
        named = Counter(
            name
            for turn in played.turns
            for call in turn.get("calls", ())
            for name in played.names
            if name in (call["args"].get("name"), *str(call["args"].get("cmd", "")).split())
        )
        assert named == Counter(played.names)
    assert len(workers) == 5


@pytest.mark.slow
def test_the_program_of_the_soak_starts() -> None:
    words = [sys.executable, "-m", "benchmarks.soak", "--help"]
    said = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=True).stdout
    assert "--minutes" in said
    assert "--store" in said
