"""The MCP conformance suite against Forge, as client and as server: `make conformance`.

Takes `--only client|server` and names of scenarios. Runs what the two current revisions of the protocol require, each
scenario by itself, and compares with examples/conformance/baseline.yaml, which names what the suite cannot test against
Forge, and why. A scenario that fails without being named there, and one that is named there and passes, fail the run.
What a whole run found goes to build/conformance.json.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from conformance_server import served

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "conformance"
PROGRAMS = ROOT / "build" / "foreign" / "bin"
REVISIONS = ("2025-11-25", "2026-07-28")
AT_ONCE = 2
"""The suite's own way is all of them at once, which on a small machine makes each of them late."""
PATIENCE_S = 60.0
Side = Literal["client", "server"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    side: Side
    revision: str
    scenario: str
    problems: tuple[str, ...]
    """Empty: it passed."""
    warnings: tuple[str, ...] = ()
    """What the suite remarks and does not count."""

    @property
    def name(self) -> str:
        return f"{self.side} {self.revision} {self.scenario}"


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the MCP conformance suite against Forge.")
    parser.add_argument("--only", choices=("client", "server"))
    parser.add_argument("scenarios", nargs="*", help="names of scenarios; without any: all that are required")
    asked = parser.parse_args()
    sides: tuple[Side, ...] = (asked.only,) if asked.only else ("client", "server")
    found = [each for side in sides for each in run_side(side, asked.scenarios)]
    if not asked.scenarios:
        (ROOT / "build" / "conformance.json").write_text(json.dumps([asdict(each) for each in found], indent=2) + "\n")
    return judged(found, read_baseline())


def run_side(side: Side, only: list[str]) -> list[Found]:
    with tempfile.TemporaryDirectory(prefix="forge-conformance-") as folder, target(side, Path(folder)) as where:
        wanted = [(revision, name) for revision in REVISIONS for name in required(side, revision)]
        wanted = [each for each in wanted if not only or each[1] in only]
        with ThreadPoolExecutor(AT_ONCE) as together:
            runs = [together.submit(run, side, revision, name, where, Path(folder)) for revision, name in wanted]
            return [show(each.result()) for each in runs]


@contextmanager
def target(side: Side, folder: Path) -> Iterator[list[str]]:
    """How the suite is told what to look at."""
    if side == "client":
        yield ["--command", f"{sys.executable} {EXAMPLE / 'client.py'}"]
    else:
        with served(EXAMPLE, folder) as url:
            yield ["--url", url]


def required(side: Side, revision: str) -> list[str]:
    listed = suite("list", f"--{side}", "--requirements", revision).stdout
    scored = listed.partition("Run and reported, but never scored")[0]
    own = scored.partition(f"{side.capitalize()} scenarios")[2].partition(" scenarios (")[
        0
    ]  # it lists both sides anyway
    if not (names := re.findall(r"^  - (\S+)", own, re.MULTILINE)):
        raise SystemExit(f"the suite lists no {side} scenario for {revision}:\n{listed}")
    return names


def run(side: Side, revision: str, scenario: str, where: list[str], folder: Path) -> Found:
    place = folder / side / revision / scenario
    limit = str(round(PATIENCE_S * 800))  # the suite's own is 30 seconds, in which a busy machine starts little
    words = ["--scenario", scenario, "--spec-version", revision, "--output-dir", str(place), "--timeout", limit]
    done = suite(side, *words, *where)
    checks = [check for file in place.rglob("checks.json") for check in json.loads(file.read_text())]
    problems = [describe(check) for check in checks if check["status"] == "FAILURE"]
    if not checks or (done.returncode and not problems):
        problems.append(f"it ended with {done.returncode}: {(done.stdout + done.stderr)[-300:]}")
    warnings = tuple(describe(check) for check in checks if check["status"] == "WARNING")
    return Found(side=side, revision=revision, scenario=scenario, problems=tuple(problems), warnings=warnings)


def describe(check: dict[str, Any]) -> str:
    return f"{check['id']}: {check.get('errorMessage') or check.get('details') or check['description']}"[:500]


def suite(*words: str) -> subprocess.CompletedProcess[str]:
    command = [str(PROGRAMS / "node"), str(PROGRAMS / "conformance"), *words]
    try:
        return subprocess.run(
            command,
            check=False,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=PATIENCE_S,
            cwd=tempfile.gettempdir(),
            env={**os.environ, "NO_COLOR": "1"},
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, "", f"no end within {PATIENCE_S:g} seconds")


def show(found: Found) -> Found:
    print(f"{'no ' if found.problems else 'yes'} {found.name}", flush=True)
    for problem in found.problems:
        print(f"      {problem}")
    for warning in found.warnings:
        print(f"      warning: {warning}")
    return found


def read_baseline() -> dict[Side, frozenset[str]]:
    """In the suite's own form: `scenario`, or `scenario:check` where only that part of it is not offered."""
    from ruamel.yaml import YAML

    told = YAML(typ="safe").load(EXAMPLE / "baseline.yaml")
    return {side: frozenset(told[side]) for side in told}


def judged(found: list[Found], baseline: dict[Side, frozenset[str]]) -> int:
    unexpected = [
        f"{each.name}: {text}" for each in found for text in each.problems if not excused(each, text, baseline)
    ]
    used = {name for each in found for text in each.problems for name in names_of(each, text)}
    ran = {each.scenario for each in found}
    stale = [name for side in baseline for name in baseline[side] if name.partition(":")[0] in ran and name not in used]
    passed = sum(not each.problems for each in found)
    print(f"\n{passed} of {len(found)} passed" + "; the others:" * (passed < len(found)))
    if warned := sum(len(each.warnings) for each in found):
        print(f"{warned} warnings")
    for problem in unexpected:
        print(f"fails, and the baseline does not say why: {problem}")
    for name in stale:
        print(f"passes, but the baseline says it cannot: {name}")
    return 1 if unexpected or stale or not found else 0


def names_of(found: Found, problem: str) -> tuple[str, str]:
    return found.scenario, f"{found.scenario}:{problem.partition(':')[0]}"


def excused(found: Found, problem: str, baseline: dict[Side, frozenset[str]]) -> bool:
    return not baseline.get(found.side, frozenset()).isdisjoint(names_of(found, problem))


if __name__ == "__main__":
    sys.exit(main())
