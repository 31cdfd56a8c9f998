"""The runbook as functions. They run in a process of their own, in the worker's walls; its zone is where they start."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

from golem_forge import tool

_STATE = Path("services.json")


@tool(mode="both", read_only=True, category="Look")
def services() -> dict[str, str]:
    """Show which services run and which do not."""
    return {name: service["state"] for name, service in _services().items()}


@tool(mode="both", read_only=True, category="Look")
def logs(service: Annotated[str, "name of the service"]) -> str:
    """Show the last lines that a service wrote."""
    return "\n".join(_service(service)["log"])


@tool(mode="manual", label="Restart a service", category="Act")
def restart(service: Annotated[str, "name of the service"]) -> str:
    """Restart one service."""
    return _set(service, "running", "restarted by hand")


@tool(mode="manual", label="Move to another region", category="Act")
def fail_over(region: Annotated[str, "the region that takes over"]) -> str:
    """Move every service to another region. Users notice it, so it asks."""
    return "; ".join(_set(name, f"running in {region}", f"moved to {region}") for name in _services())


def _services() -> dict[str, Any]:
    services: dict[str, Any] = json.loads(_STATE.read_text())
    return services


def _service(name: str) -> dict[str, Any]:
    services = _services()
    if name not in services:
        raise ValueError(f"there is no service {name!r}; there are: {', '.join(services)}")
    service: dict[str, Any] = services[name]
    return service


def _set(name: str, state: str, line: str) -> str:
    service = _service(name)
    service["state"] = state
    service["log"].append(line)
    _STATE.write_text(json.dumps(_services() | {name: service}, indent=2) + "\n")
    return f"{name}: {state}"
