"""StoreRules: the rules of the store, as the judges of one runner's sessions read them.

An admin makes one by an answer that counts beyond its session. It names its author and counts on every runner. They
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
        self._content = RuleFile(())
        self._problem: RulesUnusable | None = None
        self._lock = threading.Lock()
        self._pending: dict[str, Rule] = {}
        """Those that sessions of this runner made and that are not written yet."""

    @property
    def content(self) -> RuleFile:
        """Raises RulesUnusable while a rule cannot be read."""
        if self._problem is not None:
            raise self._problem
        return self._content

    def refresh(self) -> None:
        """In a thread. Raises StoreUnavailable; then what was read last counts, and nothing new can be recorded."""
        rows = self._store.accounts.rules()
        try:
            read = {each["id"]: _rule(each["rule"], each["person"]) for each in rows}
        except ConfigError as error:
            self._problem = RulesUnusable(error)
            return
        with self._lock:
            rules = tuple({rule.id: rule for rule in (*read.values(), *self._pending.values())}.values())
            if rules != self._content.rules:
                self._content = RuleFile(rules)
            self._problem = None

    def add(self, rule: Rule) -> None:
        """Counts here at once."""
        with self._lock:
            self._pending[rule.id] = rule
            self._content = RuleFile(tuple({each.id: each for each in (*self._content.rules, rule)}.values()))

    def settle(self, rule: Rule) -> None:
        """It is written, or never will be: from now on what the store says counts."""
        with self._lock:
            self._pending.pop(rule.id, None)


class SessionRules:
    def __init__(self, rules: StoreRules, journals: StoredJournals) -> None:
        self._rules = rules
        self._journals = journals
        self._unwritten: deque[Rule] = deque()

    @property
    def content(self) -> RuleFile:
        return self._rules.content

    def remember(self, rules: Iterable[Rule], author: str) -> None:
        """Counts here at once; the session's journal writes it."""
        journal = self._journals.journal
        assert journal is not None
        journal.writer.on_rules = self._settle
        for rule in rules:
            kept = _rule(rule.to_yaml(), author)
            self._rules.add(kept)
            self._unwritten.append(kept)
            journal.writer.add_rule(kept.to_yaml(), author)

    def _settle(self, count: int) -> None:
        """Called by the commit thread."""
        for _ in range(count):
            self._rules.settle(self._unwritten.popleft())


def _rule(written: dict[str, object], author: str) -> Rule:
    """Raises ConfigError."""
    return make_rule(dict(written), RuleOrigin.REMEMBERED, file=f"the store's rules, by {one_line(author) or 'nobody'}")


def rule_in_words(written: Mapping[str, object]) -> str:
    """For a person. One that this version cannot read is shown as it is."""
    try:
        rule = _rule(dict(written), "")
    except ConfigError:
        return json.dumps(dict(written))[:500]
    return f"{rule.verdict.value}: {rule.describe()}"
