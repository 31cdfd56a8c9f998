"""`forge tools`: the catalog as people and programs see it, quickly and without a session."""

from __future__ import annotations

import pytest


@pytest.fixture
def shell(in_process):
    return in_process


def test_listing_opens_no_session(shell):
    every = shell("tools", "list", "--json").json["tools"]
    assert shell("tools", "list", "--json", "--source", "native").json["tools"] == every
    for words in (("--source", "mcp"), ("--mode", "manual")):
        assert shell("tools", "list", "--json", *words).json["tools"] == []
    assert not shell.forge_home.exists()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Reads a whole file.", "Reads a whole file."),
        ("Reads a whole file at once.", "Reads a whole file…"),
        ("Reads a whole file, and", "Reads a whole file…"),
        ("Reads https://example.test/a", "Reads https://exampl…"),
    ],
)
def test_a_description_is_cut_behind_a_word(text, shown):
    from golem_forge.core.text import shorten_prose

    assert shorten_prose(text, 21) == shown and len(shown) <= 21


def test_every_description_in_the_list_ends_with_a_whole_word(shell):
    whole = {
        tool["name"]: tool["description"].strip().splitlines()[0]
        for tool in shell("tools", "list", "--json").json["tools"]
    }
    cut = [row for row in shell("tools", "list").out.splitlines() if row.endswith("…")]
    assert cut
    for row in cut:
        name, _, _, shown = row.split(None, 3)
        assert whole[name].startswith(shown[:-1]) and not whole[name][len(shown) - 1].isalnum(), row


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


def test_a_search_that_finds_nothing(shell):
    nothing = shell("tools", "search", "zzzzqqqq")
    assert nothing.code == 0 and nothing.out == "" and "forge tools list" in nothing.err


def test_no_results_cannot_be_asked_for(shell):
    ended = shell("tools", "search", "x", "--limit", "0")
    assert ended.code == 2 and ended.err


@pytest.mark.parametrize("words", [["tools", "show"], ["rules", "check"]], ids=" ".join)
def test_help_has_a_short_name_too(shell, words):
    ended = shell(*words, "-h")
    assert ended.code == 0 and "Exit: 0" in ended.out


def test_in_a_program_its_worker_has_a_choice_of_its_own_and_that_is_said(shell):
    shell.write("main.worker", "---\nname: main\ntoolsets: {plan: }\n---\nPlan.\n")
    listed, shown, called = shell("tools", "list"), shell("tools", "show", "x"), shell("call", "read_file")
    assert "read_file" in listed.out and "forge run --dry-run" in listed.err
    assert (shown.code, "forge run --dry-run" in shown.err) == (4, True)
    assert (called.code, "forge run --dry-run" in called.err) == (4, True)
