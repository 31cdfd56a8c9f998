"""Weighing a command before anyone is asked: what it would touch, and whether walls can hold it at all.

Takes the text and the ground, gives facts and effects for policy. Refuses (WALLS_UNAVAILABLE, without a prompt) what
the walls of this machine cannot contain: nobody is asked for something that will not run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from golem_forge.core.effects import Effect, Mark, Verb, Walled
from golem_forge.core.verdict import Verdict
from golem_forge.policy.commands import command_facts
from golem_forge.sandbox.errors import walls_unavailable
from golem_forge.sandbox.protected import is_secret_name
from golem_forge.sandbox.walls.levels import Level
from golem_forge.sandbox.walls.masking import is_masked
from golem_forge.tools.threads import run_in_thread
from golem_forge.toolsets.exec.ground import Ground

if TYPE_CHECKING:
    from collections.abc import Sequence

    from golem_forge.policy.facts import CommandFacts
    from golem_forge.sandbox.walls.settings import PathRule

NETWORK_NEEDS_WALLS: Final = "network access needs full walls"


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighed:
    facts: CommandFacts
    effects: tuple[Effect, ...]
    level: Level
    reads_only: bool
    """Every segment is proven to only read, if all zones are read-only for it."""

    def lifted(self, rules: Sequence[PathRule]) -> frozenset[str]:
        """Masked paths that this call's own effects name: once approved, they are visible to it."""
        return frozenset(
            effect.target
            for effect in self.effects
            if effect.verb is Verb.READ
            and is_masked(effect.outer or effect.target, secret=Mark.SECRET_PATH in effect.marks, rules=rules)
        )


async def weigh(text: str, ground: Ground, cwd: str, *, hosts: Sequence[str] = (), walled: Verdict) -> Weighed:
    """`hosts` are `host:port` in normal form; `walled` is what the toolset's block says of commands in full walls."""
    report = await ground.walls.report()
    level = report.level
    if level is Level.NONE:
        raise walls_unavailable(report.cause, report.fix)
    if level is Level.LANDLOCK and hosts:
        raise walls_unavailable(NETWORK_NEEDS_WALLS, report.fix)
    full = level is Level.FULL and not hosts
    facts, effects = await run_in_thread(
        lambda: command_facts(text, ground.world(), cwd, is_secret_name, full_walls=full)
    )
    reads_only = facts.reads_only
    if level is Level.LANDLOCK and not reads_only and ground.writable:
        cause = "this machine has read-only walls, and the command is not proven to only read"
        raise walls_unavailable(f"{cause} ({report.cause})" if report.cause else cause, report.fix)
    marked = tuple(_marked(effects, level, walled if not hosts else None))
    nets = tuple(Effect(verb=Verb.NET, target=host) for host in dict.fromkeys(hosts))
    return Weighed(facts=facts, effects=(*marked, *nets), level=level, reads_only=reads_only)


def _marked(effects: tuple[Effect, ...], level: Level, walled: Verdict | None) -> Iterator[Effect]:
    """`walled` None: whatever the block says, full walls alone are not enough for this call."""
    given = Walled.GIVEN if walled is Verdict.PRE_APPROVED else Walled.OFFERED
    for effect in effects:
        if effect.verb is not Verb.EXEC:
            yield effect
        elif level is Level.OFF:
            yield replace(effect, marks=(*effect.marks, Mark.NO_WALLS))
        elif level is Level.FULL and walled is not None and effect.words and not effect.marks:
            yield replace(effect, walled=given)
        else:
            yield effect
