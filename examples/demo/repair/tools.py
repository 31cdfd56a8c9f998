"""Tools of this program: plain functions, named in main.worker.

They run in a process of their own, inside the worker's walls, and start in its zone: here the shop.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from typing import Annotated, Any

from golem_forge import ToolContext

_LINE = re.compile(r"^(test_\w+) .*\.\.\. (\w+)", re.MULTILINE)
_BETWEEN_ROUNDS_S = 0.3


def run_tests() -> dict[str, Any]:
    """Run the shop's tests once and tell how each ended."""
    rows = _results()
    failed = [row["test"] for row in rows if row["result"] != "ok"]
    passed = f"{len(rows) - len(failed)} of {len(rows)} passed"
    return {
        "kind": "test.report",
        "summary": f"{passed}; failed: {', '.join(failed)}" if failed else passed,  # what the model is told
        "data": rows,  # what a person sees, as the table that `display` asks for
        "display": {"preferredView": "table"},
    }


def soak_tests(minutes: Annotated[int, "for how long"] = 10, *, ctx: ToolContext) -> str:
    """Run the tests again and again, to find those that fail now and then."""
    end, rounds, failures = time.monotonic() + minutes * 60, 0, 0
    while time.monotonic() < end:
        rounds += 1
        failures += any(row["result"] != "ok" for row in _results())
        ctx.report_progress(rounds, message=f"so far, {failures} with failures")
        time.sleep(_BETWEEN_ROUNDS_S)
    return f"{rounds} rounds, {failures} with failures"


def _results() -> list[dict[str, str]]:
    ran = subprocess.run([sys.executable, "-m", "unittest", "-v"], capture_output=True, text=True, check=False)
    return [{"test": name, "result": result} for name, result in _LINE.findall(ran.stderr)]
