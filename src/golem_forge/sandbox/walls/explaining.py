"""What zones and walls would allow at one path, for `forge sandbox explain`. Builds a plan, starts nothing."""

from __future__ import annotations

import os
from dataclasses import dataclass

from golem_forge.core.effects import Verb
from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.walls.job import Job
from golem_forge.sandbox.walls.outside import ABOVE, ABSENT, HIDDEN, stands_outside
from golem_forge.sandbox.walls.plan import Refusal, Why
from golem_forge.sandbox.walls.planning import Planner


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    virtual: str
    inner: str
    """As a child names it."""
    read: Refusal | None
    write: Refusal | None
    stands: str = ""
    """Outside of every zone: what a child finds there."""


def explain(path: str, sandbox: Sandbox, planner: Planner) -> Explanation:
    """Raises SandboxError for what is neither an address nor a host path."""
    try:
        place = sandbox.locate(path)
    except SandboxError:
        if not path.startswith("/"):
            raise
        return _explain_outside(os.path.normpath("/" + path.lstrip("/")), planner)
    if place.zone is not None and place.zone.name not in {zone.name for zone in planner.zones}:
        return _explain_outside(place.virtual, planner)  # a zone of the tools alone, as `/user_tools`
    base = planner.stands_at(place.zone) if place.zone else "/"
    inner = os.path.join(base, *place.parts)
    plan = planner.planned(Job(argv=())).plan
    return Explanation(
        virtual=place.virtual,
        inner=inner,
        read=plan.refusal(inner, Verb.READ),
        write=plan.refusal(inner, Verb.WRITE),
    )


def _explain_outside(path: str, planner: Planner) -> Explanation:
    planned = planner.planned(Job(argv=()))
    read = planned.plan.refusal(path, Verb.READ)
    write = planned.plan.refusal(path, Verb.WRITE)
    if any(zone.inside(path) is not None for zone in planned.plan.zones):
        return Explanation(virtual="", inner=path, read=read, write=write)
    stands = stands_outside(path, planned.mounts, planner.toolchains.directories)
    if stands in (ABSENT, HIDDEN):
        read = Refusal(target=path, access=Verb.READ, why=Why.OUTSIDE)
    elif read is not None and stands == ABOVE:
        read = None
    return Explanation(virtual="", inner=path, read=read, write=write, stands=stands)
