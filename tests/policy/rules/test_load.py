"""What a rules file may say, and how it is told what it may not: file, line, rule id, example."""

from __future__ import annotations

import pytest
from tests.tables import table

from golem_forge.core.decisions import Verdict
from golem_forge.core.errors import ConfigError
from golem_forge.policy.rules.load import make_rule, parse_rules
from golem_forge.policy.rules.model import BUILTIN_IDS, RuleFile, RuleKind, RuleOrigin
from golem_forge.policy.shell.dangers import BUILTIN_IDS as FOUND_BUILTIN_IDS

SPECIMEN = """\
version: 1
builtin_off: []
rules:
  - command: [git, [status, log, diff]]
    verdict: preApproved
    reason: reading history is fine
    match: ["git status -s", "git log --oneline", [git, diff, a b]]
    not_match: ["git push", "git -c a=b status", "git status && rm x"]
  - {command: [rm, -rf, build], exact: true, accept: [rm_force], verdict: preApproved, scope: {project: ~/src/app}}
  - {tool: create_issue, args: {repo: {one_of: [a/b]}, draft: true}, verdict: preApproved}
  - {path: "/workspace/docs/**", access: [write], verdict: preApproved}
  - {mcp: {server: github, tool: [get_issue, "list_*"]}, verdict: preApproved}
  - {host: "*.example.com", ports: [443], verdict: ask}
"""


def load(rules: str, origin: RuleOrigin = RuleOrigin.USER) -> RuleFile:
    return parse_rules(rules, "~/.forge/rules.yaml", origin)


def problems(rules: str, origin: RuleOrigin = RuleOrigin.USER) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(rules, origin)
    return list(caught.value.problems)


def one(rule: str, origin: RuleOrigin = RuleOrigin.USER) -> str:
    [problem] = problems(f"rules:\n  - {rule}\n", origin)
    return problem


def test_every_form_of_the_specification_loads() -> None:
    rules = load(SPECIMEN).rules
    assert [rule.kind for rule in rules] == [
        *[RuleKind.COMMAND] * 2,
        RuleKind.TOOL,
        RuleKind.PATH,
        RuleKind.MCP,
        RuleKind.HOST,
    ]
    assert [rule.line for rule in rules] == [4, 9, 10, 11, 12, 13]
    assert rules[0].describe() == "command git status|log|diff"
    assert rules[1].exact and rules[1].accept == {"rm_force"} and rules[1].scope.project.endswith("/src/app")
    assert rules[3].describe() == "path /workspace/docs/** (write)"
    assert rules[4].describe() == "mcp github/get_issue|list_*"
    assert rules[5].verdict is Verdict.ASK and rules[5].host == "*.example.com"


def test_ids_come_from_the_words_whatever_their_order() -> None:
    first = make_rule({"tool": "x", "verdict": "ask", "reason": "r"}, RuleOrigin.USER)
    second = make_rule({"reason": "r", "verdict": "ask", "tool": "x"}, RuleOrigin.USER)
    other = make_rule({"tool": "y", "verdict": "ask", "reason": "r"}, RuleOrigin.USER)
    assert first.id == second.id != other.id
    assert len(first.id) == 12 and int(first.id, 16) >= 0
    assert make_rule({"tool": "x", "verdict": "ask", "id": "mine"}, RuleOrigin.USER).id == "mine"


def test_a22_unknown_keys_name_the_nearest() -> None:
    found = problems("rules:\n  - tool: x\n    verdit: ask\n")
    assert found[0].startswith("~/.forge/rules.yaml:3: rules[0].verdit: rule ")
    assert found[0].endswith("unknown key 'verdit'; did you mean 'verdict'?")
    assert "'verdict' is missing" in found[1]
    assert "unknown key 'rule'; did you mean 'rules'?" in problems("rule: []\n")[0]
    assert "did you mean 'worker'?" in one("{tool: x, verdict: ask, scope: {workr: a}}")
    assert "did you mean 'one_of'?" in one("{tool: x, verdict: ask, args: {a: {oneof: [1]}}}")
    assert "did you mean 'server'?" in one("{mcp: {servr: a, tool: b}, verdict: ask}")


def test_a18_a_failing_example_has_file_line_id_and_example() -> None:
    [found] = problems(
        "rules:\n  - id: g\n    command: [git]\n    verdict: ask\n    not_match:\n      - 'ls'\n      - 'git push'\n"
    )
    assert found == (
        "~/.forge/rules.yaml:7: rules[0].not_match[1]: rule g: not_match example 'git push' matches this rule"
    )


@table(
    ("rule", "good", "bad"),
    [
        (
            "command: [cat], verdict: preApproved",
            '["cat a", "cat a | cat", [cat, "x y"]]',
            '["cat a && curl u", "./cat a"]',
        ),
        ("command: [cat], verdict: preApproved", "[\"bash -c 'cat a'\"]", '["cat > f", "lscat", "echo cat"]'),
        ("command: [rm], verdict: ask", '["/bin/rm a", "env rm a", "x; r\\\\m a"]', '["echo rm", "rmdir a"]'),
        ("command: [git, push], verdict: ask", '["git -C d push", "git push -f"]', '["git status push"]'),
        (
            "tool: t, args: {n: {min: 1, max: 3}}, verdict: ask",
            "[{n: 2}, {n: 1.0}]",
            "[{n: 4}, {n: '2'}, {n: true}, {}]",
        ),
        ("tool: t, args: {a: {absent: true}}, verdict: ask", "[{}, {b: 1}, {a: null}]", "[{a: 0}]"),
        ("tool: t, args: {a: {glob: 'x/*'}}, verdict: ask", "[{a: x/y}]", "[{a: x/y/z}, {a: 5}]"),
        ("tool: t, args: {a: 1}, verdict: ask", "[{a: 1}, {a: 1.0, b: 2}]", "[{a: true}, {a: '1'}]"),
        ("path: /w/docs/**, verdict: ask", "[/w/docs/a/b]", "[/w/docs, /w/docsx]"),
        ("mcp: {server: g, tool: 'list_*'}, verdict: preApproved", "[g/list_x]", "[g/get, h/list_x]"),
        ("host: '*.a.com', verdict: ask", "[B.a.com., 'x.a.com:443']", "[a.com, 'x.a.com:80']"),
    ],
)
def test_examples_of_every_kind_are_tried(rule: str, good: str, bad: str) -> None:
    assert load(f"rules:\n  - {{{rule}, match: {good}, not_match: {bad}}}\n").rules
    assert "does not match this rule" in problems(f"rules:\n  - {{{rule}, match: {bad}}}\n")[0]
    assert "matches this rule" in problems(f"rules:\n  - {{{rule}, not_match: {good}}}\n")[0]


@table(
    ("rule", "expected"),
    [
        ("{tool: exec_command, verdict: preApproved}", "write `command` rules, or set `walled: preApproved`"),  # A25
        ("{tool: shell, verdict: preApproved}", "cannot be preApproved as a whole"),
        ("{tool: write_stdin, verdict: preApproved}", "cannot be preApproved as a whole"),
        ("{command: [rm], verdict: blocked}", "a blocked rule needs a 'reason'"),
        ("{command: [rm], verdict: ask, accept: [rm_force]}", "only a preApproved rule can accept"),
        ("{command: [rm, x], verdict: preApproved, accept: [rm_forse]}", "did you mean 'rm_force'?"),
        ("{command: [rm, x], verdict: preApproved, accept: [secret_path]}", "has no effect in a command rule"),
        ("{path: /w/x, verdict: preApproved, accept: [rm_force]}", "has no effect in a path rule"),
        ("{tool: x, verdict: preApproved, accept: [secret_path]}", "has no effect in a tool rule"),
        ("{path: docs/**, verdict: ask}", "a path starts with its zone"),
        ("{path: '**/.env', verdict: ask}", "a path starts with its zone"),
        ("{path: /w/../etc, verdict: ask}", "empty, `.` or `..` part"),
        ("{path: /w/docs/, verdict: ask}", "empty, `.` or `..` part"),
        ("{path: /w/x, access: [raed], verdict: ask}", "did you mean 'read'?"),
        ("{host: 'https://x', verdict: ask}", "without a scheme"),
        ("{host: '*.com', verdict: ask}", "at least two labels"),
        ("{host: x/y, verdict: ask}", "without a path"),
        ("{host: x, ports: [0], verdict: ask}", "ports from 1 to 65535"),
        ("{verdict: ask}", "exactly one of command, tool, path, mcp, host"),
        ("{tool: x, path: /w/x, verdict: ask}", "it has tool and path"),
        ("{tool: x, verdict: allow}", "expected one of preApproved, ask, blocked, got 'allow'"),
        ("{tool: x, exact: true, verdict: ask}", "'exact' has no effect in a tool rule"),
        ("{command: git status, verdict: ask}", "expected a list of words"),
        ("{command: [], verdict: ask}", "expected a list of words"),
        ("{command: [sleep, 5], verdict: ask}", "quote numbers"),
        ("{command: [a, []], verdict: ask}", "alternatives"),
        ("{tool: x, args: {a: [1]}, verdict: ask}", "a plain value or a test"),
        ("{tool: x, args: {a: {absent: false}}, verdict: ask}", "absent is `true`, alone"),
        ("{mcp: {server: g}, verdict: ask}", "'tool' is a name"),
        ("{mcp: {server: g, tool: []}, verdict: ask}", "'tool' is a name"),
        ("{mcp: {server: g, tool: [a, '']}, verdict: ask}", "'tool' is a name"),
        ("{mcp: {server: 7, tool: a}, verdict: ask}", "'server' is a name"),
        ("{tool: x, verdict: ask, scope: {until: tomorrow}}", "is not an ISO time"),
        ("{tool: x, verdict: ask, scope: {project: src}}", "write the directory in full"),
        ("{tool: x, verdict: ask, match: 'a'}", "is a list of examples"),
        ("{tool: x, verdict: ask, match: ['a']}", "expected an object of arguments"),
        ("{tool: x, verdict: ask, id: 'a b'}", "an id is a text of 1 to 64 characters"),
        ("just text", "expected a rule"),
    ],
)
def test_refused(rule: str, expected: str) -> None:
    problem = one(rule)
    assert problem.startswith("~/.forge/rules.yaml:2: ")
    assert expected in problem


@table(
    ("text", "expected"),
    [
        ("version: 2\n", "this Forge reads version 1"),
        ("rules:\nbuiltin_off: [wipe]\n", "'wipe' is not a builtin rule; they are fork_bomb, wipe_device, wipe_root"),
        ("rules: {}\n", "expected a list of rules"),
    ],
)
def test_the_file_itself(text: str, expected: str) -> None:
    assert expected in "\n".join(problems(text))


PROJECT_REFUSALS = [
    ("{command: [rm, -rf, build], exact: true, accept: [rm_force], verdict: preApproved}", "'accept' is allowed only"),
    ("{host: a.b, private: true, verdict: ask}", "'private' is allowed only"),
    ("{command: [git], verdict: preApproved}", "allows nearly anything"),
    ("{command: [[ls, python3]], verdict: preApproved}", "allows nearly anything"),
]


@table(("rule", "expected"), PROJECT_REFUSALS)
def test_a26_what_a_project_may_not_say(rule: str, expected: str) -> None:
    assert expected in one(rule, RuleOrigin.PROJECT)
    assert load(f"rules:\n  - {rule}\n").rules


def test_a_project_may_not_switch_builtin_rules_off() -> None:
    assert "only your own rules.yaml" in problems("builtin_off: [wipe_root]\n", RuleOrigin.PROJECT)[0]
    assert load("builtin_off: [wipe_root]\n").builtin_off == {"wipe_root"}


def test_a_banned_prefix_is_a_warning_in_the_persons_own_file() -> None:
    file = load("rules:\n  - {command: [git], verdict: preApproved}\n  - {command: [git], verdict: ask}\n")
    [warning] = file.warnings
    assert warning.startswith("~/.forge/rules.yaml:2: rule ")
    exact = "rules:\n  - {command: [make], exact: true, verdict: preApproved}\n"
    assert not load(exact).warnings
    assert load(exact, RuleOrigin.PROJECT).rules


@table("command", ["[sh]", "[bash, -s]", "[python3, '-']", "[[make, zsh]]", "[env]", "[ssh, host]"])
@table("origin", [RuleOrigin.PROJECT, RuleOrigin.REMEMBERED])
def test_an_exact_rule_for_what_runs_its_input_is_refused(command: str, origin: RuleOrigin) -> None:
    rule = f"{{command: {command}, exact: true, verdict: preApproved}}"
    assert "it runs whatever is piped into it" in one(rule, origin)
    assert load(f"rules:\n  - {rule}\n").warnings


@table("verdict", ["ask", "blocked"])
def test_remembered_rules_are_consents_only(verdict: str) -> None:
    assert "can only be preApproved" in one(f"{{tool: x, verdict: {verdict}, reason: r}}", RuleOrigin.REMEMBERED)


def test_builtin_ids_are_those_the_detector_finds() -> None:
    assert set(FOUND_BUILTIN_IDS) == BUILTIN_IDS
