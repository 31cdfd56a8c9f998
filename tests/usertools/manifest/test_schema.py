"""What a model sees of the parameters, and what every call is held against."""

from __future__ import annotations

import json
from typing import Any

from tests.tables import table

from golem_forge.tools.tool import Tool
from golem_forge.tools.validation import Err, Ok
from golem_forge.usertools.manifest import input_schema
from golem_forge.usertools.manifest.tool_yaml import read_manifest

HEAD = "name: x\ndescription: d\nversion: 1.0.0\nentrypoint: x.py\narguments: stdin-json\n"
PARAMETERS = """\
parameters:
  - {name: must, type: string, description: Needed, required: true}
  - {name: count, type: integer, description: How many, min: 1, max: 20, default: 5}
  - {name: ratio, type: number, description: A share, max: 1.5}
  - {name: style, type: string, description: How, enum: [plain, "007"]}
  - {name: code, type: string, description: A code, pattern: "[0-9]x", min: 2, max: 4}
  - {name: numbers, type: array, items: integer, description: Some, min: 1, max: 3}
  - {name: words, type: array, description: More}
  - {name: loud, type: boolean, description: Shout, default: false}
  - {name: deep, type: object, description: Anything}
"""


def schema(text: str = PARAMETERS) -> dict[str, Any]:
    return input_schema(read_manifest((HEAD + text).encode(), folder="x"))


def tool() -> Tool:
    return Tool("x", "d", input_schema=schema(), execute=lambda args: "")


def test_the_schema_says_what_the_manifest_says_in_declared_order() -> None:
    assert json.dumps(schema()) == json.dumps(
        {
            "type": "object",
            "properties": {
                "must": {"type": "string", "description": "Needed"},
                "count": {"type": "integer", "description": "How many", "minimum": 1, "maximum": 20, "default": 5},
                "ratio": {"type": "number", "description": "A share", "maximum": 1.5},
                "style": {"type": "string", "description": "How", "enum": ["plain", "007"]},
                "code": {
                    "type": "string",
                    "description": "A code",
                    "minLength": 2,
                    "maxLength": 4,
                    "pattern": "[0-9]x",
                },
                "numbers": {
                    "type": "array",
                    "description": "Some",
                    "items": {"type": "integer"},
                    "minItems": 1,
                    "maxItems": 3,
                },
                "words": {"type": "array", "description": "More", "items": {"type": "string"}},
                "loud": {"type": "boolean", "description": "Shout", "default": False},
                "deep": {"type": "object", "description": "Anything"},
            },
            "required": ["must"],
            "additionalProperties": False,
        }
    )


def test_no_parameters_take_no_arguments() -> None:
    assert schema("") == {"type": "object", "properties": {}, "additionalProperties": False}


@table(
    ("args", "said"),
    [
        ({}, "x: must: field required"),
        ({"must": "a", "other": 1}, "x: unknown argument 'other'"),
        ({"must": "a", "count": "abc"}, "x: count: expected integer, got string"),
        ({"must": "a", "count": "5"}, "x: count: expected integer, got string"),
        ({"must": "a", "count": 21}, "x: count: must be at most 20"),
        ({"must": "a", "count": 0}, "x: count: must be at least 1"),
        ({"must": "a", "count": True}, "x: count: expected integer, got boolean"),
        ({"must": "a", "style": "other"}, "x: style: must be one of plain, 007"),
        ({"must": "a", "code": "abc"}, "x: code: must match the pattern [0-9]x"),
        ({"must": "a", "code": "a1xyz"}, "x: code: must have at most 4 characters"),
        ({"must": "a", "numbers": [1, "x"]}, "x: numbers[1]: expected integer, got string"),
        ({"must": "a", "numbers": []}, "x: numbers: must have at least 1 item"),
        ({"must": "a", "ratio": float("nan")}, "x: ratio: "),
        ({"must": "a", "ratio": float("inf")}, "x: ratio: "),
        ({"must": "a", "ratio": float("-inf")}, "x: ratio: "),
        ({"must": 7}, "x: must: expected string, got integer"),
    ],
)
def test_a_refusal_names_the_parameter_and_the_index(args: dict[str, Any], said: str) -> None:
    answer = tool().validate_input(args)
    assert isinstance(answer, Err)
    assert answer.message.startswith(said)


@table("text", ["007", "1.10", "1e5", "true", "NaN", " padded ", "", "a b;$(id)\n\"'"])
def test_strings_stay_exactly_as_they_are(text: str) -> None:
    answer = tool().validate_input({"must": text})
    assert isinstance(answer, Ok) and answer.data["must"] == text


def test_a_pattern_is_not_anchored() -> None:
    assert isinstance(tool().validate_input({"must": "a", "code": "a1x"}), Ok)
