"""Explain: how a call would be judged, without making it.

For `forge rules explain`, `rules check`, `sandbox explain`, the dry run, `tools show` and the rules page.

DryEvaluator takes a call through resolve, validate, plan and judge of a session and stops there. `open_evaluator` opens
a SessionPlan dry: the same scope, catalog, walls, rules and judge as the session's, on a state that records and makes
nothing. `evaluator_for` uses a running session. The result is an ExplainedCall: the judgement, or the refusal that
comes before one (no such tool, bad arguments, out of reach). It never prompts; plans are closed at once.

ToolSources adds to the catalog what a session loads at its start and an explanation only on demand: user tools where a
folder has the name, an approved MCP server where its cached list does not tell, modules where the program is trusted
and nothing else has the name. Its `plan` plans a user tool without a build, a card or a process.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Container, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from golem_forge.agent.files.worker_file import worker_files, worker_places
from golem_forge.agent.session_plan import SessionPlan, SessionRequest, plan_call
from golem_forge.agent.session_state import SessionOptions
from golem_forge.agent.tool_inventory import TOOLKIT, has_tool_folder, has_tool_folders
from golem_forge.config.hooks_block import Hook
from golem_forge.config.run_block import ApprovalMode
from golem_forge.config.validation import Setting
from golem_forge.core.calls import Caller, ToolCall
from golem_forge.core.decisions import AnsweredBy, Status, Verdict, strictest
from golem_forge.core.effects import Effect
from golem_forge.core.errors import ForgeError, error_name
from golem_forge.core.lazy_dataclass import dataclass, field, replace
from golem_forge.core.signals import InterruptSignal
from golem_forge.core.text import escape_control_chars
from golem_forge.orchestrator.call_state import CallState
from golem_forge.orchestrator.gate import Gate
from golem_forge.orchestrator.limits import CallAborted
from golem_forge.orchestrator.orchestrator import Orchestrator
from golem_forge.orchestrator.plan import look_up_coverage, make_plan
from golem_forge.orchestrator.resolve import Resolved, resolve, validate
from golem_forge.policy.evaluate import Evaluation
from golem_forge.policy.risk import floors_of, risk_of
from golem_forge.policy.rules.files import RulesUnusable
from golem_forge.policy.rules.match import RuleOutcome
from golem_forge.policy.rules.model import Rule
from golem_forge.sandbox.target import Target
from golem_forge.sandbox.walls.model import Level
from golem_forge.sandbox.zones import USER_TOOLS
from golem_forge.tools.catalog import Catalog
from golem_forge.tools.context import Plan, ToolContext
from golem_forge.tools.inputs import Arguments
from golem_forge.tools.tool import SourceKind, Tool
from golem_forge.toolsets.file_access import FileAccess
from golem_forge.usertools.native_tools import create_run_custom_tool, listed_create_custom_tool

if TYPE_CHECKING:
    from pathlib import Path

    from golem_forge.agent.files.worker import Worker
    from golem_forge.agent.mcp_servers import SessionServers
    from golem_forge.agent.runtime import WorkerRuntime
    from golem_forge.agent.session_plan import WorkerPlan
    from golem_forge.agent.worker_manager import WorkerManager, WorkerRun
    from golem_forge.agent.worker_scope import WorkerScope
    from golem_forge.storage.home import ForgeHome
    from golem_forge.usertools.catalog_sync import UserTools

COMMAND_TOOL: Final = "exec_command"
CODE_NOT_STARTED: Final = (
    "this program brings its own code and is not trusted: its code is not started, and no session starts before "
    "`forge trust`"
)
_LONGEST_PLAN_S: Final = 30
_REFUSED: Final = frozenset({Status.SANDBOX_DENIED, Status.POLICY_DENIED})


@dataclass(slots=True, kw_only=True)
class ExplainedCall:
    tool: str
    args: dict[str, Any]
    judged: Evaluation | None = None
    outcome: RuleOutcome | None = None
    """The result of the rules alone."""
    refusal: ForgeError | None = None
    """The error that ends the call before it is judged."""
    hooks: tuple[Hook, ...] = ()
    """Hooks that would be asked about the call; their answers are unknown."""

    @property
    def verdict(self) -> Verdict | None:
        """None if the input is invalid, so that there is nothing to judge. A call that can never run
        counts as blocked.
        """
        if self.judged is not None:
            return self.judged.decision.verdict
        return Verdict.BLOCKED if self.refusal is not None and self.refusal.status in _REFUSED else None


@dataclass(slots=True, kw_only=True)
class DryEvaluator:
    orchestrator: Orchestrator
    sources: ToolSources
    mode: Setting[ApprovalMode]
    worker: str
    """The worker path that rules and approvals use."""
    granted: Callable[[str], bool] = lambda fingerprint: False
    """Whether this exact call was approved for the session."""
    extra: tuple[Rule, ...] = ()
    """Rules that are tried in addition to those in force."""
    notices: list[str] = field(default_factory=list)

    @property
    def catalog(self) -> Catalog:
        return self.orchestrator.catalog

    async def find(self, name: str) -> Tool | None:
        """The tool that a call by this name would reach. A server, or code of a trusted program, is started only where
        nothing else has the name. Raises ConfigError for code that cannot be loaded."""
        await self.sources.load(name)
        catalog = self.catalog
        found = catalog.get(name) or catalog.get(catalog.aliases().get(name, name))
        return found or next((tool for tool in catalog.hidden_tools() if tool.name == name), None)

    async def tool_call(self, name: str, args: Any) -> ExplainedCall:
        explained = ExplainedCall(tool=name, args=args if isinstance(args, dict) else {})
        plan: Plan | None = None
        judge = self.orchestrator.judge
        known = await self.find(name)
        caller = Caller.HUMAN if known is None or known.mode.value != "llm" else Caller.LLM  # whoever may call it
        try:
            tool, raw, handed = self._resolve(ToolCall(name, args, caller), known)
            arguments = validate(tool, raw)
            explained.tool, explained.args = tool.name, arguments.plain
            ctx = replace(self.orchestrator.dry_context(), worker=self.worker)
            plan = await self.sources.plan(tool, arguments.values, ctx) or await _make_plan(tool, arguments, ctx)
            judged = await judge.judge(tool, arguments, plan, ctx, handed=handed)
            if self.extra:
                keys = judged.decision.keys
                judged = self.orchestrator.judge.evaluate(tool, judged.facts, judged.base, keys, extra=self.extra)
            explained.outcome = judged.outcome
            explained.judged = judged
            explained.hooks = self.orchestrator.hooks.asked_about(tool, name, judged.facts.effects)
        except ForgeError as error:
            explained.refusal = error
        finally:
            if plan is not None and plan.close is not None:
                plan.close()
        return explained

    def _resolve(self, call: ToolCall, known: Tool | None) -> Resolved:
        """Resolves a call as usual. A call that is blocked before it is handed over to another tool is judged as
        written, so that the rule is named.
        """
        try:
            return resolve(call, self.catalog, partial(self.orchestrator.judge.redirect_sources, self.worker))
        except ForgeError as error:
            if error.code != "BLOCKED" or known is None or not isinstance(call.args, dict):
                raise
            return known, call.args, ()

    async def who_decides(self, tool: Tool) -> str:
        """Says in one sentence what decides about the tool's calls, whatever their arguments are."""
        plan, effects = None, tool.effects
        ctx = replace(self.orchestrator.dry_context(), worker=self.worker)
        try:
            plan = await self.sources.plan(tool, {}, ctx)
            if plan is not None:
                effects = plan.effects
        except ForgeError:
            pass  # a call of it would be refused before it is judged, and says why
        finally:
            if plan is not None and plan.close is not None:
                plan.close()
        try:
            return self.orchestrator.judge.who_decides(tool, self.worker, effects)
        except RulesUnusable as error:
            return f"blocked ({error.message})"

    async def command(self, text: str) -> ExplainedCall:
        """Explains a shell command by the session's tool that runs commands; says so if the worker has no such tool."""
        explained = await self.tool_call(COMMAND_TOOL, {"cmd": text})
        if explained.tool == COMMAND_TOOL:
            explained.args = {"cmd": text}
        return explained

    async def touching(self, native: str, path: str, target: Target) -> Evaluation:
        """Evaluates a call of a native tool on one path, whether or not the worker has that tool."""
        tool, arguments = TOOLKIT[native], Arguments({"path": path}, {"path": path})
        ctx = replace(self.orchestrator.dry_context(), worker=self.worker)
        await look_up_coverage(tool, ctx)
        effect = FileAccess().effect(target, ctx)
        return await self.orchestrator.judge.judge(tool, arguments, Plan(run=_never, effects=(effect,)), ctx)

    def unattended(self, explained: ExplainedCall) -> Verdict | None:
        """The verdict where nobody can be asked: a strict session is `auto_deny` there, so what asks only because the
        mode is strict runs."""
        tool, judged = self.catalog.get(explained.tool), explained.judged
        if tool is None or judged is None or self.mode.value is not ApprovalMode.STRICT:
            return explained.verdict
        judge = copy(self.orchestrator.judge)
        judge.mode = ApprovalMode.AUTO_DENY
        again = judge.evaluate(tool, judged.facts, judged.base, judged.decision.keys, extra=self.extra)
        return again.decision.verdict


def plan_for_explain(
    home: ForgeHome,
    directory: Path | str,
    *,
    mode: ApprovalMode | None = None,
    root: str = "",
    overrides: Sequence[str] = (),
) -> SessionPlan:
    """Returns the plan that `forge call` would open there, as if somebody could be asked. `root`: the name of another
    worker, if the program has it. Raises ConfigError.
    """
    wanted = SessionRequest(home=home, approval=mode, answers=True, overrides=overrides)
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
    dry = open_dry_evaluator(plan, workers=workers, extra=extra, about=about)
    try:
        yield dry
    finally:
        await dry.sources.aclose()


def open_dry_evaluator(
    plan: SessionPlan, *, workers: str = "", extra: tuple[Rule, ...] = (), about: str = ""
) -> DryEvaluator:
    """Opens an evaluator that waits for nothing, for listings. `sources.close` ends it."""
    options = SessionOptions(answers=True, journal=False, dry=True, stand_in=f"/{USER_TOOLS}" in about)
    notices = list(plan.notices)
    if plan.waits_for_trust:
        notices.append(CODE_NOT_STARTED)
    if plan.roster is None:
        from golem_forge.agent.session import open_planned_session

        session = open_planned_session(plan, options)
        notices += [each for each in session.notices if each not in notices]
        return _evaluator(plan, DryScope(session.scope, plan.root, session.servers), workers, extra, notices)
    from golem_forge.agent.session import open_worker_manager

    manager = open_worker_manager(plan, options)
    try:
        run = manager.start_dry(plan.worker)
        for name in _names_below(workers, run):
            run = manager.start_dry(_delegate(manager, run, name), run)
    except BaseException:
        manager.state.discard()
        raise
    notices += run.notices
    late = DryScope(
        run.scope, run.plan, run.servers, partial(manager.add_module_tools, run), partial(manager.stop, run)
    )
    return _evaluator(plan, late, workers, extra, notices)


def evaluator_for(runtime: WorkerRuntime) -> DryEvaluator:
    """Returns an evaluator with the present tools, rules, mode and approvals of a running session."""
    path = runtime.path
    return DryEvaluator(
        orchestrator=path,
        sources=ToolSources(path, runtime.user_tools),
        mode=Setting(runtime.controller.mode, "this session"),
        worker=path.worker,
        granted=runtime.controller.memory.granted,
    )


def _evaluator(
    plan: SessionPlan, late: DryScope, workers: str, extra: tuple[Rule, ...], notices: list[str]
) -> DryEvaluator:
    path = late.scope.orchestrator
    if workers and workers != path.worker:
        name = late.scope.worker.name
        notices.append(
            f"no worker '{escape_control_chars(workers)}' here: it is judged with the tools and zones of '{name}'"
        )
    return DryEvaluator(
        orchestrator=path,
        sources=ToolSources(path, late=late),
        mode=plan.mode,
        worker=workers or path.worker,
        extra=extra,
        notices=notices,
    )


def _names_below(workers: str, root: WorkerRun) -> Iterator[str]:
    """Names of the workers under the root on a path that begins with it."""
    first, *names = workers.split("/")
    if first == root.worker.name:
        yield from names


def _delegate(manager: WorkerManager, caller: WorkerRun, name: str) -> Worker:
    for worker in manager.roster.delegates(caller.worker):
        if worker.name == name:
            return worker
    raise ForgeError(f"'{caller.worker.name}' hands work to no worker called '{escape_control_chars(name)}'")


async def _make_plan(tool: Tool, arguments: Arguments, ctx: ToolContext) -> Plan | None:
    """Plans a call as usual, but with a shorter timeout because somebody waits for the answer."""
    if tool.planner is None:
        return None
    signal = InterruptSignal()
    state = CallState(ToolCall(tool.name, arguments.plain, ctx.caller), signal, signal)
    state.tool, state.arguments = tool, arguments
    try:
        async with asyncio.timeout(_LONGEST_PLAN_S):
            return await make_plan(state, ctx, Gate())
    except ForgeError:
        raise
    except (TimeoutError, CallAborted):
        raise ForgeError(f"'{tool.name}' could not be planned within {_LONGEST_PLAN_S} s") from None
    except Exception as error:
        raise ForgeError(f"'{tool.name}' could not be planned ({error_name(error)})") from error


def _never() -> None:
    raise RuntimeError("a call that is only explained never runs")


_OUTCOMES: Final = {
    (Verdict.ASK, ApprovalMode.APPROVE_ALL): "it would run: the mode approves what asks",
    (Verdict.ASK, ApprovalMode.AUTO_DENY): "it would be denied: the mode asks nobody",
}


def outcome_sentence(explained: ExplainedCall, dry: DryEvaluator) -> str:
    """Returns the result of the call in one line."""
    said = _outcome_without_hooks(explained, dry)
    if not explained.hooks or explained.verdict is Verdict.BLOCKED:
        return said
    names = ", ".join(f"'{hook.name}'" for hook in explained.hooks)
    which = f"the hook {names} agrees" if len(explained.hooks) == 1 else f"the hooks {names} agree"
    return f"{said}, if {which}"


def _outcome_without_hooks(explained: ExplainedCall, dry: DryEvaluator) -> str:
    verdict, mode = explained.verdict, dry.mode
    if verdict is Verdict.BLOCKED:
        return "it would be refused, in every mode, for every caller"
    if verdict is Verdict.PRE_APPROVED:
        return "it would run without a question"
    if explained.judged is not None and dry.granted(explained.judged.decision.fingerprint):
        return "it would run: this exact call was approved for this session"
    decision = explained.judged.decision if explained.judged is not None else None
    if decision is not None and decision.answered_by is AnsweredBy.CONTAINED:
        return f"it would run: it stays inside the walls and can be undone (mode {mode.value.value}, {mode.origin})"
    if decision is not None and decision.not_contained:
        because = escape_control_chars("; ".join(decision.not_contained))
        denied = "where nobody can answer, it denies the call"
        return f"Forge would ask a person because {because}; {denied} (mode {mode.value.value}, {mode.origin})"
    said = _OUTCOMES.get(
        (Verdict.ASK, mode.value), "Forge would ask a person; where nobody can answer, it denies the call"
    )
    if mode.value is ApprovalMode.STRICT and dry.unattended(explained) is Verdict.PRE_APPROVED:
        said = "Forge would ask a person; where nobody can answer, the mode is auto_deny, and it would run"
    return f"{said} (mode {mode.value.value}, {mode.origin})"


def effects_json(explained: ExplainedCall) -> list[dict[str, Any]]:
    assert explained.judged is not None
    said = []
    for index, (effect, base) in enumerate(
        zip(explained.judged.facts.effects or (), (each.base for each in explained.judged.bases), strict=True)
    ):
        verdict = _verdict_of(index, effect, base, explained.outcome, explained.judged.granted)
        notes = [mark.value for mark in effect.marks if mark.value != "danger"]
        notes += [f"danger:{danger}" for danger in effect.dangers]
        notes += ["proven read-only"] if effect.proven else []
        said.append(
            {
                "effect": effect.describe(),
                "verdict": verdict.value,
                "risk": risk_of(effect).value,
                "notes": ", ".join(notes),
                "words": list(effect.words),
            }
        )
    return said


def segments_json(explained: ExplainedCall) -> list[dict[str, Any]]:
    """Returns the segments of a command that has several; a single one is already its effect."""
    found = [
        {"text": said["effect"].removeprefix("exec "), "verdict": said["verdict"], "words": said["words"]}
        for said in effects_json(explained)
        if said["words"]
    ]
    return found if len(found) > 1 else []


def _verdict_of(
    index: int, effect: Effect, base: Verdict, outcome: RuleOutcome | None, granted: Container[str]
) -> Verdict:
    """Returns the verdict that one effect would get if it were the whole call."""
    hits = [hit.rule for hit in outcome.hits if hit.index in (index, -1)] if outcome else []
    lifted = base
    if said := [rule.verdict for rule in hits]:
        strictest_rule = strictest(said)
        lifts = strictest_rule is Verdict.PRE_APPROVED and base is not Verdict.BLOCKED
        lifted = Verdict.PRE_APPROVED if lifts else strictest((base, strictest_rule))
    accepted = outcome.accepted if outcome else frozenset()
    floors = [id_ for id_, _ in floors_of(effect, granted) if id_.removeprefix("danger:") not in accepted]
    return strictest((lifted, Verdict.ASK)) if floors else lifted


def explanation_json(explained: ExplainedCall, dry: DryEvaluator) -> dict[str, Any]:
    common: dict[str, Any] = {
        "tool": explained.tool,
        "args": explained.args,
        "worker": dry.worker,
        "mode": dry.mode.value.value,
        "verdict": explained.verdict.value if explained.verdict else None,
        "notices": dry.notices,
    }
    if explained.judged is None:
        refusal = explained.refusal
        assert refusal is not None
        return common | {"status": refusal.status.value, "code": refusal.code, "error": refusal.message}
    return common | {
        "then": outcome_sentence(explained, dry),
        "effects": effects_json(explained) if explained.judged.facts.effects is not None else None,
        "segments": segments_json(explained),
        **(
            {"hooks": [{"name": hook.name, "file": hook.origin} for hook in explained.hooks]} if explained.hooks else {}
        ),
        "decision": explained.judged.decision.to_json(),
    }


_USER_TOOL_TOOLS: Final = ("create_custom_tool", "run_custom_tool")


@dataclass(slots=True)
class DryScope:
    """A scope that was opened dry, and what is not in its catalog yet."""

    scope: WorkerScope
    plan: WorkerPlan
    servers: SessionServers | None = None
    modules: Callable[[], Awaitable[None]] | None = None
    """Imports the program's modules and packages and admits their tools; None: there are none, or they are there."""
    stop: Callable[[], Awaitable[None]] | None = None
    """Ends what the worker started."""

    def __post_init__(self) -> None:
        if not self.plan.has_modules:
            self.modules = None
        if self.servers is not None:
            self.servers.pool.load_cached()
            self.servers.sync(self.scope)


class ToolSources:
    def __init__(self, path: Orchestrator, users: UserTools | None = None, late: DryScope | None = None) -> None:
        """`users`: the own tools that stand in the catalog already; `late`: None where everything does."""
        self._catalog = path.catalog
        self.user_tools = users
        self._late = late

    async def load(self, name: str) -> None:
        """Raises ConfigError for a module that cannot be loaded: with it no session starts."""
        late = self._late
        if late is None:
            return
        own = late.plan.blocks.user_tools is not None and (
            name in _USER_TOOL_TOOLS or has_tool_folder(late.plan.home, name)
        )
        if late.modules is not None and (own or any(name in block.tools for block in late.plan.blocks.code)):
            await self._import_modules(late)  # first, as at a start: an own tool of that name is kept out then
        if own:
            self.add_user_tools()
        if self._is_there(name):
            return
        if late.servers is not None:
            with suppress(ForgeError):  # the server's state says why
                await late.servers.load_server_of(late.scope, name, Caller.HUMAN)
        if late.modules is not None and not self._is_there(name):
            await self._import_modules(late)

    async def aclose(self) -> None:
        """Ends everything that was started."""
        if self._late is not None:
            if self._late.stop is not None:
                await self._late.stop()
            await self._late.scope.state.parts.close()
            self.close()

    def close(self) -> None:
        """Closes the sources if nothing was looked up, so that nothing was started."""
        if self._late is not None:
            scope: WorkerScope | None = self._late.scope
            while scope is not None:
                scope.close()
                scope = scope.parent
            self._late.scope.state.close()

    def add_user_tools(self) -> None:
        """Puts the person's own tools into the catalog, as the worker's block shows them."""
        late = self._late
        if late is None or self.user_tools is not None or (block := late.plan.blocks.user_tools) is None:
            return
        from golem_forge.agent.user_tools import user_tools_for

        self.user_tools = user_tools_for(late.scope, block)
        self.user_tools.refresh()

    def list_user_tools(self) -> None:
        """Adds user tools for a listing: without a tool folder it loads no slow part of `usertools/` and writes
        nothing.
        """
        late = self._late
        if late is None or self.user_tools is not None or (block := late.plan.blocks.user_tools) is None:
            return
        if has_tool_folders(late.plan.home):
            self.add_user_tools()
            return
        if block.create:
            self._catalog.add(listed_create_custom_tool(), replace=True)
        self._catalog.add(create_run_custom_tool(lambda name, seconds: None, tuple), replace=True)

    async def plan(self, tool: Tool, values: dict[str, Any], ctx: ToolContext) -> Plan | None:
        """Plans a call of a user tool; None for other tools. Raises what a session would: SandboxError,
        InputInvalid.
        """
        if self.user_tools is None or tool.source is not SourceKind.CUSTOM or not self._is_own(tool):
            return None
        from golem_forge.usertools.folder import ToolEntry
        from golem_forge.usertools.run import process_input
        from golem_forge.usertools.run.access import contain, plan_access, tool_access

        entry = self.user_tools.workshop.registry.lookup(tool.name)
        if not isinstance(entry, ToolEntry):
            return None
        level = await ctx.walls.level() if ctx.walls is not None else Level.FULL
        access = tool_access(entry.manifest, ctx)
        touch = plan_access(entry, values, access, level)
        try:
            await contain(touch, entry.manifest, access, ctx)
            process_input(entry.manifest, values, paths=touch.paths)
        except BaseException:
            touch.close()
            raise
        return Plan(run=_never, effects=touch.effects, targets=(f"digest {entry.digest}",), close=touch.close)

    def _is_own(self, tool: Tool) -> bool:
        """A session may have a tool of a module under the name of a folder; the folder is kept out then. One that is
        reached by `run_custom_tool` stands in no catalog."""
        if self.user_tools is None:
            return False
        present = self._catalog.get(tool.name)
        return self.user_tools.offers(tool.name) or present is None or present.source is SourceKind.NATIVE

    def _is_there(self, name: str) -> bool:
        catalog = self._catalog
        return catalog.aliases().get(name, name) in catalog or any(tool.name == name for tool in catalog.hidden_tools())

    @staticmethod
    async def _import_modules(late: DryScope) -> None:
        load, late.modules = late.modules, None
        assert load is not None
        await load()
