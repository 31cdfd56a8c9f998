"""Matching one rule against one call. Every function is pure but for the clock behind `until`.

What allows is matched narrowly (strict segments, a pinned MCP definition); what asks or blocks is matched widely (any
command the lenient detector finds): the two analysers are never swapped.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from golem_forge.core.effects import Effect, Verb
from golem_forge.core.verdict import Verdict
from golem_forge.policy.facts import CallFacts, CommandFacts, McpName
from golem_forge.policy.rules.globs import name_glob, path_glob
from golem_forge.policy.rules.hosts import host_and_port, host_matches
from golem_forge.policy.rules.model import ArgTest, Hit, Kind, Rule
from golem_forge.policy.shell import (
    CommandWorld,
    Segment,
    find_commands,
    matches_exact,
    matches_lenient,
    matches_strict,
)


def in_scope(rule: Rule, facts: CallFacts) -> bool:
    scope = rule.scope
    if scope.worker and not path_glob(scope.worker).fullmatch(facts.worker):
        return False
    if scope.project and (not facts.project or _real(facts.project) != scope.project):
        return False
    return scope.until_time is None or time.time() < scope.until_time


def hits_of(rule: Rule, facts: CallFacts) -> Iterator[Hit]:
    """Everything of the call that this rule matches; nothing outside its scope."""
    if not in_scope(rule, facts):
        return
    if rule.kind is Kind.TOOL:
        if rule.tool == facts.tool and arguments_match(rule.args, facts.args):
            yield Hit(rule=rule, subject=facts.tool)
    elif rule.kind is Kind.MCP:
        if facts.mcp is not None and mcp_matches(rule, facts.mcp):
            yield Hit(rule=rule, subject=f"{facts.mcp.server}/{facts.mcp.tool}")
    elif rule.kind is Kind.COMMAND:
        yield from _command_hits(rule, facts)
    else:
        matches = path_matches if rule.kind is Kind.PATH else net_matches
        for index, effect in enumerate(facts.effects or ()):
            if matches(rule, effect):
                yield Hit(rule=rule, effect=effect, subject=effect.target, index=index)


def path_matches(rule: Rule, effect: Effect) -> bool:
    return effect.verb in rule.access and path_glob(rule.path).fullmatch(effect.target) is not None


def net_matches(rule: Rule, effect: Effect) -> bool:
    if effect.verb is not Verb.NET:
        return False
    place = host_and_port(effect.target)
    return place is not None and place[1] in rule.ports and host_matches(rule.host, place[0])


def mcp_matches(rule: Rule, name: McpName) -> bool:
    """A consent holds only for the pinned definition; a refusal holds for any."""
    if rule.verdict is Verdict.PRE_APPROVED and not name.pinned:
        return False
    return any(name_glob(server).fullmatch(name.server) for server in rule.servers) and any(
        name_glob(tool).fullmatch(name.tool) for tool in rule.mcp_tools
    )


def segment_matches(rule: Rule, segment: Segment, world: CommandWorld) -> bool:
    """The narrow side: this one parsed segment is what the rule allows."""
    if rule.exact:
        return matches_exact(rule.command, segment, world)
    return matches_strict(rule.command, segment, world)


def text_matches(rule: Rule, text: str) -> bool:
    """The wide side: any command found anywhere in the text is what the rule speaks of."""
    return any(matches_lenient(rule.command, found) for found in find_commands(text))


def exec_effects(facts: CallFacts) -> list[tuple[int, Effect]]:
    return [(index, effect) for index, effect in enumerate(facts.effects or ()) if effect.verb is Verb.EXEC]


def _command_hits(rule: Rule, facts: CallFacts) -> Iterator[Hit]:
    if rule.danger:
        for index, effect in exec_effects(facts):
            if rule.danger in effect.dangers:
                yield Hit(rule=rule, effect=effect, subject=effect.target, index=index)
        return
    command = facts.command
    if command is None:
        return
    if rule.verdict is not Verdict.PRE_APPROVED:
        if text_matches(rule, command.text):
            yield Hit(rule=rule, subject=command.text)
        return
    for index, effect, segment in segments_with_effects(facts, command):
        if segment_matches(rule, segment, command.world):
            yield Hit(rule=rule, effect=effect, subject=effect.target, index=index)


def segments_with_effects(facts: CallFacts, command: CommandFacts) -> list[tuple[int, Effect, Segment]]:
    """Each parsed segment with its `exec` effect; nothing at all unless they correspond one to one."""
    effects = exec_effects(facts)
    segments = command.parsed.segments if command.parsed else ()
    if len(effects) != len(segments):
        return []
    paired = [(index, effect, segment) for (index, effect), segment in zip(effects, segments, strict=True)]
    return paired if all(effect.words == segment.words for _, effect, segment in paired) else []


def arguments_match(tests: tuple[ArgTest, ...], args: dict[str, Any]) -> bool:
    return all(_argument_matches(test, args) for test in tests)


def _argument_matches(test: ArgTest, args: dict[str, Any]) -> bool:
    value = args.get(test.name)
    if test.absent:
        return value is None
    if test.name not in args:
        return False
    if test.one_of is not None and not any(same_value(value, wanted) for wanted in test.one_of):
        return False
    if test.glob is not None and not (isinstance(value, str) and path_glob(test.glob).fullmatch(value)):
        return False
    if test.minimum is None and test.maximum is None:
        return True
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return (test.minimum is None or value >= test.minimum) and (test.maximum is None or value <= test.maximum)


def same_value(one: Any, other: Any) -> bool:
    """Equal as JSON: `1` is `1.0`, but `true` is not `1`."""
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


@lru_cache(maxsize=64)
def _real(directory: str) -> str:
    return os.path.realpath(directory)
