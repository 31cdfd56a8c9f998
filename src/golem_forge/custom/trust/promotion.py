"""Promotion: from a folder to a tool that is offered. The steps, each refusing in its own words.

    readied   builds (or checks) the snapshot; none of the tool's code runs
    asked     one card: source or diff, permissions, tests         (the one path, or `forge tools activate`)
    proven    its tests, in the strictest walls                    → tested; with trust: active

A failing step ends it there and is kept in the book for whoever asks why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from golem_forge.core.errors import ForgeError
from golem_forge.core.verdict import Status
from golem_forge.custom.diagnostic import Code, Unusable
from golem_forge.custom.entry import Entry
from golem_forge.custom.making.likeness import similar
from golem_forge.custom.manifest import MANIFEST
from golem_forge.custom.trust.card import TrustCard, trust_card
from golem_forge.custom.workshop import Workshop

if TYPE_CHECKING:
    from golem_forge.custom.building.prepared import Prepared
    from golem_forge.custom.testing.report import CaseResult
    from golem_forge.sandbox.store import Snapshot
    from golem_forge.sandbox.walls.levels import WallsReport

MOST_OUTPUT = 4096
_BUILDING = frozenset({Code.BUILD_FAILED, Code.DEPENDENCIES_UNAVAILABLE})
"""What a build that was tried comes to; the rest says that there is nothing to try."""


@dataclass(slots=True, kw_only=True)
class Readied:
    """A tool as far as it comes without anybody's consent."""

    entry: Entry
    snapshot: Snapshot
    prepared: Prepared | None
    """None: its dependencies must be fetched first, which asks."""
    hosts: tuple[str, ...] = ()
    """What they would be fetched from."""


class BuildFailed(ForgeError):
    def __init__(self, name: str, cause: Unusable) -> None:
        text, status = f"custom tool '{name}' failed to build:\n{cause.message}", Status.EXECUTION_FAILED
        if cause.diagnosis is not Code.BUILD_FAILED:
            text = f"custom tool '{name}' is not available: {cause.diagnosis}: {cause.message}"
        if cause.diagnosis not in _BUILDING:  # known, and not runnable here
            status = Status.TOOL_NOT_FOUND
        super().__init__(text, status=status, code=cause.code)
        self.cause = cause


def must_be_promotable(shop: Workshop, entry: Entry) -> None:
    """What an agent made is proven before it is offered, and nothing is offered twice. Raises ForgeError."""
    if not entry.manifest.tests and shop.book.agent_made(entry.name):
        raise ForgeError(
            f"custom tool '{entry.name}' needs at least one test in tool.yaml before it can be activated",
            code="NEEDS_TEST",
        )
    if same := twin(shop, entry.name, shop.registry.files(entry).files):
        raise ForgeError(
            f"custom tool '{entry.name}' is identical to custom tool '{same}'; change or remove one of them",
            code="IDENTICAL",
        )


async def readied(shop: Workshop, entry: Entry) -> Readied:
    """Builds what can be built offline. Raises BuildFailed."""
    try:
        snapshot = shop.registry.snapshot(entry)
        if (known := shop.prepared.get(entry.digest)) is not None and known.is_there():
            return Readied(entry=entry, snapshot=snapshot, prepared=known)
        files = shop.registry.files(entry)
        prepared = shop.builder.prepared(entry, snapshot, files)
        if prepared is None:
            needs = shop.builder.needs(entry, files)
            if needs.hosts and not needs.cached:
                return Readied(entry=entry, snapshot=snapshot, prepared=None, hosts=needs.hosts)
            prepared = await shop.builder.build(entry, snapshot, files)
            shop.changes += 1
        shop.book.mark_built(entry.name, entry.digest)  # also of what an earlier build left: it may be new to the book
    except Unusable as cause:
        raise _noted(shop, entry, cause) from None
    shop.prepared.keep(entry.digest, prepared)
    return Readied(entry=entry, snapshot=snapshot, prepared=prepared)


async def fetched(shop: Workshop, ready: Readied) -> Prepared:
    """The build with the hosts that were approved for it. Raises BuildFailed."""
    if ready.prepared is None:
        try:
            files = shop.registry.files(ready.entry)
            ready.prepared = await shop.builder.build(ready.entry, ready.snapshot, files, hosts=ready.hosts)
        except Unusable as cause:
            raise _noted(shop, ready.entry, cause) from None
        shop.book.mark_built(ready.entry.name, ready.entry.digest)
    return ready.prepared


async def proven(
    shop: Workshop, entry: Entry, prepared: Prepared, *, report: WallsReport | None
) -> tuple[CaseResult, ...]:
    """Runs its tests; the state follows. Only after the person said yes. Raises TestsFailed."""
    from golem_forge.custom.testing import run_tests

    results = await run_tests(entry, prepared.program, home=shop.home, settings=shop.settings, report=report)
    failed = [one for one in results if not one.ok]
    if failed:
        error = TestsFailed(entry.name, results)
        shop.book.mark_failed(entry.name, entry.digest, Code.TESTS_FAILED, error.message[:MOST_OUTPUT])
        shop.changes += 1
        raise error
    shop.book.mark_tested(entry.name, entry.digest)
    shop.changes += 1
    return results


class TestsFailed(ForgeError):
    __test__ = False

    def __init__(self, name: str, results: tuple[CaseResult, ...]) -> None:
        from golem_forge.custom.testing.report import failure_text

        super().__init__(failure_text(name, results), code="TESTS_FAILED")
        self.results = results


def card_for(shop: Workshop, ready: Readied, zones: Callable[[], str] = lambda: "") -> TrustCard:
    entry, book = ready.entry, shop.book
    before = book.last_trusted(entry.name)
    return trust_card(
        entry,
        shop.registry.files(entry),
        provenance=book.provenance(entry.name).describe(),
        folder_shown=shop.shown_folder(entry.name),
        old=shop.registry.old_files(before) if before and before != entry.digest else None,
        build_hosts=ready.hosts,
        similar=alike(shop, entry.name, entry.manifest.description),
        shadows=shop.shadows(entry.name),
        denied=book.denials(entry.name, entry.digest),
    )


def alike(shop: Workshop, name: str, description: str) -> tuple[str, ...]:
    others = {**shop.native, **{each.name: each.manifest.description for each in shop.registry.entries.values()}}
    others.pop(name, None)
    return similar(name, description, others)


def twin(shop: Workshop, name: str, files: Mapping[str, bytes]) -> str:
    """Which tool has the same files, its name aside. Only folders whose other files are the same bytes are opened."""
    from golem_forge.custom.making.likeness import twin_of

    sources = sorted(sha256(data).hexdigest() for file, data in files.items() if file != MANIFEST)
    candidates = (
        each
        for each in shop.registry.entries.values()
        if sorted(fact.sha256 for fact in each.files if fact.path != MANIFEST) == sources
    )
    return twin_of(files, name, ((each.name, shop.registry.files(each).files) for each in candidates))


def _noted(shop: Workshop, entry: Entry, cause: Unusable) -> BuildFailed:
    shop.book.mark_failed(entry.name, entry.digest, cause.diagnosis, cause.message[:MOST_OUTPUT])
    shop.changes += 1
    return BuildFailed(entry.name, cause)
