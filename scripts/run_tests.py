"""Every test, four at a time; the very few that fail in that crowd are tried once more, alone.

`python scripts/run_tests.py [pytest arguments]`, with the interpreter of the development environment.

The suite starts real shells, browsers, compilers and servers, thousands of them, on whatever machine it gets.
Most defects fail alone too. What fails only in the crowd is a weak test, or a race in the product: the run is green,
and its last lines name the test, so that somebody finds out which. More than FEW failures are no accident: no second
try.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FAILED = ROOT / ".pytest_cache" / "v" / "cache" / "lastfailed"
FEW = 3
TESTS_FAILED = 1
"""What pytest exits with when it ran to its end and a test failed; every other code but 0 is trouble of its own."""


def main(arguments: list[str]) -> int:
    FAILED.unlink(missing_ok=True)  # an earlier run's failures are not this one's
    code = pytest("-n", "4", "--dist", "worksteal", *arguments)
    if code != TESTS_FAILED or not 0 < len(failed := failures()) <= FEW:
        return code
    print(f"\n{len(failed)} failed beside others; now alone:\n", flush=True)
    if code := pytest("-n", "0", "--last-failed", "--last-failed-no-failures", "none", *arguments):
        return code
    print("\nFailed once, beside others, and passed alone. Find out what each depends on, and mend it:")
    print("\n".join(f"  {name}" for name in failed))
    return 0


def pytest(*arguments: str) -> int:
    return subprocess.run([sys.executable, "-m", "pytest", *arguments], cwd=ROOT, stdin=subprocess.DEVNULL).returncode


def failures() -> list[str]:
    return list(json.loads(FAILED.read_text())) if FAILED.exists() else []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
