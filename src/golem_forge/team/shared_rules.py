"""StoreRules: the rules of the store, as the judges of one runner's sessions read them.

An admin makes one by an answer that counts beyond its session. It names its author and counts on every runner: in all
projects where its author is an admin of all (or the store has no people), else in the project of the session. They
are read before a runner takes sessions, and again whenever the store rings or is swept, always in a thread; judging
looks at what was read last. A rule that cannot be read makes all of them unusable: it may forbid.

`SessionRules` is what one session sees of them. A new rule is written by the session's own journal, in the commit that
records the decision or in one before: a runner that is killed loses neither or both.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Iterable, Mapping

from golem_forge.core.errors import ConfigError
from golem_forge.core.text import one_line
from golem_forge.policy.rules.files import RulesUnusable
from golem_forge.policy.rules.load import make_rule
from golem_forge.policy.rules.model import Rule, RuleFile, RuleOrigin
from golem_forge.team.journal import StoredJournals
from golem_forge.team.store import Store


class StoreRules:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._rules: Mapping[tuple[str, str], Rule] = {}
        """(id, project) → rule; empty: of all projects."""
        self._files: dict[str, RuleFile] = {}
        """By project: what counts there."""
        self._admins: frozenset[str] | None = frozenset()
        """Of all projects; None: the store has no people."""
        self._problem: RulesUnusable | None = None
        self._lock = threading.Lock()
        self._pending: dict[tuple[str, str], Rule] = {}
        """Those that sessions of this runner made and that are not written yet."""

    def content(self, project: str) -> RuleFile:
        """Returns the rules that count in a project; the same object while nothing changed. Raises RulesUnusable while
        a rule cannot be read.
        """
        if self._problem is not None:
            raise self._problem
        with self._lock:
            if project not in self._files:
                fitting = {rule.id: rule for (_, of), rule in self._rules.items() if of in ("", project)}
                self._files[project] = RuleFile(tuple(fitting.values()))
            return self._files[project]

    def scope(self, author: str, project: str) -> str:
        """Returns where a rule of this author counts: empty for everywhere, or the project of its session."""
        return "" if self._admins is None or author in self._admins else project

    def refresh(self) -> None:
        """Reads the rules again, in a thread. Raises StoreUnavailable; then the last ones count, and nothing new can be
        recorded.
        """
        rows, people = self._store.accounts.rules(), self._store.accounts.people()
        try:
            read = {(each["id"], each["project"]): _rule(each["rule"], each["person"]) for each in rows}
        except ConfigError as error:
            self._problem = RulesUnusable(error)
            return
        with self._lock:
            self._admins = frozenset(each["name"] for each in people if each["role"] == "admin") if people else None
            rules = read | self._pending
            if rules != self._rules:
                self._rules, self._files = rules, {}
            self._problem = None

    def add(self, rule: Rule, project: str) -> None:
        """Adds a rule that counts here immediately."""
        with self._lock:
            self._pending[rule.id, project] = rule
            self._rules, self._files = {**self._rules, (rule.id, project): rule}, {}

    def settle(self, rule: Rule, project: str) -> None:
        """Called when a rule is written, or never will be; from then on the store's content counts."""
        with self._lock:
            self._pending.pop((rule.id, project), None)


class SessionRules:
    def __init__(self, rules: StoreRules, journals: StoredJournals, project: str = "") -> None:
        self._rules = rules
        self._journals = journals
        self._project = project
        self._unwritten: deque[tuple[Rule, str]] = deque()

    @property
    def content(self) -> RuleFile:
        return self._rules.content(self._project)

    def remember(self, rules: Iterable[Rule], author: str) -> None:
        """Counts here at once; the session's journal writes it."""
        journal = self._journals.journal
        assert journal is not None
        journal.writer.on_rules = self._settle
        project = self._rules.scope(author, self._project)
        for rule in rules:
            kept = _rule(rule.to_yaml(), author)
            self._rules.add(kept, project)
            self._unwritten.append((kept, project))
            journal.writer.add_rule(kept.to_yaml(), author, project)

    def _settle(self, count: int) -> None:
        """Settles written rules; called by the commit thread."""
        for _ in range(count):
            self._rules.settle(*self._unwritten.popleft())


def _rule(written: dict[str, object], author: str) -> Rule:
    """Reads a stored rule. Raises ConfigError."""
    return make_rule(dict(written), RuleOrigin.REMEMBERED, file=f"the store's rules, by {one_line(author) or 'nobody'}")


def rule_in_words(written: Mapping[str, object]) -> str:
    """Describes a rule for a person. One that this version cannot read is shown as JSON."""
    try:
        rule = _rule(dict(written), "")
    except ConfigError:
        return json.dumps(dict(written))[:500]
    return f"{rule.verdict.value}: {rule.describe()}"
