"""The sandbox of a worker: the zones its file names, out of the program's and never wider.

`sandbox_for` gives it, opened. Refuses, before the worker starts: for a root worker (ConfigError) a zone the program
lacks and more than the program gives; for a sub-worker (ForgeError, `sandbox_denied`) a zone its caller lacks
(ZONE_ACCESS_DENIED) and more than its caller has (PERMISSION_ESCALATION). A file without `sandbox` has no zone at all.
"""

from __future__ import annotations

from golem_forge.config.home import ForgeHome
from golem_forge.config.program import Program
from golem_forge.core.errors import ConfigError
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.zones import Mode, ZoneRequest, choose_default_zone, worker_zones
from golem_forge.workers.default_worker import is_built_in
from golem_forge.workers.surroundings import opened_zones, worker_sandbox, zone_problems, zone_specs
from golem_forge.workers.worker import Worker, WorkerSandbox


def sandbox_for(
    program: Program,
    worker: Worker,
    home: ForgeHome,
    notices: list[str],
    *,
    parent: Sandbox | None = None,
    parent_name: str = "its caller",
) -> Sandbox:
    """`parent`: the sandbox of the worker that calls this one, called `parent_name`; None: this is the root worker."""
    if parent is not None:
        return _below(parent, parent_name, worker)
    if is_built_in(worker):
        return worker_sandbox(program, home, notices)
    if worker.sandbox is None:
        return Sandbox(has_block=False)
    if problems := zone_problems(program, home):
        raise ConfigError(*problems)
    requests = [each for each in _requests(worker.sandbox) if each.name not in program.withheld_zones]
    names = [each.name for each in requests]
    wanted = worker.sandbox.default_zone
    try:
        specs = worker_zones(worker.name, zone_specs(program), requests)
        default = choose_default_zone(names, wanted if wanted in names else None)
        return opened_zones(program, home, specs, default)
    except ConfigError as error:
        raise ConfigError(*(_located(worker, problem) for problem in error.problems)) from None


def _below(parent: Sandbox, parent_name: str, worker: Worker) -> Sandbox:
    if worker.sandbox is None:
        return parent.without_zones()
    return parent.restricted(
        worker.name, parent_name, _requests(worker.sandbox), default_zone=worker.sandbox.default_zone or None
    )


def _requests(block: WorkerSandbox) -> list[ZoneRequest]:
    return [
        ZoneRequest(
            name=zone.name,
            mode=Mode(zone.mode) if zone.mode else None,
            write=zone.write,
            delete=zone.delete,
            subpath=zone.subpath,
        )
        for zone in block.zones
    ]


def _located(worker: Worker, problem: str) -> str:
    """With the line of the worker's zones, unless another file's line is there already."""
    own = problem.startswith(("Worker '", "Zone '", "default_zone "))
    return f"{worker.at('sandbox')}: sandbox: {problem}" if own else problem
