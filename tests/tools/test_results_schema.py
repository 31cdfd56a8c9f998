"""What a tool returns is held against what it promised (mcp.md case 16)."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel
from tests.tables import table

from golem_forge.core.decisions import Status
from golem_forge.core.errors import ToolFailed
from golem_forge.core.results import ToolResult
from golem_forge.tools.factory import tool
from golem_forge.tools.results import output_from_annotation, output_from_schema
from golem_forge.tools.tool import Tool
from golem_forge.tools.validation import ToolDefinitionError


class Item(BaseModel):
    name: str
    size: int = 0


class Listing(BaseModel):
    items: list[Item]


class Numbers(BaseModel):
    items: list[int]


@dataclass
class Pair:
    left: int


def no_annotation():  # type: ignore[no-untyped-def]
    return 1


def anything() -> Any: ...
def nothing() -> None: ...
def a_result() -> ToolResult: ...  # type: ignore[empty-body]
def number() -> int: ...  # type: ignore[empty-body]
def listing() -> Listing: ...  # type: ignore[empty-body]
def either() -> int | Listing: ...  # type: ignore[empty-body]
def pair() -> Pair: ...  # type: ignore[empty-body]
def pairs() -> dict[str, list[int]]: ...  # type: ignore[empty-body]
def connection() -> sqlite3.Connection: ...  # type: ignore[empty-body]
def unknown() -> Nowhere: ...  # type: ignore[name-defined]  # noqa: F821
def later() -> Awaitable[int]: ...  # type: ignore[empty-body]


@table("function", [no_annotation, anything, nothing, a_result])
def test_some_annotations_promise_nothing(function: Any) -> None:
    assert output_from_annotation(function) is None


@table(
    ("function", "value", "expected"),
    [
        (number, 5, 5),
        (number, "5", 5),
        (number, 5.0, 5),
        (listing, {"items": [{"name": "a", "size": "3"}]}, Listing(items=[Item(name="a", size=3)])),
        (pair, Pair(1), Pair(1)),
        (pair, {"left": "2"}, Pair(2)),
        (pairs, {"a": ["1", 2]}, {"a": [1, 2]}),
        (later, "7", 7),
        (connection, "not checked", "not checked"),
        (unknown, "not checked", "not checked"),
    ],
)
def test_a_value_that_fits_is_used_coerced(function: Any, value: Any, expected: Any) -> None:
    spec = output_from_annotation(function)
    assert spec is not None
    assert spec.check("x", value) == expected


@table(
    ("function", "value", "place"),
    [
        (number, "abc", "$"),
        (listing, {"items": [{"name": "a"}, {"name": 3}]}, "$.items[1].name"),
        (listing, {"items": [{}]}, "$.items[0].name"),
        (listing, {}, "$.items"),
        (pairs, {"a b": ["x"]}, '$["a b"][0]'),
        (either, {"items": 3}, "$"),
        (pair, {"left": "x"}, "$.left"),
    ],
)
def test_16_a_value_that_does_not_fit_fails_naming_the_place(function: Any, value: Any, place: str) -> None:
    spec = output_from_annotation(function)
    assert spec is not None
    with pytest.raises(ToolFailed) as failed:
        spec.check("lister", value)
    assert str(failed.value).startswith(f"tool 'lister' returned an invalid value at {place}: ")
    assert failed.value.status is Status.EXECUTION_FAILED


def test_a_tool_result_passes_an_annotation_unchecked() -> None:
    spec = output_from_annotation(number)
    own = ToolResult(value={"kind": "text", "content": "x"})
    assert spec is not None
    assert spec.check("x", own) is own


def test_a_shadowed_name_is_not_taken_for_the_builtin() -> None:
    scope: dict[str, Any] = {}
    exec("from __future__ import annotations\nint = str\ndef f() -> int: ...\n", scope)
    spec = output_from_annotation(scope["f"])
    assert spec is not None
    assert spec.check("f", "text") == "text"
    with pytest.raises(ToolFailed):
        spec.check("f", 5)


SCHEMA = {"type": "object", "properties": {"items": {"items": {"type": "integer"}}}, "required": ["items"]}


@table(
    ("value", "place"),
    [
        ({"items": [1, "x"]}, "$.items[1]: expected integer, got string"),
        ({}, "$.items: field required"),
        ([1], "$: expected object, got array"),
        (ToolResult(value={"kind": "json", "data": {"items": ["x"]}}), "$.items[0]: expected integer, got string"),
        (
            ToolResult(value={"kind": "text", "content": ""}, structured={"items": [None]}),
            "$.items[0]: expected integer",
        ),
        ({"items": [math.nan]}, "$: not a JSON value"),
    ],
)
def test_16_a_json_schema_names_the_path(value: Any, place: str) -> None:
    with pytest.raises(ToolFailed) as failed:
        output_from_schema(SCHEMA).check("x", value)
    assert f"tool 'x' returned an invalid value at {place}" in str(failed.value)


@table(
    "value",
    [
        {"items": [1]},
        Numbers(items=[1, 2]),
        ToolResult(value={"kind": "json", "data": {"items": []}}),
        ToolResult(value={"kind": "text", "content": "broken"}, is_error=True),
    ],
)
def test_a_json_schema_lets_good_values_through_unchanged(value: Any) -> None:
    assert output_from_schema(SCHEMA).check("x", value) is value


def test_schemas() -> None:
    spec = output_from_annotation(listing)
    assert spec is not None
    schema = spec.schema()
    assert schema is not None
    assert schema["properties"]["items"]["items"] == {"$ref": "#/$defs/Item"}
    assert output_from_schema(SCHEMA).schema() == SCHEMA
    assert (output_from_schema(Item).schema() or {})["required"] == ["name"]
    unchecked = output_from_annotation(connection)
    assert unchecked is not None and unchecked.schema() is None
    with pytest.raises(ToolDefinitionError):
        output_from_schema({"type": 5})


async def test_execute_checks_and_converts() -> None:
    @tool
    def sizes(bad: bool = False) -> Listing:
        """Lists."""
        return {"items": [{"name": 1}]} if bad else {"items": [{"name": "a"}]}  # type: ignore[return-value]

    result = await sizes.execute({"bad": False})
    assert result.value == {"kind": "json", "data": {"items": [{"name": "a", "size": 0}]}}
    with pytest.raises(
        ToolFailed, match=r"tool 'sizes' returned an invalid value at \$\.items\[0\]\.name: input should"
    ):
        await sizes.execute({"bad": True})

    declared = Tool(
        "d", "D.", input_schema={"type": "object"}, output_schema=SCHEMA, execute=lambda args: {"items": [1]}
    )
    assert (await declared.execute({})).structured == {"items": [1]}
