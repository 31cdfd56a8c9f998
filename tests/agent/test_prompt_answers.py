"""Typed answers and inputs: W33."""

from __future__ import annotations

import pytest

from golem_forge.agent.prompt import answer_json, check_answer, input_problem, repair_request

SCHEMA = {
    "type": "object",
    "properties": {"items": {"type": "array", "items": {"type": "integer"}}},
    "required": ["items"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    "text", ['{"items": [1]}', ' {"items": []}\n', '```json\n{"items": [1]}\n```', '~~~\n{"items": []}\n~~~\n']
)
def test_w33_an_answer_that_fits(text: str) -> None:
    assert check_answer(text, SCHEMA) is None
    assert answer_json(text).startswith("{") and answer_json(text).endswith("}")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"items": [1, "a"]}', "$.items[1]: expected integer, got string"),
        ("{}", "$.items: field required"),
        ('{"items": [], "more": 1}', "$.more: unknown property"),
        ("[]", "$: expected object, got array"),
        ("The answer is 7.", "$: is not JSON: Expecting value: line 1 column 1 (char 0)"),
        ('{"items": [NaN]}', "$: is not JSON: NaN is not a JSON number"),
        ("", "$: is not JSON: Expecting value: line 1 column 1 (char 0)"),
        ("[" * 100_000, "$: is not JSON that can be read: nested too deep"),
        ('Here:\n```json\n{"items": [1]}\n```', "$: is not JSON: Expecting value: line 1 column 1 (char 0)"),
    ],
)
def test_w33_an_answer_that_does_not_fit_is_named_by_path(text: str, problem: str) -> None:
    found = check_answer(text, SCHEMA)
    assert found is not None and str(found) == problem


def test_w33_the_repair_request_says_where_and_what_is_wanted() -> None:
    found = check_answer('{"items": ["a"]}', SCHEMA)
    assert found is not None
    asked = repair_request(found)
    assert "$.items[0]: expected integer, got string" in asked and '"additionalProperties":false' in asked
    huge = {"type": "object", "description": "d" * 20_000, "required": ["a"]}
    found = check_answer("{}", huge)
    assert found is not None and len(repair_request(found)) < 1000


def test_typed_input_is_text_where_a_string_fits_else_json() -> None:
    assert input_problem("7", {"type": "string"}) == ""
    assert input_problem('{"items": [7]}', SCHEMA) == ""
    assert input_problem('{"items": ["x"]}', SCHEMA) == (
        "input does not match input_schema at $.items[0]: expected integer, got string"
    )
    assert input_problem("hello", SCHEMA).startswith("input does not match input_schema: it must be JSON (")
    assert input_problem("hello", SCHEMA).endswith(', like {"items":[1]}')
    assert input_problem("hello", {"type": "string", "maxLength": 3}) != ""
    assert "nested too deep" in input_problem("[" * 100_000, SCHEMA)
