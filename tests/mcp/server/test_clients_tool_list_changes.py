"""A list of tools that changes is announced within two seconds, to clients of both eras, and only when it changed."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

from tests.deadlines import PATIENCE, within

from golem_forge.config.run_block import ApprovalMode
from golem_forge.storage.home import ForgeHome
from golem_forge.usertools.workshop import open_workshop

from .conftest import Serving


def nothing(args: dict[str, Any]) -> None: ...


async def test_the_handshake_era_is_notified(serving: Serving) -> None:
    told, listening = asyncio.Event(), asyncio.Event()

    async def heard(message: Any) -> None:
        if getattr(message, "method", "") == "notifications/tools/list_changed":
            told.set()

    async with serving() as served, served.client("legacy", listening=listening, message_handler=heard) as client:
        assert client.server_capabilities.tools.list_changed
        await client.list_tools()
        await asyncio.wait_for(listening.wait(), PATIENCE)
        served.add("hidden", nothing, mode="manual")
        await asyncio.sleep(0.8)
        assert not told.is_set()
        served.add("fresh", nothing)
        with within(2):
            await told.wait()
        assert "fresh" in {tool.name for tool in (await client.list_tools()).tools}
        told.clear()
        served.host.session.catalog.remove("fresh")
        with within(2):
            await told.wait()
        assert "fresh" not in {tool.name for tool in (await client.list_tools()).tools}


async def test_what_is_declared(serving: Serving) -> None:
    async with serving() as served:
        for mode in ("legacy", "auto"):
            async with served.client(mode) as client:
                has = client.server_capabilities
                assert has.tools.list_changed and has.prompts.list_changed
                assert has.resources.subscribe and not has.resources.list_changed  # the list is each client's own
                assert has.completions is not None and has.logging is not None and has.tasks is None


async def test_a_users_tool_that_appears_on_disk_is_announced_and_runs(serving: Serving, own_home: Path) -> None:
    home = ForgeHome(own_home / ".forge")
    folder = home.path / "tools" / "greets"

    def make() -> None:
        folder.mkdir(parents=True)
        about = "name: greets\ndescription: Greets\nversion: 1.0.0\nentrypoint: run.sh\n"
        (folder / "tool.yaml").write_text(about)
        (folder / "run.sh").write_text("echo good morning\n")
        shop = open_workshop(home, native={}, environ={})
        shop.registry.refresh()
        entry = shop.registry.entries["greets"]
        shop.trust(entry, who="person")
        shop.store.mark_tested(entry.name, entry.digest)
        shop.store.close()

    async with (
        serving(mode=ApprovalMode.APPROVE_ALL) as served,
        served.client("auto") as client,
        client.listen(tools_list_changed=True) as stream,
    ):
        changes = aiter(stream)
        await asyncio.to_thread(make)
        with within(2):
            await anext(changes)
        assert "greets" in {tool.name for tool in (await client.list_tools()).tools}
        assert "good morning" in (await client.call_tool("greets", {})).content[0].text
        shutil.rmtree(folder)
        with within(2):
            await anext(changes)
        assert "greets" not in {tool.name for tool in (await client.list_tools()).tools}
