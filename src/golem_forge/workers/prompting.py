"""The system prompt: a worker's instructions, then what Forge knows about the place it works in.

Takes the instructions and a PromptState (plain data from the real state), gives text. No host path is in it: zones are
named by their addresses. Where a fact is not known (walls that nobody has tried yet) nothing is said about it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self

from golem_forge.config.modes import ApprovalMode
from golem_forge.core.verdict import Verdict
from golem_forge.policy.base import ApprovalBlocks, configured_base, decides_for_itself
from golem_forge.sandbox.walls.levels import Level
from golem_forge.sandbox.zones import Mode, Zone
from golem_forge.tools.tool import Tool
from golem_forge.workers.answers import answer_instructions
from golem_forge.workers.fencing import HOW_TO_READ

if TYPE_CHECKING:
    from golem_forge.workers.station import Station

_CONSENT: Final = {
    Verdict.PRE_APPROVED: "allowed",
    Verdict.ASK: "asks the person",
    Verdict.BLOCKED: "refused",
}
_MODES: Final = {
    ApprovalMode.INTERACTIVE: "Approval: a call that needs consent is put to the person, who may refuse or change it.",
    ApprovalMode.STRICT: "Approval: strict. Every call that has an effect is put to the person, who may refuse it.",
    ApprovalMode.APPROVE_ALL: "Approval: calls that need consent run without asking. What policy blocks stays blocked.",
    ApprovalMode.AUTO_DENY: "Approval: nobody is there to ask. A call that needs consent is refused; do not repeat it.",
}
_WALLS: Final = {
    Level.FULL: "Commands run inside walls: they see only the zones and the system's programs, and no network unless "
    "hosts were approved for that call.",
    Level.LANDLOCK: "Commands run inside read-only walls: no command can write to a zone or reach the network. Change "
    "files with the file tools.",
    Level.NONE: "No walls can be built on this machine, so no command can run.",
    Level.OFF: "Walls are switched off: commands run unprotected, and each one needs consent.",
}
_MAX_NAMED: Final = 20
_MAKING_TOOLS: Final = """\
## Tools of the person's own
A procedure that works can become a tool that stays. Propose one when you are asked to, or when the same steps come a
third time: say what it will do, and ask first. Then create_custom_tool, edit its files in /user_tools/<name> with the
file tools, declare its parameters and at least one test in tool.yaml, and call run_custom_tool: it is built, shown to
the person, tested, and from then on called by its own name. When a test fails, mend the source and run it again. Use a
tool that is there before you make another one like it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneState:
    name: str
    mode: Mode
    write: Verdict = Verdict.ASK
    delete: Verdict = Verdict.ASK

    @classmethod
    def of(cls, zone: Zone) -> Self:
        return cls(name=zone.name, mode=zone.mode, write=zone.write, delete=zone.delete)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptState:
    approval: ApprovalMode
    zones: tuple[ZoneState, ...] = ()
    default_zone: str = ""
    walls: Level | None = None
    """None: not tried yet."""
    tools: frozenset[str] = frozenset()
    """Names of the tools there are."""
    blocked: tuple[str, ...] = ()
    """Tools that policy refuses whatever their arguments."""
    output_schema: Mapping[str, Any] | None = field(default=None)
    servers: tuple[tuple[str, str], ...] = ()
    """(MCP server, what it says to models), of trusted ones."""

    @classmethod
    def of(cls, station: Station) -> Self:
        blocks = station.path.judge.blocks
        tools = list(station.catalog)
        blocked = sorted(tool.name for tool in tools if _is_blocked(tool, blocks))
        return cls(
            approval=station.tree.controller.mode,
            zones=tuple(ZoneState.of(zone) for _, zone in sorted(station.sandbox.zones.items())),
            default_zone=station.sandbox.default_zone or "",
            walls=station.walls.known_level,
            tools=frozenset(tool.name for tool in tools),
            blocked=tuple(blocked),
            output_schema=station.worker.output_schema,
            servers=station.server_tools.instructions() if station.server_tools is not None else (),
        )


def _is_blocked(tool: Tool, blocks: ApprovalBlocks) -> bool:
    """By what the program and the worker's file say; rules look at arguments and are not asked."""
    if any(said.verdict is Verdict.BLOCKED for said in blocks.named(tool.name)):
        return True
    return not decides_for_itself(tool) and configured_base(tool.name, blocks).verdict is Verdict.BLOCKED


def system_prompt(instructions: str, state: PromptState) -> str:
    parts = [instructions.strip(), "\n".join(("## Where you work", *_facts(state)))]
    if "create_custom_tool" in state.tools:
        parts.append(_MAKING_TOOLS)
    parts += [f"## What the MCP server {name} says of its tools\n{words}" for name, words in state.servers]
    return "\n\n".join(part for part in parts if part)


def _facts(state: PromptState) -> list[str]:
    facts = _zones(state)
    if "exec_command" in state.tools and state.walls is not None:
        facts.append(f"- {_WALLS[state.walls]}")
    facts.append(f"- {_network(state)}")
    facts.append(f"- {_MODES[state.approval]}")
    if state.blocked:
        shown = ", ".join(state.blocked[:_MAX_NAMED])
        more = f" and {len(state.blocked) - _MAX_NAMED} more" if len(state.blocked) > _MAX_NAMED else ""
        facts.append(f"- Always refused: {shown}{more}.")
    facts.append(f"- {HOW_TO_READ}")
    if state.output_schema is not None:
        facts.append(f"- {answer_instructions(state.output_schema)}")
    return facts


def _zones(state: PromptState) -> list[str]:
    if not state.zones:
        return ["- Files: none. You have no zone, so every file call is refused."]
    lines = ["- Files: only in these zones, addressed /<zone>/path; any other path is refused."]
    for zone in state.zones:
        default = "; relative paths begin here" if zone.name == state.default_zone else ""
        lines.append(f"  - /{zone.name} ({zone.mode}): {_consent(zone)}{default}")
    return lines


def _consent(zone: ZoneState) -> str:
    if zone.mode is Mode.RO:
        return "read only; writing and deleting are refused"
    return f"write {_CONSENT[zone.write]}, delete {_CONSENT[zone.delete]}"


def _network(state: PromptState) -> str:
    reaching = sorted(state.tools & {"webfetch", "exec_command"})
    if not reaching:
        return "Network: no tool here reaches it."
    return f"Network: closed, except for hosts approved for a call of {' or '.join(reaching)}."
