"""`forge tools test [NAME…]`: runs a tool's own tests in the strictest walls; `--update` stores what it prints now.

Tests run the tool's code, so content that nobody agreed to is shown first and asked for, as with `activate`.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from golem_forge.cli.args import DENIED, NOT_FOUND, read_args
from golem_forge.cli.format import fail, print_error, print_json
from golem_forge.cli.tools.workshop import ask_trust, find_entries, open_workshop
from golem_forge.core.errors import ForgeError
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.text import escape_control_chars
from golem_forge.usertools.expectations import CaseResult, failed_tests_text, update_golden
from golem_forge.usertools.folder import ToolEntry
from golem_forge.usertools.trust import (
    TestsFailed,
    check_promotable,
    fetch_and_build,
    make_ready,
    run_required_tests,
    walls_report,
)
from golem_forge.usertools.workshop import Workshop

HELP: Final = """usage: forge tools test [NAME…] [--update] [--yes] [--json]

Runs the tests in tool.yaml of the tools NAME, or of all user tools. A test has no network and only its own files, and
each starts fresh. If a tool is not trusted, Forge first shows it and asks.

  --update  write what a test prints now into tool.yaml as the expected output; that makes a new version of the tool
  --yes     answer yes to the cards of the tools that you name
  --json    for programs

Exit: 0 all passed, 1 a test failed or a tool could not be built, 2 usage, 3 not agreed, 4 no such tool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolTestResult:
    name: str
    digest: str
    code: int
    results: tuple[CaseResult, ...] = ()
    error: str = ""
    """Why its tests did not run."""
    updated: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        cases = [
            {"name": one.name, "ok": one.ok, "duration_ms": one.duration_ms, "problems": list(one.problems)}
            for one in self.results
        ]
        return {
            "tool": self.name,
            "digest": self.digest,
            "ok": self.code == 0,
            "cases": cases,
            "error": self.error or None,
            "updated": list(self.updated),
        }


def run_test(words: list[str]) -> int:
    asked = read_args("tools test", HELP, words, "names:NAME*", "--update", "--yes", "--json")
    if asked.yes and not asked.names:
        return fail("tools test", "--yes answers for the tools that are named; name them.", 2)
    workshop = open_workshop()
    active = [each for each in workshop.registry.entries.values() if not workshop.store.is_retired(each.name)]
    entries = find_entries(workshop, "test", asked.names) if asked.names else tuple(active)
    if entries is None:
        return NOT_FOUND
    run = _TestRun(workshop, asked.yes, update=asked.update, quiet=asked.json)
    tested = asyncio.run(run.all(entries))
    passed = sum(one.ok for each in tested for one in each.results)
    failed = sum(not one.ok for each in tested for one in each.results)
    if asked.json:
        print_json({"tools": [each.to_json() for each in tested], "passed": passed, "failed": failed})
    else:
        print(f"{passed} passed, {failed} failed; {len(tested)} {'tool' if len(tested) == 1 else 'tools'}")
    return max((each.code for each in tested), default=0)


@dataclass(frozen=True, slots=True)
class _TestRun:
    workshop: Workshop
    yes: bool
    update: bool
    quiet: bool
    """Nothing but the JSON at the end goes to standard output."""

    async def all(self, entries: tuple[ToolEntry, ...]) -> list[ToolTestResult]:
        every = []
        for entry in entries:
            try:
                tested = await self._one(entry)
            except ForgeError as error:
                tested = ToolTestResult(name=entry.name, digest=entry.digest, code=1, error=error.message)
            self._print(tested)
            every.append(tested)
        return every

    async def _one(self, entry: ToolEntry) -> ToolTestResult:
        workshop, name, digest = self.workshop, entry.name, entry.digest
        check_promotable(workshop, entry)
        if not entry.manifest.tests:
            return ToolTestResult(name=name, digest=digest, code=0, remarks=("no tests",))
        ready = await make_ready(workshop, entry)
        if not ask_trust(workshop, "test", ready, self.yes):
            return ToolTestResult(name=name, digest=digest, code=DENIED, error="not trusted, so its tests did not run")
        prepared = await fetch_and_build(workshop, ready)
        try:
            results = await run_required_tests(workshop, entry, prepared, report=await walls_report(workshop))
        except TestsFailed as failed:
            results = failed.results
        if self.update:
            return self._updated(entry, results)
        code = 0 if all(one.ok for one in results) else 1
        return ToolTestResult(name=name, digest=digest, code=code, results=results)

    def _updated(self, entry: ToolEntry, results: tuple[CaseResult, ...]) -> ToolTestResult:
        made = update_golden(self.workshop.home, entry, results)
        remarks = list(made.refused)
        if made.updated:
            remarks.append(f"another version now; `forge tools activate {entry.name}` shows the change and asks")
        left = [one for one in results if not one.ok and one.name not in made.updated]
        return ToolTestResult(
            name=entry.name,
            digest=entry.digest,
            code=1 if left else 0,
            results=results,
            updated=made.updated,
            remarks=tuple(remarks),
        )

    def _print(self, tested: ToolTestResult) -> None:
        if tested.error and tested.code != DENIED:  # who did not agree knows it already
            print_error("tools test", tested.error)
        if self.quiet:
            return
        if any(not one.ok and one.name not in tested.updated for one in tested.results):
            print(escape_control_chars(failed_tests_text(tested.name, tested.results)))
        elif tested.results:
            print(f"{tested.name}:")
            for one in tested.results:
                print(escape_control_chars(f"updated {one.name}" if one.name in tested.updated else one.line))
        for remark in tested.remarks:
            print(escape_control_chars(f"{tested.name}: {remark}"))
