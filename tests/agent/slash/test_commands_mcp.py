"""`/mcp` and the prompts of servers as commands, with a real server behind them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.deadlines import PATIENCE
from tests.mcp.conftest import Ground
from tests.mcp.pools import Rig, pooled

from golem_forge.config.mcp_spec import ServerSpec
from golem_forge.events.runtime_ui import create_runtime_ui
from golem_forge.mcp.client.resources import ServerAccess
from golem_forge.sandbox.walls.bubblewrap import find_bwrap

TEXT = "[prompt 'greet' of the MCP server 'echo']\nSay hello to Ada."


@pytest.fixture
async def rig(host: Any, tmp_path: Path) -> AsyncIterator[Rig]:
    """A server that answers and one that cannot start, both given to the host's worker."""
    if find_bwrap() is None:
        pytest.skip("walls around servers need bubblewrap")
    import os

    place = tmp_path / "servers"
    place.mkdir()
    ground = Ground(place, dict(os.environ))
    down = ServerSpec(name="down", scope="", origin="forge.yaml:1", command="/no/such/binary")
    async with pooled(ground, ground.spec("echo"), down) as made:
        made.pool.begin()
        given = host.path.parts.get(ServerAccess)
        given.set_pool(made.pool)
        given.grant(host.path.worker, ["*"])
        await made.pool.wait_connected("echo")
        yield made
    for sandbox in ground.sandboxes:
        sandbox.close()


async def prefilled(host: Any, text: str) -> list[str]:
    async with asyncio.timeout(PATIENCE):
        await host.commands.run(text)
    return [each["message"] for each in host.of("status") if each["code"] == "prefill"]


async def test_mcp_shows_each_server_and_its_prompts(host: Any, rig: Rig) -> None:
    said = await host.type("/mcp")
    rows = {line.split()[0]: line for line in said.splitlines()}
    assert "ready" in rows["echo"] and "tools" in rows["echo"] and "2025-11-25" in rows["echo"]
    assert "ready" not in rows["down"]
    assert "/echo__greet" in said and "A greeting" in said
    assert "1 ready" in await host.type("/status")


async def test_reconnect_takes_one_server_by_its_name(host: Any, rig: Rig) -> None:
    before = rig.states("echo").count("ready")
    assert "ready" in await host.type("/mcp reconnect echo")
    assert rig.states("echo").count("ready") == before + 1
    assert await host.type("/mcp reconnect ecko") == "error: MCP server not found: ecko (did you mean 'echo'?)"
    assert (await host.type("/mcp reconnect")).startswith("error: Which server?")
    assert (await host.type("/mcp restart echo")).startswith("error: /mcp shows")


async def test_a_prompt_comes_into_the_input_line_and_nowhere_else(host: Any, rig: Rig) -> None:
    assert await prefilled(host, "/ECHO__greet --who Ada") == [TEXT]
    assert [each["code"] for each in host.of("status")] == ["prefill"]
    assert host.of("toolStarted") == [] and host.of("message") == []


async def test_what_is_missing_is_asked_for_with_a_form(host: Any, rig: Rig) -> None:
    ui = create_runtime_ui(host.bus)
    detach = ui.attach("test")
    forms: list[dict[str, Any]] = []

    def answer(event: Any) -> None:
        forms.append(dict(event.wire))
        values = {"who": "Ada"} if len(forms) > 1 else {}
        wire = {"requestId": event.wire["requestId"], "action": "accept", "values": values}
        host.bus.emit("formResponse", wire, source="test")

    host.bus.on("formRequired", answer)
    assert await prefilled(host, "/echo__greet") == [TEXT]
    assert len(forms) == 2, "asked again: what is required was left empty"
    assert (forms[0]["source"], forms[0]["fields"][0]["name"]) == ("echo", "who")
    detach()


async def test_what_is_wrong_with_a_prompt_is_told(host: Any, rig: Rig) -> None:
    assert await host.type("/echo__greet") == "error: Missing required: who"
    assert await host.type("/echo__greet --hwo x") == (
        "error: Unknown option '--hwo' at position 13 (did you mean '--who'?)"
    )
    assert (
        await host.type("/echo__gret --who x") == "error: Unknown command '/echo__gret' (did you mean '/echo__greet'?)"
    )
    about = await host.type("/help echo__greet")
    assert "A greeting" in about and "--who" in about and "required" in about


async def test_a_worker_without_servers_has_no_prompts(host: Any) -> None:
    assert await host.type("/mcp") == "No MCP server is configured for this worker."
    assert (await host.type("/echo__greet --who x")).startswith("error: Unknown command '/echo__greet'")
