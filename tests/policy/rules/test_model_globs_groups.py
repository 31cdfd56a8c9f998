"""The rule key `group`: what it matches, what may stand beside it, and what a card offers of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.tables import table

from golem_forge.core.decisions import Verdict
from golem_forge.core.errors import ConfigError
from golem_forge.policy.rules.load import make_rule, parse_rules
from golem_forge.policy.rules.match import place_matches
from golem_forge.policy.rules.model import Rule, RuleOrigin, expand_groups, groups_with, is_mirror, places_of_group


@pytest.fixture(autouse=True)
def mirror(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "UV_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_INDEX_URL", "http://Mirror.test:8080/simple")
    monkeypatch.setenv("GOPROXY", "https://bad_host_-/,https://go.test")


def rule(group: str, **keys: Any) -> Rule:
    return make_rule({"group": group, "verdict": "preApproved", **keys}, RuleOrigin.USER)


def test_it_matches_its_hosts_at_their_ports_alone() -> None:
    python = rule("python")
    for host, port in (("pypi.org", 443), ("files.pythonhosted.org", 443), ("mirror.test", 8080)):
        assert place_matches(python, host, port)
    for host, port in (("pypi.org", 80), ("mirror.test", 443), ("www.pypi.org", 443), ("go.test", 443)):
        assert not place_matches(python, host, port)
    assert python.describe() == "group python (pypi.org, files.pythonhosted.org, mirror.test:8080)"
    assert ("go.test", 443) in places_of_group("go") and len(places_of_group("go")) == 3


@table(
    ("keys", "problem"),
    [
        ({"group": "pythn"}, "expected one of python, node, rust, go, got 'pythn'; did you mean 'python'"),
        ({"group": ["python"]}, "expected one of"),
        ({"group": "python", "host": "a.test"}, "exactly one of"),
        ({"group": "python", "ports": [80]}, "'ports' has no effect in a group rule"),
        ({"group": "python", "private": True}, "'private' has no effect in a group rule"),
        ({"group": "python", "match": ["npmjs.org"]}, "does not match this rule"),
        ({"group": "python", "not_match": ["mirror.test:8080"]}, "matches this rule"),
    ],
)
def test_what_is_refused(keys: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_rules(json.dumps({"rules": [{"verdict": "preApproved", **keys}]}), "rules.yaml", RuleOrigin.USER)
    assert problem in str(caught.value)


def test_its_examples_are_hosts() -> None:
    made = rule(
        "python", match=["pypi.org", "mirror.test", "mirror.test:8080"], not_match=["mirror.test:443", "a.test"]
    )
    assert made.verdict is Verdict.PRE_APPROVED


def test_a_project_may_write_one() -> None:
    """It counts once the project is trusted, as its `host` rules do."""
    text = b"rules: [{group: node, verdict: preApproved}]\n"
    assert parse_rules(text, "rules.yaml", RuleOrigin.PROJECT).rules[0].group == "node"


def test_a_group_stands_for_its_hosts_in_a_list() -> None:
    expanded = expand_groups(["a.test:443", "group:python", "pypi.org:443"])
    assert expanded == ["a.test:443", "pypi.org:443", "files.pythonhosted.org:443", "mirror.test:8080"]
    with pytest.raises(ValueError, match="no such group"):
        expand_groups(["group:perl"])
    assert groups_with([("pypi.org", 443), ("mirror.test", 8080)]) == ("python",)
    assert groups_with([("pypi.org", 443), ("go.test", 443)]) == ("python", "go")
    assert groups_with([("pypi.org", 443), ("a.test", 443)]) is None
    assert is_mirror("mirror.test", 8080) and not is_mirror("mirror.test", 443) and not is_mirror("pypi.org", 443)
