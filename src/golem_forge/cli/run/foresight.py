"""What would happen to a tool's calls before any arguments are known: a verdict, or `by target` and what it depends on.

Takes the Judge a session would have, and gives a `Foreseen`. Rules about arguments and targets are not foreseen; those
that block a whole tool are. Nothing is run: a tool's own predicate is named, not asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from golem_forge.config.modes import ApprovalMode
from golem_forge.core.decision import Source
from golem_forge.core.errors import ForgeError
from golem_forge.core.verdict import Verdict, strictest
from golem_forge.policy.base import ApprovalBlocks, configured_base, constant_base, decides_for_itself
from golem_forge.policy.judge import Judge
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.zones import Mode, Zone
from golem_forge.tools.tool import SourceKind, Tool

BY_TARGET: Final = "by target"
NOT_LOADED: Final = "not loaded in a dry run"
_DEPENDS_ON: Final = {
    "exec_command": "by command: proven read-only ones run, others ask",
    "shell": "by command: as the toolset's rules say",
    "run_custom_tool": "as the tool that it names; one that is not trusted asks",
    "write_stdin": "by what is typed: reading and signalling run, a line is judged like a command",
    **dict.fromkeys(
        ("list_mcp_resources", "list_mcp_resource_templates", "read_mcp_resource"),
        "by server: what a trusted one has is read unasked, any other asks",
    ),
}
_WHATEVER_ITS_ARGUMENTS: Final = {
    "webfetch": (Verdict.ASK, "unless a rule allows the host"),
    "get_memory": (Verdict.PRE_APPROVED, "it only reads memories"),
    "save_memory": (Verdict.ASK, "unless a rule allows the memory"),
    "create_custom_tool": (Verdict.ASK, "it shows every file, then asks"),
}
_STRICT: Final = "strict mode asks before every effect"
_READS: Final = "its server is trusted and says that it only reads"
_BY_PATH: Final = "by path: reads inside the zones run, secrets ask, anything else is refused"
_THEN: Final = {
    Verdict.PRE_APPROVED: dict.fromkeys(ApprovalMode, "runs"),
    Verdict.BLOCKED: dict.fromkeys(ApprovalMode, "refused"),
    Verdict.ASK: {
        ApprovalMode.INTERACTIVE: "asks",
        ApprovalMode.STRICT: "asks",
        ApprovalMode.APPROVE_ALL: "runs",
        ApprovalMode.AUTO_DENY: "denied",
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreseen:
    says: str
    """A Verdict, `by target`, or `not loaded in a dry run`."""
    why: str
    zones: Mapping[str, Verdict] = field(default_factory=dict)
    """Zone → verdict, where it differs between them."""
    then: str = ""
    """What the approval mode makes of it: runs, asks, denied, refused; empty where that depends on the call."""


def foresee(judge: Judge, tool: Tool, worker: str, sandbox: Sandbox) -> Foreseen:
    try:
        judge.said_of_handover(worker, tool, {})
    except ForgeError as error:
        return _verdict(judge, Verdict.BLOCKED, error.message)
    own = tool.needs_approval
    named = _stricter(judge.blocks, tool)
    if named is not None:
        return _verdict(judge, named.verdict, named.describe())
    if callable(own):
        return Foreseen(says=BY_TARGET, why="the tool decides for each call")
    if tool.remote is not None:
        return _of_a_server(judge, tool)
    if own is not None:
        base = constant_base(tool)
        return _verdict(judge, base.verdict, base.reason)
    if tool.source is not SourceKind.NATIVE:
        return _configured(judge, tool.name)
    if tool.effects == () and tool.name not in _DEPENDS_ON:
        return _verdict(judge, Verdict.PRE_APPROVED, "it touches nothing")
    if judge.mode is ApprovalMode.STRICT:
        return _verdict(judge, Verdict.ASK, _STRICT)
    if tool.name in _WHATEVER_ITS_ARGUMENTS:
        return _verdict(judge, *_WHATEVER_ITS_ARGUMENTS[tool.name])
    if tool.always is None:
        return Foreseen(says=BY_TARGET, why=_DEPENDS_ON.get(tool.name, _BY_PATH))
    return _by_zones(judge, tool, sandbox)


def foresee_unloaded(judge: Judge, name: str) -> Foreseen:
    """A tool of a module: nobody has read what it says of itself, only what the files say about it."""
    said = configured_base(name, judge.blocks)
    why = f"{said.verdict.value} unless it decides for itself ({said.describe()})"
    return Foreseen(says=NOT_LOADED, why=why, then="refused" if said.verdict is Verdict.BLOCKED else "")


def _stricter(blocks: ApprovalBlocks, tool: Tool) -> Source | None:
    """What files say by name about a tool that otherwise decides for itself."""
    if not decides_for_itself(tool):
        return None
    return next((source for source in blocks.named(tool.name) if source.verdict is Verdict.ASK), None)


def _configured(judge: Judge, name: str) -> Foreseen:
    said = configured_base(name, judge.blocks)
    if said.verdict is Verdict.PRE_APPROVED and judge.mode is ApprovalMode.STRICT:
        return _verdict(judge, Verdict.ASK, _STRICT)
    return _verdict(judge, said.verdict, said.describe() if said.file else said.reason)


def _of_a_server(judge: Judge, tool: Tool) -> Foreseen:
    """Some ask whatever the config says of them."""
    reads = tool.needs_approval is False
    if reads and judge.mode is ApprovalMode.STRICT:
        return _verdict(judge, Verdict.ASK, _STRICT)
    said = _verdict(judge, Verdict.PRE_APPROVED, _READS) if reads else _configured(judge, tool.name)
    if said.says != Verdict.PRE_APPROVED.value:
        return said
    if tool.annotations.get("destructiveHint"):
        return _verdict(judge, Verdict.ASK, "its server says that it destroys or overwrites")
    if not tool.definition_approved:
        return _verdict(judge, Verdict.ASK, "it is new on its server: the first call asks")
    return said


def _by_zones(judge: Judge, tool: Tool, sandbox: Sandbox) -> Foreseen:
    verb = tool.always
    assert verb is not None
    if not sandbox.zones:
        return _verdict(judge, Verdict.BLOCKED, "there is no zone to do it in")

    def says(zone: Zone) -> Verdict:
        return Verdict.BLOCKED if zone.mode is Mode.RO else zone.verdict(verb)

    zones = {zone.name: says(zone) for zone in sandbox.zones.values()}
    spelled = ", ".join(f"/{name} {verdict.value}" for name, verdict in zones.items())
    if len(set(zones.values())) == 1:
        return _verdict(judge, strictest(zones.values()), f"{verb.value} in {spelled}")
    return Foreseen(says=BY_TARGET, why=f"{verb.value} in {spelled}", zones=zones)


def _verdict(judge: Judge, verdict: Verdict, why: str) -> Foreseen:
    return Foreseen(says=verdict.value, why=why, then=_THEN[verdict][judge.mode])
