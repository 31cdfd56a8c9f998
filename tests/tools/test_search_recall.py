"""The repository's own queries over its own catalog of 300 tools (mcp.md §10, cases 31 and 33)."""

from __future__ import annotations

import random

import pytest
from tests.tables import table

from golem_forge.tools.catalog import Catalog
from golem_forge.tools.tool import Tool

from .catalog300 import catalog300
from .queries import QUERIES


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return Catalog(catalog300())


def names(catalog: Catalog, query: str, limit: int = 5) -> list[str]:
    return [tool.name for tool in catalog.search(query, limit)]


def test_the_set_is_what_it_says() -> None:
    there = {tool.name for tool in catalog300()}
    assert len(there) == 300
    assert len({query for query, _ in QUERIES}) == len(QUERIES) >= 100
    assert {name for _, wanted in QUERIES for name in wanted.split()} <= there
    assert not any(query in there for query, _ in QUERIES)  # else it would be no search


def test_33_recall_at_five(catalog: Catalog) -> None:
    missed = [query for query, wanted in QUERIES if not set(wanted.split()) & set(names(catalog, query))]
    recall = 1 - len(missed) / len(QUERIES)
    assert recall >= 0.95, missed


def test_33_the_same_on_every_run_in_whatever_order_the_tools_came(catalog: Catalog) -> None:
    tools = catalog300()
    expected = [names(catalog, query) for query, _ in QUERIES]
    random.Random(5).shuffle(tools)
    again = Catalog(tools[:150])
    names(again, "something")  # indexed in two steps
    for tool in tools[150:]:
        again.add(tool)
    assert [names(again, query) for query, _ in QUERIES] == expected


@table("tool", catalog300()[::7])
def test_31_an_exact_name_is_always_first(catalog: Catalog, tool: Tool) -> None:
    assert tool.remote is not None
    for spelled in (tool.name, tool.name.upper(), tool.remote.tool, tool.remote.tool.title(), f" {tool.remote.tool} "):
        assert names(catalog, spelled)[0] == tool.name
