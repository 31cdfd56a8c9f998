"""Ceilings: what blocks a worker's callers blocks the worker too, whatever its own file says.

A Ceiling is one worker above; `blocked_above` gives every voice up there that blocks a call. Nothing else is inherited:
a caller's `ask` and `preApproved` are for its own calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from golem_forge.core.decision import Source
from golem_forge.core.verdict import Verdict
from golem_forge.policy.base import ApprovalBlocks
from golem_forge.policy.facts import CallFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    worker: str
    """The path of a worker above, `main`."""
    blocks: ApprovalBlocks


RulesSay = Callable[[CallFacts], Iterable[Source]]
"""What rules say of a call, as sources."""


def blocked_above(ceilings: Iterable[Ceiling], facts: CallFacts, rules_say: RulesSay) -> Iterator[Source]:
    for ceiling in ceilings:
        said = (*ceiling.blocks.spoken(facts.tool), *rules_say(replace(facts, worker=ceiling.worker)))
        for source in said:
            if source.verdict is Verdict.BLOCKED:
                yield replace(source, reason=source.reason or f"{ceiling.worker}, which called this worker, may not")
