"""A session and servers that are known from their manifests: what is said of their tools, and what cannot be kept."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
from tests.agent.conftest import let_servers_start
from tests.mcp.pools import no_more_writing, until

from golem_forge.agent.session import Session, open_session
from golem_forge.config.program import load_program
from golem_forge.mcp.client.manifest import ManifestCache
from golem_forge.mcp.client.model import ServerManifest
from golem_forge.storage.home import ForgeHome


class Place:
    """A program whose servers were approved, and listed by an earlier session. None of them is ever started."""

    def __init__(self, root: Path) -> None:
        self.root = root / "program"
        self.root.mkdir()
        self.home = ForgeHome(root / "home")
        self.home.ensure()
        self.events: list[Any] = []

    def write(self, servers: dict[str, Any], **more: Any) -> None:
        blocks = {name: {"command": "/bin/true", **block} for name, block in servers.items()}
        (self.root / "forge.yaml").write_text(json.dumps({"mcp": {"servers": blocks}, **more}))
        let_servers_start(self.root, self.home)

    def listed(self, server: str, *tools: str, description: str = "Does it.") -> None:
        spec = load_program(self.root, self.home, trusted=lambda _: True).mcp.servers[server]
        entries = [{"name": name, "description": description, "inputSchema": {"type": "object"}} for name in tools]
        ManifestCache(self.home).store(
            ServerManifest(
                server=server,
                scope=spec.scope,
                config_digest=spec.digest,
                fetched_at=time.time(),
                tools=tuple(entries),
            )
        )

    def open(self, **how: Any) -> Session:
        session = open_session(self.root, home=self.home, **how)
        session.state.bus.on("*", self.events.append)
        return session

    @property
    def warnings(self) -> list[str]:
        return [event.data.message for event in self.events if event.type == "status"]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


async def test_names_in_forge_yaml_are_checked_once_their_servers_list_is_known(place: Place) -> None:
    said = {"git__comit": "ask", "git__push": "blocked", "docs__find": "ask", "nobody__x": "ask"}
    place.write({"git": {}, "docs": {"enabled": False}}, approval={"tools": said})
    async with place.open() as session:
        assert len(session.notices) == 1 and "approval.tools.nobody__x: no such tool" in session.notices[0]
        assert place.warnings == [], "nobody knows yet what the server has"
        place.listed("git", "commit", "push")
        await session.look()
        assert place.warnings == ["forge.yaml:1: approval.tools.git__comit: no such tool; did you mean 'git__commit'?"]
        await session.look()
        assert len(place.warnings) == 1


async def test_a_server_without_any_tool_is_a_known_list_too(place: Place) -> None:
    place.write({"git": {}}, approval={"tools": {"git__commit": "ask"}})
    place.listed("git")
    async with place.open() as session:
        await session.look()
        assert place.warnings == ["forge.yaml:1: approval.tools.git__commit: no such tool"]


async def test_a_change_that_was_agreed_to_and_cannot_be_pinned_is_told_of(place: Place) -> None:
    place.write({"git": {}})
    place.listed("git", "commit")
    async with place.open() as session:
        await session.look()
    place.listed("git", "commit", description="Does more.")
    async with place.open() as session:
        asked: list[str] = []

        def agree(event: Any) -> None:
            asked.append(event.data.description)
            no_more_writing(place.home)
            answer = {"requestId": event.data.request_id, "approved": True}
            asyncio.get_running_loop().call_soon(session.state.bus.emit, "approvalResponse", answer)

        session.state.bus.on("approvalRequired", agree)
        session.state.ui.attach("person")
        await session.look()
        await until(lambda: place.warnings)
        [warning] = place.warnings
        assert warning.startswith("the tool 'commit' of the MCP server 'git' stays held back: ")
        await session.look()
        assert len(asked) == 1
        assert [each.name for each in session.catalog.quarantined()] == ["git__commit"]
