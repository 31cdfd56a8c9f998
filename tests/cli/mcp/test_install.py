"""`forge mcp install`: every product gets an entry in its own words, and nothing else of its file changes."""

from __future__ import annotations

import json
import os
import stat
import tomllib

import pytest

from golem_forge.cli.mcp.install import PRODUCTS, CannotMerge, Format, ServeCommand, merge, snippet, with_entry

START = ServeCommand(command="/opt/forge", args=["mcp", "serve", "-p", '/a "b" \\c'], env={"FORGE_HOME": "/h"})
FORMATS = {Format.JSON: json.loads, Format.TOML: tomllib.loads}


def test_the_products_are_listed_with_their_files(servers):
    ended = servers("install")
    assert ended.code == 0
    assert all(name in ended.out for name in PRODUCTS) and "~/.cursor/mcp.json" in ended.out
    unknown = servers("install", "curser")
    assert unknown.code == 4 and "did you mean 'cursor'?" in unknown.err


@pytest.mark.parametrize("name", PRODUCTS)
def test_what_is_printed_starts_this_program(servers, name):
    ended = servers("install", name, "--worker", "helper")
    product = PRODUCTS[name]
    told = FORMATS[product.format](ended.out)[product.key]["golem-forge"]
    argv = told["command"] if isinstance(told["command"], list) else [told["command"], *told["args"]]
    assert os.access(argv[0], os.X_OK) and argv[0].endswith("/forge")
    assert argv[1:] == ["mcp", "serve", "-p", str(servers.project), "--worker", "helper"]
    assert (told.get("env") or told.get("environment"))["FORGE_HOME"] == str(servers.shell.forge_home)
    assert ended.code == 0 and not [path for path in servers.project.rglob("*") if path.is_file()]


@pytest.mark.parametrize("name", PRODUCTS)
def test_what_is_written_can_be_read_and_written_again(servers, name):
    first = servers("install", name, "--write")
    assert first.code == 0 and "wrote golem-forge into " in first.out, first.err
    before = servers.shell.everything()
    second = servers("install", name, "--write")
    assert second.code == 0 and "there already: golem-forge" in second.out
    assert servers.shell.everything() == before
    other = servers("install", name, "--write", "-p", str(servers.shell.home))
    if PRODUCTS[name].file(servers.project) == PRODUCTS[name].file(servers.shell.home):
        assert other.code == 1 and "--name" in other.err
        assert servers.shell.everything() == before


def test_everything_else_stays(tmp_path):
    path = tmp_path / "mcp.json"
    theirs = {"theme": "ä", "mcpServers": {"git": {"command": "uvx", "disabled": True}}, "z": [1, 2.5, None]}
    path.write_text(json.dumps(theirs, indent=4, ensure_ascii=False))
    path.chmod(0o640)
    entry = PRODUCTS["cursor"].entry(START)
    assert merge(path, Format.JSON, "mcpServers", "forge", entry) is True
    after = json.loads(path.read_text())
    assert after["mcpServers"].pop("forge") == entry and after == theirs
    assert list(after) == ["theme", "mcpServers", "z"] and '\n    "theme": "ä"' in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640 and os.listdir(tmp_path) == ["mcp.json"]


def test_not_a_byte_of_toml_before_it_changes(tmp_path):
    path = tmp_path / "config.toml"
    text = '# mine\nmodel = "x"\n\n[mcp_servers.git]\ncommand = "uvx" # stays'
    path.write_text(text)
    entry = PRODUCTS["codex"].entry(START)
    assert merge(path, Format.TOML, "mcp_servers", "forge", entry) is True
    after = path.read_text()
    assert after.startswith(text + "\n\n[mcp_servers.forge]\n")
    assert tomllib.loads(after)["mcp_servers"] == {"git": {"command": "uvx"}, "forge": entry}


def test_a_link_is_followed(tmp_path):
    real, link = tmp_path / "dotfiles.json", tmp_path / "mcp.json"
    link.symlink_to(real)
    assert merge(link, Format.JSON, "mcpServers", "forge", {"command": "x"}) is True
    assert link.is_symlink() and json.loads(real.read_text())["mcpServers"] == {"forge": {"command": "x"}}


@pytest.mark.parametrize(
    ("format", "text", "said"),
    [
        (Format.JSON, '{"mcpServers": {}', "not plain JSON"),
        (Format.JSON, '// settings\n{"mcpServers": {}}', "not plain JSON"),
        (Format.JSON, '{"a": 1, "a": 2}', "a key appears twice"),
        (Format.JSON, '{"mcpServers": []}', "no table `mcpServers`"),
        (Format.JSON, "[]", "no table `mcpServers`"),
        (Format.JSON, '{"mcpServers": {"forge": {"command": "y"}}}', "another server 'forge'"),
        (Format.JSON, "[" * 100_000, "not plain JSON"),
        (Format.TOML, "a = ", "not valid TOML"),
        (Format.TOML, "mcpServers = 1", "no table `mcpServers`"),
        (Format.TOML, 'mcpServers = { git = { command = "x" } }', "cannot be added to"),
        (Format.TOML, '[mcpServers.forge]\ncommand = "y"', "another server 'forge'"),
    ],
)
def test_what_is_not_understood_is_left_alone(tmp_path, format, text, said):
    path = tmp_path / "file"
    path.write_text(text)
    with pytest.raises(CannotMerge, match=said):
        merge(path, format, "mcpServers", "forge", {"command": "x"})
    assert path.read_text() == text and os.listdir(tmp_path) == ["file"]


def test_a_file_that_cannot_be_merged_with_is_a_failure_that_shows_the_entry(servers):
    path = servers.shell.write(".vscode/mcp.json", "// mine\n{}")
    ended = servers("install", "vscode", "--write")
    assert ended.code == 1 and "did not change" in ended.err and "by hand" in ended.err
    assert json.loads(ended.out)["servers"]["golem-forge"]["type"] == "stdio"
    assert path.read_text() == "// mine\n{}"


def test_no_pipe_and_no_flood_is_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_bytes(b" " * (5 << 20))
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for name in ("pipe", "large", "binary"):
        with pytest.raises(CannotMerge):
            merge(tmp_path / name, Format.JSON, "k", "n", {})


def test_every_string_survives_toml():
    entry = {"command": 'a"\\\x7f\x1fä\n', "args": ["", "'"], "env": {"A.B": "ü"}}
    assert tomllib.loads(snippet(Format.TOML, "k", "n", entry)) == {"k": {"n": entry}}
    assert tomllib.loads(with_entry(Format.TOML, "", "k", "n", entry)) == {"k": {"n": entry}}
