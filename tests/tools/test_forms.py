"""Schema to fields and back to arguments (ui.md §7, cases 17 and 18)."""

from __future__ import annotations

import json
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis_jsonschema import from_schema
from pydantic import BaseModel, Field, SecretStr
from tests.tables import table

from golem_forge.tools.forms import derive_fields, form_arguments
from golem_forge.tools.validation import SchemaCheck


def one(schema: Any, *, required: bool = True, **root: Any) -> dict[str, Any]:
    whole = {"type": "object", "properties": {"my_field": schema}, "required": ["my_field"] if required else [], **root}
    fields = derive_fields(whole)
    assert len(fields) == 1
    return fields[0]


def facts(field: dict[str, Any]) -> dict[str, Any]:
    """Everything but what every field has."""
    return {key: value for key, value in field.items() if key not in ("name", "label", "required", "description")}


def test_17_the_fields_of_git_push() -> None:
    schema = {
        "type": "object",
        "properties": {
            "branch": {"type": "string", "description": "Target branch"},
            "remote": {"enum": ["origin", "upstream"], "default": "origin"},
            "force": {"type": "boolean", "default": False},
        },
        "required": ["branch"],
    }
    assert derive_fields(schema) == [
        {"name": "branch", "label": "Branch", "type": "text", "required": True, "description": "Target branch"},
        {
            "name": "remote",
            "label": "Remote",
            "type": "select",
            "required": False,
            "description": "",
            "default": "origin",
            "options": [{"value": "origin", "label": "origin"}, {"value": "upstream", "label": "upstream"}],
        },
        {"name": "force", "label": "Force", "type": "boolean", "required": False, "description": "", "default": False},
    ]


@table(
    ("schema", "expected"),
    [
        ({"type": "string"}, {"type": "text"}),
        ({"type": "string", "maxLength": 200}, {"type": "text"}),
        ({"type": "string", "maxLength": 201}, {"type": "text", "format": "multiline"}),
        ({"type": "string", "contentMediaType": "text/markdown"}, {"type": "text", "format": "multiline"}),
        ({"type": "string", "pattern": "^a"}, {"type": "text", "pattern": "^a"}),
        *(
            ({"type": "string", "format": f}, {"type": "text", "format": f})
            for f in ["date", "date-time", "time", "email", "uri"]
        ),
        ({"type": "string", "format": "ipv4"}, {"type": "text"}),
        ({"type": "string", "format": "password", "default": "hunter2"}, {"type": "secret"}),
        ({"type": "string", "writeOnly": True, "pattern": "x"}, {"type": "secret"}),
        ({"type": "number"}, {"type": "number"}),
        (
            {"type": "integer", "minimum": 1, "maximum": 9, "multipleOf": 2},
            {"type": "number", "min": 1, "max": 9, "step": 2},
        ),
        ({"type": "integer", "exclusiveMinimum": 1, "exclusiveMaximum": 9}, {"type": "number", "min": 2, "max": 8}),
        ({"type": "number", "exclusiveMinimum": 0.5}, {"type": "number", "min": 0.5}),
        ({"type": "boolean"}, {"type": "boolean"}),
        ({"enum": [1, "a"]}, {"type": "select", "options": [{"value": 1, "label": "1"}, {"value": "a", "label": "a"}]}),
        (
            {"oneOf": [{"const": "r", "title": "Red"}, {"const": "g"}]},
            {"type": "select", "options": [{"value": "r", "label": "Red"}, {"value": "g", "label": "g"}]},
        ),
        ({"const": "v1"}, {"type": "fixed", "default": "v1"}),
        (
            {"type": "array", "items": {"enum": ["a"]}, "minItems": 1, "maxItems": 2},
            {"type": "multiselect", "options": [{"value": "a", "label": "a"}], "min": 1, "max": 2},
        ),
        ({"type": "object"}, {"type": "json"}),
        ({"type": "object", "additionalProperties": {"type": "string"}}, {"type": "json"}),
        ({}, {"type": "json"}),
        (True, {"type": "json"}),
        (None, {"type": "json"}),
        ({"type": "array", "prefixItems": [{"type": "string"}]}, {"type": "json"}),
        ({"allOf": [{"type": "string"}, {"minLength": 1}]}, {"type": "json"}),
        ({"not": {"type": "string"}}, {"type": "json"}),
        ({"type": "string", "default": "x"}, {"type": "text", "default": "x"}),
        ({"type": "frobnicate"}, {"type": "json"}),
    ],
)
def test_18_each_row_of_the_table(schema: Any, expected: dict[str, Any]) -> None:
    assert facts(one(schema)) == expected


@pytest.mark.parametrize(
    "schema",
    [
        {"type": ["integer", "null"]},
        {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        {"oneOf": [{"type": "null"}, {"$ref": "#/$defs/n"}]},
    ],
)
@pytest.mark.parametrize("required", [True, False])
def test_18_nullable_is_the_other_type_and_may_be_left_empty(schema: dict[str, Any], required: bool) -> None:
    field = one(schema, required=required, **{"$defs": {"n": {"type": "integer"}}})
    assert field["type"] == "number"
    assert field["required"] is False
    assert form_arguments([field], {}) == {"my_field": None}
    assert form_arguments([field], {"my_field": ""}) == {"my_field": None}
    assert form_arguments([field], {"my_field": 3}) == {"my_field": 3}


def test_18_a_nullable_enum_is_a_select_without_null() -> None:
    field = one({"enum": ["a", None]})
    assert facts(field) == {"type": "select", "options": [{"value": "a", "label": "a"}], "default": None}


def test_18_objects_lists_and_references_nest() -> None:
    address = {"type": "object", "title": "Address", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    field = one(
        {"type": "array", "items": {"$ref": "#/$defs/address"}, "minItems": 1}, **{"$defs": {"address": address}}
    )
    assert facts(field)["type"] == "list"
    assert field["min"] == 1
    assert field["item"]["type"] == "group"
    assert [inner["name"] for inner in field["item"]["fields"]] == ["city"]
    assert field["item"]["fields"][0]["required"] is True


def test_18_other_alternatives_are_variants_with_their_own_fields() -> None:
    field = one(
        {
            "oneOf": [
                {"type": "string", "title": "By name"},
                {"type": "object", "properties": {"id": {"type": "integer"}}},
                {"maximum": 3},
            ]
        }
    )
    assert field["type"] == "variants"
    assert [variant["label"] for variant in field["variants"]] == ["By name", "Object", "Option 3"]
    assert [variant["type"] for variant in field["variants"]] == ["text", "group", "json"]
    assert [variant["type"] for variant in one({"type": ["string", "integer"]})["variants"]] == ["text", "number"]


NODE = {"type": "object", "properties": {"name": {"type": "string"}, "next": {"$ref": "#/$defs/node"}}}


def test_18_recursion_ends_in_a_json_editor_beyond_five_levels() -> None:
    field: dict[str, Any] = one({"$ref": "#/$defs/node"}, **{"$defs": {"node": NODE}})
    depth = 0
    while field["type"] == "group":
        depth += 1
        field = field["fields"][1]
    assert field["type"] == "json"
    assert depth == 5


@table(
    "schema",
    [
        {"$defs": {"n": {"type": "object", "properties": {f"p{i}": {"$ref": "#/$defs/n"} for i in range(20)}}}},
        {"$defs": {"n": {"$ref": "#/$defs/n"}}},
        {"$defs": {"n": {"anyOf": [{"$ref": "#/$defs/n"}, {"$ref": "#/$defs/n"}]}}},
        {"$defs": {"n": {"type": "array", "items": {"$ref": "#/$defs/n"}}}},
        {"$defs": {"n": 5}},
        {},
    ],
)
def test_a_hostile_schema_gives_a_form_of_bearable_size(schema: dict[str, Any]) -> None:
    fields = derive_fields({"type": "object", "properties": {"a": {"$ref": "#/$defs/n"}}, **schema})
    assert len(json.dumps(fields)) < 500_000


@table("schema", [{}, {"anyOf": [{}]}, {"type": "object"}])
def test_a_schema_that_names_no_fields_has_none(schema: Any) -> None:
    assert derive_fields(schema) == []


@table("schema", [{"type": "string"}, {"type": "array"}, None, 5, "x", int, len])
def test_what_is_no_object_schema_is_refused(schema: Any) -> None:
    with pytest.raises(TypeError, match="derive_fields"):
        derive_fields(schema)


@table(
    ("name", "title", "label"),
    [
        ("dry_run", None, "Dry run"),
        ("max-size", None, "Max size"),
        ("URL", None, "URL"),
        ("x", "The X", "The X"),
        ("_", None, "_"),
    ],
)
def test_labels(name: str, title: str | None, label: str) -> None:
    schema = {"type": "string"} if title is None else {"type": "string", "title": title}
    assert derive_fields({"type": "object", "properties": {name: schema}})[0]["label"] == label


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Address(BaseModel):
    city: str


class Order(BaseModel):
    billing: Address
    shipping: Address | None = None
    colour: Colour = Colour.RED
    method: Literal["air", "sea"]
    amount: Annotated[int, Field(ge=1, le=5, description="How many")] = 1
    password: SecretStr
    tags: list[str] = []


def test_a_pydantic_model_has_fields_too() -> None:
    fields = {field["name"]: field for field in derive_fields(Order)}
    assert list(fields) == ["billing", "shipping", "colour", "method", "amount", "password", "tags"]
    assert [field["type"] for field in fields.values()] == [
        "group",
        "group",
        "select",
        "select",
        "number",
        "secret",
        "list",
    ]
    assert fields["billing"]["label"] == "Billing"
    assert fields["shipping"]["default"] is None
    assert (fields["amount"]["min"], fields["amount"]["max"], fields["amount"]["default"]) == (1, 5, 1)
    assert fields["amount"]["description"] == "How many"
    assert [name for name, field in fields.items() if field["required"]] == ["billing", "method", "password"]


def test_a_recursive_model_has_fields() -> None:
    class Node(BaseModel):
        value: int
        children: list[Node] = []

    Node.model_rebuild(_types_namespace={"Node": Node})
    assert [field["name"] for field in derive_fields(Node)] == ["value", "children"]


# What a form submits


@table(
    ("schema", "value", "expected"),
    [
        ({"type": "string"}, "", {"my_field": ""}),
        ({"type": "integer"}, "", {}),
        ({"const": 5}, None, {"my_field": 5}),
        (
            {"type": "object", "properties": {"a": {"type": "string"}, "b": {"const": 1}}},
            {"a": ""},
            {"my_field": {"b": 1}},
        ),
        ({"type": "array", "items": {"type": ["string", "null"]}}, ["x", None, ""], {"my_field": ["x", None, None]}),
        ({"type": "boolean"}, False, {"my_field": False}),
        ({"type": "integer"}, 0, {"my_field": 0}),
        ({"type": "array", "items": {}}, [], {"my_field": []}),
    ],
)
def test_what_a_form_submits(schema: Any, value: Any, expected: dict[str, Any]) -> None:
    assert form_arguments([one(schema)], {"my_field": value}) == expected


def test_empty_optional_fields_are_left_out() -> None:
    fields = [one({"type": "string"}, required=False)]
    assert form_arguments(fields, {"my_field": ""}) == {}
    assert form_arguments(fields, {}) == {}
    assert form_arguments(fields, {"my_field": "x", "unknown": 1}) == {"my_field": "x"}


leaves = st.one_of(
    st.sampled_from(
        [
            {"type": "string"},
            {"type": "string", "maxLength": 300},
            {"type": "integer", "minimum": -5, "maximum": 5},
            {"type": "number"},
            {"type": "boolean"},
            {"enum": ["a", "b", 3]},
            {"enum": ["a", None]},
            {"const": "fixed"},
            {"type": ["integer", "null"]},
            {"anyOf": [{"type": "string"}, {"type": "null"}]},
            {"oneOf": [{"const": 1, "title": "One"}, {"const": 2}]},
            {"anyOf": [{"type": "string"}, {"type": "integer"}]},
            {"$ref": "#/$defs/leaf"},
            {"$ref": "#/$defs/tree"},
        ]
    )
)


def objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.dictionaries(st.sampled_from(["a", "b", "c_d"]), inner, min_size=1, max_size=3).flatmap(
        lambda properties: st.lists(st.sampled_from(sorted(properties)), unique=True).map(
            lambda required: {
                "type": "object",
                "properties": properties,
                "required": required,
                "additionalProperties": False,
            }
        )
    )


schemas = objects(
    st.recursive(
        leaves,
        lambda inner: objects(inner) | inner.map(lambda item: {"type": "array", "items": item, "maxItems": 3}),
        max_leaves=4,
    )
)
DEFINITIONS: dict[str, dict[str, Any]] = {
    "leaf": {"type": "string", "minLength": 1},
    "tree": {
        "type": "object",
        "properties": {"v": {"type": "integer"}, "sub": {"$ref": "#/$defs/tree"}},
        "required": ["v"],
        "additionalProperties": False,
    },
}


def filled_in(schema: dict[str, Any], depth: int = 0) -> st.SearchStrategy[Any]:
    """What a person could fill in: leaves come from hypothesis-jsonschema, whose object part the current hypothesis
    no longer carries, so objects, lists and references are put together here."""
    if "$ref" in schema:
        return filled_in(DEFINITIONS[schema["$ref"].removeprefix("#/$defs/")], depth + 1)
    if schema.get("type") == "object":
        names = schema["properties"] if depth < 6 else schema["required"]
        members = {name: filled_in(schema["properties"][name], depth + 1) for name in names}
        needed = {name: members.pop(name) for name in schema["required"]}
        return st.fixed_dictionaries(needed, optional=members)
    if schema.get("type") == "array":
        return st.lists(filled_in(schema["items"], depth + 1), max_size=3)
    return from_schema(schema)


@settings(suppress_health_check=list(HealthCheck))
@given(st.data())
def test_18_every_submission_of_a_derived_form_validates(data: st.DataObject) -> None:
    schema = {**data.draw(schemas), "$defs": DEFINITIONS}
    values = data.draw(filled_in(schema))
    assert SchemaCheck(schema).errors(values) == ()
    arguments = form_arguments(derive_fields(schema), values)
    assert SchemaCheck(schema).errors(arguments) == ()
