"""Resources: read through the one path, in both eras."""

from __future__ import annotations

import base64
import re
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitResult

from golem_forge.mcp.server import resources
from golem_forge.tools.context import ToolContext

from .conftest import MODES, Served, Serving

pytestmark = pytest.mark.parametrize("mode", MODES)


async def text_of(client: Any, uri: str) -> str:
    [part] = (await client.read_resource(uri)).contents
    return str(part.text)


async def test_files_of_zones_are_read_whole(serving: Serving, mode: str) -> None:
    async with serving() as served, served.client(mode) as client:
        many = "".join(f"line {number}\n" for number in range(9000))
        (served.work / "long.txt").write_text(many)
        (served.work / "sub dir").mkdir()
        (served.work / "sub dir" / "a%b.txt").write_text("odd name")
        assert await text_of(client, "forge://zone/workspace/long.txt") == many
        assert await text_of(client, "forge://zone/workspace/sub%20dir/a%25b.txt") == "odd name"
        templates = (await client.list_resource_templates()).resource_templates
        assert [each.uri_template for each in templates] == [
            "forge://zone/{zone}/{+path}",
            "forge://output/{handle}",
            "forge://mcp/{server}/{uri}",
        ]


NOT_THEIRS = (
    "forge://zone/workspace/none.txt",
    "forge://zone/nowhere/a.txt",
    "forge://zone/workspace/../../etc/passwd",
    "forge://zone/workspace/%2e%2e/%2e%2e/etc/passwd",
    "forge://zone//etc/passwd",
    "forge://output/out_000000000000",
    "forge://output/../sessions",
    "forge://mcp/none/x%3A%2F%2Fy",
    "forge://mcp/none",
    "forge://other/x",
    "file:///etc/passwd",
)


async def test_what_is_not_there_or_not_theirs(serving: Serving, mode: str) -> None:
    async with serving() as served, served.client(mode) as client:
        for uri in NOT_THEIRS:
            with pytest.raises(MCPError) as error:
                await client.read_resource(uri)
            assert "root:" not in str(error.value), uri
            assert error.value.error.code in (-32602, -32002, -32603), uri


async def test_a_file_that_asks_asks_the_client(serving: Serving, mode: str) -> None:
    asked: list[str] = []

    async def person(context: Any, params: Any) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action="accept", content={"approve": len(asked) > 1})

    async with serving() as served, served.client(mode, elicitation_callback=person) as client:
        (served.work / ".env").write_text("TOKEN=canary-4711\n")
        with pytest.raises(MCPError, match="approval_denied"):
            await client.read_resource("forge://zone/workspace/.env")
        assert await text_of(client, "forge://zone/workspace/.env")
        assert len(asked) == 2 and "read_file" in asked[0]


async def test_proxied_resources_come_with_text_and_bytes(serving: Serving, mode: str) -> None:
    """`read_mcp_resource` as it answers; its own tests hold it against real servers."""
    seen: list[Any] = []

    async def read(args: dict[str, Any], ctx: ToolContext) -> dict[str, Any]:
        seen.append(args)
        assert ctx.outputs is not None
        handle = ctx.outputs.keep_pieces((base64.encodebytes(b"\x00\x01" * 100),), ctx.worker)
        parts: list[dict[str, Any]] = [
            {"uri": "demo://a b", "mimeType": "text/plain", "text": "t" * args.get("size", 10)},
            {"mimeType": "image/png", "bytes": 200, "handle": handle},
        ]
        return {"server": args["server"], "uri": args["uri"], "contents": parts}

    async with serving() as served, served.client(mode) as client:
        place(served, read)
        uri = "forge://mcp/docs/demo%3A%2F%2Fa%20b"
        text, blob = (await client.read_resource(uri)).contents
        assert seen == [{"server": "docs", "uri": "demo://a b"}]
        assert text.text == "t" * 10 and str(text.uri) == uri
        assert base64.b64decode(blob.blob) == b"\x00\x01" * 100 and blob.mime_type == "image/png"


async def test_a_large_output_is_read_back_whole_in_ranges(
    serving: Serving, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of characters of one to four bytes: the ends of ranges fall between and into them. With an eighth of the bounds:
    the client of the SDK takes 1 MiB at most."""
    for bound in ("MOST_BYTES", "MOST_WHOLE_BYTES", "RANGE_BYTES"):
        monkeypatch.setattr(resources, bound, getattr(resources, bound) // 8)
    line = "a\u00e9\u20ac\U0001f600\n"
    size = resources.MOST_BYTES + 100_000

    async def say(args: dict[str, Any]) -> str:
        return line * (size // len(line.encode())) + "x" * (size % len(line.encode()) + args.get("more", 0))

    async with serving() as served, served.client(mode) as client:
        served.add("large", say)
        whole, uri = await say({}), await output_of(client)
        for asked in ("", "&length=70001"):
            texts, offset = [], 0
            while offset < size:
                [part] = (await client.read_resource(f"{uri}?offset={offset}{asked}")).contents
                said = part.meta["golem-forge/range"]
                assert (said["offset"], said["size"]) == (offset, size)
                assert str(part.uri) == f"{uri}?offset={offset}&length={said['length']}"
                texts.append(part.text)
                offset += said["length"]
            assert "".join(texts) == whole and len(texts) > 5
        assert await text_of(client, f"{uri}?offset={9 * size}&length=10") == ""
        for query in ("offset=-1", "offset=0&length=x", "length=5", "offset=0&offset=1", "offset=\u0663", ""):
            with pytest.raises(MCPError, match="Resource not found"):
                await client.read_resource(f"{uri}?{query}")
        parts = (await client.read_resource(uri)).contents
        assert "".join(part.text for part in parts) == whole and len(parts) == 2
        larger = await output_of(client, more=resources.MOST_WHOLE_BYTES)
        with pytest.raises(MCPError, match=r"bytes; read it in ranges: forge://output/\S+\?offset=0&length=\d+,"):
            await client.read_resource(larger)


async def output_of(client: Any, **args: Any) -> str:
    """Where the whole output of the tool `large` is."""
    [shown] = [each.text for each in (await client.call_tool("large", args)).content]
    found = re.search(r"forge://output/out_[0-9a-f]+", shown)
    assert found is not None
    return found[0]


async def test_a_large_proxied_resource_is_whole(serving: Serving, mode: str) -> None:
    async def read(args: dict[str, Any], ctx: ToolContext) -> dict[str, Any]:
        return {"contents": [{"uri": "demo://big", "text": "word " * 100_000}]}

    async with serving() as served, served.client(mode) as client:
        place(served, read)
        assert await text_of(client, "forge://mcp/docs/demo%3A%2F%2Fbig") == "word " * 100_000


def place(served: Served, read: Any) -> None:
    served.host.session.catalog.remove("read_mcp_resource")
    served.add("read_mcp_resource", read)
