"""Journals to test with: a small session, and a writer in a process of its own that can be killed."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

from golem_forge.core.decisions import AnsweredBy, Decision, Risk, Verdict, VerdictSource
from golem_forge.events.journal import Journal

ZONE = VerdictSource(source="zone", verdict=Verdict.PRE_APPROVED, id="workspace", reason="reads are fine")
ALLOWED = Decision(verdict=Verdict.PRE_APPROVED, sources=(ZONE,), decided_by=ZONE)
ASKED = Decision(
    verdict=Verdict.ASK,
    sources=(VerdictSource(source="floor", verdict=Verdict.ASK, id="opaque", file="rules.yaml", line=3),),
    risk=Risk.HIGH,
    risk_reasons=("exec",),
    answered_by=AnsweredBy.PERSON,
    remembered="session",
    message="ok",
    asked_at="2026-01-01T00:00:00.000Z",
    compute_keys=lambda: ("f" * 64, "a" * 16),
)


def small_session(home: Path, session_id: str = "s1", calls: int = 3, tool: str = "read_file") -> Path:
    """A closed session of `calls` finished calls: line 1 the header, four lines a call, `closed`."""
    with Journal.create(home, session_id) as journal:
        for number in range(calls):
            journal.propose(f"c{number}", tool, {"path": f"/workspace/{number}"}, "llm", "main")
            journal.decide(f"c{number}", ALLOWED)
            journal.start(f"c{number}", tool, {"path": f"/workspace/{number}"})
            journal.finish(f"c{number}", "success", 1.5)
    return journal.path


def python(code: str, *args: str) -> subprocess.Popen[str]:
    """Runs a script that can import what this file imports."""
    preamble = """
        import os, signal, sys
        from pathlib import Path
        from golem_forge.core.decisions import Decision
        from golem_forge.core.decisions import Verdict
        from golem_forge.events.journal import CallStart, Journal
        from golem_forge.events.journal_files import *
        from golem_forge.events.journal import reopen
        ALLOWED = Decision(verdict=Verdict.PRE_APPROVED)
        home = Path(sys.argv[1])
    """
    script = textwrap.dedent(preamble) + textwrap.dedent(code)
    return subprocess.Popen(
        [sys.executable, "-c", script, *args],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
