"""What each command loads: pydantic and other large libraries only where they are needed."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests import known_walls

PYDANTIC = {"pydantic", "pydantic_core"}
OTHERS = {"rich", "prompt_toolkit", "mcp", "starlette", "uvicorn", "pydantic_ai", "jsonschema_rs", "ruamel"}
OTHERS |= {"opentelemetry", "golem_forge.events.telemetry"}


def loaded(shell, *words: str) -> set[str]:
    code = (
        "import sys; from golem_forge.cli.main import main; main(sys.argv[1:]); "
        "print(*sorted(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words], env=shell.environ, cwd=shell.project, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return set(done.stderr.splitlines()[-1].split())


@pytest.mark.parametrize("words", [("--version",), ("call", "file_exists", "--path=notes.txt")], ids=" ".join)
def test_no_large_library_is_loaded(shell, words):
    assert loaded(shell, *words) & (PYDANTIC | OTHERS | {"golem_forge.ui.approval_prompt"}) == set()


def test_listing_starts_no_machinery(shell):
    found = loaded(shell, "tools", "list")
    assert "golem_forge.cli.tools" in found
    assert not found & (PYDANTIC | OTHERS | {"asyncio", "ssl", "sqlite3", "tomllib", "ctypes", "tree_sitter"})
    assert not found & {
        "golem_forge.usertools.workshop",
        "golem_forge.usertools.trust",
        "golem_forge.sandbox.walls.walls",
    }


def test_a_session_of_this_terminal_loads_nothing_of_a_store(shell, tried_walls):
    known_walls.put(tried_walls, shell.forge_home)
    (shell.project / "x.yaml").write_text("turns:\n  - {say: Hello.}\n")
    found = loaded(shell, "run", "-m", "scripted:x.yaml", "Hello")
    assert "golem_forge.agent.runtime" in found
    assert not {name for name in found if name.startswith(("golem_forge.team", "golem_forge.cli.team"))}
    assert not found & {"psycopg", "procrastinate", "opentelemetry"}
    assert "pydantic" not in found, "it offers its tools without building their models"


def test_arguments_that_need_it_load_pydantic(shell):
    """A number where a text belongs is for pydantic to coerce or to refuse."""
    code = (
        "import sys; from golem_forge.cli.main import main; main(sys.argv[1:]); "
        "print('pydantic' in sys.modules, file=sys.stderr)"
    )
    words = ["call", "file_exists", "--args-json", '{"path": 3}']
    done = subprocess.run(
        [sys.executable, "-c", code, *words], env=shell.environ, cwd=shell.project, capture_output=True, text=True
    )
    assert "path" in done.stderr and done.stderr.splitlines()[-1] == "True"


def test_the_built_in_workers_plan_loads_no_pydantic(shell):
    """`forge` draws its prompt after it has looked at the program's files."""
    code = (
        "import sys; from pathlib import Path; from golem_forge.cli.run import parse_run_args; "
        "from golem_forge.cli.dry_run import check_start; import golem_forge.ui.terminal.adapter; "
        "asked = parse_run_args(['--ui', 'web', '-m', 'scripted:x.yaml']); check_start(asked); "
        "print([name for name in ('pydantic', 'pydantic_core', 'opentelemetry') if name in sys.modules])"
    )
    (shell.project / "x.yaml").write_text("turns:\n  - {say: Hello.}\n")
    done = subprocess.run(
        [sys.executable, "-c", code], env=shell.environ, cwd=shell.project, capture_output=True, text=True
    )
    assert done.stdout.splitlines()[-1:] == ["[]"], done.stderr


def test_once_it_is_loaded_garbage_is_collected_as_usual():
    code = (
        "import gc; from golem_forge.cli import main; usual = gc.get_threshold(); main._collect_late(); "
        "late = gc.get_threshold(); many = [[] for _ in range(main.LOADED_OBJECTS + 1_000)]; "
        "print(late[0] > usual[0], gc.get_threshold() == usual, gc.callbacks)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True", "[]"]
