"""`forge acp` before a client is there, and `forge acp install`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.ready import run_in_process


@pytest.fixture
def environ(own_home: Path) -> dict[str, str]:
    return {"HOME": str(own_home), "FORGE_HOME": str(own_home / ".forge"), "PATH": "/usr/bin:/bin"}


@pytest.fixture
def forge(tmp_path: Path, environ: dict[str, str], capfd: pytest.CaptureFixture[str]) -> Any:
    return lambda *words: run_in_process(capfd, "acp", *words, cwd=tmp_path, env=environ)


def test_the_editors_are_listed_and_others_refused(forge: Any) -> None:
    listed = forge("install")
    assert listed.returncode == 0
    names = [line.split()[0] for line in listed.stdout.splitlines()[1:]]
    assert names == ["emacs", "jetbrains", "neovim", "vscode", "zed"]
    refused = forge("install", "nvim")
    assert refused.returncode == 4 and "neovim" in refused.stderr
    assert forge("install", "--write").returncode == 2
    assert forge("install", "zed", "--name", "a\nb").returncode == 2


@pytest.mark.parametrize(
    ("editor", "file", "key"),
    [
        ("zed", ".config/zed/settings.json", "agent_servers"),
        ("jetbrains", ".jetbrains/acp.json", "agent_servers"),
        ("vscode", ".config/Code/User/settings.json", "acp.agents"),
    ],
)
def test_an_entry_is_merged_and_the_rest_stays(forge: Any, own_home: Path, editor: str, file: str, key: str) -> None:
    place = own_home / file
    place.parent.mkdir(parents=True)
    place.write_text(json.dumps({"mine": 1, key: {"other": {"command": "x"}}}))
    printed = json.loads(forge("install", editor).stdout)
    assert forge("install", editor, "--write").returncode == 0
    assert "there already" in forge("install", editor, "--write").stdout
    written = json.loads(place.read_text())
    assert written["mine"] == 1 and written[key]["other"] == {"command": "x"}
    entry = written[key]["Golem Forge"]
    assert entry == printed[key]["Golem Forge"] and entry["args"] == ["acp"] and entry["command"].endswith("forge")
    assert entry["env"] == {"FORGE_HOME": str(own_home / ".forge")}
    place.write_text("// a comment\n{}\n")
    refused = forge("install", editor, "--write")
    assert refused.returncode == 1 and '"args"' in refused.stdout and place.read_text().startswith("// a comment")


@pytest.mark.parametrize(
    ("editor", "holds"), [("neovim", 'formatted_name = "Golem Forge"'), ("emacs", "acp-make-client")]
)
def test_code_is_printed_and_never_written(forge: Any, own_home: Path, editor: str, holds: str) -> None:
    printed = forge("install", editor)
    assert printed.returncode == 0 and holds in printed.stdout and '"acp"' in printed.stdout
    refused = forge("install", editor, "--write")
    assert refused.returncode == 1 and refused.stdout == printed.stdout and "by hand" in refused.stderr


def test_a_client_that_is_gone_at_once_ends_it(tmp_path: Path, environ: dict[str, str], ready_forge: Any) -> None:
    ended = ready_forge("acp", cwd=tmp_path, env=environ)
    assert (ended.returncode, ended.stdout) == (0, "")
