"""mcp.md case 30: the required part of the JSON Schema test suite, draft 2020-12, passes through SchemaCheck."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from types import ModuleType

import pytest

from golem_forge.tools.validation import SchemaCheck

FILES = 46
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


def test_30_every_required_case_of_draft_2020_12(suite: ModuleType) -> None:
    cases = list(suite.required_cases())
    assert (len({case.file for case in cases}), len(cases)) == (FILES, CASES)
    wrong = {}
    for case in cases:
        problems = SchemaCheck(case.schema, retrieve=suite.remote_schema).errors(case.data)
        if (not problems) != case.valid:
            wrong[case.id] = f"expected valid={case.valid}, got {problems}"
    assert wrong.keys() == EXCEPTIONS.keys(), wrong


def test_30_without_the_suites_own_server_a_remote_reference_is_refused(suite: ModuleType) -> None:
    from golem_forge.tools.validation import ToolDefinitionError

    remote = [case for case in suite.required_cases(file="refRemote") if case.group == "remote ref"]
    assert remote
    with pytest.raises(ToolDefinitionError, match="only local \\$ref are allowed"):
        SchemaCheck(remote[0].schema)
