"""Judging without running: a tool call or a command goes through resolve, validate, plan and judge, and ends there.

Gives an Explained: the judgement, or the refusal that comes before one (no such tool, bad arguments, out of reach).
Nothing is written, nobody is asked, no session exists; plans are closed at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from golem_forge.config.home import ForgeHome
from golem_forge.config.modes import ApprovalMode, Setting
from golem_forge.config.program import Program, load_program
from golem_forge.core.call import Caller, ToolCall
from golem_forge.core.errors import ForgeError
from golem_forge.core.signal import InterruptSignal
from golem_forge.core.verdict import Status, Verdict
from golem_forge.orchestrator.driver import Ended
from golem_forge.orchestrator.gate import Gate
from golem_forge.orchestrator.plan import make_plan
from golem_forge.orchestrator.resolve import resolve
from golem_forge.orchestrator.travel import Travel
from golem_forge.orchestrator.validate import validate
from golem_forge.policy.command_plan import command_plan
from golem_forge.policy.judge import Judge
from golem_forge.policy.judged import Judged
from golem_forge.policy.rules import Rule, RuleBook, RuleOutcome
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.tools.catalog import Catalog
from golem_forge.tools.context import ToolContext
from golem_forge.tools.inputs import Arguments
from golem_forge.tools.plan import Plan
from golem_forge.tools.tool import Definition, SourceKind, Tool
from golem_forge.workers.catalog import build_catalog
from golem_forge.workers.explaining.own_tools import OwnTools
from golem_forge.workers.surroundings import DEFAULT_WORKER, approval_blocks, with_tools_zone, worker_sandbox
from golem_forge.workers.trust_cover import trust_store

if TYPE_CHECKING:
    from golem_forge.workers.runtime import WorkerRuntime

COMMAND_TOOL: Final = "exec_command"
_LONGEST_PLAN_S: Final = 30
_REFUSED: Final = frozenset({Status.SANDBOX_DENIED, Status.POLICY_DENIED})


@dataclass(slots=True, kw_only=True)
class Explained:
    tool: str
    args: dict[str, Any]
    judged: Judged | None = None
    outcome: RuleOutcome | None = None
    """What the rules alone said."""
    refusal: ForgeError | None = None
    """Ends the call before it is judged."""

    @property
    def verdict(self) -> Verdict | None:
        """None: the input is bad, so there is nothing to judge. What can never run counts as blocked."""
        if self.judged is not None:
            return self.judged.decision.verdict
        return Verdict.BLOCKED if self.refusal is not None and self.refusal.status in _REFUSED else None


@dataclass(slots=True, kw_only=True)
class Bench:
    """Everything a judgement needs in one directory, or in a session. Close it after use."""

    home: ForgeHome
    program: Program
    catalog: Catalog
    sandbox: Sandbox
    rules: RuleBook
    judge: Judge
    mode: Setting[ApprovalMode]
    worker: str
    own_tools: OwnTools
    context: Callable[[], ToolContext]
    """What a tool is given that is only planned."""
    granted: Callable[[str], bool] = lambda fingerprint: False
    """Whether this exact call was approved for the session."""
    until_closed: Callable[[], None] = lambda: None
    extra: tuple[Rule, ...] = ()
    """Rules that are tried in addition to those in force."""
    notices: list[str] = field(default_factory=list)

    async def tool_call(self, name: str, args: Any) -> Explained:
        explained = Explained(tool=name, args=args if isinstance(args, dict) else {})
        plan: Plan | None = None
        self.own_tools.look_for(name)
        try:
            said_of = partial(self.judge.said_of_handover, self.worker)
            tool, raw, handed = resolve(ToolCall(name, args, self._caller_of(name)), self.catalog, said_of)
            arguments = validate(tool, raw)
            explained.tool, explained.args = tool.name, arguments.plain
            ctx = self.context()
            plan = self.own_tools.plan(tool, arguments.values, ctx) or await _planned(tool, arguments, ctx)
            self._weigh(tool, explained, await self.judge.judge(tool, arguments, plan, ctx, handed=handed))
        except ForgeError as error:
            explained.refusal = error
        finally:
            if plan is not None and plan.close is not None:
                plan.close()
        return explained

    async def command(self, text: str) -> Explained:
        """As the tool that runs commands would have it judged."""
        zone = self.sandbox.default_zone
        plan = command_plan(text, self.sandbox, f"/{zone}" if zone else "/", _never)
        tool = Tool(COMMAND_TOOL, "", execute=_never, source=SourceKind.NATIVE, definition=_no_definition)
        explained = Explained(tool=COMMAND_TOOL, args={"cmd": text})
        ctx = self.context()
        try:
            arguments = Arguments(explained.args, explained.args)
            self._weigh(tool, explained, await self.judge.judge(tool, arguments, plan, ctx))
        except ForgeError as error:
            explained.refusal = error
        return explained

    def _weigh(self, tool: Tool, explained: Explained, judged: Judged) -> None:
        if self.extra:
            judged = self.judge.weigh(tool, judged.facts, judged.base, judged.decision.keys, extra=self.extra)
        explained.outcome = judged.outcome
        explained.judged = judged

    def _caller_of(self, name: str) -> Caller:
        """Whoever may call it: who asks changes what exists, never how strictly a call is judged."""
        tool = self.catalog.get(self.catalog.aliases().get(name, name))
        return Caller.HUMAN if tool is None or tool.mode.value != "llm" else Caller.LLM

    def close(self) -> None:
        self.until_closed()


def open_bench(
    home: ForgeHome,
    directory: Path,
    *,
    worker: str = DEFAULT_WORKER,
    mode: ApprovalMode | None = None,
    extra: tuple[Rule, ...] = (),
) -> Bench:
    """Raises ConfigError for a configuration a session would not start with."""
    trust = trust_store(home)
    program = load_program(directory, home, trusted=trust.trusted)
    catalog = build_catalog()
    notices: list[str] = []
    blocks = approval_blocks(program, {tool.name: tool for tool in catalog}, notices)
    sandbox = with_tools_zone(worker_sandbox(program, home, notices), home)
    rules = RuleBook(home, project_root=program.root, project_trusted=lambda: trust.trusted(program.root))
    chosen = program.mode(mode)
    return Bench(
        home=home,
        program=program,
        catalog=catalog,
        sandbox=sandbox,
        rules=rules,
        judge=Judge(blocks, rules, chosen.value, str(program.root)),
        mode=chosen,
        worker=worker,
        own_tools=OwnTools(catalog, home),
        context=lambda: ToolContext(worker=worker, sandbox=sandbox),
        until_closed=sandbox.close,
        extra=extra,
        notices=[*([program.notice] if program.notice else []), *notices],
    )


def bench_in(runtime: WorkerRuntime) -> Bench:
    """Of a session that runs: its tools, rules, mode and approvals as they are now. Closing it closes nothing."""
    path = runtime.path
    assert path.sandbox is not None
    return Bench(
        home=runtime.home,
        program=runtime.program,
        catalog=path.catalog,
        sandbox=path.sandbox,
        rules=runtime.rules,
        judge=path.judge,
        mode=Setting(runtime.controller.mode, "this session"),
        worker=path.worker,
        own_tools=OwnTools(path.catalog, runtime.home, runtime.user_tools),
        context=path.onlooker,
        granted=runtime.controller.memory.granted,
    )


async def _planned(tool: Tool, arguments: Arguments, ctx: ToolContext) -> Plan | None:
    """As every call is planned; somebody waits for the answer, so not for as long."""
    if tool.planner is None:
        return None
    signal = InterruptSignal()
    travel = Travel(ToolCall(tool.name, arguments.plain, ctx.caller), signal, signal)
    travel.tool, travel.arguments = tool, arguments
    try:
        async with asyncio.timeout(_LONGEST_PLAN_S):
            return await make_plan(travel, ctx, Gate())
    except ForgeError:
        raise
    except (TimeoutError, Ended):
        raise ForgeError(f"'{tool.name}' could not be planned within {_LONGEST_PLAN_S} s") from None
    except Exception as error:
        raise ForgeError(f"'{tool.name}' could not be planned ({type(error).__name__})") from error


def _no_definition() -> Definition:
    return Definition(digest="")


def _never() -> None:
    raise RuntimeError("a call that is only explained never runs")
