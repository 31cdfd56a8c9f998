"""The rules of a `shell` block: blocked ones first and leniently, then the first match decides."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError
from tests.tables import table

from golem_forge.core.decisions import Status, Verdict
from golem_forge.core.errors import ForgeError
from golem_forge.policy.facts import SandboxWorld
from golem_forge.policy.shell.strict import quote
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.toolsets.exec.shell import (
    ShellRuleVerdict,
    ShellSettings,
    evaluate_shell_rules,
    shell_model,
    shell_settings,
    split_words,
)

BLOCK: dict[str, Any] = {
    "rules": [
        {"pattern": "git status", "approval": "preApproved"},
        {"pattern": "git ", "approval": "ask"},
        {"pattern": "git push", "approval": "blocked"},
        {"pattern": "find ", "approval": "preApproved", "ask_if_args": ["-exec", "-delete"]},
        {"pattern": "tar ", "approval": "preApproved", "ask_if_args": ["-x", "--file"]},
        {"pattern": "ls"},
    ]
}


def settings(**changes: Any) -> ShellSettings:
    return shell_settings(shell_model().model_validate(BLOCK | changes))


def judged(command: str, sandbox: Sandbox, **changes: Any) -> ShellRuleVerdict:
    words = split_words(command)
    chosen = settings(**changes)
    text = " ".join(map(quote, words))
    return evaluate_shell_rules(words, text, chosen.rules, chosen.default, SandboxWorld(sandbox), "/workspace")


@table(
    ("command", "verdict"),
    [
        ("git status", Verdict.PRE_APPROVED),
        ("git status -s", Verdict.PRE_APPROVED),
        ("git commit -m x", Verdict.ASK),
        ("find . -name x", Verdict.PRE_APPROVED),
        ("find . -exec rm {} +", Verdict.ASK),
        ("find . -delete", Verdict.ASK),
        ("tar tf a.tar", Verdict.PRE_APPROVED),
        ("tar -vx", Verdict.ASK),
        ("tar --file=a.tar", Verdict.ASK),
        ("tar --fil a.tar", Verdict.ASK),
        ("tar --fi=a.tar", Verdict.ASK),
        ("tar --xattrs", Verdict.PRE_APPROVED),
        ("ls", Verdict.ASK),
        ("/bin/ls -l", Verdict.ASK),
    ],
)
def test_the_first_match_decides(command: str, verdict: Verdict, sandbox: Sandbox) -> None:
    assert judged(command, sandbox).verdict is verdict


@table(
    "command",
    ["git push", "git -C . push", "/usr/bin/git push -f", "env git push", "bash -c 'git push'", "'git' push"],
)
def test_a_blocked_rule_finds_the_command_in_any_dress(command: str, sandbox: Sandbox) -> None:
    with pytest.raises(ForgeError) as refused:
        judged(command, sandbox, default={"approval": "preApproved"})
    assert refused.value.status is Status.POLICY_DENIED
    assert refused.value.message == "Command blocked by rule 'git push'."


@table("command", ["gitx status", "lsof", "./git status", "make"])
def test_what_no_rule_matches_is_refused_without_a_default(command: str, sandbox: Sandbox) -> None:
    with pytest.raises(ForgeError) as refused:
        judged(command, sandbox)
    program = command.split()[0]
    assert refused.value.message == f"Command not allowed: no rule matches '{program}' and there is no default."
    assert refused.value.status is Status.POLICY_DENIED
    assert judged(command, sandbox, default={}).verdict is Verdict.ASK


def test_a_default_may_block(sandbox: Sandbox) -> None:
    with pytest.raises(ForgeError, match="Command blocked by rule 'default'"):
        judged("make", sandbox, default={"approval": "blocked"})


@table(
    "block",
    [
        {"rule": []},
        {"rules": [{"pattern": "  "}]},
        {"rules": [{"pattern": "a | b"}]},
        {"rules": [{"pattern": "a", "approval": "yes"}]},
        {"timeout_s": 0},
        {"timeout_s": 301},
        {"env": {"set": {"PATH": "/x"}}},
        {"env": {"secrets": {"TOKEN": "s3cret-value"}}},
    ],
)
def test_a_block_that_cannot_be_meant_is_refused(block: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        shell_model().model_validate(block)


def test_the_empty_block_allows_nothing() -> None:
    empty = shell_settings(shell_model().model_validate({}))
    assert (empty.rules, empty.default, empty.timeout_s) == ((), None, 30)
