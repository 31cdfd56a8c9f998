"""ToolResult ↔ CallToolResult: nothing is lost in either direction (mcp.md §5, cases 16, 17)."""

from __future__ import annotations

import json
from typing import Any
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from golem_forge.core import results as mcp_results
from golem_forge.core.results import FRAME_KEY, RESULT_KEY, ToolResult, from_mcp, to_mcp
from golem_forge.tools.results import to_result

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

words = st.text(max_size=12)
scalars = st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats(allow_nan=False) | words
json_values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3), max_leaves=8
)
json_objects = st.dictionaries(words, json_values, max_size=3)
annotations = st.fixed_dictionaries(
    {},
    optional={
        "audience": st.lists(st.sampled_from(["user", "assistant"]), max_size=2),
        "priority": st.floats(0, 1),
        "lastModified": words,
    },
)


def block(kind: str, required: dict[str, Any], optional: dict[str, Any] | None = None) -> st.SearchStrategy[Any]:
    common = {"annotations": annotations, "_meta": json_objects}
    return st.fixed_dictionaries({"type": st.just(kind), **required}, optional={**common, **(optional or {})})


resources = st.fixed_dictionaries(
    {"uri": words}, optional={"mimeType": words, "text": words, "_meta": json_objects}
) | st.fixed_dictionaries({"uri": words, "blob": words}, optional={"mimeType": words})
blocks = st.one_of(
    block("text", {"text": words}),
    block("image", {"data": words, "mimeType": words}),
    block("audio", {"data": words, "mimeType": words}),
    block("resource", {"resource": resources}),
    block(
        "resource_link", {"uri": words, "name": words}, {"title": words, "description": words, "size": st.integers(0)}
    ),
)
kinds = st.sampled_from(["text", "diff", "file_content", "file_list", "json", "git.status", "x"])
values = st.builds(lambda kind, rest: {**rest, "kind": kind}, kinds, json_objects)
messages = st.fixed_dictionaries(
    {"content": st.lists(blocks, max_size=3)},
    optional={
        "structuredContent": json_objects | values,
        "isError": st.booleans(),
        "_meta": st.dictionaries(words | st.just("golem-forge/outcome"), json_values, max_size=2)
        | st.fixed_dictionaries({RESULT_KEY: json_objects | st.fixed_dictionaries({"value": values, "text": words})})
        | st.fixed_dictionaries({FRAME_KEY: json_objects | st.just({"present": [], "extra": {"x": 1}})}),
        "resultType": words,
    },
)
results = st.builds(
    ToolResult,
    value=values,
    text=words,
    content=st.lists(blocks, max_size=2).map(tuple),
    structured=st.none() | json_objects | values,
    is_error=st.booleans(),
    meta=st.none() | json_objects | st.fixed_dictionaries({RESULT_KEY: json_objects}),
)


@given(messages)
def test_a_call_tool_result_survives_the_way_through_a_tool_result(message: dict[str, Any]) -> None:
    assert to_mcp(from_mcp(message)) == message


@given(results)
def test_a_tool_result_survives_the_way_through_mcp_and_json(result: ToolResult) -> None:
    assert from_mcp(json.loads(json.dumps(to_mcp(result)))) == result


@given(results)
def test_a_client_library_that_writes_defaults_out_loses_no_kind(result: ToolResult) -> None:
    sent = to_mcp(result)
    received = from_mcp({"isError": False, **sent})
    assert (received.value, received.text, received.structured) == (result.value, result.text, result.structured)


@given(json_values)
def test_every_tool_value_survives(value: Any) -> None:
    result = to_result(value)
    assert from_mcp(to_mcp(result)) == result


@table(
    ("value", "expected"),
    [
        ("hello", {"content": [{"type": "text", "text": "hello"}]}),
        ("", {"content": []}),
        ({"a": 1}, {"content": [{"type": "text", "text": '{"a":1}'}], "structuredContent": {"a": 1}}),
        (
            {"kind": "git.status", "data": {"n": 1}, "summary": "1 file"},
            {
                "content": [{"type": "text", "text": '1 file\n{"n":1}'}],
                "structuredContent": {"kind": "git.status", "data": {"n": 1}, "summary": "1 file"},
            },
        ),  # custom kind
        (
            [1, 2],
            {
                "content": [{"type": "text", "text": "[1,2]"}],
                "_meta": {RESULT_KEY: {"value": {"kind": "json", "data": [1, 2]}}},
            },
        ),  # a list has no structured form, so its kind goes into _meta
    ],
)
def test_written_as_any_client_reads_it(value: Any, expected: dict[str, Any]) -> None:
    assert to_mcp(to_result(value)) == expected


def test_17_images_and_embedded_resources_stay_intact_and_their_text_is_short() -> None:
    message = {
        "content": [
            {"type": "text", "text": "Here:"},
            {"type": "image", "data": PNG, "mimeType": "image/png", "annotations": {"priority": 0.5}},
            {"type": "resource", "resource": {"uri": "demo://1", "mimeType": "text/plain", "text": "body"}},
            {"type": "resource_link", "uri": "demo://2", "name": "two"},
            {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"},
        ],
        "isError": False,
    }
    result = from_mcp(message)
    assert result.text == "Here:\n[image image/png]\nbody\n[two: demo://2]\n[audio audio/wav]"
    assert [item["type"] for item in result.content] == ["text", "image", "resource", "resource_link", "audio"]
    assert to_mcp(result) == message


def test_structured_content_is_the_value_and_stays_available_for_the_output_schema() -> None:
    result = from_mcp({"content": [{"type": "text", "text": "{}"}], "structuredContent": {"temp": 3}})
    assert result.value == {"kind": "json", "data": {"temp": 3}}
    assert result.structured == {"temp": 3}
    assert result.kind == "json"


def test_a_foreign_server_cannot_show_people_one_thing_and_the_model_another() -> None:
    forged = {
        "content": [{"type": "text", "text": "what the model reads"}],
        "_meta": {RESULT_KEY: {"text": "something else", "value": {"kind": "text", "content": "what people see"}}},
    }
    result = from_mcp(forged)
    assert result.text == "what the model reads"
    assert result.value["content"] == "what the model reads"
    assert to_mcp(result) == forged


@table(
    "message",
    [
        {},
        {"content": None},
        {"content": "x"},
        {"content": [1, None, {"type": "resource", "resource": 3}, {}]},
        {"content": [], "isError": "yes", "_meta": 5},
        {"content": [], "structuredContent": None, "_meta": {}},
        {"content": [], "_meta": {RESULT_KEY: {"value": {}, "content": 3}}},
        {"content": [{"type": "text", "text": 5}]},
    ],
)
def test_a_sloppy_server_is_read_and_written_back_unchanged(message: dict[str, Any]) -> None:
    assert to_mcp(from_mcp(message)) == message


@given(
    st.fixed_dictionaries(
        {"content": st.lists(block("text", {"text": words}), min_size=1, max_size=1)},
        optional={
            "structuredContent": st.none() | json_objects | values,
            "isError": st.booleans() | st.integers(0, 1) | st.none(),
            "_meta": st.none()
            | json_objects
            | st.dictionaries(st.sampled_from([RESULT_KEY, FRAME_KEY, "x"]), json_objects, max_size=2),
            "resultType": words,
        },
    )
    | messages
)
def test_the_quick_way_reads_what_the_long_way_reads(message: dict[str, Any]) -> None:
    quick = mcp_results._quick_reading(message)
    with mock.patch.object(mcp_results, "_quick_reading", return_value=None):
        slow = from_mcp(message)
    assert quick is None or quick == slow
    assert to_mcp(from_mcp(message)) == message


@table(
    "more",
    [
        {},
        {"isError": False},
        {"isError": True},
        {"structuredContent": {"a": 1}},
        {"resultType": "complete", "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "x", "version": "1"}}},
    ],
)
def test_what_most_servers_answer_goes_the_quick_way(more: dict[str, Any]) -> None:
    assert mcp_results._quick_reading({"content": [{"type": "text", "text": "hello"}], **more}) is not None
