"""mcp.md §9: entries of a list, each judged alone. Cases 25 and 29, and what an enemy may send instead of a tool."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from golem_forge.core.json import digest
from golem_forge.mcp.client import tool_list as judging
from golem_forge.mcp.client.model import HeldTool, HoldReason
from golem_forge.mcp.client.tool_list import check_entries

OBJECT = {"type": "object"}
TAG, BIDI, ESCAPE, C1 = "\U000e0041", "\u202e", "\x1b", "\x9b"


def entry(name: str = "t", **more: Any) -> dict[str, Any]:
    return {"name": name, "description": "Does it.", "inputSchema": OBJECT, **more}


def held(one: Any) -> HeldTool:
    listing = check_entries("s", [entry("good"), one])
    assert [tool.name for tool in listing.tools] == ["good"]
    assert len(listing.held) == 1
    return listing.held[0]


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range((levels - 1) // 2):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def test_a_tool_as_it_came() -> None:
    output = {"type": "array", "items": {"type": "integer"}}
    hints = {"readOnlyHint": True, "title": "Adds"}
    listing = check_entries("s", [entry(title="Add", outputSchema=output, annotations=hints, icons=[1], _meta={})])
    (tool,) = listing.tools
    assert (tool.server, tool.name, tool.title, tool.description) == ("s", "t", "Add", "Does it.")
    assert (tool.input_schema, tool.output_schema, tool.annotations) == (OBJECT, output, hints)
    assert listing.held == ()


@table("missing", [{}, {"description": None}, {"description": ""}, {"description": " \n"}])
def test_a_missing_description_is_made_up(missing: dict[str, Any]) -> None:
    (tool,) = check_entries("docs", [{"name": "find", "inputSchema": OBJECT, **missing}]).tools
    assert tool.description == "Tool from docs: find"


@table(
    ("schema", "told"),
    [
        (None, "it has no inputSchema"),
        (True, "not a boolean"),
        ([], "not a list"),
        ({}, "type object"),
        ({"type": "string"}, "type object"),
        ({"type": "object", "properties": []}, "not a valid schema"),
        ({"type": "object", "properties": {"a": {"$ref": "https://evil.test/a.json"}}}, "remote"),
        ({"type": "object", "properties": {"a": {"$ref": "file:///etc/passwd"}}}, "remote"),
        ({"type": "object", "$id": "http://evil.test/x", "properties": {"a": {"$ref": "y.json"}}}, "remote"),
        ({"type": "object", "properties": {"a": {"$ref": "#/$defs/none"}}}, "not a valid schema"),
        ({"type": "object", "$schema": "https://evil.test/draft"}, "unknown draft"),
        ({"type": "object", "properties": {"a": {"pattern": "(["}}}, "not a valid schema"),
        ({"type": "object", "patternProperties": {"(": {}}}, "not a valid schema"),
        ({"type": "object", "description": "x" * 65536}, "64 KiB"),
        ({"type": "object", "enum": list(range(70_000))}, "levels or far too many"),
        (nested(67), "64 levels"),
        ({"type": "object", "maximum": float("inf")}, "not JSON"),
        ({"type": "object", "description": "\ud800"}, "not JSON"),
    ],
)
def test_schemas_that_cannot_be_checked_against(schema: Any, told: str) -> None:
    one = held(entry(inputSchema=schema))
    assert one.reason is HoldReason.SCHEMA_INVALID
    assert told in one.message


@table(
    "schema",
    [
        {"type": "object", "$schema": "http://json-schema.org/draft-07/schema#", "definitions": {}, "properties": {}},
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"prefixItems": [True]}}},
        {"$ref": "#/$defs/root", "$defs": {"root": {"type": "object"}}},
        nested(63),
    ],
)
def test_schemas_that_can(schema: dict[str, Any]) -> None:
    assert check_entries("s", [entry(inputSchema=schema)]).held == ()


def test_a_declared_draft_is_the_one_that_counts() -> None:
    """`items` as a list is draft-07; in 2020-12 it is `prefixItems`."""
    schema = {"type": "object", "properties": {"a": {"items": [{"type": "string"}]}}}
    assert held(entry(inputSchema=schema)).reason is HoldReason.SCHEMA_INVALID
    declared = {"$schema": "http://json-schema.org/draft-07/schema#", **schema}
    assert check_entries("s", [entry(inputSchema=declared)]).held == ()


@table("schema", [True, {"type": 5}, {"$ref": "http://evil.test/"}, "x"])
def test_an_output_schema_counts_as_much(schema: Any) -> None:
    one = held(entry(outputSchema=schema))
    assert one.reason is HoldReason.SCHEMA_INVALID
    assert "outputSchema" in one.message


def test_a_schema_of_a_hundred_thousand_levels_ends_nothing() -> None:
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"a": deep}
    try:
        assert "64 levels" in held(entry(inputSchema=deep)).message
        assert held(entry(annotations=deep)).reason is HoldReason.ENTRY_INVALID
        assert held({"name": deep}).reason is HoldReason.ENTRY_INVALID
    finally:
        while deep:  # taken apart from above: freeing it at once would recurse
            deep = deep.pop("a")


def test_a_schema_that_branches_without_end_is_refused() -> None:
    defs = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}, {"$ref": f"#/$defs/d{n + 1}"}]} for n in range(40)}
    schema = {"type": "object", "anyOf": [{"$ref": "#/$defs/d0"}], "$defs": {**defs, "d40": {"type": "object"}}}
    assert "branches" in held(entry(inputSchema=schema)).message


@table(
    ("one", "name", "told"),
    [
        ("text", "#2", "not text"),
        (None, "#2", "not null"),
        ([], "#2", "not a list"),
        ({}, "#2", "no name"),
        ({"name": ""}, "#2", "no name"),
        ({"name": 7, "inputSchema": OBJECT}, "#2", "no name"),
        (entry("n" * 257), f"{'n' * 100}…", "256 bytes"),
        (entry("é" * 129), f"{'é' * 100}…", "256 bytes"),
        (entry("good"), "good", "duplicate name"),
        (entry(title=[]), "t", "title must be text"),
        (entry(description=7), "t", "description must be text"),
        (entry(description="x" * 65537), "t", "64 KiB"),
        (entry(description="\ud800"), "t", "not valid Unicode"),
        (entry("\ud800"), "\\ud800", "not valid Unicode"),
        (entry(annotations=[]), "t", "annotations must be an object"),
        (entry(annotations={"a": "x" * 65536}), "t", "64 KiB"),
        (entry(annotations={"a": float("nan")}), "t", "not JSON"),
    ],
)
def test_entries_that_are_no_tools(one: Any, name: str, told: str) -> None:
    found = held(one)
    assert (found.name, found.reason) == (name, HoldReason.ENTRY_INVALID)
    assert told in found.message


def test_256_bytes_are_not_too_many() -> None:
    assert check_entries("s", [entry("é" * 128)]).held == ()


def test_a_duplicate_is_held_even_when_the_first_was() -> None:
    listing = check_entries("s", [entry("t", inputSchema=True), entry("t"), entry("T")])
    assert [tool.name for tool in listing.tools] == ["T"]
    assert [one.reason for one in listing.held] == [HoldReason.SCHEMA_INVALID, HoldReason.ENTRY_INVALID]


@table("character", [TAG, "\U000e007f", BIDI, "\u2066", "\u061c", ESCAPE, C1, "\0", "\r", "\x7f"])
@table("place", ["name", "title", "description"])
def test_29_hidden_text(place: str, character: str) -> None:
    one = held(entry() | {place: f"a{character}b"})
    assert one.reason is HoldReason.HIDDEN_TEXT
    assert place in one.message
    assert f"U+{ord(character):04X}" in one.message
    assert character not in one.name + one.message


@table("text", ["two\nlines\tand a tab", "naïve café", "日本語", "👩‍💻 works", "שלום", "👁️‍🗨️", "می‌خواهم"])
def test_ordinary_text_is_not_hidden(text: str) -> None:
    assert check_entries("s", [entry(title=text, description=text)]).held == ()


@table("row", ["".join(chr(0xE0100 + byte) for byte in b"do it"), "\ufe00\ufe01\ufe02", "\u200b\u200c\u200b\u2060"])
def test_bytes_written_in_characters_without_a_shape(row: str) -> None:
    for each in (entry(description=f"Harmless.{row}"), entry(inputSchema={"type": "object", "description": f"a{row}"})):
        one = held(each)
        assert one.reason is HoldReason.HIDDEN_TEXT and "without a shape" in one.message


@table(
    ("schema", "path"),
    [
        ({"properties": {"a": {"description": f"x{TAG}"}}}, "properties.a.description"),
        ({"properties": {"a": {"description": f"x{ESCAPE}"}}}, "properties.a.description"),
        ({"properties": {"a": {"enum": ["ok", f"x{BIDI}"]}}}, "properties.a.enum[1]"),
        ({"properties": {"a": {"default": {"k": f"x{TAG}"}}}}, "properties.a.default.k"),
        ({"properties": {"default": {"title": f"x{ESCAPE}"}}}, "properties.default.title"),
        ({"properties": {f"x{BIDI}": {}}}, "in a key at properties"),
        ({"properties": {"description": {"enum": [f"x{C1}"]}}}, "properties.description.enum[0]"),
        ({"$comment": f"x{ESCAPE}"}, "$comment"),
        ({"x-notes": [{"a": f"x{TAG}"}]}, "x-notes[0].a"),
        ({"patternProperties": {"^a": {"description": f"x{ESCAPE}"}}}, "patternProperties.^a.description"),
    ],
)
def test_hidden_text_in_a_schema_is_found_where_it_is(schema: dict[str, Any], path: str) -> None:
    for key in ("inputSchema", "outputSchema"):
        one = held(entry() | {key: {"type": "object", **schema}})
        assert one.reason is HoldReason.HIDDEN_TEXT
        assert path in one.message
        assert key in one.message


def test_control_characters_that_are_data_are_let_through() -> None:
    properties = {"ends": {"enum": ["\n", "\r\n"], "default": "\r\n"}, "text": {"pattern": "^[^\x00-\x1f]*$"}}
    properties |= {"carriage\rreturn": {}, "title": {"default": {"description": "\f"}}}
    schema = {"type": "object", "properties": properties, "patternProperties": {"^[^\x00]$": {}}}
    assert check_entries("s", [entry(inputSchema=schema)]).held == ()


def test_hidden_text_in_annotations() -> None:
    one = held(entry(annotations={"title": f"x{TAG}"}))
    assert one.reason is HoldReason.HIDDEN_TEXT
    assert "title of its annotations" in one.message


def test_no_message_carries_what_a_terminal_would_obey() -> None:
    evil = f"{ESCAPE}]0;x\x07{BIDI}"
    entries = [entry(f"n{evil}"), entry("a", inputSchema={"type": evil}), entry("b", inputSchema={"$schema": evil})]
    entries.append(entry("c", inputSchema={"type": "object", "properties": {"a": {"$ref": evil}}}))
    entries.append(entry("d", inputSchema={"type": "object", "properties": {"a": {"pattern": f"({evil}\n"}}}))
    listing = check_entries("s", entries)
    assert len(listing.held) == 5
    for one in listing.held:
        assert (one.name + one.message).isprintable(), one
        assert len(one.message) <= 500


def test_the_digest_is_over_what_a_pin_covers() -> None:
    def digest_of(**more: Any) -> str:
        (tool,) = check_entries("s", [entry(**more)]).tools
        return tool.digest

    plain = digest_of()
    assert plain == digest({"name": "t", "description": "Does it.", "inputSchema": OBJECT})
    assert digest_of(icons=[{"src": "x"}], _meta={"a": 1}, title=None, annotations=None) == plain
    schema = {"type": "object", "properties": {"a": {}, "b": {}}}
    turned = {"properties": {"b": {}, "a": {}}, "type": "object"}
    assert digest_of(inputSchema=schema) == digest_of(inputSchema=turned)
    others = [
        digest_of(title="T"),
        digest_of(description="Does it"),
        digest_of(inputSchema=schema),
        digest_of(outputSchema=OBJECT),
        digest_of(annotations={"readOnlyHint": True}),
        digest_of(annotations={"readOnlyHint": False}),
    ]
    assert len({plain, *others}) == 7


def test_what_was_said_of_the_list_is_kept_and_too_many_are_cut() -> None:
    listing = check_entries("s", [entry(f"t{n}") for n in range(5003)], ["the server repeated a cursor"])
    assert len(listing.tools) == 5000
    assert listing.diagnostics == ("the server repeated a cursor", "3 tools beyond the first 5000 were left out")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
KEYS = ["name", "title", "description", "inputSchema", "outputSchema", "annotations"]


@given(st.lists(JSON | st.dictionaries(st.sampled_from(KEYS), JSON | st.just(OBJECT)), max_size=5))
def test_whatever_comes_is_a_tool_or_is_held(entries: list[Any]) -> None:
    listing = check_entries("s", entries)
    assert len(listing.tools) + len(listing.held) == len(entries)
    for tool in listing.tools:
        json.dumps([tool.name, tool.description, dict(tool.input_schema)]).encode()
        assert tool.description.strip() and tool.input_schema["type"] == "object"


def test_five_thousand_schemas_are_judged_once_each_and_known_ones_never_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def schema(number: int) -> dict[str, Any]:
        properties = {f"path{number}": {"type": "string", "description": "Where"}, "limit": {"type": "integer"}}
        return {"type": "object", "properties": properties, "required": [f"path{number}"]}

    judged: list[Any] = []
    monkeypatch.setattr(judging, "SchemaCheck", judged.append)
    monkeypatch.setattr(judging, "_schema_problems", {})
    entries = [entry(f"t{n}", inputSchema=schema(n)) for n in range(5000)]
    for _ in range(2):
        assert len(check_entries("s", entries).tools) == 5000
        assert len(judged) == 5000
