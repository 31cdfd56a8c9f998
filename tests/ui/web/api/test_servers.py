"""MCP servers on a page, with a real program behind them: a yes to exactly what was shown, drift read and agreed to."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests import known_walls

from golem_forge.cli.run_session import prompts
from golem_forge.config.program import load_program
from golem_forge.core.decisions import Status
from golem_forge.mcp.client.manifest import ManifestCache
from golem_forge.mcp.client.model import ServerManifest
from golem_forge.mcp.client.trust_store import ServerTrustStore
from golem_forge.storage.home import ForgeHome

pytest_plugins = ("tests.ui.web.asking",)
PROGRAMS = Path(__file__).parents[3] / "mcp" / "programs"
PYTHON = os.path.realpath(sys.executable)
SERVERS = {"filesystem": {}, "mcp": {"servers": ["pets"]}}


def offers(project: Path, *tools: dict[str, Any]) -> None:
    entries = [{"description": "d", "inputSchema": {"type": "object"}, **each} for each in tools]
    (project / "tools.json").write_text(json.dumps(entries))


@pytest.fixture
def program(project: Path, forge_home: ForgeHome, tried_walls: Path) -> dict[str, Any]:
    known_walls.put(tried_walls, forge_home.path)
    shutil.copy(PROGRAMS / "changing.py", project)
    server = {"command": PYTHON, "args": ["-S", "changing.py", "tools.json"], "zones": {"workspace": "ro"}}
    return {"mcp": {"servers": {"pets": server}}}


async def server(asked: Any) -> dict[str, Any]:
    (found,) = (await asked.get("tools"))["servers"]
    return dict(found)


async def test_a_server_starts_after_a_yes_to_the_config_that_was_shown_and_drift_is_agreed_to_by_its_digest(
    sessions: Any, project: Path, program: dict[str, Any]
) -> None:
    offers(project, {"name": "feed", "description": "Feeds the cat"})
    asked = await sessions(toolsets=SERVERS, program=program, answer={})
    shown = await server(asked)
    assert (shown["state"], shown["approved"]) == ("pending", False)
    assert "changing.py" in shown["card"] and "zone: /workspace (read-only)" in shown["card"]
    refused = await asked.post("servers/pets/approve", {"digest": "sha256:other"}, status=409)
    assert "changed after the page showed it" in refused["problem"] and (await server(asked))["state"] == "pending"
    await asked.until(lambda: bool(asked.cards))

    ready = await asked.post("servers/pets/approve", {"digest": shown["digest"]})
    assert (ready["state"], ready["approved"], ready["tools"]) == ("ready", True, 1), ready
    assert [(each["name"], each["pin"]) for each in ready["offers"]] == [("pets__feed", "pinned")]
    assert asked.said("approvalResolved"), "the card that asked the same is closed"
    assert "pets__feed" in {each["name"] for each in (await asked.get("tools"))["tools"]}

    offers(project, {"name": "feed", "description": "Feeds the dog"}, {"name": "walk", "description": "Walks it"})
    changed = await asked.post("servers/pets/reconnect")
    (held,) = changed["heldBack"]
    assert (held["tool"], held["reason"]) == ("feed", "drift") and "dog" in held["diff"] and "cat" in held["diff"]
    (walk,) = changed["offers"]
    assert walk["pin"] == "new" and "Walks it" in walk["definition"]
    assert {each["name"] for each in (await asked.get("tools"))["quarantined"]} == {"pets__feed"}
    assert (await asked.call("pets__feed")).status is Status.TOOL_NOT_FOUND

    await asked.post("servers/pets/agree", {"tool": "feed", "digest": "x"}, status=409)
    await asked.post("servers/pets/agree", {"tool": "nosuch", "digest": "x"}, status=404)
    agreed = await asked.post("servers/pets/agree", {"tool": "feed", "digest": held["digest"]})
    assert agreed["heldBack"] == [] and {each["tool"] for each in agreed["offers"]} == {"feed", "walk"}
    agreed = await asked.post("servers/pets/agree", {"tool": "walk", "digest": walk["digest"]})
    assert {each["pin"] for each in agreed["offers"]} == {"pinned"}
    detail = await asked.get("tools/pets__feed")
    assert detail["server"] == "pets" and detail["source"] == "mcp" and "dog" in detail["description"]
    assert "did you mean 'pets'" in (await asked.post("servers/pest/reconnect", status=404))["problem"]
    assert await asked.get("prompts") == {"prompts": []}


async def test_prompts_are_those_that_the_terminal_offers(
    sessions: Any, project: Path, program: dict[str, Any], forge_home: ForgeHome
) -> None:
    (project / "forge.yaml").write_text(json.dumps(program))
    spec = load_program(project, forge_home, trusted=lambda _: True).mcp.servers["pets"]
    ServerTrustStore(forge_home).approve_server(spec, "a person")
    greet = {"name": "greet", "description": "canary-words", "arguments": [{"name": "who", "required": True}]}
    ManifestCache(forge_home).store(
        ServerManifest(
            server="pets", scope=spec.scope, config_digest=spec.digest, fetched_at=time.time(), prompts=(greet,)
        )
    )
    asked = await sessions(toolsets=SERVERS)
    (shown,) = (await asked.get("prompts"))["prompts"]
    assert (shown["name"], shown["server"], shown["description"]) == ("pets__greet", "pets", "canary-words")
    assert [{key: shown[key] for key in ("name", "fields", "description")}] == prompts(asked.runtime)()


async def test_of_a_session_that_ended_its_program_tells_which_servers_there_are(
    recorded: Any, project: Path, program: dict[str, Any], forge_home: ForgeHome
) -> None:
    offers(project, {"name": "feed"})
    (project / "forge.yaml").write_text(json.dumps(program))
    asked = await recorded()
    shown = await server(asked)
    assert shown["state"] == "pending"
    approved = await asked.post("servers/pets/approve", {"digest": shown["digest"]})
    assert (approved["state"], approved["approved"]) == ("pending", True), "it has never answered"
    assert "does not run" in (await asked.post("servers/pets/reconnect", status=409))["problem"]
    (project / "forge.yaml").write_text("mcp: {servers: {pets: {comand: x}}}\n")
    listed = await asked.get("tools")
    assert listed["servers"] == [] and "comand" in listed["problems"][0]
