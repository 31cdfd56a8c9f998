"""`tool_search` by itself: what it takes, and what it gives of what was found."""

from __future__ import annotations

import json
from typing import Any

from tests.tables import table

from golem_forge.core.decisions import Verdict
from golem_forge.tools.tool import SourceKind, Tool
from golem_forge.tools.validation import Err, Ok
from golem_forge.toolsets.tool_search import ToolSearchResult, create_tool_search_tool

SOURCES = {"mcp github": 120, "mcp clock": 1, "user tools": 30}


def searching(*found: Tool, asked: list[tuple[str, int]] | None = None) -> Tool:
    def find(query: str, limit: int) -> ToolSearchResult:
        if asked is not None:
            asked.append((query, limit))
        return ToolSearchResult(tools=found, total=len(found) * 7, sources=SOURCES)

    return create_tool_search_tool(find, SOURCES)


def test_it_is_a_native_reader_that_touches_nothing() -> None:
    tool = searching()
    assert (tool.name, tool.source, tool.read_only, tool.effects) == ("tool_search", SourceKind.NATIVE, True, ())
    assert tool.needs_approval is not Verdict.ASK


def test_its_description_names_sources_and_counts() -> None:
    said = searching().description
    assert said.endswith("There are: mcp github: 120 tools; mcp clock: 1 tool; user tools: 30 tools.")
    counted = {f"mcp s{number:04}": 3 for number in range(2000)}
    many = create_tool_search_tool(lambda query, limit: ToolSearchResult(tools=(), total=0, sources={}), counted)
    assert len(many.description) < 2000 and "1960 more sources" in many.description


@table(
    ("args", "names"),
    [
        ({}, "query"),
        ({"query": ""}, "query"),
        ({"query": " \n\t"}, "query"),
        ({"query": "x" * 501}, "query"),
        ({"query": 7}, "query"),
        ({"query": "x", "limit": 0}, "limit"),
        ({"query": "x", "limit": 21}, "limit"),
        ({"query": "x", "lmit": 3}, "lmit"),
    ],
)
def test_what_it_does_not_take_is_named(args: dict[str, Any], names: str) -> None:
    checked = searching().validate_input(args)
    assert isinstance(checked, Err) and names in checked.message


def test_an_empty_query_says_what_to_give() -> None:
    checked = searching().validate_input({"query": " "})
    assert isinstance(checked, Err)
    assert checked.message == "tool_search: query: must not be empty: say what the tool should do, or its name"


async def test_it_gives_names_descriptions_schemas_and_the_total() -> None:
    asked: list[tuple[str, int]] = []
    schema = {"type": "object", "properties": {"when": {"type": "string"}}, "required": ["when"]}
    one = Tool("cal__add", "Adds.", input_schema=schema, execute=dict, source="mcp")
    tool = searching(one, asked=asked)
    checked = tool.validate_input({"query": "add"})
    assert isinstance(checked, Ok) and checked.data == {"query": "add", "limit": 5}
    result = await tool.execute(checked.data)
    shown = {"tools": [{"name": "cal__add", "description": "Adds.", "inputSchema": schema}], "total": 7}
    assert json.loads(result.text) == shown
    assert result.value == {"kind": "json", "data": shown}
    await tool.execute({"query": "add", "limit": 20})
    assert asked == [("add", 5), ("add", 20)]


async def test_no_match_gives_an_empty_list_and_what_there_is() -> None:
    result = await searching().execute({"query": "zzz"})
    said = [
        {"source": "mcp github", "tools": 120},
        {"source": "mcp clock", "tools": 1},
        {"source": "user tools", "tools": 30},
    ]
    assert json.loads(result.text) == {"tools": [], "total": 0, "sources": said}
