"""Rules where no call is judged: what walls and walking tools must hold, and what the proxy may reach."""

from __future__ import annotations

from typing import Any

import pytest
from tests.tables import table

from golem_forge.core.decisions import Verdict
from golem_forge.core.effects import Verb
from golem_forge.core.errors import ConfigError
from golem_forge.policy.rules.book import RuleBook, host_permission, literal_of, path_rules
from golem_forge.policy.rules.load import make_rule
from golem_forge.policy.rules.model import RuleOrigin
from golem_forge.sandbox.walls.model import PathRule, is_masked, is_read_only
from golem_forge.tools.context import HostPermission

HERE = "main/coder"


def in_force(book: RuleBook, worker: str = HERE, project: str = "") -> dict[str, PathRule]:
    return {rule.literal: rule for rule in path_rules(book.current(), worker, project)}


def test_rules_that_tighten_and_rules_that_accept_secrets(place: Any) -> None:
    book = place.book(
        """
        rules:
          - {path: /workspace/frozen/**, access: [write], verdict: ask}
          - {path: /workspace/private, verdict: blocked, reason: mine}
          - {path: "/workspace/*.log", access: [delete], verdict: ask}
          - {path: /workspace/docs/**, verdict: preApproved}
          - {path: /workspace/.env, access: [read], verdict: preApproved, accept: [secret_path]}
          - {command: [git, status], verdict: ask}
        """
    )
    found = in_force(book)
    assert set(found) == {"/workspace/frozen", "/workspace/private", "", "/workspace/.env"}
    frozen, private = found["/workspace/frozen"], found["/workspace/private"]
    assert (frozen.verdict, frozen.access, frozen.accepts_secret) == (Verdict.ASK, frozenset({Verb.WRITE}), False)
    assert frozen.matches("/workspace/frozen/a/b") and not frozen.matches("/workspace/frozenx/a")
    assert (private.verdict, len(private.access)) == (Verdict.BLOCKED, 3)
    assert found[""].matches("/workspace/a.log") and not found[""].matches("/workspace/sub/a.log")
    assert found["/workspace/.env"].accepts_secret

    rules = tuple(found.values())
    assert is_masked("/workspace/private", secret=False, rules=rules)
    assert not is_masked("/workspace/.env", secret=True, rules=rules)
    assert is_masked("/workspace/sub/.env", secret=True, rules=rules)
    assert is_read_only("/workspace/frozen/x", rules) and is_read_only("/workspace/a.log", rules)
    assert not is_read_only("/workspace/docs/x", rules)


def test_only_the_persons_own_file_accepts_secrets(place: Any) -> None:
    book = place.book()
    written = {"path": "/workspace/.env", "access": ["read"], "verdict": "preApproved"}
    book.add_session_rule(make_rule(written, RuleOrigin.SESSION))
    assert in_force(book) == {}
    with pytest.raises(ConfigError):
        make_rule({**written, "accept": ["secret_path"]}, RuleOrigin.SESSION)


def test_scope_and_time_are_respected(place: Any) -> None:
    book = place.book(
        f"""
        rules:
          - {{path: /workspace/a, verdict: ask, scope: {{worker: "main/*"}}}}
          - {{path: /workspace/b, verdict: ask, scope: {{worker: other}}}}
          - {{path: /workspace/c, verdict: ask, scope: {{until: "2001-01-01T00:00:00+00:00"}}}}
          - {{path: /workspace/d, verdict: ask, scope: {{until: "2999-01-01T00:00:00+00:00"}}}}
          - {{path: /workspace/e, verdict: ask, scope: {{project: {place.workspace}}}}}
        """
    )
    assert set(in_force(book)) == {"/workspace/a", "/workspace/d"}
    assert set(in_force(book, "other", str(place.workspace))) == {"/workspace/b", "/workspace/d", "/workspace/e"}


@table(
    ("pattern", "literal"),
    [
        ("/workspace/a", "/workspace/a"),
        ("/workspace/dir/**", "/workspace/dir"),
        ("/workspace/**", "/workspace"),
        ("/workspace/[x", "/workspace/[x"),
        ("/workspace/[xy]", ""),
        ("/workspace/[!x]/**", ""),
        ("/workspace/a?", ""),
        ("/workspace/*", ""),
        ("/workspace/**/a", ""),
        ("/workspace/a/**/**", ""),
    ],
)
def test_what_stands_for_all_a_pattern_matches(pattern: str, literal: str) -> None:
    assert literal_of(pattern) == literal


def test_what_rules_say_of_a_host(place: Any) -> None:
    book = place.book(
        """
        rules:
          - {host: "*.example.test", ports: [443, 8443], verdict: ask}
          - {host: db.local.test, ports: [5432], private: true, verdict: preApproved}
          - {host: bad.local.test, private: true, verdict: blocked, reason: no}
          - {host: scoped.test, verdict: ask, scope: {worker: other}}
        """
    )

    def say(host: str, port: int = 443, worker: str = HERE) -> HostPermission:
        return host_permission(book.current(), worker, "", host, port)

    assert say("API.Example.test.", 8443) == HostPermission(listed=True)
    assert say("api.example.test", 80) == say("example.test") == say("evilexample.test") == HostPermission()
    assert say("db.local.test", 5432) == HostPermission(listed=True, private=True)
    assert say("db.local.test") == HostPermission()
    assert say("bad.local.test") == HostPermission(listed=True, blocked=True)
    assert say("scoped.test") == HostPermission()
    assert say("scoped.test", worker="other") == HostPermission(listed=True)
    assert say("not a host!") == HostPermission()
