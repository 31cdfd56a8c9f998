"""The shell tool: words, rules, and one program without a shell."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from tests.deadlines import PATIENCE, ever_longer, within
from tests.tables import table

from golem_forge.core.decisions import Status, Verdict
from golem_forge.core.errors import ForgeError
from golem_forge.policy.facts import SandboxWorld
from golem_forge.policy.shell.strict import quote
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.walls.model import Level
from golem_forge.tools.validation import InputInvalid
from golem_forge.toolsets.exec.shell import (
    ShellRuleVerdict,
    ShellSettings,
    create_shell_tool,
    evaluate_shell_rules,
    shell_model,
    shell_settings,
    split_words,
)

RULES = [
    {"pattern": "git status", "approval": "preApproved"},
    {"pattern": "git ", "approval": "ask"},
    {"pattern": "git push", "approval": "blocked"},
    {"pattern": "find ", "approval": "preApproved", "ask_if_args": ["-exec", "-delete"]},
]


async def test_t11_rules_decide_who_is_asked(shells: Callable[..., Any], asked: Any) -> None:
    ask = asked({"approved": False})
    shell = shells({"rules": RULES}, ask=ask)
    for refused in ("git push", "git -C . push", "ls", "gitx status"):
        assert (await shell(refused)).status is Status.POLICY_DENIED
    assert (await shell("git status --short")).executed
    assert (await shell("find . -name x")).status is Status.SUCCESS
    assert not ask
    assert (await shell("git commit -m x")).status is Status.APPROVAL_DENIED
    assert (await shell("find . -delete")).status is Status.APPROVAL_DENIED
    assert len(ask) == 2


async def test_danger_asks_whatever_a_rule_of_the_block_says(shells: Callable[..., Any], asked: Any) -> None:
    ask = asked({"approved": False})
    shell = shells({"default": {"approval": "preApproved"}}, ask=ask)
    assert (await shell("rm -rf x")).status is Status.APPROVAL_DENIED
    assert (await shell("cat /etc/passwd")).status is Status.APPROVAL_DENIED
    assert (await shell("rm -rf /")).status is Status.POLICY_DENIED
    assert [request.risk for request in ask] == ["critical", "critical"]


async def test_a_rule_that_asks_asks_for_what_only_reads_too(shells: Callable[..., Any], asked: Any) -> None:
    ask = asked()
    shell = shells({"rules": [{"pattern": "ls"}]}, ask=ask)
    assert (await shell("ls")).status is Status.SUCCESS
    assert len(ask) == 1


async def test_text_and_value(shell: Any) -> None:
    outcome = await shell("printf a\\\\nb")
    assert re.fullmatch(r"exit 0 \(\d+\.\d\d s\)\nstdout:\na\nb", outcome.text)
    value = outcome.result.value
    assert (value["kind"], value["exit_code"], value["stdout"], value["stderr"]) == ("exec.result", 0, "a\nb", "")
    assert value["truncated"] is False and value["denials"] == [] and "handle" not in value
    assert (await shell("true")).text.endswith(" s)\n(no output)")


async def test_both_streams_have_a_section(shell: Any) -> None:
    outcome = await shell("bash -c 'echo out; echo err >&2; exit 4'")
    assert outcome.status is Status.EXECUTION_FAILED
    assert re.fullmatch(r"exit 4 \(.*\)\nstdout:\nout\nstderr:\nerr\n", outcome.text)


async def test_nothing_is_expanded(shell: Any) -> None:
    outcome = await shell("echo $HOME ~ * 'a b'")
    assert outcome.result.value["stdout"] == "$HOME ~ * a b\n"


@table(
    ("command", "text"),
    [
        ("a|b", "shell runs one program; '|' at position 1 needs exec_command."),
        ("echo $(x)", "shell runs one program; '$(' at position 5 needs exec_command."),
        ('echo "${x}"', "shell runs one program; '${' at position 6 needs exec_command."),
        ("echo 'x", "shell: the quote ' at position 5 is not closed."),
        ("  ", "shell: command: there is no program in it"),
    ],
)
async def test_t13_what_needs_a_shell(shell: Any, command: str, text: str) -> None:
    outcome = await shell(command)
    assert (outcome.status, outcome.text) == (Status.INPUT_INVALID, text)


async def test_t14_the_time_limit(shell: Any, shells: Callable[..., Any]) -> None:
    for seconds in ever_longer(1):
        with within(seconds):
            outcome = await shell("bash -c 'echo early; sleep 600'", timeout_s=seconds)
        assert outcome.status is Status.TIMEOUT
        if "early" in outcome.text:
            break
    assert outcome.text == f"timed out after {seconds} s\nstdout:\nearly\n"
    short = shells({"default": {"approval": "preApproved"}, "timeout_s": 0.2}, mode="approve_all")
    assert (await short("sleep 60")).text.startswith("timed out after 0.2 s")


async def test_t15_a_program_that_is_not_there(shell: Any) -> None:
    outcome = await shell("no-such-program x")
    assert outcome.status is Status.EXECUTION_FAILED
    assert outcome.result.value["exit_code"] == 127
    assert outcome.text == "exit 127 (0.00 s)\nstderr:\nno-such-program: command not found\n"


@table(("name", "code", "why"), [("./plain", 126, "permission denied"), ("./nowhere", 127, "command not found")])
async def test_a_path_that_is_no_program(shell: Any, workspace: Path, name: str, code: int, why: str) -> None:
    (workspace / "plain").write_text("text")
    outcome = await shell(name)
    assert (outcome.status, outcome.result.value["exit_code"]) == (Status.EXECUTION_FAILED, code)
    assert outcome.text.endswith(f"\nstderr:\n{name}: {why}\n")


async def test_t16_the_limit_is_in_bytes_and_divides_no_character(shell: Any) -> None:
    outcome = await shell('python3 -c \'print("é" * 40000, end="")\'')
    assert outcome.truncated and outcome.output_handle
    first, label, head, joint, tail = outcome.text.split("\n")
    assert (label, set(head), set(tail)) == ("stdout:", {"é"}, {"é"})
    assert len(f"{first}\n{label}\n{head}{tail}".encode()) <= 32 * 1024
    assert f"read_output handle={outcome.output_handle}]" in joint
    assert outcome.result.value["truncated"] is True
    assert len(outcome.result.value["stdout"].encode()) < 33 * 1024


async def test_cancel_keeps_what_was_said(shell: Any, workspace: Path) -> None:
    call = asyncio.ensure_future(shell("bash -c 'echo early; touch up; sleep 60'"))
    async with asyncio.timeout(PATIENCE):
        while not (workspace / "up").exists():
            await asyncio.sleep(0.02)
    with within(1):
        shell.path.signal.interrupt()
        outcome = await call
    assert outcome.status is Status.INTERRUPTED and "early" in outcome.text


async def test_what_the_walls_refuse_is_said(shell: Any, workspace: Path) -> None:
    (workspace / ".git").mkdir()
    (workspace / ".git/config").touch()
    outcome = await shell("touch .git/config")
    assert outcome.status is Status.SANDBOX_DENIED
    way = "A person can allow it, you cannot: forge.yaml: sandbox: {unprotect: [.git/config]}"
    assert f"\nBlocked by the sandbox: write /workspace/.git/config (protected).\n{way}\nstderr:\n" in outcome.text
    assert outcome.result.value["denials"]


async def test_read_only_walls_take_virtual_paths(shells: Callable[..., Any], workspace: Path) -> None:
    (workspace / "a.txt").write_text("seen\n")
    shell = shells({"default": {"approval": "preApproved"}}, level=Level.LANDLOCK)
    assert "seen" in (await shell("cat /workspace/a.txt")).text
    assert (await shell("make")).code == "WALLS_UNAVAILABLE"


async def test_variables_of_the_block(shells: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FROM_FORGE", "passed")
    monkeypatch.setenv("TOKEN_SOURCE", "canary-4711-token")
    env = {"pass": ["FROM_FORGE"], "set": {"FIXED": "x y"}, "secrets": {"TOKEN": "env:TOKEN_SOURCE"}}
    shell = shells({"default": {"approval": "preApproved"}, "env": env}, mode="approve_all")
    outcome = await shell("printenv FROM_FORGE FIXED TOKEN TOKEN_SOURCE USER")
    assert outcome.result.value["stdout"] == "passed\nx y\n[secret TOKEN]\nforge\n"


async def test_an_embedder_needs_no_session(sandbox: Any) -> None:
    result = await create_shell_tool(sandbox).execute({"command": "echo hi", "timeout_s": None})
    assert result.value["stdout"] == "hi\n"


@table(
    ("text", "words"),
    [
        ("git status", ("git", "status")),
        ("  git \t status  ", ("git", "status")),
        ('git commit -m "a & b"', ("git", "commit", "-m", "a & b")),
        ('grep "a|b" f', ("grep", "a|b", "f")),
        ("echo '$(x) ${y} `z` | & ; < > ( )'", ("echo", "$(x) ${y} `z` | & ; < > ( )")),
        ('echo "; < > | & ( )"', ("echo", "; < > | & ( )")),
        ('echo $VAR ~ * "$HOME"', ("echo", "$VAR", "~", "*", "$HOME")),
        ("a'b'\"c\"d ''", ("abcd", "")),
        (r"grep a\|b \$x", ("grep", "a|b", "$x")),
        (r'echo "\"\\\$\x"', ("echo", r'"\$\x')),
        ("", ()),
    ],
)
def test_words(text: str, words: tuple[str, ...]) -> None:
    assert split_words(text) == words


@table(
    ("text", "found", "position"),
    [
        ("ls -l | wc", "|", 6),
        ("grep a|b f", "|", 6),
        ("a && b", "&", 2),
        ("a;b", ";", 1),
        ("cat <f", "<", 4),
        ("cat >f", ">", 4),
        ("(ls)", "(", 0),
        ("ls)", ")", 2),
        ("ls\nrm x", "\\n", 2),
        ("echo `x`", "`", 5),
        ("echo $(x)", "$(", 5),
        ('echo "${x}"', "${", 6),
        ('echo "$(x)"', "$(", 6),
        ('echo "`x`"', "`", 6),
        ("ls \\\nx", "\\n", 4),
    ],
)
def test_what_needs_a_shell_is_refused_with_its_position(text: str, found: str, position: int) -> None:
    with pytest.raises(InputInvalid) as refused:
        split_words(text)
    assert refused.value.message == f"shell runs one program; '{found}' at position {position} needs exec_command."


@table(("text", "position"), [("echo 'a", 5), ('echo x"a b', 6), ("echo a\\", 6)])
def test_what_is_not_closed_is_named_with_its_position(text: str, position: int) -> None:
    with pytest.raises(InputInvalid, match=f"at position {position} "):
        split_words(text)


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
