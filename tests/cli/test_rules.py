"""`forge rules`: check, explain, list and revoke, as a person types them."""

from __future__ import annotations

import json

import pytest

EXPLAIN = ("rules", "explain")


def rules(*lines: str) -> str:
    return "version: 1\nrules:\n" + "".join(f"  - {line}\n" for line in lines)


BLOCK_PUSH = "{command: [git, push], verdict: blocked, reason: releases are made by people}"
ALLOW_STATUS = "{command: [git, [status, log]], verdict: preApproved}"


@pytest.fixture
def shell(in_process):
    return in_process


# explain


@pytest.mark.parametrize(
    ("words", "code"),
    [
        pytest.param(["git", "push"], 3, id="A53-argv"),
        pytest.param(["git push"], 3, id="A53-text"),
        pytest.param(["ls", "-1"], 0, id="A27-proven"),
        pytest.param(["cat a | wc -l"], 0, id="A27-pipe"),
        pytest.param(["cat", "/etc/passwd"], 3, id="A28-outside"),
        pytest.param(["echo $HOME"], 3, id="A28-opaque"),
        pytest.param(["rm", "-rf", "x"], 3, id="A29-danger"),
        pytest.param(["rm", "-rf", "/"], 4, id="A30-argv"),
        pytest.param(["rm -rf /"], 4, id="A30-text"),
        pytest.param(["echo", "rm -rf /"], 0, id="A30-quoted-word"),
        pytest.param(["grep", "-rn", "x", "."], 0, id="a-tree"),
        pytest.param(["diff", "a", "b"], 0, id="two-files"),
        pytest.param(["rg", "foo"], 0, id="forges-own-rg"),
    ],
)
def test_explain_exit_code_is_the_verdict(shell, words, code):
    shell.write("a", "x\n")
    ended = shell(*EXPLAIN, "--", *words)
    assert ended.code == code, ended.out + ended.err
    assert "decided by" in ended.out and "→" in ended.out


def test_explain_runs_nothing_and_writes_nothing_A53(shell):
    shell.write("a.txt", "one\n")
    before = shell.everything()
    shell(*EXPLAIN, "--", "touch", "made")
    shell(*EXPLAIN, "--", "touch made; rm a.txt")
    shell(*EXPLAIN, "write_file", '{"path": "a.txt", "content": "two"}')
    shell(*EXPLAIN, "delete_file", '{"path": "a.txt"}')
    assert shell.everything() == before
    assert not shell.forge_home.exists()


def test_explain_names_the_deciding_rule_with_its_place_A53(shell):
    shell.write_home("rules.yaml", rules(ALLOW_STATUS, BLOCK_PUSH))
    for words in (["git", "push"], ["git push"], ["git -C d push"]):
        ended = shell(*EXPLAIN, "--", *words)
        assert ended.code == 4
        deciding = next(line for line in ended.out.splitlines() if line.startswith("decided by"))
        assert "releases are made by people" in deciding and "~/.forge/rules.yaml:4" in deciding
    assert shell(*EXPLAIN, "--", "git", "status", "-s").code == 0


def test_explain_a_write_is_judged_by_its_zone(shell):
    assert shell(*EXPLAIN, "write_file", '{"path": "n.txt", "content": "x"}').code == 3
    (shell.project / "out").mkdir()
    shell.write(
        "forge.yaml",
        "sandbox:\n  zones:\n    workspace: {path: ./out, approval: {write: preApproved, delete: blocked}}\n",
    )
    shell("trust", "--yes")
    assert shell(*EXPLAIN, "write_file", '{"path": "n.txt", "content": "x"}').code == 0
    shell.write("out/old.txt", "x")
    assert shell(*EXPLAIN, "delete_file", '{"path": "old.txt"}').code == 4


def test_explain_in_a_mode(shell):
    strict = shell(*EXPLAIN, "--mode", "strict", "--json", "--", "ls")
    assert strict.code == 3 and strict.json["decision"]["decidedBy"]["id"] == "strict"
    told = shell(*EXPLAIN, "--mode", "approve_all", "--", "make")
    assert told.code == 3 and "would run: the mode approves" in told.out
    told = shell(*EXPLAIN, "--mode", "auto_deny", "--", "make")
    assert told.code == 3 and "would be denied" in told.out


def test_explain_in_strict_mode_says_what_becomes_of_it_where_nobody_can_be_asked(shell):
    shell.write("a", "x\n")
    runs = shell(*EXPLAIN, "--mode", "strict", "--", "cat", "a")
    assert runs.code == 3 and "where nobody can answer, the mode is auto_deny, and it would run" in runs.out
    assert shell("call", "exec_command", "--cmd", "cat a", "--approval", "strict").code == 0
    denied = shell(*EXPLAIN, "--mode", "strict", "--", "make")
    assert denied.code == 3 and "where nobody can answer, it denies the call" in denied.out
    assert shell("call", "exec_command", "--cmd", "make", "--approval", "strict").code != 0


@pytest.mark.parametrize(
    "words", [(), ("{}",), ("[]",), ('{"cmd":5}',), ('{"cmd":""}',), ('{"cmd":"ls","nosuch":1}',), ("x",), ("null",)]
)
def test_explain_says_what_is_wrong_with_the_arguments_of_a_command(shell, words):
    ended = shell(*EXPLAIN, "exec_command", *words)
    assert ended.code == 2, ended.out + ended.err
    assert "cannot be judged: exec_command:" in ended.out and "Traceback" not in ended.err


def test_explain_for_a_worker(shell):
    shell.write_home(
        "rules.yaml", rules("{command: [make], exact: true, scope: {worker: main/*}, verdict: preApproved}")
    )
    assert shell(*EXPLAIN, "--", "make").code == 3
    assert shell(*EXPLAIN, "--worker", "main/coder", "--", "make").code == 0


def test_a_word_after_the_dashes_is_never_an_option(shell):
    ended = shell(*EXPLAIN, "--", "ls", "--help")
    assert ended.out.startswith("exec_command  ls --help")


def test_nothing_steers_the_terminal(shell):
    ended = shell(*EXPLAIN, "--", "echo", "\x1b[2J\u202e")
    assert "\x1b" not in ended.out and r"\x1b[2J" in ended.out


PROGRAM = """\
---
name: main
toolsets:
  filesystem: {}
  custom: {module: own.py, tools: [count_words, shout], approval: {tools: {shout: blocked}}}
sandbox: {zones: [{name: workspace, mode: rw}]}
---
Work.
"""
MODULE = """\
from golem_forge import tool
open("imported", "a").close()

@tool(mode="both")
def count_words(text: str) -> int:
    \"\"\"Counts the words of a text.\"\"\"
    return len(text.split())

def shout(text: str) -> str:
    \"\"\"Says it louder.\"\"\"
    return text.upper()
"""


@pytest.fixture
def program(shell):
    """A program with code of its own; nobody trusts it yet."""
    shell.write("main.worker", PROGRAM)
    shell.write("own.py", MODULE.replace('"imported"', repr(str(shell.project / "imported"))))
    return shell


def test_tools_of_a_programs_own_code_are_explained_and_shown_as_a_session_has_them(program):
    shell = program
    assert shell("trust", "--yes").code == 0
    asks = shell(*EXPLAIN, "count_words", '{"text": "a b"}', "--json")
    assert (asks.code, asks.json["worker"]) == (3, "main")
    assert shell(*EXPLAIN, "shout", '{"text": "a"}').code == 4
    shown = shell("tools", "show", "count_words")
    assert shown.code == 0 and "Counts the words" in shown.out and "text  string  required" in shown.out
    assert "Counts the words" in shell("call", "-p", str(shell.project), "count_words", "--help", cwd=shell.home).out
    assert "count_words  custom" in shell("tools", "list").out
    assert not (shell.forge_home / "sessions").exists(), "nothing of it is recorded"
    assert (shell.project / "imported").exists()
    missing = shell("call", "count_words")
    assert missing.code == 2 and "text" in missing.err and "forge tools show count_words" in missing.err


def test_a_worker_is_explained_with_the_tools_that_it_has(shell):
    shell.write("main.worker", "---\nname: main\ntoolsets: {filesystem: , workers: {allow: [helper]}}\n---\nWork.\n")
    shell.write("helper.worker", "---\nname: helper\ntoolsets: {exec: {}}\n---\nHelp.\n")
    no_commands = shell(*EXPLAIN, "--", "ls")
    assert no_commands.code == 2 and "cannot run commands" in no_commands.err, (
        "the call would say that there is no such tool"
    )
    assert shell(*EXPLAIN, "--worker", "main/helper", "--", "make").code == 3
    assert shell(*EXPLAIN, "helper", '{"input": "go"}').code == 3


def test_code_that_nobody_trusts_is_not_started_to_explain_anything(program):
    shell = program
    for words in ((*EXPLAIN, "count_words", "{}"), ("tools", "show", "count_words"), ("call", "count_words", "--help")):
        ended = shell(*words)
        assert ended.code in (2, 4) and "its code is not started" in ended.err, words
    assert shell(*EXPLAIN, "read_file", '{"path": "own.py"}').code == 0
    assert not (shell.project / "imported").exists()


# check


def test_check_a_project_file_by_the_rules_for_projects_A26(shell):
    text = rules("{command: [rm, -rf, build], exact: true, accept: [rm_force], verdict: preApproved}")
    shell.write("mine.yaml", text)
    shell.write(".forge/rules.yaml", text)
    assert shell("rules", "check", "mine.yaml").code == 0
    ended = shell("rules", "check")
    assert ended.code == 1 and ".forge/rules.yaml:3" in ended.out and "accept" in ended.out


def test_check_cases(shell):
    shell.write_home("rules.yaml", rules(ALLOW_STATUS, BLOCK_PUSH))
    shell.write("a.txt", "x")
    shell.write(
        "cases.yaml",
        "- {call: git status -s, verdict: preApproved}\n"
        "- {call: git push, verdict: blocked}\n"
        "- call: {tool: read_file, args: {path: a.txt}}\n"
        "  verdict: preApproved\n"
        "- {call: {tool: read_file, args: {path: /outside}}, verdict: blocked}\n",
    )
    ended = shell("rules", "check", "--cases", "cases.yaml")
    assert ended.code == 0, ended.out
    assert "4 of 4 cases hold" in ended.out


def test_check_cases_try_files_that_are_not_in_force(shell):
    allow = "{command: [cargo, [check, clippy]], verdict: preApproved}"
    shell.write("candidate.yaml", rules(allow))
    shell.write("cases.yaml", "- {call: cargo check, verdict: preApproved}\n")
    assert shell("rules", "check", "--cases", "cases.yaml").code == 1
    assert shell("rules", "check", "candidate.yaml", "--cases", "cases.yaml").code == 0
    shell.write(".forge/rules.yaml", rules(allow))
    assert shell("rules", "check", "--cases", "cases.yaml").code == 0, "an untrusted project's file can be checked too"
    assert shell(*EXPLAIN, "--", "cargo check").code == 3, "and still does not act"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("call: x\n", "cases.yaml:1: expected a list"),
        ("- {call: ls, verdict: maybe}\n", "cases.yaml:1: verdict"),
        ("\n- {cal: ls, verdict: ask}\n", "cases.yaml:2: unknown key 'cal'; did you mean 'call'?"),
        ("- {call: {tool: read_file, arg: {}}, verdict: ask}\n", "did you mean 'args'?"),
        ("- {call: [ls], verdict: ask}\n", "cases.yaml:1: call"),
        ("- ls\n- {call: ls, verdict: ask}\n", "cases.yaml:1: expected a case"),
        ("- [\n", "cases.yaml:"),
    ],
)
def test_check_cases_that_cannot_be_read(shell, text, says):
    shell.write("cases.yaml", text)
    ended = shell("rules", "check", "--cases", "cases.yaml")
    assert ended.code == 1 and says in ended.out


# list and revoke


def test_list_shows_every_source_and_why_one_is_inactive(shell):
    shell.write_home("rules.yaml", "builtin_off: [fork_bomb]\n" + rules(BLOCK_PUSH))
    shell.write_home("remembered.yaml", rules("{command: [make], exact: true, verdict: preApproved}"))
    shell.write(".forge/rules.yaml", rules(ALLOW_STATUS))
    ended = shell("rules", "list", "--json")
    assert ended.code == 0
    by_source = {line["source"]: line for line in ended.json}
    assert by_source.keys() == {"builtin", "user", "remembered", "project"}
    assert by_source["user"]["matches"] == "command git push" and by_source["user"]["hits"] == 0
    assert by_source["user"]["reason"] == "releases are made by people"
    assert "not trusted" in by_source["project"]["inactive"]
    assert next(line for line in ended.json if line["id"] == "fork_bomb")["inactive"] == "builtin_off"
    plain = shell("rules", "list")
    assert plain.code == 0 and "inactive: the project is not trusted" in plain.out
    assert "command git status|log" in plain.out


def test_revoke_a_remembered_rule_A42(shell):
    remembered = shell.write_home("remembered.yaml", rules("{command: [make], exact: true, verdict: preApproved}"))
    assert shell(*EXPLAIN, "--", "make").code == 0
    id_ = next(line["id"] for line in shell("rules", "list", "--json").json if line["source"] == "remembered")
    ended = shell("rules", "revoke", id_)
    assert ended.code == 0 and id_ in ended.out
    assert "make" not in remembered.read_text()
    assert shell(*EXPLAIN, "--", "make").code == 3
    again = shell("rules", "revoke", id_)
    assert again.code == 1 and "forge rules list" in again.err


def test_revoke_all_remembered(shell):
    shell.write_home(
        "remembered.yaml",
        rules(*(f"{{command: [{name}], exact: true, verdict: preApproved}}" for name in ("make", "tox"))),
    )
    assert "revoked 2" in shell("rules", "revoke", "--remembered").out
    assert all(line["source"] == "builtin" for line in shell("rules", "list", "--json").json)


@pytest.mark.parametrize("words", [["explain", "--", ""], ["explain", "a", "b", "c"], ["revoke", "x", "--remembered"]])
def test_usage(shell, words):
    ended = shell("rules", *words)
    assert ended.code == 2 and ended.err


def test_json_is_for_programs(shell):
    ended = shell(*EXPLAIN, "nothing_like_it", "{}", "--json")
    assert ended.code == 2
    assert json.loads(ended.out)["status"] == "tool_not_found"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["git", "push"], "for a command write: forge rules explain -- git"),
        (["git push"], "for a command write: forge rules explain -- git push"),
        (["nothing_like_it"], "forge run --dry-run lists them"),
    ],
)
def test_what_it_does_not_know_it_says_where_to_find(shell, words, said):
    ended = shell(*EXPLAIN, *words)
    assert ended.code == 2
    assert said in ended.err
