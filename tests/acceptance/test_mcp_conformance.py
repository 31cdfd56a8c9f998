"""The protocol's own conformance suite against Forge. mcp.md §17, case 41.

`make conformance` runs everything that both revisions require; it takes minutes, so here is only what its baseline may
excuse. A scenario that fails without being named there fails that run.
"""

from __future__ import annotations

from ruamel.yaml import YAML
from tests.mcp import foreign


def test_case_41_the_baseline_excuses_nothing() -> None:
    """Its checked-in baseline names only what the suite itself cannot test against us: nothing."""
    named = YAML(typ="safe").load(foreign.ROOT / "examples" / "conformance" / "baseline.yaml")
    assert named == {"client": [], "server": []}
