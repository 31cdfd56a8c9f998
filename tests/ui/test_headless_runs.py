"""The command into a pipe: a scripted model, a process of its own (U11, U28, U37; W45)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from golem_forge.events.serialization import Event

Run = Callable[..., subprocess.CompletedProcess[str]]
SCRIPT = """
turns:
  - think: hm
    say: "I will look.\\x1b[2J"
    calls:
      - {tool: file_exists, args: {path: /workspace/a}}
      - {tool: write_file, args: {path: /workspace/a, content: x}}
  - say: "All\\ndone."
    chunks: 3
"""
DENIED = "✗ write_file /workspace/a - approval_denied: Auto-deny mode: write_file requires approval"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "demo.yaml").write_text(SCRIPT)
    return tmp_path


@pytest.fixture
def run(ready_forge: Any) -> Run:
    return lambda project, *words: ready_forge(
        "run", "-m", "scripted:demo.yaml", "-i", "go", *words, cwd=project, env=os.environ
    )


@pytest.mark.parametrize("level", ["quiet", "normal"])
def test_u11_the_answer_on_stdout_the_rows_of_the_level_on_stderr(project: Path, run: Run, level: str) -> None:
    ran = run(project, "--trace", level)
    assert (ran.returncode, ran.stdout) == (0, "All\ndone.\n"), ran.stderr
    assert "\x1b" not in ran.stderr
    lines = ran.stderr.splitlines()
    if level == "quiet":
        assert lines == []
    else:
        assert {"> go", DENIED, "hm", "I will look.\\x1b[2J", "session completed"} <= set(lines)
        assert any(line.startswith("total: ") for line in lines)
        assert any(line.startswith("✓ file_exists") for line in lines)
    assert not (project / "a").exists()


def test_u37_json_lines_are_envelopes_and_recorded_ones_gapless(project: Path, run: Run) -> None:
    ran = run(project, "--json", "--trace", "quiet")
    events = [Event.from_json(line) for line in ran.stdout.splitlines()]
    assert [event.type for event in events][-2:] == ["sessionEnd", "runResult"]
    assert events[-1].wire["response"] == "All\ndone."
    seqs = [event.seq for event in events]
    assert seqs == sorted(seqs)
    recorded = [event.seq for event in events if event.type not in ("streaming", "toolOutput", "toolProgress")]
    assert recorded == list(range(1, len(recorded) + 1))
    assert ran.stderr == ""
