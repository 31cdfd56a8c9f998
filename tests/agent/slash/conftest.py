"""A real session behind the few things slash commands need of a running worker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Literal

import pytest
from tests.deadlines import PATIENCE

from golem_forge import Tool, tool
from golem_forge.agent.files.worker import Worker
from golem_forge.agent.session import open_session
from golem_forge.agent.slash.handler import SlashCommands
from golem_forge.config.run_block import GenerationSettings
from golem_forge.events.runtime_ui import create_runtime_ui
from golem_forge.events.serialization import Event
from golem_forge.storage.home import forge_home

runs: list[dict[str, Any]] = []


@tool(mode="manual", label="Push to Remote", category="Git")
def git_push(branch: str, remote: Literal["origin", "upstream"] = "origin", force: bool = False) -> str:
    """Push commits to a remote repository.

    Args:
        branch: Target branch
    """
    runs.append({"branch": branch, "remote": remote, "force": force})
    return f"pushed {branch}"


@tool(mode="manual")
def say(
    msg: str = "", n: int = 0, count: int = 0, tag: list[str] | None = None, a: bool = False, b: bool = False,
    c: bool = False,
) -> str:  # fmt: skip
    """Say it."""
    runs.append({"msg": msg, "n": n, "count": count, "tag": tag, "a": a, "b": b, "c": c})
    return "said"


@tool(mode="both", category="Git")
def help(word: str = "") -> str:
    """A tool with the name of a built-in."""
    runs.append({"help": word})
    return "helped"


@tool(mode="llm")
def secret_plan() -> str:
    """Only for models."""
    runs.append({"llm": True})
    return "no"


class Meter:
    def sums(self) -> dict[str, Any]:
        return {"input": 1200, "output": 30, "cached": 1000, "cost": 0.0123}


class Host:
    """What a WorkerRuntime is to slash commands."""

    def __init__(self, directory: Path, tools: tuple[Any, ...], **options: Any) -> None:
        self.session = open_session(directory, tools=tools, **options)
        self.id = "run-1"
        self.session_id = self.session.id
        self.home = forge_home()
        self.program = self.session.program
        self.worker = Worker(name="main", instructions="")
        self.path = self.session.path
        self.bus = self.session.bus
        self.ui = create_runtime_ui(self.bus)
        self.rules = self.session.rules
        self.controller = self.path._approval_stage._controller
        self.journal = self.session.journal
        self.call_ids: set[str] = set()
        self.workers = (self.worker,)
        self.skills_summary = ""
        self.open_session: Any = None
        self.meter = Meter()
        self.model_name = "anthropic:small"
        self.generation = GenerationSettings()
        self.context_used = 500
        self.context_limit = 1000
        self.history = ["something"]
        self.left = False
        self.refreshed = 0
        self.events: list[Event] = []
        self.bus.on("*", self.events.append)
        self.commands = SlashCommands(self, leave=self._leave)

    def _leave(self) -> None:
        self.left = True

    def switch_model(self, name: str, generation: GenerationSettings | None = None) -> None:
        from golem_forge.core.errors import ConfigError

        if ":" not in name:
            raise ConfigError(f"model {name!r} names no provider")
        self.model_name, self.generation = name, generation or self.generation

    async def refresh(self) -> None:
        self.refreshed += 1

    async def compact_history(self, wish: str = "") -> tuple[int, int] | None:
        self.wish = wish
        return (12_345, 678) if wish else None

    def clear_history(self) -> None:
        self.history.clear()

    def of(self, type: str) -> list[dict[str, Any]]:
        return [dict(event.wire) for event in self.events if event.type == type]

    async def type(self, text: str) -> str:
        """Types a line; gives what was said to the person: `error: …` if it is one, empty if nothing was."""
        before = len(self.of("status"))
        await asyncio.wait_for(self.commands.run(text), PATIENCE)
        said = self.of("status")[before:]
        assert all(each["code"] == "command" for each in said) and len(said) <= 1
        if not said:
            return ""
        return ("error: " if said[0]["type"] == "error" else "") + said[0]["message"]

    async def until(self, holds: Callable[[], Any]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not holds():
            assert time.monotonic() < deadline, "it never came to hold"
            await asyncio.sleep(0.002)


@pytest.fixture
async def make_host(own_home: Path, tmp_path: Path) -> AsyncIterator[Callable[..., Host]]:
    hosts: list[Host] = []
    runs.clear()

    def make(*tools: Tool, **options: Any) -> Host:
        project = tmp_path / "project"
        project.mkdir(exist_ok=True)
        if "approval_callback" not in options:
            options.setdefault("approval", "approve_all")
        hosts.append(Host(project, tools or (git_push, say, help, secret_plan), **options))
        return hosts[-1]

    yield make
    for host in hosts:
        await host.commands.aclose()
        await host.session.aclose()


@pytest.fixture
def host(make_host: Callable[..., Host]) -> Host:
    return make_host()


@pytest.fixture
def ran() -> list[dict[str, Any]]:
    return runs
