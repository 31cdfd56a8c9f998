"""What the rules in force mean where no call is judged: inside walls, for tools that walk trees, and for the proxy.

Takes one reading of the rules, a worker's path and the program's directory. Gives only rules that hold there now (scope
and `until`). Rules that merely allow are left out: walls hold what was forbidden, consent is asked per call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from golem_forge.core.effects import Verb
from golem_forge.core.verdict import Verdict
from golem_forge.policy.facts import CallFacts
from golem_forge.policy.rules.globs import path_glob
from golem_forge.policy.rules.hosts import host_matches, normal_host
from golem_forge.policy.rules.match import in_scope
from golem_forge.policy.rules.model import SECRET_PATH, Origin, Rule
from golem_forge.sandbox.walls.settings import PathRule
from golem_forge.tools.context import HostPermission
from golem_forge.tools.tool import SourceKind

if TYPE_CHECKING:
    from golem_forge.policy.rules.book import RuleSet

_BELOW: Final = "/**"


def path_rules(rules: RuleSet, worker: str, project: str) -> tuple[PathRule, ...]:
    """The `path` rules that tighten, and the person's own that accept `secret_path`."""
    here = _someone(worker, project)
    return tuple(
        PathRule(
            matches=_matcher(rule.path),
            literal=literal_of(rule.path),
            verdict=rule.verdict,
            access=frozenset(rule.access),
            accepts_secret=_accepts_secret(rule),
        )
        for rule in rules.paths
        if (rule.verdict is not Verdict.PRE_APPROVED or _accepts_secret(rule)) and in_scope(rule, here)
    )


def host_permission(rules: RuleSet, worker: str, project: str, host: str, port: int) -> HostPermission:
    """What `host` rules say of one place besides their verdict. Only a rule of the person's own makes it private."""
    try:
        name = normal_host(host)
    except ValueError:
        return HostPermission()
    here = _someone(worker, project)
    meant = [
        rule for rule in rules.hosts if port in rule.ports and host_matches(rule.host, name) and in_scope(rule, here)
    ]
    private = any(rule.private and rule.origin is Origin.USER and rule.verdict is not Verdict.BLOCKED for rule in meant)
    blocked = any(rule.verdict is Verdict.BLOCKED for rule in meant)
    return HostPermission(listed=bool(meant), private=private, blocked=blocked)


def literal_of(pattern: str) -> str:
    """The one path (or, for `dir/**`, the directory) a pattern stands for; empty if it needs to be searched for."""
    stem = pattern.removesuffix(_BELOW)
    if "*" in stem or "?" in stem:
        return ""
    # A `[` that opens no set stands for itself; with a set, the pattern never matches its own spelling.
    return stem if path_glob(stem).fullmatch(stem) else ""


def _matcher(pattern: str) -> Callable[[str], bool]:
    glob = path_glob(pattern)
    return lambda virtual: glob.fullmatch(virtual) is not None


def _accepts_secret(rule: Rule) -> bool:
    """As when a call is judged: only the person's own file, only what allows, only reading."""
    own = rule.origin is Origin.USER and rule.verdict is Verdict.PRE_APPROVED
    return own and SECRET_PATH in rule.accept and Verb.READ in rule.access


def _someone(worker: str, project: str) -> CallFacts:
    """Nobody's call, so that scope is read by the same eyes as in judging."""
    return CallFacts(tool="", source=SourceKind.NATIVE, args={}, worker=worker, effects=(), project=project)
