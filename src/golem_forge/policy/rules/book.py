"""RuleBook: the rules in force right now, from every origin, how often calls met each of them, and what they say about
places outside of any call.

`evaluate` says what the rules think of one call. Files are looked at before each call that has effects (`expire`), and
before the others at most every 20 ms: an edit or a revoke acts on the next call. A file that is broken when the book is
opened raises ConfigError; one that breaks later makes `current` raise RulesUnusable until it is repaired: rules nobody
can read may forbid this call.

`rule_usage` counts from the decisions in the journals. A journal only grows, and most of them have ended: the counts of
one are cached by its size and time of change, so that a second look reads only the journals that went on since.

`PathAccess` has the paths and hosts of one worker for walls, for tools that walk trees, and for the proxy. Takes the
rules in force, a worker's path and the program's directory. Gives only rules that hold there now (scope and `until`).
Rules that merely allow are left out: walls enforce what is forbidden, consent is asked for each call. The workers above
count as well: what is blocked for one of them is blocked here. Raises RulesUnusable.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from golem_forge.core.decisions import Verdict
from golem_forge.core.effects import Verb
from golem_forge.core.lazy_dataclass import dataclass, replace
from golem_forge.events.journal_files import list_journals
from golem_forge.events.journal_records import parse_line
from golem_forge.policy.facts import CallFacts
from golem_forge.policy.risk import EffectVerdict
from golem_forge.policy.rules.files import (
    FileSource,
    ProjectSource,
    RulesUnusable,
    SharedRules,
    SharedSource,
    ValueCache,
    remember,
)
from golem_forge.policy.rules.match import NO_RULES, RuleOutcome, evaluate_rules, in_scope, place_matches
from golem_forge.policy.rules.model import (
    SECRET_PATH,
    Rule,
    RuleKind,
    RuleOrigin,
    builtin_rules,
    normal_host,
    path_glob,
)
from golem_forge.sandbox.walls.model import PathRule
from golem_forge.storage.home import ForgeHome
from golem_forge.tools.context import HostPermission, HostRule
from golem_forge.tools.tool import SourceKind

if TYPE_CHECKING:
    from golem_forge.policy.evaluate import Judge

CHECK_EVERY: Final = 0.02
_Extra = tuple[Rule, ...]


@dataclass(frozen=True, slots=True)
class RuleSet:
    """A consistent snapshot of all rule files and the session's rules."""

    rules: tuple[Rule, ...]
    """All rules except the builtin ones."""
    builtin: tuple[Rule, ...]

    @property
    def paths(self) -> tuple[Rule, ...]:
        return tuple(rule for rule in self.rules if rule.kind is RuleKind.PATH)

    @property
    def hosts(self) -> tuple[Rule, ...]:
        """Returns the rules about hosts, by name or by group."""
        return tuple(rule for rule in self.rules if rule.kind in (RuleKind.HOST, RuleKind.GROUP))


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleLine:
    """A line of `forge rules list`."""

    rule: Rule
    inactive: str = ""
    """Why the rule has no effect; empty if it has one."""
    hits: int = 0
    last_used: float | None = None

    def to_json(self) -> dict[str, Any]:
        rule = self.rule
        return {
            "id": rule.id,
            "source": rule.origin.value,
            "verdict": rule.verdict.value,
            "matches": rule.describe(),
            "scope": rule.scope.describe(),
            "reason": rule.reason,
            "file": rule.file,
            "line": rule.line,
            "hits": self.hits,
            "lastUsed": self.last_used,
            "inactive": self.inactive,
        }


class RuleBook:
    def __init__(
        self,
        home: ForgeHome,
        *,
        project_root: Path | None = None,
        project_trusted: Callable[[], bool] = lambda: False,
        project_trusted_with: Callable[[Mapping[str, bytes]], bool] | None = None,
        shared: SharedRules | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`shared`: rules of a team, which count beside the account's own; what is remembered for good goes there."""
        self.home = home
        self._shared = SharedSource(shared) if shared is not None else None
        values = ValueCache(home)
        self._user = FileSource(home.rules, home.shown(home.rules), RuleOrigin.USER, values)
        self._remembered = FileSource(home.remembered, home.shown(home.remembered), RuleOrigin.REMEMBERED, values)
        trust = (project_trusted, project_trusted_with)
        self._project = ProjectSource(project_root, *trust, values) if project_root else None
        self._session: dict[str, Rule] = {}
        self._clock = clock
        self._hits: Counter[Rule] = Counter()
        self._used: dict[Rule, float] = {}
        self._broken: RulesUnusable | None = None
        for source in self._sources():
            source.load()
        self._set = self._collected()
        self._next_check = clock() + CHECK_EVERY

    # What is in force

    def current(self) -> RuleSet:
        now = self._clock()
        if now >= self._next_check:
            self._recheck()
            self._next_check = now + CHECK_EVERY
        if self._broken is not None:
            raise self._broken
        return self._set

    def expire(self) -> None:
        """Makes the next evaluation read the files again: a call with effects comes next, or Forge just
        wrote a file.
        """
        self._next_check = 0.0

    @property
    def builtin_off(self) -> frozenset[str]:
        return self._user.content.builtin_off

    @property
    def notices(self) -> tuple[str, ...]:
        """Returns notices that a person sees once: project rules that exist and are not trusted."""
        return (self._project.notice,) if self._project and self._project.notice else ()

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(warning for source in self._sources() for warning in source.content.warnings)

    # What they say

    def is_empty(self) -> bool:
        """Whether no file and no session rule applies to calls without a shell command."""
        if self._broken is not None or self._clock() >= self._next_check:
            try:
                self.current()
            except RulesUnusable:
                return False
        return not self._set.rules

    def evaluate(self, facts: CallFacts, bases: tuple[EffectVerdict, ...], extra: _Extra = ()) -> RuleOutcome:
        """`extra` tries rules that do not exist yet. Raises RulesUnusable, except for a call that touches nothing."""
        fresh = self._clock() < self._next_check and self._broken is None
        rules = self._set if fresh else self._for_call(facts)
        if facts.command is None and not rules.rules and not extra:
            return NO_RULES
        candidates = rules.rules + extra
        return evaluate_rules(candidates if facts.command is None else rules.builtin + candidates, facts, bases)

    def evaluate_session_only(
        self, facts: CallFacts, bases: tuple[EffectVerdict, ...], extra: _Extra = ()
    ) -> RuleOutcome:
        """Evaluates rules for strict mode: every rule may forbid, only the session's own may allow."""
        rules = self._for_call(facts)
        used = (
            rule
            for rule in rules.builtin + rules.rules + extra
            if rule.verdict is not Verdict.PRE_APPROVED or rule.origin is RuleOrigin.SESSION
        )
        return evaluate_rules(used, facts, bases)

    def count(self, outcome: RuleOutcome) -> None:
        """Counts the use of the matched rules; called once for each decided call."""
        now = time.time()
        for rule in outcome.matched:
            self._hits[rule] += 1
            self._used[rule] = now

    # What the session adds

    def add_session_rule(self, rule: Rule) -> Rule:
        """Adds a rule until the session ends or `remove` is called; a rule with the same content replaces it."""
        rule = replace(rule, origin=RuleOrigin.SESSION, file="", line=0)
        self._session[rule.id] = rule
        self._set = self._collected()
        return rule

    @property
    def remembered_in(self) -> str:
        """Returns the place where `remember` writes, as shown on a card."""
        return "the store's rules (admins only)" if self._shared is not None else self.home.shown(self.home.remembered)

    def remember(self, rules: Iterable[Rule], author: str = "") -> None:
        """Stores rules permanently. `author`: the person who answered, where there are several. Raises what
        `files.remember` raises.
        """
        if self._shared is not None:
            self._shared.shared.remember(rules, author)
        else:
            remember(self.home, rules)
        self.expire()

    def remove(self, ids: Iterable[str]) -> tuple[str, ...]:
        removed = tuple(id_ for id_ in dict.fromkeys(ids) if self._session.pop(id_, None) is not None)
        self._set = self._collected()
        return removed

    def list(self) -> tuple[RuleLine, ...]:
        return tuple(self.lines())

    def lines(self) -> Iterator[RuleLine]:
        """Every rule there is, also those that do not act, with the reason."""
        self._recheck()
        for rule in builtin_rules():
            yield self._line(rule, "builtin_off" if rule.id in self.builtin_off else "")
        for source in self._sources():
            yield from map(self._line, source.content.rules)
        for rule in self._project.ignored_rules() if self._project else ():
            yield self._line(rule, "the project is not trusted")
        yield from map(self._line, self._session.values())

    def _line(self, rule: Rule, inactive: str = "") -> RuleLine:
        until = rule.scope.until_time
        if not inactive and until is not None and until <= time.time():
            inactive = f"ended {rule.scope.until}"
        return RuleLine(rule=rule, inactive=inactive, hits=self._hits[rule], last_used=self._used.get(rule))

    # Keeping up with the files

    def _for_call(self, facts: CallFacts) -> RuleSet:
        try:
            return self.current()
        except RulesUnusable:
            if facts.effects == ():  # it touches nothing; the rules last read serve
                return self._set
            raise

    def _sources(self) -> tuple[FileSource | ProjectSource | SharedSource, ...]:
        every = (self._user, self._remembered, self._project, self._shared)
        return tuple(source for source in every if source is not None)

    def _recheck(self) -> None:
        changed = False
        broken: RulesUnusable | None = None
        for source in self._sources():
            try:
                changed = source.refresh() or changed
            except RulesUnusable as error:
                broken = broken or error
        self._broken = broken
        if changed:  # also while another file is broken: its last good rules stay in the set
            self._set = self._collected()

    def _collected(self) -> RuleSet:
        from_files = (rule for source in self._sources() for rule in source.content.rules)
        builtin = tuple(rule for rule in builtin_rules() if rule.id not in self.builtin_off)
        about_calls = (rule for rule in (*from_files, *self._session.values()) if rule.kind is not RuleKind.MODE)
        return RuleSet(tuple(about_calls), builtin)


_MARK: Final = b'"source":"rules"'
_MAX_CACHED: Final = 4096
"""Journals; of more the rest is read anew each time."""


@dataclass(slots=True)
class RuleUsage:
    hits: int = 0
    last: str = ""
    """The last use, as ISO time in UTC."""


_cache: dict[Path, tuple[tuple[int, int], Mapping[str, RuleUsage]]] = {}
"""Journal → (size, time of change in ns), and the usage it showed then."""


def rule_usage(home: Path) -> dict[str, RuleUsage]:
    """Returns the usage by rule id. A call that was judged twice (for example after an edit) counts once
    for each rule.
    """
    used: dict[str, RuleUsage] = {}
    for path in list_journals(home):
        with contextlib.suppress(FileNotFoundError):  # its session was removed meanwhile
            for rule, more in _used_in(path).items():
                usage = used.setdefault(rule, RuleUsage())
                usage.hits += more.hits
                usage.last = max(usage.last, more.last)
    return used


def _used_in(path: Path) -> Mapping[str, RuleUsage]:
    status = path.stat()  # before it is read: what is added meanwhile changes the size, and is read next time
    stamp = (status.st_size, status.st_mtime_ns)
    cached = _cache.get(path)
    if cached is not None and cached[0] == stamp:
        return cached[1]
    used = _read(path)
    if cached is not None or len(_cache) < _MAX_CACHED:
        _cache[path] = stamp, used
    return used


def _read(path: Path) -> dict[str, RuleUsage]:
    used: dict[str, RuleUsage] = {}
    seen: set[tuple[str, str]] = set()
    for record in _decisions(path):
        for source in record["decision"].get("sources", ()):
            if source.get("source") != "rules":
                continue
            rule = source.get("id", "")
            usage = used.setdefault(rule, RuleUsage())
            usage.last = max(usage.last, record.get("ts", ""))
            if (key := (record.get("call", ""), rule)) not in seen:
                seen.add(key)
                usage.hits += 1
    return used


def _decisions(path: Path) -> Iterator[dict[str, Any]]:
    """Yields the decisions in a journal that name a rule. Other lines, which are most, are not parsed."""
    with path.open("rb") as file:
        for line in file:
            record = parse_line(line[:-1]) if _MARK in line else None
            if record is not None and isinstance(record.get("decision"), dict):
                yield record


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
