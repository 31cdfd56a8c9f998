"""`model_schema`: what a model is sent of a schema. No bounds, no references; valid values stay valid."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table
from tests.wire.grammar import refused_parts

from golem_forge import open_session
from golem_forge.agent.model.text_calls import example_arguments
from golem_forge.agent.tool_inventory import build_catalog
from golem_forge.core.decisions import Status
from golem_forge.tools.schema import bare_schema, model_schema
from golem_forge.tools.validation import SchemaCheck

NATIVE = {tool.name: tool for tool in build_catalog((), None)}
NEVER_SENT = ("maxLength", "maxItems", "maxProperties", "pattern", "$ref", "$defs", "definitions")


def keywords(schema: Any) -> Iterator[str]:
    """Of a schema and its parts; names of properties are none."""
    for key, value in schema.items() if isinstance(schema, dict) else ():
        yield key
        inner = (
            list(value.values()) if key in ("properties", "$defs") else value if isinstance(value, list) else [value]
        )
        for part in inner:
            yield from keywords(part)


@table("name", sorted(NATIVE))
def test_a_native_tool_is_sent_without_sizes_and_patterns(name: str) -> None:
    schema = NATIVE[name].input_schema
    sent = model_schema(schema)
    assert not set(keywords(sent)) & set(NEVER_SENT)
    assert not list(refused_parts(sent))
    assert (
        sent["required" if "required" in schema else "type"] == schema["required" if "required" in schema else "type"]
    )
    assert list(sent.get("properties", {})) == list(schema.get("properties", {}))


BOUNDED = [
    (name, field, part["maxLength"])
    for name, tool in sorted(NATIVE.items())
    for field, part in tool.input_schema.get("properties", {}).items()
    if "maxLength" in part
]


async def test_what_comes_back_too_long_is_refused_by_the_name_of_the_field(tmp_path: Path) -> None:
    assert ("update_plan", "explanation", 2000) in BOUNDED
    async with open_session(tmp_path, approval="approve_all", journal=False) as session:
        for name, field, most in BOUNDED:
            example = example_arguments(NATIVE[name].input_schema)
            assert example is not None
            outcome = await session.call(name, {**example, field: "x" * (most + 1)})
            assert outcome.status is Status.INPUT_INVALID, (name, field)
            assert field in outcome.error and str(most) in outcome.error, outcome.error


@table(
    ("part", "sent"),
    [
        ({"type": "string", "maxLength": 9}, {"type": "string", "description": "At most 9 characters."}),
        ({"minLength": 1, "description": "Who"}, {"minLength": 1, "description": "Who"}),
        (
            {"type": "array", "minItems": 2, "maxItems": 1, "description": "Names"},
            {"type": "array", "description": "Names. At least 2 items, at most 1 item."},
        ),
        ({"pattern": "^a{1,3}$", "description": "Id."}, {"description": "Id. Matches `^a{1,3}$`."}),
        ({"type": "integer", "minimum": 1, "maximum": 600}, {"type": "integer", "minimum": 1, "maximum": 600}),
        (
            {"type": "integer", "minimum": 0, "maximum": 2**64 - 1},
            {"type": "integer", "minimum": 0},
        ),
        ({"type": "string", "maxLength": 2000, "description": "Why"}, {"type": "string", "description": "Why"}),
        ({"pattern": "a" * 81}, {}),
        ({"not": {"maxLength": 3}}, {}),
        ({"title": "Max Length", "type": "string"}, {"type": "string"}),
        ({"title": "Longest", "type": "string"}, {"title": "Longest", "type": "string"}),
        ({"not": {"const": ""}}, {"not": {"const": ""}}),
        ({"if": {"minLength": 5}, "then": {"const": 1}, "title": "t"}, {"title": "t"}),
        ({"enum": [{"maxLength": 2000}]}, {"enum": [{"maxLength": 2000}]}),
        ({"default": {"pattern": "x"}}, {"default": {"pattern": "x"}}),
        ({"anyOf": [{"maxItems": 3}, {"const": 1}]}, {"anyOf": [{"description": "At most 3 items."}, {"const": 1}]}),
    ],
)
def test_a_short_bound_becomes_a_sentence_and_a_large_one_goes(part: dict[str, Any], sent: dict[str, Any]) -> None:
    assert model_schema({"properties": {"maxLength": part}}) == {"properties": {"maxLength": sent}}


def test_a_schema_without_bounds_is_sent_as_it_is() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "minLength": 1}}}
    assert model_schema(schema) is schema


TREE = {"type": "object", "properties": {"name": {"type": "string"}, "below": {"items": {"$ref": "#/$defs/tree"}}}}


@table(
    ("schema", "sent"),
    [
        (
            {"properties": {"a": {"$ref": "#/$defs/x", "description": "A"}}, "$defs": {"x": {"type": "integer"}}},
            {"properties": {"a": {"type": "integer", "description": "A"}}},
        ),
        (
            {"properties": {"a": {"$ref": "#/$defs/x", "maximum": 3}}, "$defs": {"x": {"type": "integer"}}},
            {"properties": {"a": {"allOf": [{"type": "integer"}, {"maximum": 3}]}}},
        ),
        (
            {"properties": {"a": {"not": {"$ref": "#/$defs/x"}}}, "$defs": {"x": {"type": "integer"}}},
            {"properties": {"a": {}}},
        ),
        (
            {"properties": {"root": {"$ref": "#/$defs/tree"}}, "$defs": {"tree": TREE}},
            {
                "properties": {
                    "root": {
                        "type": "object",
                        "properties": {"name": {"type": "string"}, "below": {"items": {"type": "object"}}},
                    }
                }
            },
        ),
    ],
)
def test_references_are_written_out(schema: dict[str, Any], sent: dict[str, Any]) -> None:
    assert model_schema(schema) == sent


def test_a_schema_that_would_grow_without_end_keeps_its_references() -> None:
    """Each definition uses the next one twice: written out, a few lines would be thousands."""
    defs = {
        f"d{n}": {"properties": {"a": {"$ref": f"#/$defs/d{n + 1}"}, "b": {"$ref": f"#/$defs/d{n + 1}"}}}
        for n in range(20)
    }
    schema = {"$ref": "#/$defs/d0", "$defs": {**defs, "d20": {"type": "string"}}}
    assert model_schema(schema) == schema


@table("name", sorted(NATIVE))
def test_a_bare_schema_has_types_names_and_choices_only(name: str) -> None:
    schema = NATIVE[name].input_schema
    bare = bare_schema(schema)
    allowed = {"type", "properties", "required", "items", "enum", "description"}
    assert set(keywords(bare)) <= allowed and bare["type"] == "object"
    assert list(bare["properties"]) == list(schema.get("properties", {}))
    assert bare.get("required") == schema.get("required")
    assert bare_schema(bare) == bare


def test_a_bare_schema_of_what_servers_write() -> None:
    schema = {
        "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
        "properties": {
            "a": {"anyOf": [{"type": "integer", "minimum": 3}, {"type": "null"}], "description": "A"},
            "b": {"type": ["string", "null"], "format": "date"},
            "c": {"oneOf": [{"type": "string"}, {"type": "integer"}]},
            "d": {"type": "array", "items": {"$ref": "#/$defs/x"}, "uniqueItems": True},
        },
        "$defs": {"x": {"enum": ["p", "q"]}},
    }
    assert bare_schema(schema) == {
        "type": "object",
        "properties": {
            "a": {"type": "integer", "description": "A"},
            "b": {"type": "string"},
            "c": {},
            "d": {"type": "array", "items": {"type": "string", "enum": ["p", "q"]}},
        },
    }


_sizes = st.integers(0, 3)
_leaf = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["string", "array", "object", "integer"]),
        **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), _sizes),
        "pattern": st.sampled_from(["^a*$", "b"]),
        "maximum": st.sampled_from([1, 10**16]),
        "description": st.just("Something"),
        "$ref": st.sampled_from(["#/$defs/one", "#/$defs/loop"]),
    },
)
_schemas = st.recursive(
    _leaf,
    lambda part: st.fixed_dictionaries(
        {},
        optional={
            "properties": st.dictionaries(st.sampled_from("ab"), part, max_size=2),
            **dict.fromkeys(("items", "not", "if", "then", "else", "additionalProperties", "contains"), part),
            **dict.fromkeys(("anyOf", "allOf", "prefixItems"), st.lists(part, min_size=1, max_size=2)),
            "minContains": _sizes,
            "maxContains": _sizes,
        },
    ),
    max_leaves=6,
)
_values = st.recursive(
    st.none() | st.integers(0, 5) | st.sampled_from(["", "a", "b", "aaaa"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)


_one = {"type": "integer", "maximum": 3}
_loop = {"additionalProperties": {"$ref": "#/$defs/loop"}, "items": {"$ref": "#/$defs/one"}}


@given(_schemas, _values)
def test_every_value_that_fits_the_schema_fits_what_is_sent(schema: dict[str, Any], value: Any) -> None:
    schema = {**schema, "$defs": {"one": _one, "loop": _loop}}
    before = json.dumps(schema)
    sent = model_schema(schema)
    if not SchemaCheck(schema).errors(value):
        assert not SchemaCheck(sent).errors(value), (schema, sent)
    assert json.dumps(schema) == before
