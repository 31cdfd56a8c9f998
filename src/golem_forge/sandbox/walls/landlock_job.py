"""A Job as a command of walls without namespaces: what a plan shows, masks and lifts, in paths of the host."""

from __future__ import annotations

from collections.abc import Mapping

from golem_forge.sandbox.limits import Limits
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.walls import landlock
from golem_forge.sandbox.walls.backend import ripgrep
from golem_forge.sandbox.walls.job import Job
from golem_forge.sandbox.walls.planning import Planned, Planner
from golem_forge.sandbox.walls.seccomp import Network


def landlock_command(
    job: Job,
    sandbox: Sandbox,
    planner: Planner,
    planned: Planned,
    *,
    cwd: str,
    env: Mapping[str, str],
    limits: Limits,
) -> landlock.Command:
    zones = {zone.name: zone for zone in planner.zones}
    masked = [(zones[name], one.parts) for name, held in planned.held.items() for one in held.found if one.masked]
    masked += [(zones[name], ()) for name, held in planned.held.items() if held.masked]
    lifted = [(zones[name], parts) for name, held in planned.held.items() for parts in held.lifted]
    toolchains = planner.toolchains
    rg = ripgrep()
    return landlock.Command(
        argv=landlock.host_operands(job.argv, sandbox) if job.host_operands else job.argv,
        env=env,
        cwd=cwd,
        nowhere=job.nowhere,
        streams=job.streams,
        limits=limits,
        readable=(
            *(zone.host for zone in zones.values()),
            *toolchains.directories,
            *((rg,) if rg else ()),
            *(one.host for one in job.shown),
        ),
        masked=(*(zone.real(parts) for zone, parts in masked), *toolchains.masked),
        lifted=tuple(zone.real(parts) for zone, parts in lifted),
        network=Network.SHARED if job.shares_network else Network.NONE,
        gitconfig=planner.gitconfig(),
        home=job.home,
    )
