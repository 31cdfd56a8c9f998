"""A call of a server's tool that was simply allowed is not weighed anew each time; whatever could change that, does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from golem_forge.config.run_block import ApprovalMode
from golem_forge.config.validation import Setting
from golem_forge.core.decisions import Verdict, VerdictSource
from golem_forge.core.effects import Effect, Verb
from golem_forge.policy.base import ApprovalBlock, ApprovalBlocks
from golem_forge.policy.evaluate import Evaluation, Judge, ParentPolicy
from golem_forge.policy.rules.book import RuleBook
from golem_forge.storage.home import ForgeHome
from golem_forge.tools.context import Plan, ToolContext
from golem_forge.tools.inputs import Arguments
from golem_forge.tools.tool import Definition, Remote, SourceKind, Tool

EFFECTS = (Effect(verb=Verb.NET, target="mcp://stock"),)


def blocks(verdict: Verdict) -> ApprovalBlocks:
    said = ApprovalBlock(default=Setting(verdict, "forge.yaml:3"))
    return ApprovalBlocks(blocks={"stock__take": said})


class Desk:
    def __init__(self, home: Path, mode: ApprovalMode = ApprovalMode.INTERACTIVE, **more: Any) -> None:
        home.mkdir(exist_ok=True)
        self.home = ForgeHome(home)
        self.rules = RuleBook(self.home, clock=lambda: 0.0)
        self.judge = Judge(blocks(Verdict.PRE_APPROVED), self.rules, mode, **more)
        self.approved = True
        self.tool = Tool(
            "stock__take",
            "Take some.",
            input_schema={"type": "object"},
            planner=lambda args, ctx: Plan(run=lambda: None, effects=EFFECTS),
            source=SourceKind.MCP,
            definition=lambda: Definition(digest="d", approved=self.approved),
            remote=Remote("stock", "take"),
        )

    async def judged(self, effects: tuple[Effect, ...] = EFFECTS, handed: tuple[VerdictSource, ...] = ()) -> Evaluation:
        arguments = Arguments({"n": 1}, {"n": 1})
        plan = Plan(run=lambda: None, effects=effects)
        return await self.judge.judge(self.tool, arguments, plan, ToolContext(worker="main"), handed=handed)

    async def verdict(self, **more: Any) -> Verdict:
        return (await self.judged(**more)).decision.verdict


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """No time passes between two calls."""
    monkeypatch.setattr("golem_forge.policy.rules.book.CHECK_EVERY", 0.02)
    return Desk(tmp_path / "home")


async def test_the_second_decision_says_what_the_first_said_and_has_keys_of_its_own(desk: Desk) -> None:
    first, second = await desk.judged(), await desk.judged()
    assert second.decision is not first.decision and second.decision == first.decision
    assert second.decision.sources is first.decision.sources, "it was not weighed again"
    assert second.decision.keys() == first.decision.keys() != ("", "")
    assert (second.bases, second.base, second.outcome) == (first.bases, first.base, first.outcome)


async def test_a_rule_that_is_written_later_counts(desk: Desk) -> None:
    assert await desk.verdict() is Verdict.PRE_APPROVED
    desk.home.rules.write_text("rules:\n  - {mcp: {server: stock, tool: [take]}, verdict: blocked, reason: no}\n")
    assert await desk.verdict() is Verdict.BLOCKED
    desk.home.rules.unlink()
    assert await desk.verdict() is Verdict.PRE_APPROVED


async def test_rules_that_cannot_be_read_stop_it(desk: Desk) -> None:
    assert await desk.verdict() is Verdict.PRE_APPROVED
    desk.home.rules.write_text("rules: [")
    with pytest.raises(Exception, match="rules"):
        await desk.verdict()


async def test_a_definition_that_nobody_approved_asks(desk: Desk) -> None:
    assert await desk.verdict() is Verdict.PRE_APPROVED
    desk.approved = False
    assert await desk.verdict() is Verdict.ASK


async def test_other_words_of_the_config_count(desk: Desk) -> None:
    assert await desk.verdict() is Verdict.PRE_APPROVED
    desk.judge.set_blocks(blocks(Verdict.BLOCKED))
    assert await desk.verdict() is Verdict.BLOCKED


async def test_other_effects_are_another_call(desk: Desk) -> None:
    assert await desk.verdict() is Verdict.PRE_APPROVED
    other = (Effect(verb=Verb.EXEC, target="rm -rf /"),)
    judged = await desk.judged(effects=other)
    assert judged.facts.effects is other and [each.effect for each in judged.bases] == list(other)


async def test_what_a_tool_that_handed_it_on_says_counts(desk: Desk) -> None:
    assert await desk.verdict() is Verdict.PRE_APPROVED
    asks = VerdictSource(source="config", verdict=Verdict.ASK)
    assert await desk.verdict(handed=(asks,)) is Verdict.ASK


async def test_the_tools_own_word_counts_when_it_changes(desk: Desk) -> None:
    assert await desk.verdict() is Verdict.PRE_APPROVED
    desk.tool.needs_approval = True
    assert await desk.verdict() is Verdict.ASK


async def test_strict_mode_asks_every_time(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "home", ApprovalMode.STRICT)
    assert [await desk.verdict() for _ in range(2)] == [Verdict.ASK, Verdict.ASK]


async def test_what_is_blocked_for_a_worker_above_is_looked_up_every_time(tmp_path: Path) -> None:
    above = ParentPolicy(worker="boss", blocks=blocks(Verdict.BLOCKED))
    desk = Desk(tmp_path / "home", parents=(above,))
    assert [await desk.verdict() for _ in range(2)] == [Verdict.BLOCKED, Verdict.BLOCKED]
