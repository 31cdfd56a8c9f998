"""What each command loads: pydantic and other large libraries only where they are needed."""

from __future__ import annotations

import json
import subprocess
import sys

from tests import known_walls

PYDANTIC = {"pydantic", "pydantic_core"}
OTHERS = {"rich", "prompt_toolkit", "mcp", "starlette", "uvicorn", "pydantic_ai", "jsonschema_rs", "ruamel"}
OTHERS |= {"opentelemetry", "golem_forge.events.telemetry"}


STEPS = """
import contextlib, json, sys
from golem_forge.cli.main import main

def forge(*words):
    with contextlib.suppress(SystemExit):
        main(words)
    say_loaded()

def say_loaded():
    print(json.dumps(sorted(sys.modules)), file=sys.stderr)

forge("--version")
forge("tools", "list")
forge("call", "file_exists", "--path=notes.txt")

import golem_forge.ui.terminal
import golem_forge.agent.model.selection, golem_forge.agent.model.scripted
import golem_forge.agent.dialogue, golem_forge.agent.budget
say_loaded()

from golem_forge.cli.run import parse_run_args
from golem_forge.cli.dry_run import check_start
import golem_forge.ui.terminal.adapter
check_start(parse_run_args(["--ui", "web", "-m", "scripted:x.yaml"]))
say_loaded()

forge("run", "-m", "scripted:x.yaml", "Hello")
forge("call", "file_exists", "--args-json", '{"path": 3}')
"""
"""Each step in the process of those before it: what is not loaded after one was loaded by none of them."""


def test_each_command_loads_only_what_it_needs(shell, tried_walls):
    known_walls.put(tried_walls, shell.forge_home)
    (shell.project / "x.yaml").write_text("turns:\n  - {say: Hello.}\n")
    done = subprocess.run(
        [sys.executable, "-c", STEPS], env=shell.environ, cwd=shell.project, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    said = [set(json.loads(line)) for line in done.stderr.splitlines() if line.startswith('["')]
    version, listing, call, parts, plan, session, coerced = said

    machinery = {"asyncio", "ssl", "sqlite3", "tomllib", "ctypes", "tree_sitter", "golem_forge.sandbox.walls.walls"}
    machinery |= {"golem_forge.usertools.workshop", "golem_forge.usertools.trust"}
    assert not version & (PYDANTIC | OTHERS)
    assert "golem_forge.cli.tools" in listing and not listing & (PYDANTIC | OTHERS | machinery)
    assert not call & (PYDANTIC | OTHERS | {"golem_forge.ui.approval_prompt"})

    assert not parts & {"rich", "prompt_toolkit"}, "before an adapter for a terminal is made"
    assert not parts & {"pydantic_ai", "anthropic", "openai", "httpx2"}, "models are named and played without"
    assert not plan & (PYDANTIC | {"opentelemetry"}), "`forge` draws its prompt after this look at the program's files"

    assert "golem_forge.agent.runtime" in session
    assert not {name for name in session if name.startswith(("golem_forge.team", "golem_forge.cli.team"))}
    assert not session & {"psycopg", "procrastinate", "opentelemetry", "golem_forge.events.telemetry"}
    assert "pydantic" not in session, "it offers its tools without building their models"
    assert "path" in done.stderr and "pydantic" in coerced, "a number for a text is for it to coerce or to refuse"


def test_once_it_is_loaded_garbage_is_collected_as_usual():
    code = (
        "import gc; from golem_forge.cli import main; usual = gc.get_threshold(); main._collect_late(); "
        "late = gc.get_threshold(); many = [[] for _ in range(main.LOADED_OBJECTS + 1_000)]; "
        "print(late[0] > usual[0], gc.get_threshold() == usual, gc.callbacks)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True", "[]"]
