"""`forge` where the system does not play along: closed and full streams, a home that is no folder, a full disk.

Each time one line says what was refused, with an exit code, and nothing is left by halves. Real processes: what a
closed stream does is decided before Python runs.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from golem_forge.usertools import create

from .conftest import FORGE
from .own_tools import Person


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    folder = tmp_path / "home/tools/x"
    folder.mkdir(parents=True)
    (folder / "tool.yaml").write_text("name: x\ndescription: d\nversion: 1.0.0\nentrypoint: x.sh\n")
    (folder / "x.sh").write_text("echo made\n")
    return {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "FORGE_HOME": str(tmp_path / "home")}


def shell(script: str, environ: dict[str, str], cwd: Path) -> subprocess.CompletedProcess[str]:
    command = ["/bin/sh", "-c", script, "sh", str(FORGE)]
    return subprocess.run(command, cwd=cwd, env=environ, capture_output=True, text=True, timeout=40)


@pytest.mark.parametrize("words", ["tools stats", "tools list --json", "tools doctor --json"])
def test_nobody_reads_a_closed_stream_and_nothing_fails(environ: dict[str, str], tmp_path: Path, words: str) -> None:
    ran = shell(f'"$1" {words} <&- >&-', environ, tmp_path)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_a_file_never_gets_the_number_of_a_closed_stream(environ: dict[str, str], tmp_path: Path) -> None:
    program = "import os, sys; from golem_forge.cli.main import main; main(['--version']); sys.exit(os.open('/', 0))"
    command = ["/bin/sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", sys.executable, "-c", program]
    assert subprocess.run(command, env=environ, cwd=tmp_path, timeout=40).returncode > 2


def test_a_full_device_is_one_line(environ: dict[str, str], tmp_path: Path) -> None:
    ran = shell('"$1" tools list >/dev/full', environ, tmp_path)
    assert (ran.returncode, ran.stderr) == (1, "forge: No space left on device\n")


@pytest.mark.parametrize("words", [("tools", "new", "made"), ("call", "read_file", "--path", "x")])
def test_a_home_that_is_a_file_is_said_to_be_one(
    words: tuple[str, ...], person: Person, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "no-folder").write_text("mine")
    monkeypatch.setenv("FORGE_HOME", str(tmp_path / "no-folder"))
    said = person.forge(*words)
    assert said.code == 1 and said.err == "forge: 'no-folder': Not a directory\n"
    assert (tmp_path / "no-folder").read_text() == "mine"


def test_a_full_disk_leaves_no_half_of_a_new_tool(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(create.os, "fsync", full)
        said: Any = person("new", "made")
    assert said.code == 1 and said.err == "forge: No space left on device\n"
    assert os.listdir(person.home.ensure("tools")) == []
    assert person("new", "made").code == 0
