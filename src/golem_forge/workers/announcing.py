"""The first words of a session, to whoever watches: who runs where and how, and what a person should know first."""

from __future__ import annotations

from golem_forge.workers.recap import recap
from golem_forge.workers.slash.manual import manual_tools_event
from golem_forge.workers.starting import Started


def announce(started: Started, mode: str) -> None:
    run = started.run
    zones = [{"name": zone.name, "mode": zone.mode.value} for zone in run.station.sandbox.zones.values()]
    run.station.emit(
        "sessionStarted",
        {
            "worker": run.worker.name,
            "model": run.model_name,
            "mode": mode,
            "approvalMode": started.tree.controller.mode.value,
            "zones": zones,
            "resumed": started.resumed is not None,
        },
    )
    for notice in started.notices:
        run.station.emit("status", {"type": "warning", "message": notice})
    if started.resumed is not None and (said := recap(started.resumed.history)):
        run.station.emit("status", {"type": "info", "message": said})
    run.station.emit("manualToolsAvailable", manual_tools_event(run.station.catalog))
