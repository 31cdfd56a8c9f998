"""Containment: what of a call leaves the walls or cannot be undone, for the approval mode `contained`.

The planners of tools ask here and write the answer into their effects (`Effect.leaves`); the Judge only reads it. Each
reason is plain words that follow "asks because". A call without any may run unasked: its processes stand in full walls
without a host, and every place that they can write is brought back by undo, or ends with the call.

Threat: a command that is not what it looks like. Nothing here trusts the words of a command: the walls keep it from
hosts, and what could not be undone is read-only for it. The words only decide where a person is asked beforehand.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Final

from golem_forge.core.decisions import Verdict
from golem_forge.core.effects import Verb
from golem_forge.policy.shell.arguments import file_words, join_paths, names, plain_operands, spellings
from golem_forge.policy.shell.dangers import written_paths
from golem_forge.policy.shell.lenient import FoundCommand, find_commands
from golem_forge.policy.shell.outside_needs import outside_needs
from golem_forge.policy.shell.readonly_table import READ_ONLY_TABLE
from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.handles import Parts
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.walls.model import Coverage, Level, ProbeReport, UncoveredPath
from golem_forge.sandbox.zones import USER_TOOLS, AccessMode, Zone

_TAKES_AWAY: Final = names("rm rmdir mv unlink shred")
"""A directory that they name goes with all that is in it."""
_MOST_WORDS: Final = 2000


def walls_reason(report: ProbeReport) -> str:
    """Why nothing is contained on this machine; empty: the walls are full."""
    if report.level is Level.FULL:
        return ""
    if report.level is Level.OFF:
        return "walls are switched off"
    return "there are no full walls here" + (f": {report.cause}" if report.cause else "")


def process_reasons(zones: Iterable[Zone], coverage: Coverage) -> Iterator[str]:
    """Of processes that could write in these zones, whatever they do there."""
    for zone in zones:
        if zone.mode is AccessMode.RO or zone.name == USER_TOOLS:
            continue
        for verb in (Verb.WRITE, Verb.DELETE):
            verdict = zone.verdict(verb)
            if verdict is Verdict.BLOCKED or (verdict is Verdict.ASK and verb in zone.written):
                yield f"zone {zone.virtual(())} says {verdict.value} for {verb.value}"
        known = coverage.zones.get(zone.name)
        if known is not None and known.problem:
            yield f"{zone.virtual(())} cannot be undone: {known.problem}"


def path_reasons(zone: Zone | None, parts: Parts, verb: Verb, coverage: Coverage) -> Iterator[str]:
    """Of a tool of ours that changes one path and nothing else."""
    if zone is None or zone.name == USER_TOOLS:
        yield "it changes something that cannot be undone"
        return
    if zone.verdict(verb) is Verdict.ASK and verb in zone.written:
        yield f"zone {zone.virtual(())} says ask for {verb.value}"
    known = coverage.zones.get(zone.name)
    if known is None:
        return
    if known.problem:
        yield f"{zone.virtual(())} cannot be undone: {known.problem}"
    elif (found := known.at(parts)) is not None:
        yield uncovered_reason(zone, found)


def uncovered_reason(zone: Zone, found: UncoveredPath) -> str:
    return f"`{zone.virtual(found.parts)}` cannot be undone: {found.why}"


def command_reasons(text: str, sandbox: Sandbox, cwd: str, coverage: Coverage) -> Iterator[str]:
    """Of the words of a command: what it cannot work without, and what it names that could not be brought back."""
    found = find_commands(text)
    for words, needs in outside_needs(found):
        yield f"`{words}` needs {needs}"
    if not any(known.uncovered for known in coverage.zones.values()):
        return
    here = cwd
    for command in found.blockable:
        for path, whole in _changed_words(command):
            yield from _named_reasons(join_paths(join_paths(path, command.directory), here), whole, sandbox, coverage)
        if command.program in ("cd", "pushd", "chdir"):
            here = posixpath.normpath(join_paths(next(iter(plain_operands(command.arguments)), "."), here))


def _changed_words(command: FoundCommand) -> Iterator[tuple[str, bool]]:
    """(a path that a command may change, whether with all that is in it)"""
    words = [(path, False) for path in written_paths(command)]
    if command.program not in READ_ONLY_TABLE:
        whole = command.program in _TAKES_AWAY
        named = file_words(command.program, command.arguments)
        words += [(path, whole) for word in named for path in spellings(word)]
    yield from dict.fromkeys(words[:_MOST_WORDS])


def _named_reasons(path: str, whole: bool, sandbox: Sandbox, coverage: Coverage) -> Iterator[str]:
    try:
        place = sandbox.locate(posixpath.normpath(path))
    except SandboxError:
        return
    zone = place.zone
    known = coverage.zones.get(zone.name) if zone is not None else None
    if zone is None or known is None:
        return
    for one in known.uncovered:
        # Each part may be a pattern of the shell's.
        same = all(map(fnmatchcase, one.parts, place.parts))
        if same and (whole or len(place.parts) >= len(one.parts)):
            yield uncovered_reason(zone, one)
