"""What a denial proposes, typed into the file that it names: the same command is refused no more."""

from __future__ import annotations

import http.server
import json
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.deadlines import PATIENCE

from golem_forge.sandbox.walls.bubblewrap import find_bwrap

from .conftest import Shell

pytestmark = pytest.mark.skipif(find_bwrap() is None, reason="full walls need bubblewrap")


@pytest.fixture
def shell(in_process: Shell) -> Shell:
    return in_process


def denials(shell: Shell, command: str, *more: str) -> list[dict[str, Any]]:
    ended = shell("call", "exec_command", "--cmd", command, "--approval", "approve_all", "--json", *more)
    assert ended.out, ended.err
    found: list[dict[str, Any]] = json.loads(ended.out)["value"].get("denials") or []
    return found


def merged(old: Any, new: Any) -> Any:
    if isinstance(old, dict) and isinstance(new, dict):
        return {**old, **{key: merged(old.get(key), value) for key, value in new.items()}}
    return [*old, *new] if isinstance(old, list) and isinstance(new, list) else new


def type_in(shell: Shell, widen: str) -> None:
    """As a person would: the lines into the file they are for, beside what is there, and what changed is trusted."""
    file, _, lines = widen.partition(": ")
    lines = lines.partition(" (")[0]
    if file.startswith("rules.yaml"):
        path, typed = shell.forge_home / "rules.yaml", {"rules": yaml.safe_load(lines)}
    elif file.startswith("config.yaml"):
        path, typed = shell.forge_home / "config.yaml", yaml.safe_load(lines)
    else:
        assert file == "forge.yaml"
        path, typed = shell.project / "forge.yaml", yaml.safe_load(lines)
    there = yaml.safe_load(path.read_text()) if path.exists() else {}
    path.write_text(yaml.safe_dump(merged(there or {}, typed)))
    path.chmod(0o600)
    shell("trust", "--yes")


@pytest.fixture
def repository(shell: Shell) -> Path:
    subprocess.run(["git", "init", "-q", str(shell.project)], check=True, timeout=PATIENCE)
    return shell.project


@pytest.mark.parametrize(
    ("command", "target", "proposal"),
    [
        ("echo x > .git/hooks/pre-commit", "/workspace/.git/hooks/pre-commit", "unprotect: [.git/hooks]"),
        ("echo x >> .git/info/exclude", "/workspace/.git/info/exclude", "unprotect: [.git]"),
        pytest.param(
            *("echo '#' >> .git/config", "/workspace/.git/config", "unprotect: [.git/config]"), marks=pytest.mark.long
        ),
        pytest.param(
            *("echo x > .vscode/new", "/workspace/.vscode/new", "unprotect: [.vscode]"), marks=pytest.mark.long
        ),
        pytest.param(
            *("echo x > sub/.mcp.json", "/workspace/sub/.mcp.json", "unprotect: [.mcp.json]"), marks=pytest.mark.long
        ),
    ],
)
def test_a_protected_name(shell: Shell, repository: Path, command: str, target: str, proposal: str) -> None:
    for name in (".vscode/settings.json", "sub/.mcp.json"):
        shell.write(name, "{}")
    [denial] = denials(shell, command)
    assert (denial["kind"], denial["access"], denial["target"]) == ("protected", "write", target)
    assert proposal in denial["widen"]
    type_in(shell, denial["widen"])
    assert denials(shell, command) == []


@pytest.mark.parametrize("command", ["cat .env > copy", "echo x > .env", "rm .env"])
def test_a_secret(shell: Shell, command: str) -> None:
    shell.write(".env", "canary")
    script = f"bash -c '{command}'"
    [denial] = denials(shell, script)
    assert denial["kind"] == "secret"
    type_in(shell, denial["widen"])
    assert denials(shell, script) == []


def test_a_secret_with_a_pattern_in_its_name(shell: Shell) -> None:
    shell.write("app/[id]/.env", "canary")
    [denial] = denials(shell, "head app/*/.env")
    type_in(shell, denial["widen"])
    assert denials(shell, "head app/*/.env") == []


def test_a_secret_that_is_protected_too_needs_both(shell: Shell) -> None:
    shell.write(".npmrc", "canary")
    [denial] = denials(shell, "echo x > .npmrc")
    first, _, second = denial["widen"].partition("; ")
    type_in(shell, first)
    type_in(shell, second)
    assert denials(shell, "echo x > .npmrc") == []


def test_a_read_only_zone(shell: Shell) -> None:
    (shell.home / "docs").mkdir()
    zones = {"workspace": {"path": "."}, "docs": {"path": str(shell.home / "docs"), "mode": "ro"}}
    shell.write("forge.yaml", yaml.safe_dump({"sandbox": {"zones": zones}}))
    shell("trust", "--yes")
    [denial] = denials(shell, "touch /docs/made")
    type_in(shell, denial["widen"])
    assert denials(shell, "touch /docs/made") == []
    assert (shell.home / "docs" / "made").exists()


def test_a_path_rule(shell: Shell) -> None:
    shell.write("frozen/x", "x")
    rule = {"path": "/workspace/frozen/**", "access": ["write"], "verdict": "ask"}
    rules = shell.write_home("rules.yaml", yaml.safe_dump({"rules": [rule]}))
    [denial] = denials(shell, "touch frozen/x")
    assert "remove the path rule on /workspace/frozen" in denial["widen"]
    rules.write_text("rules: []\n")
    assert denials(shell, "touch frozen/x") == []


def test_a_directory_outside(shell: Shell) -> None:
    other = shell.home / "Shared Things"
    other.mkdir()
    shell.write_home("config.yaml", yaml.safe_dump({"sandbox": {"read": [str(other)]}})).chmod(0o600)
    command = f"touch '{other}/made'"
    [denial] = denials(shell, command)
    assert (denial["kind"], denial["access"]) == ("path", "write")
    type_in(shell, "forge.yaml: sandbox: {zones: {workspace: {path: .}}}")
    type_in(shell, denial["widen"])
    assert denials(shell, command) == []
    assert (other / "made").exists()


@pytest.fixture
def web() -> Iterator[int]:
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def test_a_host(shell: Shell, web: int) -> None:
    shell.forge_home.mkdir(mode=0o700, exist_ok=True)
    command = (f"curl -s -o /dev/null http://0.0.0.0:{web}/", "--network", f"0.0.0.0:{web}")
    [denial] = denials(shell, *command)
    assert (denial["kind"], denial["target"]) == ("host", f"0.0.0.0:{web}")
    type_in(shell, denial["widen"])
    assert denials(shell, *command) == []
