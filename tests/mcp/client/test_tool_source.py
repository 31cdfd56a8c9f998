"""What one worker sees of the servers' tools, in step with the pool."""

from __future__ import annotations

from tests.mcp.conftest import Ground
from tests.mcp.pools import no_more_writing, pooled

from golem_forge.mcp.client.tool_source import ServerTools
from golem_forge.tools.catalog import Catalog


async def test_whether_a_server_lists_a_name_is_known_once_its_list_is(ground: Ground) -> None:
    async with pooled(ground, ground.spec(deny=("fail",)), ground.spec("other")) as rig:
        tools = ServerTools(rig.pool, rig.book, ("echo",), Catalog())
        assert tools.lists("echo__add") is None
        await rig.pool.wait_connected("echo")
        tools.refresh()
        assert tools.lists("echo__add") is True
        assert tools.lists("echo__ad") is False and tools.lists("echo__fail") is False
        assert tools.lists("other__add") is None and tools.lists("read_file") is None


async def test_a_yes_that_the_book_cannot_keep_counts_for_this_session(ground: Ground) -> None:
    said: list[str] = []
    async with pooled(ground, ground.spec()) as rig:
        no_more_writing(ground.home)
        catalog = Catalog()
        tools = ServerTools(rig.pool, rig.book, ("*",), catalog, warn=said.append)
        await rig.pool.wait_connected("echo")
        tools.refresh()
        tool = catalog.get("echo__add")
        assert tool is not None and tool.pin is not None and not tool.definition_approved
        tool.pin()
        assert tool.definition_approved
        [warning] = said
        assert warning.startswith("'echo__add' is agreed to in this session only: ")
        tools.refresh()
        assert catalog.get("echo__add") is tool
