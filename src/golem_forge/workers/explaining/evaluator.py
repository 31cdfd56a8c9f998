"""DryEvaluator: a call goes through resolve, validate, plan and judge of a session, and ends there.

`open_evaluator` opens a SessionPlan for a look: the same station, catalog, walls, rules and judge as the session's, on
a tree that records and makes nothing. `evaluator_in` looks at a session that runs. Gives an Explained: the judgement,
or the refusal that comes before one (no such tool, bad arguments, out of reach). Nobody is asked; plans are closed at
once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from golem_forge.config.modes import ApprovalMode, Setting
from golem_forge.core.call import Caller, ToolCall
from golem_forge.core.effects import Effect
from golem_forge.core.errors import ForgeError, error_name
from golem_forge.core.signal import InterruptSignal
from golem_forge.core.verdict import Status, Verdict
from golem_forge.core.visible import visible
from golem_forge.orchestrator import Orchestrator
from golem_forge.orchestrator.driver import Ended
from golem_forge.orchestrator.gate import Gate
from golem_forge.orchestrator.plan import make_plan
from golem_forge.orchestrator.resolve import resolve
from golem_forge.orchestrator.travel import Travel
from golem_forge.orchestrator.validate import validate
from golem_forge.policy.judged import Judged
from golem_forge.policy.rules import Rule, RuleOutcome
from golem_forge.sandbox.zones import USER_TOOLS
from golem_forge.tools.catalog import Catalog
from golem_forge.tools.context import ToolContext
from golem_forge.tools.inputs import Arguments
from golem_forge.tools.plan import Plan
from golem_forge.tools.tool import Tool
from golem_forge.workers.explaining.sources import Late, Sources
from golem_forge.workers.native_toolsets import TOOLKIT
from golem_forge.workers.references import worker_files, worker_places
from golem_forge.workers.session_plan import SessionPlan, Wanted, plan_call
from golem_forge.workers.tree import TreeOptions

if TYPE_CHECKING:
    from pathlib import Path

    from golem_forge.config.home import ForgeHome
    from golem_forge.workers.crew import Crew, WorkerRun
    from golem_forge.workers.runtime import WorkerRuntime
    from golem_forge.workers.worker import Worker

COMMAND_TOOL: Final = "exec_command"
CODE_NOT_STARTED: Final = (
    "this program brings its own code and is not trusted: its code is not started, and no session starts before "
    "`forge trust`"
)
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
class DryEvaluator:
    path: Orchestrator
    sources: Sources
    mode: Setting[ApprovalMode]
    worker: str
    """The path that rules and approvals go by."""
    granted: Callable[[str], bool] = lambda fingerprint: False
    """Whether this exact call was approved for the session."""
    extra: tuple[Rule, ...] = ()
    """Rules that are tried in addition to those in force."""
    notices: list[str] = field(default_factory=list)

    @property
    def catalog(self) -> Catalog:
        return self.path.catalog

    async def find(self, name: str) -> Tool | None:
        """The tool that a call by this name would reach. A server, or code of a trusted program, is started only where
        nothing else has the name. Raises ConfigError for code that cannot be loaded."""
        await self.sources.look_for(name)
        catalog = self.catalog
        found = catalog.get(name) or catalog.get(catalog.aliases().get(name, name))
        return found or next((tool for tool in catalog.aside() if tool.name == name), None)

    async def tool_call(self, name: str, args: Any) -> Explained:
        explained = Explained(tool=name, args=args if isinstance(args, dict) else {})
        plan: Plan | None = None
        judge = self.path.judge
        known = await self.find(name)
        caller = Caller.HUMAN if known is None or known.mode.value != "llm" else Caller.LLM  # whoever may call it
        try:
            said_of = partial(judge.said_of_handover, self.worker)
            tool, raw, handed = resolve(ToolCall(name, args, caller), self.catalog, said_of)
            arguments = validate(tool, raw)
            explained.tool, explained.args = tool.name, arguments.plain
            ctx = replace(self.path.onlooker(), worker=self.worker)
            plan = await self.sources.plan(tool, arguments.values, ctx) or await _planned(tool, arguments, ctx)
            self._weigh(tool, explained, await judge.judge(tool, arguments, plan, ctx, handed=handed))
        except ForgeError as error:
            explained.refusal = error
        finally:
            if plan is not None and plan.close is not None:
                plan.close()
        return explained

    async def command(self, text: str) -> Explained:
        """By the session's own tool that runs commands; a worker without it has no such tool, and that is said."""
        explained = await self.tool_call(COMMAND_TOOL, {"cmd": text})
        if explained.tool == COMMAND_TOOL:
            explained.args = {"cmd": text}
        return explained

    async def touching(self, native: str, path: str, effect: Effect) -> Judged:
        """What becomes of a call of a native tool that has this one effect, whether or not the worker has that tool."""
        tool, arguments = TOOLKIT[native], Arguments({"path": path}, {"path": path})
        ctx = replace(self.path.onlooker(), worker=self.worker)
        return await self.path.judge.judge(tool, arguments, Plan(run=_never, effects=(effect,)), ctx)

    def unattended(self, explained: Explained) -> Verdict | None:
        """The verdict where nobody can be asked: a strict session is `auto_deny` there, so what asks only because the
        mode is strict runs."""
        tool, judged = self.catalog.get(explained.tool), explained.judged
        if tool is None or judged is None or self.mode.value is not ApprovalMode.STRICT:
            return explained.verdict
        judge = copy(self.path.judge)
        judge.mode = ApprovalMode.AUTO_DENY
        again = judge.weigh(tool, judged.facts, judged.base, judged.decision.keys, extra=self.extra)
        return again.decision.verdict

    def _weigh(self, tool: Tool, explained: Explained, judged: Judged) -> None:
        if self.extra:
            keys = judged.decision.keys
            judged = self.path.judge.weigh(tool, judged.facts, judged.base, keys, extra=self.extra)
        explained.outcome = judged.outcome
        explained.judged = judged


def plan_for_a_look(
    home: ForgeHome, directory: Path | str, *, mode: ApprovalMode | None = None, root: str = ""
) -> SessionPlan:
    """What `forge call` there would open, with somebody at hand who can be asked. `root`: the name of another worker
    than that, where the program has one of that name. Raises ConfigError."""
    wanted = Wanted(home=home, approval=mode, answers=True)
    plan = plan_call(directory, wanted)
    if not root or root == plan.worker.name:
        return plan
    places = worker_places(plan.program.root, plan.program.run.worker_paths)
    named = any(path.stem == root for path in worker_files(places))
    return plan_call(directory, wanted, root) if named else plan


@asynccontextmanager
async def open_evaluator(
    plan: SessionPlan, *, workers: str = "", extra: tuple[Rule, ...] = (), about: str = ""
) -> AsyncIterator[DryEvaluator]:
    """`workers`: the path of another worker than the plan's, `main/coder`; one that the program does not have is judged
    with the tools and zones of the plan's. `about`: what will be asked, as far as it is known: where it speaks of
    `/user_tools`, an empty directory stands in for the one that a session would make. Raises ConfigError; whatever was
    started is ended and all is closed at the end."""
    dry = look_at(plan, workers=workers, extra=extra, about=about)
    try:
        yield dry
    finally:
        await dry.sources.aclose()


def look_at(plan: SessionPlan, *, workers: str = "", extra: tuple[Rule, ...] = (), about: str = "") -> DryEvaluator:
    """The same for whoever only prints what is there: nothing can be waited for. `sources.close` ends it."""
    options = TreeOptions(asks_uis=True, journal=False, dry=True, stand_in=f"/{USER_TOOLS}" in about)
    notices = list(plan.notices)
    if plan.waits_for_trust:
        notices.append(CODE_NOT_STARTED)
    if plan.roster is None:
        from golem_forge.workers.session import session_of

        session = session_of(plan, options)
        notices += [each for each in session.notices if each not in notices]
        return _evaluator(plan, Late(session.station, plan.root, session.servers), workers, extra, notices)
    from golem_forge.workers.entry_session import crew_of

    crew = crew_of(plan, options)
    try:
        run = crew.place_for_look(plan.worker)
        for name in _below(workers, run):
            run = crew.place_for_look(_delegate(crew, run, name), run)
    except BaseException:
        crew.tree.abandon()
        raise
    notices += run.notices
    late = Late(run.station, run.plan, run.servers, partial(crew.admit_modules, run), partial(crew.dismiss, run))
    return _evaluator(plan, late, workers, extra, notices)


def evaluator_in(runtime: WorkerRuntime) -> DryEvaluator:
    """Of a session that runs: its tools, rules, mode and approvals as they are now."""
    path = runtime.path
    return DryEvaluator(
        path=path,
        sources=Sources(path, runtime.user_tools),
        mode=Setting(runtime.controller.mode, "this session"),
        worker=path.worker,
        granted=runtime.controller.memory.granted,
    )


def _evaluator(
    plan: SessionPlan, late: Late, workers: str, extra: tuple[Rule, ...], notices: list[str]
) -> DryEvaluator:
    path = late.station.path
    if workers and workers != path.worker:
        name = late.station.worker.name
        notices.append(f"no worker '{visible(workers)}' here: it is judged with the tools and zones of '{name}'")
    return DryEvaluator(
        path=path,
        sources=Sources(path, late=late),
        mode=plan.mode,
        worker=workers or path.worker,
        extra=extra,
        notices=notices,
    )


def _below(workers: str, root: WorkerRun) -> Iterator[str]:
    """Names of the workers under the root on a path that begins with it."""
    first, *names = workers.split("/")
    if first == root.worker.name:
        yield from names


def _delegate(crew: Crew, caller: WorkerRun, name: str) -> Worker:
    for worker in crew.roster.delegates(caller.worker):
        if worker.name == name:
            return worker
    raise ForgeError(f"'{caller.worker.name}' hands work to no worker called '{visible(name)}'")


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
        raise ForgeError(f"'{tool.name}' could not be planned ({error_name(error)})") from error


def _never() -> None:
    raise RuntimeError("a call that is only explained never runs")
