"""The rules file on the rules page loads as it stands, with its own examples passing."""

from __future__ import annotations

import re
from pathlib import Path

from golem_forge.policy.rules.load import parse_rules
from golem_forge.policy.rules.model import RuleOrigin

PAGE = Path(__file__).parents[2] / "docs" / "rules.md"


def test_the_example_file_loads() -> None:
    found = re.search(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found
    loaded = parse_rules(found.group(1), "rules.yaml", RuleOrigin.USER)
    assert [rule.kind.value for rule in loaded.rules] == ["command", "command", "tool", "path", "mcp", "host"]
