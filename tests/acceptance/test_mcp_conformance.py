"""The protocol's own conformance suite against Forge. mcp.md §17, case 41.

`make conformance` runs everything that both revisions require; it takes minutes, so here is only what its baseline may
excuse. A scenario that fails without being named there fails that run.
"""

from __future__ import annotations

from ruamel.yaml import YAML
from tests.mcp import foreign

NOT_DECLARED = ("prompt", "completion", "logging", "sampling", "roots", "subscri")
"""§13: no prompts, completion and logging; clients are asked forms and nothing else; resources cannot be watched."""
ABOUT_THEM = {
    # Resources of ours are forge://…, and these want test://…
    "resources-read-text",
    "resources-read-binary",
    "resources-templates-read",
    # Each asks for sampling, roots or a prompt among other things.
    "input-required-result-multiple-input-requests",
    "input-required-result-non-tool-request",
    "input-required-result-capability-check",
    "server-stateless:sep-2575-server-rejects-undeclared-capability",
    "server-stateless:sep-2575-missing-capability-http-400",
}


def test_case_41_the_baseline_names_only_what_is_not_declared() -> None:
    """Its checked-in baseline names only scenarios of features not declared (§13)."""
    named = YAML(typ="safe").load(foreign.ROOT / "examples" / "conformance" / "baseline.yaml")
    assert named["client"] == []
    for scenario in named["server"]:
        assert scenario in ABOUT_THEM or any(feature in scenario for feature in NOT_DECLARED), scenario
