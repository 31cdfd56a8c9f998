"""What servers have to read, in a session: three servers, one of them down. mcp.md §11 and §17, case 34.

Two have resources; the third cannot even be started.
"""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest
from tests.acceptance.mcp_bench import McpBench, settled

from golem_forge import Status
from golem_forge.core.decisions import Risk

BLOB, TEXT = "note://blob", "note://one"


@pytest.fixture
def bench(mcp_bench: McpBench) -> McpBench:
    mcp_bench.yaml(
        {
            "echo": mcp_bench.ours("echo.py", trust="trusted"),
            "other": mcp_bench.ours("echo.py", "--other", trust="trusted", network=False),
            "absent": {"command": "/no/such/binary", "trust": "trusted"},
        }
    )
    mcp_bench.trust()
    mcp_bench.approve()
    return mcp_bench


async def test_case_34_lists_errors_and_what_comes_back(bench: McpBench) -> None:
    """One session: two of the servers answer, the third said why it does not. Trusted servers are read unasked."""
    async with bench.session() as session:
        await settled(session, "echo", "other")
        await _two_lists_and_one_error(session)
        await _the_texts_of_what_cannot_be(session)
        await _a_blob_is_handle_type_and_size_and_text_is_text(session)
        assert not bench.cards


async def _two_lists_and_one_error(session: Any) -> None:
    listed = (await session.call("list_mcp_resources")).result.value["data"]
    servers = [entry["server"] for entry in listed["resources"]]
    assert servers == sorted(servers) and set(servers) == {"echo", "other"}, "in name order"
    ours = [entry["uri"] for entry in listed["resources"] if entry["server"] == "echo"]
    assert ours == ["note://one", "note://blob"]
    [error] = listed["errors"]
    assert error["server"] == "absent" and "/no/such/binary" in error["error"]
    templates = (await session.call("list_mcp_resource_templates")).result.value["data"]
    assert {entry["server"] for entry in templates["resourceTemplates"]} == {"echo", "other"}
    assert {"server": "echo", "uriTemplate": "note://{name}", "name": "note"} in templates["resourceTemplates"]
    assert [entry["server"] for entry in templates["errors"]] == ["absent"]
    alone = (await session.call("list_mcp_resources", {"server": "echo"})).result.value["data"]
    assert alone["server"] == "echo" and len(alone["resources"]) == 2 and "nextCursor" not in alone


async def _the_texts_of_what_cannot_be(session: Any) -> None:
    """A cursor without its server, a server that nobody knows, one that is down."""
    for tool in ("list_mcp_resources", "list_mcp_resource_templates"):
        alone = await session.call(tool, {"cursor": "1"})
        assert alone.status is Status.INPUT_INVALID
        assert "cursor is only supported when server is specified" in alone.error
        unknown = await session.call(tool, {"server": "x"})
        assert (unknown.status, unknown.error) == (Status.EXECUTION_FAILED, "MCP server not found: x")
    unknown = await session.call("read_mcp_resource", {"server": "x", "uri": TEXT})
    assert unknown.error == "MCP server not found: x"
    down = await session.call("read_mcp_resource", {"server": "absent", "uri": TEXT})
    assert down.status is Status.EXECUTION_FAILED and "/no/such/binary" in down.error


async def _a_blob_is_handle_type_and_size_and_text_is_text(session: Any) -> None:
    places = [("echo", BLOB), ("other", BLOB), ("echo", TEXT)]
    mine, theirs, note = await asyncio.gather(
        *(session.call("read_mcp_resource", {"server": server, "uri": uri}) for server, uri in places)
    )
    for outcome in (mine, theirs):
        [part] = outcome.result.value["data"]["contents"]
        assert set(part) == {"mimeType", "bytes", "handle"}
    [blob] = mine.result.value["data"]["contents"]
    assert (blob["mimeType"], blob["bytes"]) == ("application/octet-stream", 256)
    kept = await session.call("read_output", {"handle": blob["handle"]})
    lines = [line.partition(": ")[2] for line in kept.result.value["content"].splitlines()]
    assert base64.b64decode("".join(lines)) == bytes(range(256))
    assert base64.b64encode(bytes(range(256))).decode() not in mine.text
    assert note.result.kind == "json" and note.decision.risk is Risk.LOW
    part = {"uri": TEXT, "mimeType": "text/plain", "text": "the note note://one"}
    assert note.result.value["data"] == {"server": "echo", "uri": TEXT, "contents": [part]}
