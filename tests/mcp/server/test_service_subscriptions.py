"""Who hears of which resource: clients that subscribe at the same time, too often, or to what is not theirs."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import ResourceUpdatedNotification
from tests.deadlines import PATIENCE

from golem_forge.cli.mcp.serve import SessionHost
from golem_forge.mcp.server import service
from golem_forge.mcp.server.host import ServedOffers

from .conftest import Served, Serving

pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
FILE = "forge://zone/workspace/file.txt"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(service, "LOOK_SECONDS", 0.02)
    return


def looks(served: Served) -> list[str]:
    """The files that are looked at from now on."""
    offers, seen = served.host.calls.offers, []

    def stamp(path: str) -> object:
        seen.append(path)
        return offers.stamp(path)

    served.host.calls.offers = ServedOffers(
        reserved=offers.reserved, access=offers.access, worker=offers.worker, stamp=stamp
    )
    return seen


async def nobody_looks(seen: list[str]) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            seen.clear()
            await asyncio.sleep(0.3)
            if not seen:
                return


@pytest.mark.usefixtures("quick")
async def test_one_file_asked_for_many_times_at_once_is_left_by_leaving_it_once(serving: Serving) -> None:
    async with serving(hosted=SessionHost) as served:
        (served.work / "file.txt").write_text("one")
        seen = looks(served)
        async with served.client("legacy") as client:
            await asyncio.gather(*(client.subscribe_resource(FILE) for _ in range(20)))
            assert "/workspace/file.txt" in seen
            await client.unsubscribe_resource(FILE)
            await nobody_looks(seen)
            await client.subscribe_resource(FILE)
        await nobody_looks(seen)  # whoever is gone is subscribed to nothing


async def test_a_client_has_its_share_however_many_it_asks_for_at_once(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert service.MOST_SUBSCRIBED == 100
    monkeypatch.setattr(service, "MOST_SUBSCRIBED", 10)
    async with serving(hosted=SessionHost) as served, served.client("legacy") as client:
        for number in range(14):
            (served.work / f"{number}.txt").write_text("one")
        asked = [client.subscribe_resource(f"forge://zone/workspace/{number}.txt") for number in range(14)]
        came = await asyncio.gather(*asked, return_exceptions=True)
        refused = [str(each) for each in came if isinstance(each, MCPError)]
        assert refused == ["at most 10 resources can be subscribed to; leave one"] * 4


@pytest.mark.usefixtures("quick")
async def test_a_look_that_fails_is_not_the_last_one(serving: Serving) -> None:
    heard: asyncio.Queue[str] = asyncio.Queue()

    async def told(message: Any) -> None:
        if isinstance(message, ResourceUpdatedNotification):
            heard.put_nowait(str(message.params.uri))

    listening = asyncio.Event()
    async with serving(hosted=SessionHost) as served:
        (served.work / "file.txt").write_text("one")
        async with served.client("legacy", listening=listening, message_handler=told) as client:
            await listening.wait()
            await client.subscribe_resource(FILE)
            offers = served.host.calls.offers
            failed = asyncio.Event()
            loop = asyncio.get_running_loop()

            def broken(path: str) -> object:
                loop.call_soon_threadsafe(failed.set)
                raise RuntimeError("the disk is gone")

            served.host.calls.offers = ServedOffers(stamp=broken)
            await failed.wait()
            served.host.calls.offers = offers
            (served.work / "file.txt").write_text("another one")
            async with asyncio.timeout(PATIENCE):
                assert await heard.get() == FILE


async def test_one_client_cannot_take_every_stream(serving: Serving) -> None:
    async with serving(hosted=SessionHost) as served:
        other = served.tokens.create("other")
        opened: asyncio.Queue[None] = asyncio.Queue()

        async def listen(client: Any) -> None:
            async with client.listen(tools_list_changed=True):
                opened.put_nowait(None)
                await asyncio.Event().wait()

        async with (
            asyncio.timeout(PATIENCE),
            served.client("auto") as client,
            served.client("auto", other) as neighbour,
        ):
            tasks = [asyncio.create_task(listen(client)) for _ in range(service.MOST_LISTENING_EACH)]
            for _ in tasks:
                await opened.get()
            with pytest.raises(MCPError, match="at most 16 streams"):
                await listen(client)
            tasks.append(asyncio.create_task(listen(neighbour)))
            await opened.get()
            tasks[0].cancel()
            let_in = asyncio.create_task(opened.get())
            while True:  # its place is free once the server knows
                late = asyncio.create_task(listen(client))
                done, _ = await asyncio.wait({late, let_in}, return_when="FIRST_COMPLETED")
                if late not in done:
                    break
            for task in (*tasks, late):
                task.cancel()


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_the_output_of_one_client_is_nothing_that_another_can_follow(serving: Serving, mode: str) -> None:
    async with serving(hosted=SessionHost) as served:
        other = served.tokens.create("other")
        async with served.client(mode) as client, served.client("legacy", other) as neighbour:
            shown = (await client.call_tool("long", {"x": 100_000})).content[0].text
            found = re.search(r"forge://output/out_[0-9a-f]+", shown)
            assert found is not None
            with pytest.raises(MCPError, match="Resource not found"):
                await neighbour.subscribe_resource(found[0])
            with pytest.raises(MCPError, match="Resource not found"):
                await neighbour.read_resource(f"{found[0]}?offset=0")
            assert (await neighbour.list_resources()).resources == []
            if mode == "legacy":
                await client.subscribe_resource(found[0])
