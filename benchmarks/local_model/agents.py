"""Who does the tasks: Forge with native calls, Forge with calls as XML, and a minimal agent on pydantic-ai.

Each gets the same model at the same address, works in a directory of its own and gives its answer as text. The minimal
agent reads and writes files and runs commands, outside any walls: in a directory that is deleted afterwards.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

from benchmarks.local_model.tasks import MCP_TOOL, SUB_WORKER, USER_TOOL, Task

_SHELF_MARK: Final = '[ "$1" = --book=Dune ] && echo SF-4711 || echo unknown\n'
_SERVER: Final = Path(__file__).resolve().parents[1] / "mcp_server.py"
_FORGE: Final = str(Path(sys.executable).with_name("forge"))
_MOST_TURNS: Final = 12


class Agent(Protocol):
    name: str
    can: frozenset[str]
    """Of what a task may need."""

    def do(self, task: Task, where: Path, address: str, model: str, seconds: float) -> str:
        """Gives its answer; subprocess.TimeoutExpired: it took too long."""


class Forge:
    can = frozenset({USER_TOOL, MCP_TOOL, SUB_WORKER})

    def __init__(self, name: str, tool_format: str = "") -> None:
        """`tool_format` makes a worker of its own; without it the built-in one works."""
        self.name = name
        self._format = tool_format

    def do(self, task: Task, where: Path, address: str, model: str, seconds: float) -> str:
        home = where.with_name("home") / ".forge"
        home.mkdir(mode=0o700, parents=True)
        env = {**os.environ, "HOME": str(home.parent), "FORGE_HOME": str(home)}
        visible = [sys.prefix, sys.base_prefix, str(_SERVER.parent)]  # to the MCP server, inside its walls
        (home / "config.yaml").write_text(
            f"models: {{openai-compatible: {{base_url: '{address}'}}}}\nmodel: openai-compatible:{model}\n"
            f"sandbox: {{read: {json.dumps(visible)}}}\n"
        )
        if task.needs == USER_TOOL:
            words = ("--language", "shell", "--param", "book", "--source", "-")
            self._forge(where, env, "tools", "new", "shelf_mark", "--description", "Shelf mark of a book", *words)
            self._forge(where, env, "tools", "activate", "shelf_mark", "--yes")
        if self._format or task.needs == SUB_WORKER:
            self._write_program(task, where)
            self._forge(where, env, "trust", "--yes")
        if task.needs == MCP_TOOL:
            server = (sys.executable, str(_SERVER))
            self._forge(where, env, "mcp", "add", "bench", "--user", "--yes", "--no-network", "--", *server)
        done = subprocess.run(
            [_FORGE, "run", "--headless", "-a", "approve_all", task.prompt],
            cwd=where,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,  # a run that failed has no answer
        )
        return done.stdout

    def _write_program(self, task: Task, where: Path) -> None:
        blocks = ["  filesystem:", "  coding:", "  user_tools: {create: true}"]  # as the built-in worker has them
        blocks += ["  mcp: {servers: [bench]}"] if task.needs == MCP_TOOL else []
        blocks += ["  workers: {allow: [librarian]}"] if task.needs == SUB_WORKER else []
        format = f"tool_format: {self._format}\n" if self._format else ""
        zones = "sandbox: {zones: [{name: workspace, mode: rw}]}\n"
        body = f"---\nname: main\n{format}{zones}toolsets:\n" + "\n".join(blocks)
        (where / "forge.yaml").write_text("entry: main.worker\n")
        (where / "main.worker").write_text(f"{body}\n---\nYou help with the files in this directory.\n")
        if task.needs == SUB_WORKER:
            (where / "librarian.worker").write_text(
                f"---\nname: librarian\ndescription: Knows the books in books.txt.\n{format}{zones}"
                "toolsets:\n  filesystem:\n---\nAnswer from the file books.txt.\n"
            )

    def _forge(self, where: Path, env: Mapping[str, str], *words: str) -> None:
        done = subprocess.run(
            [_FORGE, *words], cwd=where, env=env, input=_SHELF_MARK, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"forge {' '.join(words)}: {done.stdout}{done.stderr}")


class MinimalAgent:
    """As a person would write one: three tools, one sentence, the library's own loop."""

    name = "a minimal agent (pydantic-ai)"
    can = frozenset[str]()

    def do(self, task: Task, where: Path, address: str, model: str, seconds: float) -> str:
        done = subprocess.run(
            [sys.executable, "-c", _MINIMAL, address, model, task.prompt, str(_MOST_TURNS)],
            cwd=where,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        return done.stdout


_MINIMAL: Final = '''
import subprocess, sys
from pathlib import Path
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import UsageLimits

address, model, prompt, turns = sys.argv[1:]
provider = OpenAIProvider(base_url=address, api_key="none")
agent = Agent(OpenAIChatModel(model, provider=provider), instructions="You help with the files in this directory.")

@agent.tool_plain
def read_file(path: str) -> str:
    """Read a text file."""
    return Path(path).read_text() if Path(path).is_file() else "There is no such file."

@agent.tool_plain
def write_file(path: str, content: str) -> str:
    """Write a text file."""
    Path(path).write_text(content)
    return "written"

@agent.tool_plain
def run_command(command: str) -> str:
    """Run a shell command and return its output."""
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60)
    return (done.stdout + done.stderr)[-8000:]

print(agent.run_sync(prompt, usage_limits=UsageLimits(request_limit=int(turns))).output)
'''

AGENTS: Final[tuple[Agent, ...]] = (Forge("Forge, native calls"), Forge("Forge, calls as XML", "xml"), MinimalAgent())
