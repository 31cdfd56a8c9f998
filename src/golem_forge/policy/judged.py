"""Judged: a Decision and what it was made from. Gives that raw material too: the facts and the keys of a call. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from golem_forge.core.decision import Decision, Source
from golem_forge.policy.facts import CallFacts, CommandFacts, EffectVerdict, McpName
from golem_forge.policy.fingerprint import both_keys, targets_of
from golem_forge.policy.rules import RuleOutcome
from golem_forge.policy.rules.load import SHELL_TOOLS
from golem_forge.policy.world import SandboxWorld
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.tools.inputs import Arguments
from golem_forge.tools.plan import Plan
from golem_forge.tools.tool import Tool

Keys = Callable[[], tuple[str, str]]
"""Computes (fingerprint, args_key) of the call."""


@dataclass(slots=True)
class Judged:
    """Choices can be tried against the same facts."""

    decision: Decision
    facts: CallFacts
    bases: tuple[EffectVerdict, ...]
    base: Source
    outcome: RuleOutcome | None

    def again(self, facts: CallFacts, keys: Keys) -> Judged:
        """The same said of another call."""
        said = self.decision
        decision = Decision(said.verdict, said.sources, said.decided_by, said.risk, compute_keys=keys)
        return Judged(decision, facts, self.bases, self.base, self.outcome)


def facts_of(tool: Tool, arguments: Arguments, plan: Plan | None, worker: str, project: str) -> CallFacts:
    return CallFacts(
        tool=tool.name,
        source=tool.source,
        args=arguments.plain,
        worker=worker,
        effects=tool.effects if plan is None else plan.effects,
        command=plan.command if plan else None,
        mcp=mcp_name(tool),
        project=project,
    )


def mcp_name(tool: Tool) -> McpName | None:
    remote = tool.remote
    if remote is None:
        return None
    return McpName(server=remote.server, tool=remote.tool, pinned=tool.definition_approved)


def command_handed_on(tool: Tool, args: dict[str, Any]) -> CommandFacts | None:
    """A command that is handed on before it is planned, for rules that block: they read nothing but its text."""
    text = args.get("cmd")
    if tool.name not in SHELL_TOOLS or not isinstance(text, str):
        return None
    return CommandFacts(text=text, parsed=None, world=SandboxWorld(Sandbox(has_block=False)), cwd="/")


def call_keys(tool: Tool, arguments: Arguments, plan: Plan | None, worker: str) -> tuple[str, str]:
    """(fingerprint, args_key) of one call, from what was validated and planned."""
    args: dict[str, Any] = arguments.plain
    effects = tool.effects
    further: tuple[str, ...] = ()
    if plan is not None:
        args = args if plan.fingerprint_args is None else plan.fingerprint_args
        effects, further = plan.effects, plan.targets
    return both_keys(
        tool=tool.name if tool.remote is None else f"{tool.remote.server}/{tool.remote.tool}",
        definition=tool.definition_digest,
        args=args,
        worker=worker,
        targets=targets_of(effects or (), further) if effects or further else (),
    )
