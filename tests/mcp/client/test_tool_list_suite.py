"""mcp.md case 30: arguments are checked as JSON Schema 2020-12 says, by the required part of the official test suite.

tests/tools/test_validation_suite.py holds the validator itself against the suite, with the suite's own remote schemas.
Here every case is an argument of a server's tool: the schema comes in a list entry, passes `check_entries`, and the
data is checked by the input that the tool would have. Nothing remote exists there: the groups that need it are held.
The keywords that the case names: tests/acceptance/test_mcp_trust.py.
"""

from __future__ import annotations

import importlib.util
import os
from collections import defaultdict
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from golem_forge.mcp.client.model import HoldReason, ServerToolList
from golem_forge.mcp.client.tool_list import check_entries
from golem_forge.tools.inputs import SchemaInput
from golem_forge.tools.validation import InputInvalid

SUITE = Path(__file__).parents[2] / "tools" / "json_schema_suite.py"
CASES = 1257
REMOTE = {
    "dynamicRef": {
        "strict-tree schema, guards against misspelled properties",
        "tests for implementation dynamic anchor and reference link",
        "$ref and $dynamicAnchor are independent of order - $defs first",
        "$ref and $dynamicAnchor are independent of order - $ref first",
        "$ref to $dynamicRef finds detached $dynamicAnchor",
    },
    "refRemote": {
        "remote ref",
        "fragment within remote ref",
        "anchor within remote ref",
        "ref within remote ref",
        "base URI change",
        "base URI change - change folder",
        "base URI change - change folder in subschema",
        "root ref in remote ref",
        "remote ref with ref to defs",
        "Location-independent identifier in remote ref",
        "retrieved nested refs resolve relative to their URI not $id",
        "remote HTTP ref with different $id",
        "remote HTTP ref with different URN $id",
        "remote HTTP ref with nested absolute ref",
        "$ref to $ref finds detached $anchor",
    },
    "vocabulary": {
        "schema that uses custom metaschema with with no validation vocabulary",
        "ignore unrecognized optional vocabulary",
    },
}
"""File → groups whose schema refers to another document, or declares one as its dialect. With local `$ref` only, and
the dialects that there are, they are no schemas of a tool."""


@pytest.fixture(scope="module")
def suite() -> ModuleType:
    spec = importlib.util.spec_from_file_location("json_schema_suite", SUITE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    try:
        module.suite()
    except module.Unavailable as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"JSON Schema test suite: {error}")
    return module


def as_argument(schema: Any) -> dict[str, Any]:
    """The schema for one argument. With an identifier of its own, `#` in it means itself, as in the suite."""
    around = {"type": "object", "properties": {"value": schema}, "required": ["value"]}
    if not isinstance(schema, dict):
        return around
    around["properties"] = {"value": {"$id": "urn:forge:case", **schema}}
    return {"$schema": schema["$schema"], **around} if "$schema" in schema else around


def listed(schema: dict[str, Any]) -> ServerToolList:
    return check_entries("suite", [{"name": "case", "inputSchema": schema}])


def test_30_every_required_case_as_an_argument(suite: ModuleType) -> None:
    groups: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for case in suite.required_cases():
        groups[case.file, case.group].append(case)
    assert sum(map(len, groups.values())) == CASES
    refused: dict[str, set[str]] = defaultdict(set)
    wrong = {}
    for group, cases in groups.items():
        listing = listed(as_argument(cases[0].schema))
        if listing.held:
            refused[group[0]].add(group[1])
            assert listing.held[0].reason is HoldReason.SCHEMA_INVALID
            assert "is remote; only local $ref" in listing.held[0].message or "draft" in listing.held[0].message
            continue
        given = SchemaInput(dict(listing.tools[0].input_schema))
        for case in cases:
            try:
                given.check({"value": case.data})
                valid = True
            except InputInvalid:
                valid = False
            if valid != case.valid:
                wrong[case.id] = f"expected valid={case.valid}"
    assert wrong == {}
    assert refused == REMOTE
