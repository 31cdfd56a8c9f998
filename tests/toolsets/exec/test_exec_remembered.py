"""What a remembered answer covers: the call that was seen, with its directory, its pipe and its terminal (A34)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from golem_forge import open_session
from golem_forge.core.calls import ToolCall
from golem_forge.policy.rules.book import RuleBook
from golem_forge.sandbox.walls import scan

CANARY = "canary-7f3a9c51e2b84d60aa"


class Person:
    """Says yes and remembers for the session while `yes`, else no."""

    def __init__(self, choice: str = "") -> None:
        self.yes, self.choice, self.asked = True, choice, list[Any]()

    def __call__(self, request: Any) -> dict[str, Any]:
        self.asked.append(request)
        if not self.yes:
            return {"approved": False}
        return {"approved": True, **({"choice": self.choice} if self.choice else {"remember": "session"})}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    project = tmp_path / "p"
    (project / "sub").mkdir(parents=True)
    (project / "Makefile").write_text("all:\n\t@echo made\n")
    (project / "sub" / "Makefile").write_text("all:\n\t@echo other\n")
    (project / "evil.sh").write_text("touch owned\n")
    return project


async def test_a34_an_exact_call_is_remembered_in_any_spelling_and_nowhere_else(project: Path) -> None:
    person = Person()
    async with open_session(project, approval="interactive", approval_callback=person) as session:

        async def run(**args: Any) -> Any:
            return await session.call("exec_command", args)

        assert (await run(cmd="make all")).ok
        person.yes = False
        for cmd in ("make   all", "bash -lc 'make all'", "make 'all'"):
            assert (await run(cmd=cmd)).text.endswith("made\n")
        assert len(person.asked) == 1
        others: list[dict[str, Any]] = [
            {"workdir": "sub"},
            {"tty": True},
            {"login": True},
            {"shell": "sh"},
            {"network": ["example.test"]},
            {"timeout_ms": 5000},
        ]
        for more in others:
            assert (await run(cmd="make all", **more)).status == "approval_denied", more
        assert (await run(cmd="cd sub && make all")).status == "approval_denied"


async def test_what_is_piped_into_a_program_is_part_of_what_was_approved(project: Path) -> None:
    person = Person()
    async with open_session(project, approval="interactive", approval_callback=person) as session:
        for seen, other in (
            ("echo hi | sh", "cat evil.sh | sh"),
            ("cat evil.sh >/dev/null | sh", "cat evil.sh | sh"),
            ("echo 'print(1)' | python3 -", "cat evil.sh | python3 -"),
            ("echo a | xargs touch", "cat evil.sh | xargs touch"),
        ):
            person.yes = True
            person.asked.clear()
            await session.call("exec_command", {"cmd": seen})
            person.yes = False
            assert (await session.call("exec_command", {"cmd": other})).status == "approval_denied", other
            await session.call("exec_command", {"cmd": seen})
            assert len(person.asked) == 2, seen
            assert not any("always" in offer.id and "exact" in offer.id for offer in person.asked[0].choices)
    assert not (project / "owned").exists()


async def test_an_always_answer_keeps_a_rule_that_acts(project: Path) -> None:
    person = Person(choice="exact:always")
    async with open_session(project, approval="interactive", approval_callback=person) as session:
        assert (await session.call("exec_command", {"cmd": "python3 -c 1"})).ok
        assert (await session.call("exec_command", {"cmd": "python3  -c 1"})).ok
        assert len(person.asked) == 1
        assert 2 <= len(person.asked[0].choices) <= 4


async def test_a_rule_never_holds_a_secret_and_is_shown_without_control_characters(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_API_TOKEN", CANARY)
    person = Person()
    person.yes = False
    async with open_session(project, approval="interactive", approval_callback=person) as session:
        await session.call("exec_command", {"cmd": f"python3 -c {CANARY}"})
        await session.call("write_file", {"path": f"{CANARY}.txt", "content": "1"})
        await session.call("write_file", {"path": "x\u202ey/\u200bz", "content": "1"})
        await session.call("exec_command", {"cmd": "python3 -c 'a\u202eb'"})
    secret_command, secret_file, odd_file, odd_command = (request.to_wire() for request in person.asked)
    for wire in (secret_command, secret_file):
        assert [choice["id"] for choice in wire["choices"]] == ["exact:session"]
    assert CANARY not in str((secret_command, secret_file))
    rules = [choice["rule"] for wire in (odd_file, odd_command) for choice in wire["choices"] if "rule" in choice]
    assert rules and any("\\u202e" in rule for rule in rules)
    assert "\u202e" not in "".join(rules) and "\u200b" not in "".join(rules)


async def test_a_recursive_read_is_proven_only_where_all_was_looked_at(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a scan did not enter is masked as a whole; whether a secret lies there is looked for before it is judged."""
    monkeypatch.setattr(scan, "MOST_ENTRIES", 3)
    deep = project / "sub" / "1" / "2" / "3" / "4" / "5"
    deep.mkdir(parents=True)
    (deep / ".env").write_text(f"TOKEN={CANARY}\n")
    (project / "flat").mkdir()
    (project / "flat" / "a").write_text("word\n")
    person = Person()
    person.yes = False
    async with open_session(project, approval="interactive", approval_callback=person) as session:
        for cmd in ("grep -r TOKEN .", "grep -Rn TOKEN sub", "rg --hidden TOKEN", "diff -r sub flat", "diff sub flat"):
            outcome = await session.call("exec_command", {"cmd": cmd})
            assert outcome.status == "approval_denied", cmd
            assert person.asked[-1].risk == "medium"
        for cmd in ("grep -r word flat", "rg TOKEN", "ls -R", "find . -name x", "du", "grep word flat/a Makefile"):
            ended = ("success", "execution_failed", "sandbox_denied")
            assert (await session.call("exec_command", {"cmd": cmd})).status in ended, cmd
    assert len(person.asked) == 5


async def test_deep_secrets_are_masked_so_recursive_reads_need_nobody(project: Path) -> None:
    deep = project / "node_modules" / "1" / "2" / "3" / "4" / "5"
    deep.mkdir(parents=True)
    (deep / ".env").write_text(f"TOKEN={CANARY}\n")
    person = Person()
    async with open_session(project, approval="interactive", approval_callback=person) as session:
        for cmd in ("grep -r TOKEN .", "rg --hidden --no-ignore TOKEN", "cat node_modules/1/2/3/4/5/.en*"):
            assert CANARY not in (await session.call("exec_command", {"cmd": cmd})).text, cmd


@pytest.mark.parametrize(
    "rule",
    [
        "{tool: exec_command, args: {cmd: {glob: '**apply_patch**'}}, verdict: blocked, reason: no patches}",
        "{command: [apply_patch], verdict: blocked, reason: no patches}",
    ],
)
async def test_a_patch_that_is_handed_on_does_not_get_past_a_rule(
    benches: Callable[..., Any], own_home: Any, rule: str
) -> None:
    from golem_forge.storage.home import forge_home
    from golem_forge.toolsets.edit import create_apply_patch_tool
    from golem_forge.toolsets.exec import create_exec_command_tool

    home = forge_home()
    home.ensure()
    home.rules.write_text(f"version: 1\nrules:\n  - {rule}\n")
    bench = benches(create_exec_command_tool(), create_apply_patch_tool(), rules=RuleBook(home))
    patch = "apply_patch <<'EOF'\n*** Begin Patch\n*** Add File: new.txt\n+x\n*** End Patch\nEOF"
    for name in ("cmd", "command"):
        outcome = await bench.path.call(ToolCall("exec_command", {name: patch}))
        assert outcome.status == "policy_denied" and "no patches" in outcome.text
