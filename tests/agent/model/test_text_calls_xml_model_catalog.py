"""Tools as a model without native calling is offered them: each example reads back as a valid call."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golem_forge.agent.model.interface import CallResult, ResultsMessage, ToolOffer
from golem_forge.agent.model.text_calls import catalog_prompt, example_arguments, results_text, write_call
from golem_forge.agent.model.xml_reader import XmlReader
from golem_forge.agent.tool_inventory import build_catalog
from golem_forge.core.decisions import Status
from golem_forge.tools.catalog import Catalog
from golem_forge.tools.schema import model_schema
from golem_forge.tools.validation import SchemaCheck

NATIVE: Catalog = build_catalog((), None)


def read_back(text: str, name: str, schema: Any) -> Any:
    reader = XmlReader({name: schema})
    reader.feed(text)
    (call,) = reader.finish().calls
    assert not call.problem, call.problem
    assert call.name == name
    return call.args


@pytest.mark.parametrize("name", sorted(tool.name for tool in NATIVE))
def test_every_native_tool_has_an_example_that_its_own_validation_takes(name: str) -> None:
    tool = next(tool for tool in NATIVE if tool.name == name)
    full = tool.input_schema
    offer = ToolOffer(name=name, description=tool.description, schema=model_schema(full), full_schema=full)
    prompt = catalog_prompt([offer])
    assert prompt.count(f"### {name}(") == 1 and prompt.count("<tool><tool_name>") == 1
    example = re.search(r"^(<tool>.*</tool>)$", prompt, re.MULTILINE | re.DOTALL)
    assert example, prompt
    args = read_back(example[1], name, tool.input_schema)
    assert not SchemaCheck(tool.input_schema).errors(args)


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"}}, "required": ["a"]},
        {"properties": {"a": {"type": "string", "minLength": 30}}, "required": ["a"]},
        {"properties": {"a": {"type": "integer", "minimum": 10, "maximum": 12}}, "required": ["a"]},
        {"properties": {"a": {"type": "number", "exclusiveMaximum": 0}}, "required": ["a"]},
        {"properties": {"a b": {"type": "string"}, "$x": {"type": "boolean"}}, "required": ["a b", "$x"]},
        {"properties": {"a": {"anyOf": [{"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}]}}},
        {"properties": {"a": {"enum": [None, "x"]}, "b": {"const": {"k": [1]}}}, "required": ["a", "b"]},
        {
            "properties": {"n": {"$ref": "#/$defs/N"}},
            "required": ["n"],
            "$defs": {"N": {"properties": {"n": {"$ref": "#/$defs/N"}}}},
        },
        {"type": "object"},
    ],
)
def test_examples_fit_and_read_back(schema: dict[str, Any]) -> None:
    schema = {"type": "object", **schema}
    example = example_arguments(schema)
    assert example is not None
    assert read_back(write_call("t", example, schema), "t", schema) == example
    assert not SchemaCheck(schema).errors(example)


def test_where_no_example_can_be_found_there_is_none() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^zq{7}$"}}, "required": ["a"]}
    assert example_arguments(schema) is None
    prompt = catalog_prompt([ToolOffer(name="t", description="d", schema=schema)])
    assert "### t(a: string)" in prompt and "<tool_name>NAME</tool_name>" in prompt


def test_an_example_fits_the_bounds_that_are_told_in_words() -> None:
    full = {"type": "object", "properties": {"a": {"type": "string", "minLength": 30}}, "required": ["a"]}
    prompt = catalog_prompt([ToolOffer(name="t", description="d", schema=model_schema(full), full_schema=full)])
    assert "At least 30 characters." in prompt and "minLength" not in prompt
    assert re.search("<a>.{30,}</a>", prompt)


def test_without_tools_there_is_no_prompt() -> None:
    assert catalog_prompt([]) == ""


def test_a_servers_tool_is_shown_with_its_server() -> None:
    schema = {"type": "object", "properties": {"path": {"type": "string"}}}
    prompt = catalog_prompt([ToolOffer(name="git__status", description="d", schema=schema)])
    assert "<server_name>git</server_name><tool_name>status</tool_name>" in prompt


def test_parameters_are_types_and_the_format_is_told_once_with_one_example() -> None:
    schema = {
        "type": "object",
        "properties": {
            "plan": {"type": "array", "items": {"type": "object", "properties": {"step": {"type": "string"}}}},
            "mode": {"enum": ["a", "b"], "description": "How."},
            "n": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "any": {},
        },
        "required": ["plan"],
    }
    offers = [ToolOffer(name=name, description="Does it.", schema=schema) for name in ("one", "two")]
    prompt = catalog_prompt(offers)
    signature = 'plan: [{step?: string}], mode?: "a"|"b", n?: integer|null, any?: any'
    assert f"### two({signature})\nDoes it.\n- mode: How." in prompt
    assert prompt.count("<tool><tool_name>") == 1
    assert len(catalog_prompt(offers[:1])) < 700


_SCHEMA = {
    "type": "object",
    "properties": {
        "s": {"type": "string"},
        "n": {"type": ["integer", "null"]},
        "x": {"type": "number"},
        "b": {"type": "boolean"},
        "l": {"type": "array", "items": {"type": "string"}},
        "o": {"type": "object", "properties": {"k": {"type": "array", "items": {"type": "integer"}}}},
        "u": {},
    },
}


_ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
_ARGS = st.fixed_dictionaries(
    {},
    optional={
        "s": st.text(max_size=30) | st.sampled_from(["null", "]]>", " x ", "a<b", "&amp;", "", "[1]", "{}"]),
        "n": st.integers() | st.none(),
        "x": st.floats(allow_nan=False, allow_infinity=False) | st.integers(),
        "b": st.booleans(),
        "l": st.lists(st.text(max_size=10) | st.sampled_from(['["a"]', "null", ""]), max_size=3),
        "o": st.fixed_dictionaries({}, optional={"k": st.lists(st.integers(), max_size=3), "": _ANYTHING}),
        "u": _ANYTHING,
    },
)


@given(args=_ARGS)
def test_any_arguments_are_written_so_that_they_read_back(args: dict[str, Any]) -> None:
    assert read_back(write_call("t", args, _SCHEMA), "t", _SCHEMA) == args


@given(text=st.text(max_size=200))
def test_results_cannot_be_closed_from_inside(text: str) -> None:
    results = [CallResult(id=f"id{n}", name="t", status=Status.SUCCESS, text=text) for n in (1, 2)]
    written = results_text(ResultsMessage(results=tuple(results), note="N"))
    assert written.count("<tool_result ") == written.count("</tool_result>") == 2
    assert written.endswith("\nN")
    inside = written.split('status="success">', 1)[1].split("</tool_result>", 1)[0]
    for name, char in (("lt", "<"), ("gt", ">"), ("quot", '"'), ("amp", "&")):
        inside = inside.replace(f"&{name};", char)
    assert inside == text


def test_results_name_id_and_status() -> None:
    failed = CallResult(id="7f", name="t", status=Status.INPUT_INVALID, text='<b> & "c"')
    assert results_text(ResultsMessage(results=(failed,))) == (
        '<tool_result id="7f" status="input_invalid">&lt;b&gt; &amp; &quot;c&quot;</tool_result>'
    )
