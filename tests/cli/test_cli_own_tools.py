"""Verbs that only look (`rules explain`, `sandbox explain`, `run --dry-run`, `doctor`) see the person's own tools as a
session would, and run, build and ask nothing for it. And what `forge call` says beside its answer."""

from __future__ import annotations

import json

import pytest

from .own_tools import Person

WITNESS = "open('witness', 'w')\nprint('ran')\n"
ALLOW = "version: 1\nrules:\n  - {tool: greet, verdict: preApproved}\n"


def explained(person: Person, name: str, args: dict[str, object]) -> tuple[int, dict[str, object]]:
    said = person.forge("rules", "explain", name, json.dumps(args), "--json")
    return said.code, said.json


def test_a_call_of_an_own_tool_is_judged_by_rules_trust_and_zones(person):
    person.greet()
    (person.forge_home / "rules.yaml").write_text(ALLOW)
    code, said = explained(person, "greet", {"who": "Ada"})
    assert code == 3 and said["decision"]["decidedBy"]["id"] == "definition_changed", (
        "no rule lifts that nobody trusted it"
    )
    assert person("activate", "greet", "--yes").code == 0
    for name, args in (("greet", {"who": "Ada"}), ("run_custom_tool", {"tool_name": "greet", "arguments": {}})):
        code, said = explained(person, name, args)
        assert code == 0 and said["tool"] == "greet", name
        assert [one["effect"] for one in said["effects"]] == ["exec greet (greet.py)", "read /workspace"]
    assert explained(person, "greet", {"whom": "Ada"})[0] == 2


JUDGED = {
    "{tool: greet, verdict: preApproved}": "preApproved (rules ",
    "{tool: greet, verdict: blocked, reason: not today}": "blocked (rules ",
    '{path: "/workspace", access: [read], verdict: blocked, reason: closed}': "blocked (rules ",
    "{tool: greet, verdict: preApproved, scope: {worker: somebody}}": "ask (base: ",
    "{tool: other, verdict: preApproved}": "ask (base: ",
}


def test_show_says_what_a_call_would_meet(person):
    person.greet()
    assert person("activate", "greet", "--yes").code == 0
    for rule, said in JUDGED.items():
        (person.forge_home / "rules.yaml").write_text(f"version: 1\nrules:\n  - {rule}\n")
        _, judged = explained(person, "greet", {"who": "Ada"})
        shown = person("show", "greet", "--json").json["approval"]
        assert shown.startswith(said) and shown.startswith(judged["verdict"]), rule
        assert f"approval: {shown}\n" in person("show", "greet").out
        planned = person.forge("run", "--dry-run", "--json").json
        [tool] = [each for each in planned["tools"] if each["name"] == "greet"]
        assert tool["verdict"] == judged["verdict"] or "path" in rule, rule


def test_show_tells_a_rule_about_arguments_from_one_about_every_call(person):
    person.greet()
    assert person("activate", "greet", "--yes").code == 0
    (person.forge_home / "rules.yaml").write_text(
        "version: 1\nrules:\n  - {tool: greet, args: {who: {absent: true}}, verdict: preApproved}\n"
        "  - {tool: write_file, verdict: blocked, reason: not here}\n"
    )
    shown = person("show", "greet", "--json").json["approval"]
    assert shown.startswith("ask (base: ") and "; with some arguments preApproved by rules " in shown
    assert "; blocked by rules " in person("show", "write_file", "--json").json["approval"]


def test_no_rule_is_said_to_let_run_what_nobody_trusts(person):
    person.greet()
    (person.forge_home / "rules.yaml").write_text(ALLOW)
    shown = person("show", "greet", "--json").json
    assert shown["approval"].startswith("ask (floor definition_changed")


def test_judging_builds_and_runs_nothing(person):
    person.tool("witness", WITNESS)
    assert explained(person, "witness", {})[0] == 3
    assert person("show", "witness", "--json").json["state"] == "draft"
    assert not (person.forge_home / "cache" / "build").exists()


def test_making_a_tool_is_judged_without_making_it(person):
    code, said = explained(person, "create_custom_tool", {"name": "x", "description": "y"})
    assert code == 3
    assert [one["effect"] for one in said["effects"]] == ["write /user_tools/x/tool.yaml", "write /user_tools/x/x.py"]
    assert list(person.folders.iterdir()) == []


def test_the_zone_of_tools_is_for_file_tools_and_in_no_walls(person):
    person.greet()
    said = person.forge("sandbox", "explain", "/user_tools/greet/tool.yaml", "--json").json
    assert said["tools"]["read"] == "preApproved" and said["tools"]["write"].startswith("ask")
    assert said["walls"]["shows"] == "not there" and said["walls"]["write"].startswith("refused")
    assert person.forge("sandbox", "explain", "--json", "--", "make").json["writes"] == ["/workspace"]


def test_a_dry_run_shows_the_tools_and_the_zone_its_block_gives(person, tmp_path):
    person.greet()
    person.tool("other")
    for name in ("greet", "other"):
        assert person("activate", name, "--yes").code == 0
    facts = person.forge("run", "--dry-run", "--json").json
    assert [zone["name"] for zone in facts["zones"]] == ["workspace", "user_tools"]
    own = {tool["name"]: tool["verdict"] for tool in facts["tools"] if tool["toolsets"] == ["user_tools"]}
    assert own == {"create_custom_tool": "ask", "run_custom_tool": "by target", "greet": "ask", "other": "ask"}
    block = 'user_tools: {create: false, tools: ["g*"], approval: {tools: {greet: preApproved, later: blocked}}}'
    (tmp_path / "project" / "main.worker").write_text(f"---\nname: main\ntoolsets: {{{block}}}\n---\n")
    facts = person.forge("run", "--dry-run", "--json").json
    own = {tool["name"]: tool["why"] for tool in facts["tools"] if tool["toolsets"] == ["user_tools"]}
    assert facts["zones"] == [] and list(own) == ["run_custom_tool", "greet"]
    assert "main.worker" in own["greet"]


@pytest.mark.usefixtures("told_of_walls")
def test_doctor_counts_them_and_sends_on(person):
    assert "  user tools  " not in person.forge("doctor").out
    person.greet()
    assert "0 active, 1 not" in person.forge("doctor").out
    assert person("activate", "greet", "--yes").code == 0
    assert "user tools  " in (said := person.forge("doctor")).out and "1 active\n" in said.out


def test_a_single_call_does_not_list_which_other_tools_wait(person, tmp_path):
    person.greet()
    person.tool("other")
    (tmp_path / "project" / "a.txt").write_text("x\n")
    assert person.forge("call", "read_file", "--path", "a.txt").err == ""
    said = person.forge("call", "greet")
    assert (said.code, said.err) == (
        3,
        "forge: approval_denied: custom tool 'greet' is not trusted; run: forge tools activate greet\n",
    ), "what no rule lifts is not advised to be lifted by one"
