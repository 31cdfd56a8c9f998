"""`forge tools`: the catalog as people and programs see it, quickly and without a session."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("pydantic", "pydantic_core", "jsonschema_rs", "ruamel", "sqlite3", "ctypes", "tree_sitter")


def test_list(shell):
    ended = shell("tools", "list")
    assert ended.code == 0 and ended.err == ""
    lines = ended.out.splitlines()
    assert lines[0].split() == ["NAME", "SOURCE", "MODE", "DESCRIPTION"]
    row = next(line for line in lines if line.startswith("read_file "))
    assert row.split()[1:3] == ["native", "both"] and len(row.split()) > 4
    assert not shell.forge_home.exists(), "listing opens no session"


def test_list_json_and_filters(shell):
    told = shell("tools", "list", "--json").json
    names = [tool["name"] for tool in told["tools"]]
    assert {"read_file", "write_file", "delete_file"} <= set(names) and told["quarantined"] == []
    assert shell("tools", "list", "--json", "--source", "native").json["tools"] == told["tools"]
    assert shell("tools", "list", "--json", "--source", "mcp").json["tools"] == []
    nothing = shell("tools", "list", "--source", "mcp")
    assert nothing.code == 0 and "no tool fits" in nothing.err
    assert [tool["name"] for tool in shell("tools", "list", "--json", "--mode", "manual").json["tools"]] == []


def test_listing_loads_nothing_heavy(shell):
    code = "import sys; from golem_forge.cli.main import main; main(['tools', 'list']); print(*sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], env=shell.environ, cwd=shell.project, capture_output=True, text=True
    )
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "golem_forge.cli.tools" in loaded
    assert not [name for name in loaded if name.split(".")[0] in HEAVY]


def test_what_cannot_be_offered_is_listed_with_its_reason(capsys, monkeypatch, tmp_path):
    from golem_forge.agent import tool_inventory as catalogs
    from golem_forge.cli import tools as verb

    build = catalogs.build_catalog

    def with_weather():
        catalog = build()
        catalog.quarantine("weather", "custom", "schema_invalid: parameter 'when' has no type")
        return catalog

    monkeypatch.setenv("FORGE_HOME", str(tmp_path))
    monkeypatch.setattr(catalogs, "build_catalog", with_weather)
    assert verb.run(["list"]) == 0
    assert "weather  custom  schema_invalid: parameter 'when' has no type" in capsys.readouterr().out
    assert verb.run(["list", "--source", "native"]) == 0
    assert "weather" not in capsys.readouterr().out
    assert verb.run(["show", "weather"]) == 4
    assert "parameter 'when' has no type" in capsys.readouterr().err


def test_show(shell):
    ended = shell("tools", "show", "write_file")
    assert ended.code == 0
    assert ended.out.startswith("write_file  (native")
    assert "approval: by what each call touches" in ended.out
    path = next(line for line in ended.out.splitlines() if line.strip().startswith("path "))
    assert "string" in path and "required" in path


def test_show_json_has_the_definition_in_each_shape(shell):
    told = shell("tools", "show", "read_file", "--json").json
    assert told["source"] == "native" and told["definition"]["name"] == "read_file"
    assert told["definition"]["inputSchema"]["properties"]["path"]["type"] == "string"
    anthropic = shell("tools", "show", "read_file", "--shape", "anthropic").json["definition"]
    assert anthropic["input_schema"]["properties"].keys() == told["definition"]["inputSchema"]["properties"].keys()
    openai = shell("tools", "show", "read_file", "--json", "--shape", "openai").json["definition"]
    assert openai["type"] == "function"


def test_show_tells_what_the_config_says(shell):
    shell.write("forge.yaml", "approval: {tools: {read_file: blocked}}\n")
    ended = shell("tools", "show", "read_file")
    assert "blocked by config approval.tools.read_file (forge.yaml:1)" in ended.out


def test_show_by_alias(shell):
    aliases = {
        alias: tool["name"] for tool in shell("tools", "list", "--json").json["tools"] for alias in tool["aliases"]
    }
    for alias, name in list(aliases.items())[:2]:
        assert shell("tools", "show", alias, "--json").json["name"] == name


def test_show_what_is_not_there_names_the_nearest(shell):
    ended = shell("tools", "show", "raed_file")
    assert ended.code == 4 and "read_file" in ended.err and ended.out == ""


def test_search(shell):
    ended = shell("tools", "search", "delete", "a", "file")
    assert ended.code == 0
    assert ended.out.splitlines()[1].startswith("delete_file ")
    told = shell("tools", "search", "file", "--limit", "1", "--json").json
    assert len(told["tools"]) == 1 and told["total"] > 1
    nothing = shell("tools", "search", "zzzzqqqq")
    assert nothing.code == 0 and nothing.out == "" and "forge tools list" in nothing.err


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["lost"],
        ["list", "--source", "nowhere"],
        ["show"],
        ["search"],
        ["search", "x", "--limit", "0"],
        ["list", "x"],
    ],
)
def test_usage(shell, words):
    ended = shell("tools", *words)
    assert ended.code == 2 and (ended.err or not words)


def test_help_names_the_exit_codes(shell):
    for words in (["--help"], ["list", "--help"], ["show", "-h"]):
        ended = shell("tools", *words)
        assert ended.code == 0 and "4 no such tool" in ended.out


def test_in_a_program_its_worker_has_a_choice_of_its_own_and_that_is_said(shell):
    shell.write("main.worker", "---\nname: main\ntoolsets: {plan: }\n---\nPlan.\n")
    listed, shown, called = shell("tools", "list"), shell("tools", "show", "x"), shell("call", "read_file")
    assert "read_file" in listed.out and "forge run --dry-run" in listed.err
    assert (shown.code, "forge run --dry-run" in shown.err) == (4, True)
    assert (called.code, "forge run --dry-run" in called.err) == (4, True)
