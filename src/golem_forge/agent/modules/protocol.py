"""The protocol between Forge and a module host: one JSON object a line, of at most 16 MiB each. Both sides import it.

Forge sends `load`, `call`, `predicate` and `plan`, each with an `id`; the host answers every id once, with `value`,
`result` or `error`. While it works it may send `progress`, and `call` to ask for another tool, which Forge answers with
`reply`.

HostContext is the ToolContext of a tool in a host: call, session and worker ids, the workspace, the caller,
`report_progress`, `call` and `call_blocking` (both re-enter the one path in Forge; `ask`, `sample`, `roots` and `log`
are such calls), and a real Sandbox over the zones as they stand inside the walls. What belongs to Forge's own process
(`walls`, `outputs`, `redactor`, `home`, `show`, rules) is not there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from golem_forge.core.calls import Caller, Leftover, Outcome, ToolCall
from golem_forge.core.decisions import Status, Verdict
from golem_forge.core.effects import Effect, Verb
from golem_forge.core.errors import BlockedError, ForgeError, ToolFailed, error_name
from golem_forge.core.json import safe_json
from golem_forge.core.lazy_module import LazyModule
from golem_forge.core.results import from_mcp, to_mcp
from golem_forge.tools.context import Plan, ToolContext

if TYPE_CHECKING:
    from concurrent.futures import Future

    from golem_forge.sandbox import sandbox as lazy_sandbox
    from golem_forge.sandbox import zones as lazy_zones
    from golem_forge.sandbox.sandbox import Sandbox
    from golem_forge.sandbox.target import Target
else:  # a host needs them for a tool that takes a context
    lazy_sandbox = LazyModule("golem_forge.sandbox.sandbox")
    lazy_zones = LazyModule("golem_forge.sandbox.zones")

MAX_MESSAGE_BYTES: Final = 16 << 20
_MAX_ERROR_CHARS: Final = 20_000


def encode_message(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def error_to_wire(error: BaseException) -> dict[str, Any]:
    """An exception as data. The words of one that is not Forge's are a stranger's."""
    if isinstance(error, ForgeError):
        blocked = isinstance(error, BlockedError)
        return {"message": error.message, "status": error.status.value, "code": error.code, "blocked": blocked}
    try:
        words = str(error)[:_MAX_ERROR_CHARS]
    except Exception:
        words = "(its words cannot be read)"
    return {"kind": error_name(error), "message": words}


def error_from_wire(said: Mapping[str, Any]) -> ForgeError:
    """Converts an error from the host to an exception."""
    message = str(said.get("message", ""))
    if said.get("blocked"):
        return BlockedError(message)
    if kind := str(said.get("kind", ""))[:200]:
        return ToolFailed(f"{kind}: {message}" if message else kind)
    status = Status(said.get("status", Status.EXECUTION_FAILED))
    if status in (Status.SUCCESS, Status.INTERRUPTED, Status.SKIPPED, Status.APPROVAL_DENIED):
        status = Status.EXECUTION_FAILED  # not for a tool's code to say
    return ToolFailed(message, status=status, code=str(said.get("code", "")))


_MOST_EFFECTS: Final = 200
_MAX_DIFF: Final = 256 << 10


def plan_to_wire(plan: Plan) -> dict[str, Any]:
    """Converts a planner's result for the wire. Paths stay texts: they are resolved again where they are judged."""
    effects = None if plan.effects is None else [[str(each.verb), each.target] for each in plan.effects]
    return {
        "effects": effects,
        "diff": plan.diff,
        "payload": plan.payload,
        "warnings": list(plan.warnings),
        "read_only": plan.read_only,
    }


def plan_from_wire(said: Mapping[str, Any], sandbox: Sandbox | None, run: Callable[[], Any]) -> Plan:
    """Builds the Plan from a host's data: a path is resolved in the worker's zones, with its marks. Raises SandboxError
    for a path that this worker cannot reach, ValueError for data that is no plan.

    Threat: a planner that leaves an effect out. It is the word of trusted code, like its `effects`; the walls around
    its host hold either way.
    """
    effects, diff = said["effects"], str(said["diff"])
    if (effects is not None and len(effects) > _MOST_EFFECTS) or len(diff) > _MAX_DIFF:
        raise ValueError("too long for a plan")
    targets: list[Target] = []

    def effect(verb: Verb, target: str) -> Effect:
        if verb not in (Verb.READ, Verb.WRITE, Verb.DELETE):
            return Effect(verb=verb, target=target)
        targets.append((sandbox or lazy_sandbox.Sandbox(has_block=False)).target(target, verb))
        return targets[-1].effect()

    def recheck() -> None:
        for each in targets:
            each.recheck()

    def close() -> None:
        for each in targets:
            each.close()

    try:
        judged = None if effects is None else tuple(effect(Verb(verb), str(target)) for verb, target in effects)
    except BaseException:
        close()
        raise
    read_only = said["read_only"]
    return Plan(
        run=run,
        effects=judged,
        diff=diff,
        payload=str(said["payload"])[:_MAX_DIFF],
        warnings=tuple(str(each)[:_MAX_ERROR_CHARS] for each in said["warnings"][:_MOST_EFFECTS]),
        read_only=read_only if isinstance(read_only, bool) else None,
        recheck=recheck,
        close=close,
    )


_PLAIN_FIELDS: Final = ("tool", "error", "code", "duration_ms", "executed", "truncated", "output_handle")
"""Fields of an Outcome that are already JSON."""


def outcome_to_wire(outcome: Outcome) -> dict[str, Any]:
    """Converts the Outcome of a nested call for the tool that made it."""
    return {
        "name": outcome.call.name,
        "args": safe_json(outcome.call.args)[0],
        "id": outcome.call.id,
        "status": outcome.status.value,
        "result": safe_json(to_mcp(outcome.result))[0] if outcome.result else None,
        "notes": list(outcome.notes),
        "protected_created": list(outcome.protected_created),
        "leftovers": [one.to_wire() for one in outcome.leftovers],
        **{name: getattr(outcome, name) for name in _PLAIN_FIELDS},
    }


def outcome_from_wire(said: Mapping[str, Any]) -> Outcome:
    return Outcome(
        ToolCall(said["name"], said["args"], Caller.TOOL, said["id"]),
        status=Status(said["status"]),
        result=from_mcp(said["result"]) if said["result"] is not None else None,
        notes=tuple(said["notes"]),
        protected_created=tuple(said["protected_created"]),
        leftovers=tuple(Leftover.from_wire(one) for one in said["leftovers"]),
        **{name: said[name] for name in _PLAIN_FIELDS},
    )


_NO_HOME: Final = Path("/proc/forge")

CallTool = Callable[[str, dict[str, Any]], "Future[dict[str, Any]]"]
"""(tool, arguments) → what Forge will say became of the call."""


class HostContext(ToolContext):
    __slots__ = ("_ask",)

    def __init__(self, said: Mapping[str, Any], sandbox: Sandbox, ask: CallTool, progress: Callable[..., None]) -> None:
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

    async def _call(self, name: str, args: dict[str, Any], *, refuse: str = "", whole: bool = False) -> Outcome:
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
    """A worker's zones for the host. `stands_at`: zone → its path inside the walls; empty: it is not shown there."""
    zones = []
    for zone in sandbox.zones.values():
        mode = lazy_zones.AccessMode.RO if read_only else zone.mode
        verdicts = (zone.write.value, zone.delete.value) if mode is lazy_zones.AccessMode.RW else (None, None)
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
        lazy_zones.ZoneSpec(
            name=zone["name"],
            path=Path(zone["path"]),
            mode=lazy_zones.AccessMode(zone["mode"]),
            write=Verdict(zone["write"]) if zone["write"] else None,
            delete=Verdict(zone["delete"]) if zone["delete"] else None,
            unprotect=tuple(zone["unprotect"]),
        )
        for zone in said["zones"]
    ]
    names = {spec.name for spec in specs}
    default = said["default"] if said["default"] in names else None
    if not specs:
        return lazy_sandbox.Sandbox(has_block=said["has_block"])
    return lazy_sandbox.open_sandbox(specs, default, forge_home=_NO_HOME, home=_NO_HOME)
