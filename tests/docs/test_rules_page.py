"""The rules files on the rules page load as they stand, with their own examples passing."""

from __future__ import annotations

import re
from pathlib import Path

from golem_forge.policy.rules.load import parse_rules
from golem_forge.policy.rules.model import RuleOrigin

PAGE = Path(__file__).parents[2] / "docs" / "guides/rules.md"


def test_the_example_file_loads() -> None:
    own, of_a_project, spelled = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    loaded = parse_rules(own, "rules.yaml", RuleOrigin.USER)
    assert [rule.kind.value for rule in loaded.rules] == ["command", "command", "tool", "path", "mcp", "host"]
    assert len(parse_rules(of_a_project, "rules.yaml", RuleOrigin.PROJECT).rules) == 4
    assert len(parse_rules(spelled, "rules.yaml", RuleOrigin.PROJECT).rules) == 6
