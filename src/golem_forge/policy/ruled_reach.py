"""RuledReach: what rules say about the paths and hosts of one worker, for tools that walk trees, walls and the proxy.

The workers above count as well: what is blocked for one of them is blocked here. Raises RulesUnusable.
"""

from __future__ import annotations

from golem_forge.core.verdict import Verdict
from golem_forge.policy.judge import Judge
from golem_forge.policy.rules import RuleBook
from golem_forge.policy.rules.path_rules import host_permission, path_rules
from golem_forge.sandbox.walls.settings import PathRule
from golem_forge.tools.context import HostPermission, HostRule


class RuledReach:
    def __init__(self, judge: Judge, worker: str) -> None:
        self._judge = judge
        self._worker = worker

    def paths(self) -> tuple[PathRule, ...]:
        judge = self._judge
        if judge.rules is None:
            return ()
        current = judge.rules.current()
        above = (path_rules(current, ceiling.worker, judge.project) for ceiling in judge.ceilings)
        blocked = (rule for rules in above for rule in rules if rule.verdict is Verdict.BLOCKED)
        return (*path_rules(current, self._worker, judge.project), *blocked)

    def host(self, host: str, port: int) -> HostPermission:
        judge = self._judge
        if judge.rules is None:
            return HostPermission()
        current = judge.rules.current()
        said = host_permission(current, self._worker, judge.project, host, port)
        above = (ceiling.worker for ceiling in judge.ceilings)
        blocked = any(host_permission(current, worker, judge.project, host, port).blocked for worker in above)
        return said._replace(blocked=True) if blocked else said


def hosts_in(rules: RuleBook, project: str, worker: str) -> HostRule:
    """What rules say of hosts outside of any call: builds fetch from them, servers are started with them."""

    def host(host: str, port: int) -> HostPermission:
        return host_permission(rules.current(), worker, project, host, port)

    return host
