"""SchemaCheck: which schemas are usable, what an error says, and that no instance can harm (mcp.md §9)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.tables import table

from golem_forge.tools.inputs import SchemaInput
from golem_forge.tools.schema import field_path, json_path
from golem_forge.tools.validation import InputInvalid, SchemaCheck, ToolDefinitionError

DRAFT_7 = "http://json-schema.org/draft-07/schema#"


def levels(count: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(count - 1):
        schema = {"not": schema}
    return schema


def cyclic() -> dict[str, Any]:
    schema: dict[str, Any] = {}
    schema["not"] = schema
    return schema


def doubling(steps: int, refer: str = "#/$defs/a{}") -> dict[str, Any]:
    definitions: dict[str, Any] = {"a0": {"$anchor": "a0", "type": "string"}}
    for step in range(1, steps):
        reference = {"$ref": refer.format(step - 1)}
        definitions[f"a{step}"] = {"$anchor": f"a{step}", "anyOf": [reference, dict(reference)]}
    return {"$defs": definitions, "$ref": refer.format(steps - 1)}


@table(
    ("schema", "message"),
    [
        ({"type": 5}, r"not a valid schema at \$\.type"),
        ({"properties": {"a": {"minimum": "x"}}}, r"\$\.properties\.a\.minimum"),  # deep inside
        ({"$ref": "https://example.com/x"}, "only local"),
        ({"$ref": "file:///etc/passwd"}, "only local"),
        ({"properties": {"a": {"$ref": "other.json"}}}, "only local"),  # relative
        ({"$ref": "#/$defs/nope"}, "does not exist"),  # dangling
        ({"pattern": "("}, "pattern"),
        ({"description": "x" * 65536}, "larger than 64 KiB"),
        (levels(65), "more than 64 levels"),
        (cyclic(), "more than 64 levels"),
        ({"const": b"x"}, "not JSON"),
        ("string", "must be an object"),  # no schema at all
        ({"$schema": "http://json-schema.org/draft-03/schema#"}, "unknown draft"),  # draft 3
        ({"$schema": "https://example.com/mine"}, "unknown draft"),  # a dialect of its own
        (doubling(60), "branches too often"),  # billions of ways
        (doubling(60, "#a{}"), "branches too often"),  # billions of ways by anchor
    ],
)
def test_a_schema_that_cannot_be_used_is_refused(schema: Any, message: str) -> None:
    with pytest.raises(ToolDefinitionError, match=message):
        SchemaCheck(schema)


@table(
    ("schema", "fits", "does_not"),
    [
        ({}, 5, None),
        (True, 5, None),
        (False, None, 5),
        (levels(64), None, 5),
        ({"description": "x" * 65000, "type": "string"}, "a", 5),
        ({"$schema": "https://json-schema.org/draft/2020-12/schema", "prefixItems": [{"type": "string"}]}, ["a"], [1]),
        ({"$schema": "https://json-schema.org/draft/2019-09/schema", "items": [{"type": "string"}]}, ["a"], [1]),
        ({"$schema": "http://json-schema.org/draft-06/schema#", "exclusiveMinimum": 1}, 2, 1),
        ({"$schema": "http://json-schema.org/draft-04/schema", "minimum": 1, "exclusiveMinimum": True}, 2, 1),
        ({"$ref": "https://json-schema.org/draft/2020-12/schema"}, {"type": "object"}, {"type": 5}),
        ({"$id": "https://example.com/mine", "$defs": {"a": {"type": "null"}}, "$ref": "#/$defs/a"}, None, 5),
        (
            {"$defs": {f"a{n}": {"$ref": f"#/$defs/a{n - 1}"} if n else {"minimum": 1} for n in range(999)}}
            | {"$ref": "#/$defs/a998"},
            1,
            0,
        ),
        (doubling(10), "text", 5),
    ],
)
def test_usable_schemas(schema: Any, fits: Any, does_not: Any) -> None:
    check = SchemaCheck(schema)
    if schema is not False and schema != levels(64):
        assert check.errors(fits) == ()
    if schema not in ({}, True):
        assert check.errors(does_not) != ()


@table(
    ("schema", "value", "expected"),
    [
        ({"type": "string"}, 5, [("", "expected string, got integer")]),
        ({"type": ["string", "null"]}, 5, [("", "expected string or null, got integer")]),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "x", [("", "expected integer or null, got string")]),
        (
            {"anyOf": [{"type": "string"}, {"type": "object", "properties": {"k": {"type": "integer"}}}]},
            {"k": "v"},
            [("k", "expected integer, got string")],
        ),
        ({"required": ["a", "b"]}, {}, [("a", "field required"), ("b", "field required")]),
        ({"properties": {"a": {"required": ["b"]}}}, {"a": {}}, [("a.b", "field required")]),
        (
            {"properties": {"items": {"items": {"properties": {"name": {"type": "string"}}}}}},
            {"items": [{"name": "x"}, {"name": 3}]},
            [("items[1].name", "expected string, got integer")],
        ),
        (
            {"properties": {"branch": {}}, "additionalProperties": False},
            {"brnach": 1},
            [("brnach", "unknown property; did you mean 'branch'?")],
        ),
        ({"properties": {"a": {}}, "additionalProperties": False}, {"zzzz": 1}, [("zzzz", "unknown property")]),
        ({"additionalProperties": False}, {"a": 1}, [("", "must have no properties")]),
        ({"enum": ["a", "b"]}, "c", [("", "must be one of a, b")]),
        ({"const": {"a": 1}}, "c", [("", 'must be {"a":1}')]),
        ({"minimum": 3}, 1, [("", "must be at least 3")]),
        ({"exclusiveMaximum": 3}, 3, [("", "must be less than 3")]),
        ({"maxLength": 3}, "x" * 100_000, [("", "must have at most 3 characters")]),
        ({"pattern": "^a"}, "b" * 100_000, [("", "must match the pattern ^a")]),
        (
            {"properties": {"a": {"pattern": "^(a|a)*(?!x)$"}}},
            {"a": "a" * 40 + "b"},
            [("a", "takes too long to check against its pattern")],
        ),
        ({"multipleOf": 2}, 3, [("", "must be a multiple of 2")]),
        ({"uniqueItems": True}, [1, 1], [("", "must not contain the same item twice")]),
        ({"dependentRequired": {"a": ["b"]}}, {"a": 1}, [("b", "field required")]),
        ({"prefixItems": [{}], "items": False}, [1, 2], [("[1]", "is not allowed here")]),
        ({"format": "email"}, "not an address", []),
        ({"unevaluatedProperties": False}, {"z": 1}, [("z", "unknown property")]),
        ({"$schema": DRAFT_7, "items": [{"type": "string"}]}, [1, 2], [("[0]", "expected string, got integer")]),
    ],
)
def test_errors_name_the_place_and_the_problem(schema: Any, value: Any, expected: list[tuple[str, str]]) -> None:
    assert list(SchemaCheck(schema).errors(value)) == expected


def test_30_keywords_of_2020_12() -> None:
    check = SchemaCheck(
        {
            "$defs": {"id": {"type": "integer"}},
            "type": "object",
            "properties": {"pair": {"prefixItems": [{"$ref": "#/$defs/id"}, {"type": "string"}], "items": False}},
            "dependentRequired": {"pair": ["note"]},
            "unevaluatedProperties": False,
        }
    )
    assert check.errors({}) == ()
    assert check.errors({"pair": ["x", "y"]})
    assert check.errors({"pair": [1, "y"]}) == (("note", "field required"),)
    assert check.errors({"pair": [1, "y", 2], "note": 1})


@table("limit", [1, 3, 5])
def test_as_many_errors_as_asked_for(limit: int) -> None:
    check = SchemaCheck({"items": {"type": "integer"}})
    assert len(check.errors(["x"] * 50, limit=limit)) == limit


def deep(count: int, leaf: Any = "s") -> Any:
    for _ in range(count):
        leaf = [leaf]
    return leaf


def wide() -> Any:
    value: Any = ["x"]
    for _ in range(60):
        value = [value, value]
    return value


def loop() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


TREE = {"$defs": {"n": {"type": "array", "items": {"$ref": "#/$defs/n"}}}, "$ref": "#/$defs/n"}
TWICE = {
    "$defs": {
        "n": {
            "anyOf": [
                {"type": "array", "items": {"$ref": "#/$defs/n"}},
                {"items": {"$ref": "#/$defs/n"}, "minItems": 1},
            ]
        }
    },
    "$ref": "#/$defs/n",
    "not": {"const": 5},
}


LARGE: list[Callable[[], Any]] = [wide, lambda: ["x"] * 100_000, lambda: ["x" * 1_000_000] * 20]
"""Asked of the schemas that look into every item."""
ODD_VALUES: list[Callable[[], Any]] = [
    lambda: deep(50),
    lambda: deep(127),
    lambda: deep(100_000),
    loop,
    *LARGE,
    lambda: b"bytes",
    lambda: {1: 2},
    lambda: [{1}],
    lambda: [object()],
    lambda: ["\ud800"],
    lambda: 10**400,
    lambda: float("nan"),
]


@table("make", ODD_VALUES)
def test_no_instance_raises_or_hangs(make: Callable[[], Any]) -> None:
    value = make()
    for schema in (TREE, TWICE) if make in LARGE else ({"type": "object"}, {"items": {"type": "integer"}}, TREE, TWICE):
        problems = SchemaCheck(schema).errors(value)
        assert isinstance(problems, tuple)
        assert all(len(path) <= 5000 and len(text) <= 300 for path, text in problems)


def test_the_first_error_of_a_large_value_is_still_named() -> None:
    check = SchemaCheck({"type": "object", "properties": {"items": {"items": {"type": "integer"}}}})
    assert check.errors({"items": [1] * 100_000 + ["x"]}) == (("items[100000]", "expected integer, got string"),)


@table(
    ("parts", "field", "path"),
    [
        ((), "", "$"),
        (("items", 0, "name"), "items[0].name", "$.items[0].name"),
        ((0,), "[0]", "$[0]"),
        (("a b",), '["a b"]', '$["a b"]'),
        (("dry-run",), "dry-run", '$["dry-run"]'),
        (("a", "x.y", 'q"'), 'a["x.y"]["q\\""]', '$.a["x.y"]["q\\""]'),
        (("",), '[""]', '$[""]'),
    ],
)
def test_paths(parts: tuple[str | int, ...], field: str, path: str) -> None:
    assert field_path(parts) == field
    assert json_path(parts) == path


def test_a_path_is_bounded() -> None:
    assert len(json_path(["k" * 500] * 1000)) < 5000


def test_an_argument_that_is_required_and_has_a_default_may_be_left_out():
    properties = {"text": {"type": "string"}, "times": {"type": "integer", "default": 2}}
    spec = SchemaInput({"type": "object", "properties": properties, "required": ["text", "times"]})
    assert spec.check({"text": "hi"}).values == {"text": "hi", "times": 2}
    assert spec.check({"text": "hi", "times": 3}).plain == {"text": "hi", "times": 3}
    with pytest.raises(InputInvalid, match="text"):
        spec.check({})
