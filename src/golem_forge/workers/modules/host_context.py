"""The ToolContext of a tool that runs in a module host.

It has call, session and worker ids, the workspace, the caller, `report_progress`, `call` and `call_blocking` (both
re-enter the one path in Forge), and `sandbox`: a real Sandbox over the zones as they stand inside the walls. What
belongs to Forge's own process (`walls`, `outputs`, `redactor`, `home`, `show`, rules) is not there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from golem_forge.core.call import Caller, Outcome
from golem_forge.core.verdict import Verdict
from golem_forge.sandbox.sandbox import Sandbox, open_sandbox
from golem_forge.sandbox.zones import Mode, ZoneSpec
from golem_forge.tools.context import ToolContext
from golem_forge.workers.modules.wire import outcome_from_wire

if TYPE_CHECKING:
    from concurrent.futures import Future

_NOWHERE: Final = Path("/proc/forge")

Ask = Callable[[str, dict[str, Any]], "Future[dict[str, Any]]"]
"""(tool, arguments) → what Forge will say became of the call."""


class HostContext(ToolContext):
    __slots__ = ("_ask",)

    def __init__(self, said: Mapping[str, Any], sandbox: Sandbox, ask: Ask, progress: Callable[..., None]) -> None:
        super().__init__(
            call_id=said["call_id"],
            session_id=said["session_id"],
            worker=said["worker"],
            caller=Caller(said["caller"]),
            sandbox=sandbox,
            progress=progress,
            call=self._call,
        )
        self._ask = ask

    async def _call(self, name: str, args: dict[str, Any], *, refuse: str = "") -> Outcome:
        from asyncio import wrap_future

        if refuse:
            raise RuntimeError("a tool that refuses a call does not make it")

        said: dict[str, Any] = await wrap_future(self._ask(name, args))
        return outcome_from_wire(said)

    def call_blocking(self, name: str, args: dict[str, Any]) -> Outcome:
        from asyncio import _get_running_loop

        if _get_running_loop() is not None:
            raise RuntimeError("call_blocking would stop the event loop for good: `await ctx.call(…)` instead")
        return outcome_from_wire(self._ask(name, args).result())


def zones_to_wire(sandbox: Sandbox, stands_at: Mapping[str, str], *, read_only: bool) -> dict[str, Any]:
    """A worker's zones for the host. `stands_at`: where each stands inside; empty: not at all."""
    zones = []
    for zone in sandbox.zones.values():
        mode = Mode.RO if read_only else zone.mode
        verdicts = (zone.write.value, zone.delete.value) if mode is Mode.RW else (None, None)
        zones.append(
            {
                "name": zone.name,
                "path": stands_at[zone.name],
                "mode": mode.value,
                "write": verdicts[0],
                "delete": verdicts[1],
                "unprotect": list(zone.unprotect),
            }
        )
    shown = [zone for zone in zones if zone["path"]]
    return {"zones": shown, "default": sandbox.default_zone, "has_block": sandbox.has_block}


def sandbox_from_wire(said: Mapping[str, Any]) -> Sandbox:
    specs = [
        ZoneSpec(
            name=zone["name"],
            path=Path(zone["path"]),
            mode=Mode(zone["mode"]),
            write=Verdict(zone["write"]) if zone["write"] else None,
            delete=Verdict(zone["delete"]) if zone["delete"] else None,
            unprotect=tuple(zone["unprotect"]),
        )
        for zone in said["zones"]
    ]
    names = {spec.name for spec in specs}
    default = said["default"] if said["default"] in names else None
    if not specs:
        return Sandbox(has_block=said["has_block"])
    return open_sandbox(specs, default, forge_home=_NOWHERE, home=_NOWHERE)
