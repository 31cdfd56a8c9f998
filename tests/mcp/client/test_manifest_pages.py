"""What a server offers, to the last page and no further."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.tables import table

from golem_forge.config.mcp_spec import ServerSpec
from golem_forge.mcp.client import manifest as fetching
from golem_forge.mcp.client.manifest import all_pages, fetch_manifest
from golem_forge.mcp.client.transport import ErrorResponse, ServerLink

SPEC = ServerSpec(name="docs", scope="", origin="forge.yaml:1", command="x")


class Said:
    """A link whose server gives these pages, by method."""

    server = "docs"
    version = "2026-07-28"
    is_modern = True
    session = SimpleNamespace(server_info=None, instructions="i" * 100_000)

    def __init__(self, *pages: Any, offers: tuple[str, ...] = ("tools",)) -> None:
        self.pages = list(pages)
        self.cursors: list[Any] = []
        self._offers = offers

    def offers(self, capability: str) -> bool:
        return capability in self._offers

    async def request(self, method: str, params: Mapping[str, Any]) -> Any:
        self.cursors.append(params.get("cursor"))
        page = self.pages.pop(0)
        if isinstance(page, Exception):
            raise page
        return page

    @property
    def link(self) -> ServerLink:
        return cast(ServerLink, self)


async def test_pages_follow_each_other_by_their_cursors_and_the_shortest_life_counts() -> None:
    said = Said({"tools": [1], "nextCursor": "b", "ttlMs": 9000}, {"tools": [2], "ttlMs": 4000})
    pages = await all_pages(said.link, "tools/list", "tools")
    assert pages.entries == (1, 2)
    assert pages.ttl_ms == 4000
    assert said.cursors == [None, "b"]
    assert pages.diagnostics == ()


@table(
    ("pages", "kept", "why"),
    [
        ([{"tools": {"a": 1}}], 0, "a page without a list of tools"),
        ([{"tools": [1], "nextCursor": 7}], 1, "a cursor that is not text"),
        ([{"tools": [1], "nextCursor": "a"}, {"tools": [2], "nextCursor": "a"}], 2, "a cursor came twice"),
        ([{"tools": [0] * 5001}], 5000, "more than 5000 tools"),
        ([{"tools": [0] * 5000, "nextCursor": "more"}], 5000, "more than 5000 tools"),
        ([{"tools": [n], "nextCursor": str(n)} for n in range(100)], 100, "more than 100 pages"),
    ],
)
async def test_a_list_that_goes_wrong_ends_with_a_word_about_it(pages: list[Any], kept: int, why: str) -> None:
    found = await all_pages(Said(*pages).link, "tools/list", "tools")
    assert len(found.entries) == kept
    assert len(found.diagnostics) == 1
    assert why in found.diagnostics[0]


async def test_exactly_as_many_as_may_be_are_no_problem() -> None:
    found = await all_pages(Said({"tools": [0] * 5000}).link, "tools/list", "tools")
    assert len(found.entries) == 5000
    assert found.diagnostics == ()


async def test_a_list_of_gigabytes_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "MOST_BYTES", 1000)
    pages = [{"tools": ["x" * 400], "nextCursor": str(n)} for n in range(10)]
    found = await all_pages(Said(*pages).link, "tools/list", "tools")
    assert len(found.entries) == 2
    assert "MiB" in found.diagnostics[0]


async def test_what_is_not_declared_is_not_asked_for() -> None:
    said = Said(offers=())
    manifest = await fetch_manifest(said.link, SPEC)
    assert (manifest.tools, manifest.prompts, manifest.has_resources, said.cursors) == ((), (), False, [])
    assert len(manifest.instructions) == fetching.MOST_INSTRUCTIONS


async def test_prompts_that_cannot_be_listed_do_not_cost_the_tools() -> None:
    said = Said({"tools": [{"name": "a"}]}, ErrorResponse(-32603, "broken"), offers=("tools", "prompts"))
    manifest = await fetch_manifest(said.link, SPEC)
    assert manifest.tools == ({"name": "a"},)
    assert manifest.diagnostics == ("prompts/list of docs: broken (-32603)",)


async def test_a_tool_with_impossible_headers_is_left_out_alone() -> None:
    def tool(name: str, header: Any) -> dict[str, Any]:
        schema = {"type": "object", "properties": {"p": {"type": "string", "x-mcp-header": header}}}
        return {"name": name, "inputSchema": schema}

    odd = {"name": "odd", "inputSchema": {"x": float("nan")}}
    manifest = await fetch_manifest(Said({"tools": [tool("good", "Region"), tool("bad", "a b"), odd, 5]}).link, SPEC)
    assert [entry["name"] for entry in manifest.tools[:2]] == ["good", "odd"]
    assert len(manifest.tools) == 3
    assert "'bad'" in manifest.diagnostics[0]
