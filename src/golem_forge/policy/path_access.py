"""PathAccess: what rules say about the paths and hosts of one worker, outside of any call: for walls, for tools that
walk trees, and for the proxy.

Takes the rules in force, a worker's path and the program's directory. Gives only rules that hold there now (scope and
`until`). Rules that merely allow are left out: walls enforce what is forbidden, consent is asked for each call. The
workers above count as well: what is blocked for one of them is blocked here. Raises RulesUnusable.
"""

from __future__ import annotations

from collections.abc import Callable

from golem_forge.core.decisions import Verdict
from golem_forge.core.effects import Verb
from golem_forge.policy.evaluate import Judge
from golem_forge.policy.facts import CallFacts
from golem_forge.policy.rules.book import RuleBook, RuleSet
from golem_forge.policy.rules.match import in_scope, place_matches
from golem_forge.policy.rules.model import SECRET_PATH, Rule, RuleOrigin, normal_host, path_glob
from golem_forge.sandbox.walls.model import PathRule
from golem_forge.tools.context import HostPermission, HostRule
from golem_forge.tools.tool import SourceKind


class PathAccess:
    def __init__(self, judge: Judge, worker: str) -> None:
        self._judge = judge
        self._worker = worker

    def paths(self) -> tuple[PathRule, ...]:
        judge = self._judge
        if judge.rules is None:
            return ()
        current = judge.rules.current()
        above = (rule for parent in judge.parents for rule in path_rules(current, parent.worker, judge.project))
        blocked = (rule for rule in above if rule.verdict is Verdict.BLOCKED)
        return (*path_rules(current, self._worker, judge.project), *blocked)

    def host(self, host: str, port: int) -> HostPermission:
        judge = self._judge
        if judge.rules is None:
            return HostPermission()
        current = judge.rules.current()
        workers = (self._worker, *(parent.worker for parent in judge.parents))
        own, *above = (host_permission(current, worker, judge.project, host, port) for worker in workers)
        return own._replace(blocked=True) if any(each.blocked for each in above) else own


def host_rule_for(rules: RuleBook, project: str, worker: str) -> HostRule:
    """Returns a lookup of `host` rules for connections outside of any call, such as builds and server starts."""
    return lambda host, port: host_permission(rules.current(), worker, project, host, port)


def path_rules(rules: RuleSet, worker: str, project: str) -> tuple[PathRule, ...]:
    """The `path` rules that tighten, and the person's own that accept `secret_path`."""
    here = _scope_facts(worker, project)

    def matcher(pattern: str) -> Callable[[str], bool]:
        glob = path_glob(pattern)
        return lambda virtual: glob.fullmatch(virtual) is not None

    return tuple(
        PathRule(
            matches=matcher(rule.path),
            literal=literal_of(rule.path),
            verdict=rule.verdict,
            access=frozenset(rule.access),
            accepts_secret=_accepts_secret(rule),
            pattern=rule.path,
        )
        for rule in rules.paths
        if (rule.verdict is not Verdict.PRE_APPROVED or _accepts_secret(rule)) and in_scope(rule, here)
    )


def host_permission(rules: RuleSet, worker: str, project: str, host: str, port: int) -> HostPermission:
    """Returns what `host` rules allow for a host besides their verdict. Only the person's own rule may allow private
    addresses.
    """
    try:
        name = normal_host(host)
    except ValueError:
        return HostPermission()
    here = _scope_facts(worker, project)
    matching = (rule for rule in rules.hosts if place_matches(rule, name, port))
    found = [rule for rule in matching if in_scope(rule, here)]
    allowing = (rule for rule in found if rule.verdict is not Verdict.BLOCKED)
    private = any(rule.private and rule.origin is RuleOrigin.USER for rule in allowing)
    blocked = any(rule.verdict is Verdict.BLOCKED for rule in found)
    return HostPermission(listed=bool(found), private=private, blocked=blocked)


def literal_of(pattern: str) -> str:
    """The one path (or, for `dir/**`, the directory) a pattern stands for; empty if it needs to be searched for."""
    stem = pattern.removesuffix("/**")
    if "*" in stem or "?" in stem:
        return ""
    # A `[` that opens no set stands for itself; with a set, the pattern never matches its own spelling.
    return stem if path_glob(stem).fullmatch(stem) else ""


def _accepts_secret(rule: Rule) -> bool:
    """Whether the rule accepts the reading of secret files: it must allow, and stand in the person's own file."""
    own = rule.origin is RuleOrigin.USER and rule.verdict is Verdict.PRE_APPROVED
    return own and SECRET_PATH in rule.accept and Verb.READ in rule.access


def _scope_facts(worker: str, project: str) -> CallFacts:
    """A call of no tool, so that scope is tested by the same code as in an evaluation."""
    return CallFacts(tool="", source=SourceKind.NATIVE, args={}, worker=worker, effects=(), project=project)
