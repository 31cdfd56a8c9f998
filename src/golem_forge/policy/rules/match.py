"""Matching rules against one call, and what all of them together say: the strictest verdict, whether the consent covers
the whole call, and which floors the person accepted for it. Pure but for the clock behind `until`.

What allows is matched narrowly (strict segments, a pinned MCP definition); what asks or blocks is matched widely (any
command the lenient detector finds). The two analysers are never swapped.

Cover: one matching preApproved `tool` or `mcp` rule; or, for native tools, a matching preApproved `command`, `path` or
`host` or `group` rule, or a base of preApproved, for every single effect. One uncovered effect, and nothing is lifted.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Final

from golem_forge.core.decisions import Verdict, is_stricter, strictest
from golem_forge.core.effects import Effect, Mark, Verb
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.policy.facts import CallFacts, McpName
from golem_forge.policy.risk import EffectVerdict
from golem_forge.policy.rules.model import (
    OBEYED_PATH,
    SECRET_PATH,
    ArgTest,
    Hit,
    Rule,
    RuleKind,
    RuleOrigin,
    host_and_port,
    host_matches,
    is_own_machine,
    name_glob,
    path_matches_glob,
)
from golem_forge.policy.shell.lenient import find_commands
from golem_forge.policy.shell.patterns import (
    matches_exact,
    matches_lenient,
    matches_lenient_exact,
    matches_offered,
    matches_prefix,
)
from golem_forge.policy.shell.prover import segment_places

if TYPE_CHECKING:
    from golem_forge.policy.shell.lenient import CommandScan
    from golem_forge.policy.shell.strict import CommandWorld, Segment

Places = tuple[str, ...]
_WHOLE_CALL: Final = -1
"""The index of a hit that is about no single effect."""
_COMMAND, _TOOL, _MCP, _PATH = RuleKind.COMMAND, RuleKind.TOOL, RuleKind.MCP, RuleKind.PATH
_GROUP = RuleKind.GROUP
"""Looking a member up on its enum costs more than the whole comparison, and this is done per rule and call."""


class CallView:
    """A call while rules are matched against it; each analysis of its command is made once, when first needed."""

    def __init__(self, facts: CallFacts) -> None:
        self.facts = facts

    @cached_property
    def found(self) -> CommandScan | None:
        """Every command the lenient detector finds; None without a command."""
        return find_commands(self.facts.command.text) if self.facts.command else None

    @cached_property
    def execs(self) -> list[tuple[int, Effect]]:
        return [(index, effect) for index, effect in enumerate(self.facts.effects or ()) if effect.verb is Verb.EXEC]

    @cached_property
    def segments(self) -> list[tuple[int, Effect, Segment, Places]]:
        """Returns each parsed segment with its `exec` effect; empty unless they correspond one to one."""
        command = self.facts.command
        if command is None or command.parsed is None or len(command.parsed.segments) != len(self.execs):
            return []
        places = segment_places(command.parsed, command.world, command.cwd)
        paired = [
            (index, effect, segment, where)
            for (index, effect), segment, where in zip(self.execs, command.parsed.segments, places, strict=True)
        ]
        return paired if all(effect.words == segment.words for _, effect, segment, _ in paired) else []


def in_scope(rule: Rule, facts: CallFacts) -> bool:
    scope = rule.scope
    if scope.worker and not path_matches_glob(scope.worker, facts.worker):
        return False
    if scope.project and (not facts.project or _real(facts.project) != scope.project):
        return False
    return scope.until_time is None or time.time() < scope.until_time


def _hits_anywhere(rule: Rule, view: CallView) -> list[Hit]:
    """Returns everything in the call that the rule matches; its scope is not looked at."""
    facts = view.facts
    if rule.kind is _COMMAND:
        return _command_hits(rule, view)
    if rule.kind is _TOOL:
        matches = rule.tool == facts.tool and _tool_matches(rule, facts)
        return [Hit(rule=rule, subject=facts.tool)] if matches else []
    if rule.kind is _MCP:
        name = facts.mcp
        matches = name is not None and mcp_matches(rule, name)
        return [Hit(rule=rule, subject=f"{name.server}/{name.tool}")] if name and matches else []
    test = _path_matches if rule.kind is _PATH else _net_matches
    return [
        Hit(rule=rule, effect=effect, subject=effect.target, index=index)
        for index, effect in enumerate(facts.effects or ())
        if test(rule, effect)
    ]


def _tool_matches(rule: Rule, facts: CallFacts) -> bool:
    """A consent must fit all that the call does, and name what the plan resolved of it; a refusal any part of it. So a
    rule that was written for another tool of this name allows nothing here."""
    if rule.verdict is not Verdict.PRE_APPROVED:
        quantified = any
    else:
        quantified = all
        named = {test.name for test in rule.args if not test.absent}
        if not all(named.issuperset(one) for one in facts.rule_args):
            return False
    return quantified(arguments_match(rule.args, {**facts.args, **one}) for one in facts.rule_args or ({},))


def _path_matches(rule: Rule, effect: Effect) -> bool:
    """Rules are written for the program's zones. A worker whose zone begins deeper cannot rename its way around one."""
    if effect.verb not in rule.access:
        return False
    if not effect.outer:
        return path_matches_glob(rule.path, effect.target)
    if path_matches_glob(rule.path, effect.outer):
        return True
    return rule.verdict is not Verdict.PRE_APPROVED and path_matches_glob(rule.path, effect.target)


def _net_matches(rule: Rule, effect: Effect) -> bool:
    if effect.verb is not Verb.NET:
        return False
    place = host_and_port(effect.target)
    if place is None or not place_matches(rule, *place):
        return False
    # A service of this machine is not what a rule for a host was written for, unless it says so.
    accepts = rule.private or rule.kind is _GROUP  # a mirror is where the person's own settings say
    return rule.verdict is not Verdict.PRE_APPROVED or accepts or not is_own_machine(place[0])


def place_matches(rule: Rule, host: str, port: int) -> bool:
    """Whether a `host` or `group` rule matches this host (in normal form) and port."""
    if rule.kind is _GROUP:
        return (host, port) in rule.places
    return port in rule.ports and host_matches(rule.host, host)


def mcp_matches(rule: Rule, name: McpName) -> bool:
    """A consent holds only for the pinned definition; a refusal holds for any."""
    if rule.verdict is Verdict.PRE_APPROVED and not name.pinned:
        return False
    return any(name_glob(server).fullmatch(name.server) for server in rule.servers) and any(
        name_glob(tool).fullmatch(name.tool) for tool in rule.mcp_tools
    )


def segment_matches(rule: Rule, segment: Segment, world: CommandWorld, places: Places) -> bool:
    """The narrow side: this one parsed segment is what the rule allows."""
    if rule.exact:
        return matches_exact(rule.command, segment, world, places)
    offered = rule.origin in (RuleOrigin.SESSION, RuleOrigin.REMEMBERED)
    return (matches_offered if offered else matches_prefix)(rule.command, segment, world, places)


def text_matches(rule: Rule, found: CommandScan) -> bool:
    """The wide side: any command found anywhere in the text is what the rule speaks of."""
    return (matches_lenient_exact if rule.exact else matches_lenient)(rule.command, found)


def _command_hits(rule: Rule, view: CallView) -> list[Hit]:
    command = view.facts.command
    matched: list[tuple[int, Effect]] = []
    if rule.danger:
        matched = [(index, effect) for index, effect in view.execs if rule.danger in effect.dangers]
    elif command is not None and rule.verdict is Verdict.PRE_APPROVED:
        matched = [
            (index, effect)
            for index, effect, segment, places in view.segments
            if segment_matches(rule, segment, command.world, places)
        ]
    elif command is not None and view.found is not None and text_matches(rule, view.found):
        return [Hit(rule=rule, subject=command.text)]
    return [Hit(rule=rule, effect=effect, subject=effect.target, index=index) for index, effect in matched]


def arguments_match(tests: tuple[ArgTest, ...], args: dict[str, Any]) -> bool:
    return all(_argument_matches(test, args) for test in tests)


def _argument_matches(test: ArgTest, args: dict[str, Any]) -> bool:
    value = args.get(test.name)
    if test.absent:
        return value is None
    if test.name not in args:
        return False
    # Equal as JSON: `1` is `1.0`, but `true` is not `1`.
    same = (isinstance(value, bool) == isinstance(each, bool) and value == each for each in test.one_of or ())
    if test.one_of is not None and not any(same):
        return False
    if test.glob is not None and not (isinstance(value, str) and path_matches_glob(test.glob, value)):
        return False
    if test.minimum is None and test.maximum is None:
        return True
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return (test.minimum is None or value >= test.minimum) and (test.maximum is None or value <= test.maximum)


@lru_cache(maxsize=64)
def _real(directory: str) -> str:
    return os.path.realpath(directory)


@dataclass(frozen=True, slots=True)
class RuleOutcome:
    verdict: Verdict | None = None
    """None if no rule matched."""
    matched: tuple[Rule, ...] = ()
    """The matching rules, strictest first."""
    covers: bool = False
    accepted: frozenset[str] = frozenset()
    """Danger ids, `secret_path` and `obeyed_path`, each only if accepted for every effect that carries it."""
    hits: tuple[Hit, ...] = ()

    @property
    def deciding(self) -> Rule | None:
        return self.matched[0] if self.matched else None


NO_RULES: Final = RuleOutcome()


def evaluate_rules(rules: Iterable[Rule], facts: CallFacts, bases: tuple[EffectVerdict, ...]) -> RuleOutcome:
    view = CallView(facts)
    matching = ((rule, _hits_anywhere(rule, view)) for rule in rules)
    hits = tuple(hit for rule, found in matching if found and in_scope(rule, facts) for hit in found)
    if not hits:
        return NO_RULES
    allowing = [hit for hit in hits if hit.rule.verdict is Verdict.PRE_APPROVED]
    matched: list[Rule] = []  # the strictest first
    for rule in dict.fromkeys(hit.rule for hit in hits):
        place = next((i for i, other in enumerate(matched) if is_stricter(rule.verdict, other.verdict)), len(matched))
        matched.insert(place, rule)
    return RuleOutcome(
        verdict=strictest(hit.rule.verdict for hit in hits),
        matched=tuple(matched),
        covers=_covers(allowing, view, bases),
        accepted=_accepted(allowing, facts.effects or ()),
        hits=hits,
    )


def _covers(allowing: list[Hit], view: CallView, bases: tuple[EffectVerdict, ...]) -> bool:
    if any(hit.rule.kind in (RuleKind.TOOL, RuleKind.MCP) for hit in allowing):
        return True
    facts = view.facts
    if not allowing or not facts.native or not facts.effects or len(bases) != len(facts.effects):
        return False
    if facts.command is not None and not view.segments:  # opaque, or effects that do not belong to its segments
        return False
    return not uncovered_effects(allowing, bases)


def uncovered_effects(hits: Iterable[Hit], bases: tuple[EffectVerdict, ...]) -> tuple[int, ...]:
    """Returns the indices of a native tool's effects that neither the defaults nor a rule allow."""
    allowed = {hit.index for hit in hits if hit.rule.verdict is Verdict.PRE_APPROVED}
    if _WHOLE_CALL in allowed:
        return ()
    return tuple(
        index for index, each in enumerate(bases) if index not in allowed and each.base is not Verdict.PRE_APPROVED
    )


def unmentioned_effects(hits: Iterable[Hit], bases: tuple[EffectVerdict, ...]) -> tuple[int, ...]:
    """Returns the uncovered effects that no rule matches at all; a rule that asks matches its effect too."""
    hits = tuple(hits)
    asking = [hit for hit in hits if hit.rule.verdict is not Verdict.PRE_APPROVED]
    return tuple(
        index
        for index in uncovered_effects(hits, bases)
        if not any(_speaks_of(hit, index, bases[index].effect) for hit in asking)
    )


def _speaks_of(hit: Hit, index: int, effect: Effect) -> bool:
    if hit.index != _WHOLE_CALL:
        return hit.index == index
    if hit.rule.kind is not _COMMAND:
        return True
    return effect.verb is Verb.EXEC and text_matches(hit.rule, find_commands(effect.target))


def _accepted(allowing: list[Hit], effects: tuple[Effect, ...]) -> frozenset[str]:
    """Returns the danger ids that the person's own rules accept. An id that one effect carries without acceptance stays
    a floor.
    """
    given: dict[int, set[str]] = {}
    for hit in allowing:
        if hit.rule.accept and hit.rule.origin is RuleOrigin.USER:
            given.setdefault(hit.index, set()).update(hit.rule.accept)
            if hit.effect is not None and hit.effect.verb is not Verb.READ:  # a secret may be read, never changed
                given[hit.index].discard(SECRET_PATH)
    if not given:
        return frozenset()
    carried: dict[str, list[int]] = {}
    for index, effect in enumerate(effects):
        for danger in effect.dangers:
            carried.setdefault(danger, []).append(index)
        if Mark.SECRET_PATH in effect.marks:
            carried.setdefault(SECRET_PATH, []).append(index)
        if Mark.OBEYED_PATH in effect.marks:
            carried.setdefault(OBEYED_PATH, []).append(index)
    return frozenset(id_ for id_, indexes in carried.items() if all(id_ in given.get(index, ()) for index in indexes))
