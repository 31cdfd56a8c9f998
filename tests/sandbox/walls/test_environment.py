"""A child's environment is exactly what was declared; a secret's value is in no text."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from tests.tables import table

from golem_forge.config.sandbox_block import variable_problem
from golem_forge.core.errors import ConfigError, ToolFailed
from golem_forge.events.redaction import Redactor
from golem_forge.sandbox.walls.environment import (
    EnvBlock,
    exec_environment,
    job_environment,
    make_env_block,
    resolve_env,
)
from golem_forge.sandbox.walls.model import Job, Level
from golem_forge.sandbox.walls.toolchains import VisibleToolchains

CANARY = "canary-value-4711"


def test_every_child_gets_the_base_and_nothing_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_SECRET", CANARY)
    toolchains = VisibleToolchains(path=("/opt/x", "/usr/bin"), variables={"PYENV_ROOT": "/opt/pyenv"})
    job = Job(argv=(), env={"LANG": "de_DE.UTF-8", "X": "1", "PATH": "/evil", "HOME": "/evil"})
    found = job_environment(job, toolchains, home="/home/forge", tmp="/tmp", level=Level.FULL)
    assert found == {
        "PATH": "/opt/x:/usr/bin",
        "PYENV_ROOT": "/opt/pyenv",
        "HOME": "/home/forge",
        "TMPDIR": "/tmp",
        "LANG": "de_DE.UTF-8",
        "X": "1",
    }


def test_what_commands_declare() -> None:
    assert exec_environment(tty=False, level=Level.FULL, hosts=False, workspace="/srv/app") == {
        "USER": "forge",
        "LC_ALL": "C.UTF-8",
        "TERM": "dumb",
        "NO_COLOR": "1",
        "PAGER": "cat",
        "GIT_PAGER": "cat",
        "GH_PAGER": "cat",
        "FORGE_WORKSPACE": "/srv/app",
        "FORGE_WALLS": "full",
        "FORGE_NETWORK": "off",
        "npm_config_fetch_retries": "0",
        "pnpm_config_fetch_retries": "0",
        "PIP_RETRIES": "0",
        "UV_HTTP_RETRIES": "0",
        "CARGO_NET_RETRY": "0",
    }
    tty = exec_environment(tty=True, level=Level.FULL, hosts=True, workspace="")
    assert (tty["TERM"], tty["FORGE_WALLS"], tty["FORGE_NETWORK"]) == ("xterm-256color", "full", "proxy")
    without = exec_environment(tty=True, level=Level.OFF, hosts=True, workspace="")
    assert (without["FORGE_WALLS"], without["FORGE_NETWORK"]) == ("off", "off")  # no proxy stands there
    assert "PIP_RETRIES" not in tty and "PIP_RETRIES" not in without
    assert "NO_COLOR" not in tty and "FORGE_WORKSPACE" not in tty
    assert exec_environment(tty=False, level=Level.LANDLOCK, hosts=False, workspace="")["FORGE_WALLS"] == "landlock"


@table(
    "name", ["LD_PRELOAD", "LD_X", "BASH_ENV", "ENV", "BASH_FUNC_ls", "PATH", "HOME", "FORGE_WALLS", "a-b", "", "A=B"]
)
def test_names_that_are_refused(name: str) -> None:
    assert variable_problem(name)
    for block in ({"pass": [name]}, {"set": {name: "x"}}, {"secrets": {name: "env:X"}}):
        with pytest.raises(ConfigError) as caught:
            make_env_block(block)
        assert repr(name) in str(caught.value)


@table("name", ["TOKEN", "PATHS", "HOMER", "ENVIRONMENT", "XLD_A", "ld_preload"])
def test_names_that_are_not(name: str) -> None:
    assert variable_problem(name) == ""


@table(
    ("block", "expected"),
    [
        ({"pas": []}, "env.pas: unknown key 'pas'; did you mean 'pass'?"),
        ({"secret": {}}, "did you mean 'secrets'?"),
        ({"set": {"N": 1}}, "env.set.N: expected a text (put numbers and true/false in quotes), got 1"),
        ({"pass": "X"}, "env.pass: expected a list"),
        ({"set": {"A": "1"}, "secrets": {"A": "env:X"}}, "'A' is already under 'set'"),
        ({"secrets": {"A": CANARY}}, "env.secrets.A: expected a reference: env:NAME, file:/path, file:~/path or"),
        ({"secrets": {"A": "file:relative"}}, "expected a reference"),
        ([], "env: expected a mapping, got a list"),
    ],
)
def test_a_block_that_is_wrong_says_where(block: Any, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make_env_block(block)
    assert expected in str(caught.value)
    assert CANARY not in str(caught.value)


def test_an_empty_block_is_none_at_all() -> None:
    assert make_env_block(None) == make_env_block({}) == EnvBlock()


def test_a_block_is_resolved_when_a_child_is_started(tmp_path: Path, own_home: Path) -> None:
    kept = own_home / "token"
    kept.write_text(f"{CANARY}-file\nsecond line\n")
    kept.chmod(0o600)
    block = make_env_block(
        {
            "pass": ["EDITOR", "NOT_SET", "GITHUB_TOKEN"],
            "set": {"MODE": "test"},
            "secrets": {"A": "env:MY_A", "B": f"file:{kept}", "C": "file:~/token"},
        }
    )
    redactor = Redactor()
    environ = {"EDITOR": "vi", "MY_A": CANARY, "GITHUB_TOKEN": f"{CANARY}-passed"}
    found = resolve_env(block, environ, redactor)
    assert found.values == {
        "EDITOR": "vi",
        "GITHUB_TOKEN": f"{CANARY}-passed",
        "MODE": "test",
        "A": CANARY,
        "B": f"{CANARY}-file",
        "C": f"{CANARY}-file",
    }
    assert found.warnings == ()
    assert redactor.text(f"x {CANARY} y {CANARY}-file z {CANARY}-passed vi") == (
        "x [secret A] y [secret B] z [secret GITHUB_TOKEN] vi"
    )


def test_many_starts_do_not_fill_the_redactor() -> None:
    redactor = Redactor()
    block = make_env_block({"secrets": {"A": "env:MY_A"}})
    for _ in range(1200):
        resolve_env(block, {"MY_A": CANARY}, redactor)
    assert redactor.add_secret("B", "another-canary") is None


def test_a_file_that_others_may_read_is_named(tmp_path: Path) -> None:
    kept = tmp_path / "token"
    kept.write_text(CANARY)
    kept.chmod(0o644)
    [warning] = resolve_env(make_env_block({"secrets": {"A": f"file:{kept}"}}), {}, Redactor()).warnings
    assert "chmod 600" in warning and CANARY not in warning


@table("kind", ["unset", "missing", "fifo", "empty", "short", "binary", "directory"])
def test_a_secret_that_cannot_be_had_fails_the_call_by_its_reference(tmp_path: Path, kind: str) -> None:
    path = tmp_path / kind
    environ: dict[str, str] = {}
    reference = f"file:{path}"
    if kind == "unset":
        reference = "env:NOT_THERE"
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "empty":
        path.write_text("\nlater\n")
    elif kind == "short":
        environ, reference = {"S": "zqx"}, "env:S"
    elif kind == "binary":
        path.write_bytes(b"\xff\xfe\x80canary")
    elif kind == "directory":
        path.mkdir()
    with pytest.raises(ToolFailed) as caught:
        resolve_env(make_env_block({"secrets": {"TOKEN": reference}}), environ, Redactor())
    assert f"Secret TOKEN could not be resolved from {reference}: " in caught.value.message
    assert "canary" not in caught.value.message and "zqx" not in caught.value.message
    assert caught.value.code == "SECRET_UNRESOLVED"
