"""`forge tools test [NAME…]`: a tool's own tests in the strictest walls; `--update` keeps what it prints now.

Tests run the tool's code, so content that nobody agreed to is shown first and asked for, like for `activate`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from golem_forge.cli.plain import complain, parser, print_json
from golem_forge.cli.tools.consent import DENIED, Answer, agreed
from golem_forge.cli.tools.shop import NO_SUCH_TOOL, entries_of, open_shop
from golem_forge.core.visible import visible

if TYPE_CHECKING:
    from golem_forge.custom.building.prepared import Prepared
    from golem_forge.custom.entry import Entry
    from golem_forge.custom.testing.report import CaseResult
    from golem_forge.custom.workshop import Workshop

HELP: Final = """usage: forge tools test [NAME…] [--update] [--yes] [--json]

Runs the tests in tool.yaml of the named tools, or of all of yours: no network, no files but the test's own, a fresh
start for each. A tool that is not trusted is shown first and asked for.

  --update  write what a test prints now into tool.yaml as what it expects; the tool is then another version
  --yes     the answer to the card of exactly the tools that are named
  --json    for programs

Exit: 0 all passed, 1 a test failed or a tool could not be built, 2 usage, 3 not agreed, 4 no such tool."""
_VERB: Final = "test"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tested:
    """What became of one tool."""

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
    reader = parser(f"tools {_VERB}", HELP)
    reader.add_argument("names", metavar="NAME", nargs="*")
    for flag in ("--update", "--yes", "--json"):
        reader.add_argument(flag, action="store_true")
    asked = reader.parse_args(words)
    if asked.yes and not asked.names:
        complain(f"tools {_VERB}", "--yes answers for the tools that are named; name them.")
        return 2
    shop = open_shop()
    entries = entries_of(shop, _VERB, asked.names) if asked.names else _all_of(shop)
    if entries is None:
        return NO_SUCH_TOOL
    import asyncio

    told = asyncio.run(_Run(shop, Answer.of(asked.yes), update=asked.update, quiet=asked.json).all(entries))
    passed = sum(one.ok for each in told for one in each.results)
    failed = sum(not one.ok for each in told for one in each.results)
    if asked.json:
        print_json({"tools": [each.to_json() for each in told], "passed": passed, "failed": failed})
    else:
        print(f"{passed} passed, {failed} failed; {len(told)} {'tool' if len(told) == 1 else 'tools'}")
    return max((each.code for each in told), default=0)


def _all_of(shop: Workshop) -> tuple[Entry, ...]:
    return tuple(entry for entry in shop.registry.entries.values() if not shop.book.retired(entry.name))


@dataclass(frozen=True, slots=True)
class _Run:
    shop: Workshop
    answer: Answer
    update: bool
    quiet: bool
    """Nothing but the JSON at the end goes to standard output."""

    async def all(self, entries: tuple[Entry, ...]) -> list[Tested]:
        from golem_forge.core.errors import ForgeError

        told = []
        for entry in entries:
            try:
                tested = await self._one(entry)
            except ForgeError as error:
                tested = Tested(name=entry.name, digest=entry.digest, code=1, error=error.message)
            self._say(tested)
            told.append(tested)
        return told

    async def _one(self, entry: Entry) -> Tested:
        from golem_forge.custom.trust.promotion import fetched, must_be_promotable, readied

        shop, name, digest = self.shop, entry.name, entry.digest
        must_be_promotable(shop, entry)
        if not entry.manifest.tests:
            return Tested(name=name, digest=digest, code=0, remarks=("no tests",))
        ready = await readied(shop, entry)
        if not agreed(shop, _VERB, ready, self.answer):
            return Tested(name=name, digest=digest, code=DENIED, error="not trusted, so its tests did not run")
        prepared = await fetched(shop, ready)
        if self.update:
            return await self._updated(entry, prepared)
        results = await self._proven(entry, prepared)
        return Tested(name=name, digest=digest, code=0 if all(one.ok for one in results) else 1, results=results)

    async def _proven(self, entry: Entry, prepared: Prepared) -> tuple[CaseResult, ...]:
        from golem_forge.custom.trust.activating import walls_report
        from golem_forge.custom.trust.promotion import TestsFailed, proven

        try:
            return await proven(self.shop, entry, prepared, report=await walls_report(self.shop))
        except TestsFailed as failed:
            return failed.results

    async def _updated(self, entry: Entry, prepared: Prepared) -> Tested:
        from golem_forge.custom.testing.golden import update

        results = await self._proven(entry, prepared)
        made = update(self.shop.home, entry, results)
        remarks = list(made.refused)
        if made.updated:
            remarks.append(f"another version now; `forge tools activate {entry.name}` shows the change and asks")
        left = [one for one in results if not one.ok and one.name not in made.updated]
        return Tested(
            name=entry.name,
            digest=entry.digest,
            code=1 if left else 0,
            results=results,
            updated=made.updated,
            remarks=tuple(remarks),
        )

    def _say(self, tested: Tested) -> None:
        if tested.error and tested.code != DENIED:  # who did not agree knows it already
            complain(f"tools {_VERB}", tested.error)
        if self.quiet:
            return
        from golem_forge.custom.testing.report import failure_text

        if any(not one.ok and one.name not in tested.updated for one in tested.results):
            print(visible(failure_text(tested.name, tested.results)))
        elif tested.results:
            print(f"{tested.name}:")
            for one in tested.results:
                print(visible(f"updated {one.name}" if one.name in tested.updated else one.line))
        for remark in tested.remarks:
            print(visible(f"{tested.name}: {remark}"))
