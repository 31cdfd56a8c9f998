"""A real workspace, a real FORGE_HOME, and calls judged by the rules that a test writes there."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from golem_forge.core.effects import Effect, Verb
from golem_forge.policy.facts import CallFacts, CommandFacts, McpName, SandboxWorld, command_facts
from golem_forge.policy.risk import EffectVerdict, base_verdict
from golem_forge.policy.rules.book import RuleBook
from golem_forge.policy.rules.match import RuleOutcome
from golem_forge.policy.rules.model import Rule
from golem_forge.sandbox.protected import is_secret_name
from golem_forge.sandbox.sandbox import Sandbox, open_sandbox
from golem_forge.sandbox.zones import ZoneSpec
from golem_forge.storage.home import ForgeHome
from golem_forge.tools.tool import SourceKind


class Clock:
    """Time that passes only when told to, and by default enough for the files to be looked at again."""

    def __init__(self) -> None:
        self.now = 0.0
        self.step = 1.0

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def call(
    *effects: Effect,
    tool: str = "t",
    args: dict[str, Any] | None = None,
    source: SourceKind = SourceKind.NATIVE,
    worker: str = "main",
    command: CommandFacts | None = None,
    mcp: McpName | None = None,
    project: str = "",
    says: bool = True,
) -> CallFacts:
    return CallFacts(
        tool=tool,
        source=source,
        args=args or {},
        worker=worker,
        effects=effects if says else None,
        command=command,
        mcp=mcp,
        project=project,
    )


def effect(verb: str, target: str, **facts: Any) -> Effect:
    return Effect(verb=Verb(verb), target=target, **facts)


def bases_of(facts: CallFacts) -> tuple[EffectVerdict, ...]:
    return tuple(EffectVerdict(effect=each, base=base_verdict(each)) for each in facts.effects or ())


@dataclass
class Place:
    home: ForgeHome
    workspace: Path
    sandbox: Sandbox
    clock: Clock = field(default_factory=Clock)

    def user_rules(self, text: str) -> None:
        self.write(self.home.rules, text)

    def project_rules(self, text: str) -> None:
        self.write(self.workspace / ".forge" / "rules.yaml", text)

    def write(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))

    def book(self, rules: str = "", **options: Any) -> RuleBook:
        if rules:
            self.user_rules(rules)
        return RuleBook(self.home, clock=self.clock, **options)

    def command(self, text: str, *, tool: str = "exec_command", worker: str = "main", project: str = "") -> CallFacts:
        world = SandboxWorld(self.sandbox)
        facts, effects = command_facts(text, world, "/workspace", is_secret_name)
        return call(*effects, tool=tool, args={"cmd": text}, worker=worker, command=facts, project=project)

    def ask(self, book: RuleBook, facts: CallFacts | str, extra: tuple[Rule, ...] = ()) -> RuleOutcome:
        facts = self.command(facts) if isinstance(facts, str) else facts
        return book.evaluate(facts, bases_of(facts), extra)

    def lifted(self, book: RuleBook, facts: CallFacts | str) -> str:
        """`runs`, `asks` or `blocked`, as far as base, rules and floors go."""
        facts = self.command(facts) if isinstance(facts, str) else facts
        outcome = self.ask(book, facts)
        if outcome.verdict is not None and outcome.verdict != "preApproved":
            return {"ask": "asks", "blocked": "blocked"}[outcome.verdict.value]
        floors = {mark.value for each in facts.effects or () for mark in each.marks if mark != "danger"}
        floors |= {danger for each in facts.effects or () for danger in each.dangers}
        if floors - outcome.accepted:
            return "asks"
        unasked = all(said.base == "preApproved" for said in bases_of(facts))
        return "runs" if unasked or outcome.covers else "asks"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    workspace = tmp_path / "work"
    (workspace / "src").mkdir(parents=True)
    for name in ("a", "b", ".env", "src/c"):
        (workspace / name).write_text(f"{name}\n")
    script = workspace / "ls"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    home = ForgeHome(tmp_path / "home")
    home.ensure()
    with open_sandbox(
        [ZoneSpec(name="workspace", path=workspace)], forge_home=home.path, home=Path(os.path.expanduser("~"))
    ) as sandbox:
        yield Place(home, workspace, sandbox)
