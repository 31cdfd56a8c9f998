"""A worker of an untrusted program: what its file says loosens nothing.

Every `preApproved` in its toolsets and zones becomes `ask`, every `env` of a toolset is taken out; each is named in
`unused`. Threat: the file comes from a stranger, and `env` would hand a person's secrets to the program's code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from golem_forge.config.shape import dotted
from golem_forge.config.yaml_file import Path as Place
from golem_forge.core.verdict import Verdict
from golem_forge.workers.worker import Worker, WorkerZone

_NO_VERDICTS: Final = frozenset({"pattern", "module", "package", "import", "entry_point"})
"""Keys whose text is no verdict, whatever it says; below `approval.tools` they are names of tools."""


def distrusted(worker: Worker, unused: list[str]) -> Worker:
    blocks = _without(worker.toolsets, ("toolsets",), worker, unused)
    if worker.sandbox is None:
        return replace(worker, toolsets=blocks)
    zones = tuple(
        replace(
            zone,
            write=_asking(zone, "write", zone.write, index, worker, unused),
            delete=_asking(zone, "delete", zone.delete, index, worker, unused),
        )
        for index, zone in enumerate(worker.sandbox.zones)
    )
    return replace(worker, toolsets=blocks, sandbox=replace(worker.sandbox, zones=zones))


def _asking(
    zone: WorkerZone, verb: str, said: Verdict | None, index: int, worker: Worker, unused: list[str]
) -> Verdict | None:
    if said is not Verdict.PRE_APPROVED:
        return said
    where = worker.at(f"sandbox.zones[{index}].approval.{verb}")
    unused.append(f"{where}: sandbox.zones.{zone.name}.approval.{verb}: preApproved counts as ask")
    return Verdict.ASK


def _without(value: Any, path: Place, worker: Worker, unused: list[str]) -> Any:
    if isinstance(value, list):
        return [_without(item, (*path, index), worker, unused) for index, item in enumerate(value)]
    if not isinstance(value, Mapping):
        return value
    kept: dict[str, Any] = {}
    for key, item in value.items():
        place: Place = (*path, key)
        if key == "env" and path[-1] != "tools":  # a tool may be called `env`
            unused.append(f"{worker.at(dotted(place))}: {dotted(place)}")
        elif item == Verdict.PRE_APPROVED.value and (key not in _NO_VERDICTS or path[-2:] == ("approval", "tools")):
            unused.append(f"{worker.at(dotted(place))}: {dotted(place)}: preApproved counts as ask")
            kept[key] = Verdict.ASK.value
        else:
            kept[key] = _without(item, place, worker, unused)
    return kept
