"""mcp.md case 30: the required part of the JSON Schema test suite, draft 2020-12, passes through SchemaCheck."""

from __future__ import annotations

import importlib.util
import os
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from golem_forge.tools.validation import SchemaCheck

FILES = [
    "additionalProperties",
    "allOf",
    "anchor",
    "anyOf",
    "boolean_schema",
    "const",
    "contains",
    "content",
    "default",
    "defs",
    "dependentRequired",
    "dependentSchemas",
    "dynamicRef",
    "enum",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "format",
    "if-then-else",
    "infinite-loop-detection",
    "items",
    "maxContains",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minContains",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "not",
    "oneOf",
    "pattern",
    "patternProperties",
    "prefixItems",
    "properties",
    "propertyNames",
    "ref",
    "refRemote",
    "required",
    "type",
    "unevaluatedItems",
    "unevaluatedProperties",
    "uniqueItems",
    "vocabulary",
]
CASES = 1257

EXCEPTIONS: dict[str, str] = {}
"""`file | group | test` → why SchemaCheck answers otherwise than the suite. Empty: there is no exception."""


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("json_schema_suite", Path(__file__).with_name("json_schema_suite.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def suite() -> ModuleType:
    module = _load()
    try:
        module.suite()
    except module.Unavailable as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"JSON Schema test suite: {error}")
    return module


def test_30_the_list_of_files_is_complete(suite: ModuleType) -> None:
    counted = Counter(case.file for case in suite.required_cases())
    assert sorted(counted) == sorted(FILES)
    assert sum(counted.values()) == CASES


@pytest.mark.parametrize("file", FILES)
def test_30_every_required_case_of_draft_2020_12(suite: ModuleType, file: str) -> None:
    wrong = {}
    for case in suite.required_cases(file=file):
        problems = SchemaCheck(case.schema, retrieve=suite.remote_schema).errors(case.data)
        if (not problems) != case.valid:
            wrong[case.id] = f"expected valid={case.valid}, got {problems}"
    expected = {name for name in EXCEPTIONS if name.startswith(f"{file} | ")}
    assert wrong.keys() == expected, {name: wrong.get(name) for name in wrong.keys() ^ expected}


def test_30_without_the_suites_own_server_a_remote_reference_is_refused(suite: ModuleType) -> None:
    from golem_forge.tools.validation import ToolDefinitionError

    remote = [case for case in suite.required_cases(file="refRemote") if case.group == "remote ref"]
    assert remote
    with pytest.raises(ToolDefinitionError, match="only local \\$ref are allowed"):
        SchemaCheck(remote[0].schema)
