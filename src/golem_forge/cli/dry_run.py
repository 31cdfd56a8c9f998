"""`forge run --dry-run`: what a session would have to work with. No model is asked, no process is started.

`preview` opens the SessionPlan that a run would open and returns it as plain data; `print_dry_run` prints that as text
or JSON. Modules are not imported: their tools are known by name. Servers are not connected to: their tools come from
cached lists. Raises ConfigError for whatever a session would refuse to start with; `check_start` is that part alone.

`forecast` says what would happen to a tool's calls before any arguments are known: a verdict, or `by target` and what
it depends on. Rules that block a whole tool count; rules about arguments and targets cannot. A tool's own predicate is
named, not called.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any, Final

from golem_forge.agent.budget import check_priced, price_of
from golem_forge.agent.explain import CODE_NOT_STARTED, DryEvaluator, open_dry_evaluator
from golem_forge.agent.files.roster import Roster, check_preflight, load_roster
from golem_forge.agent.files.toolset_blocks import approval_now, native_names
from golem_forge.agent.files.worker import CustomBlock, Worker
from golem_forge.agent.mcp_status import ServerInventory
from golem_forge.agent.model.interface import ModelError
from golem_forge.agent.model.selection import (
    ModelKeys,
    check_compatible,
    key_variable,
    missing_key,
    no_model_message,
    split_model,
    split_models,
)
from golem_forge.agent.prompt import describe_files, read_instruction_files
from golem_forge.agent.session_plan import (
    SessionPlan,
    SessionRequest,
    approval_blocks,
    plan_session,
    plan_worker,
    read_program,
)
from golem_forge.agent.session_state import choose_root_model
from golem_forge.agent.skills import find_skills
from golem_forge.agent.trust import trust_store
from golem_forge.cli.command import print_json
from golem_forge.cli.run import RunArgs
from golem_forge.config.program import Program, program_root
from golem_forge.config.run_block import ApprovalMode, BudgetLimits
from golem_forge.core.decisions import Verdict, strictest
from golem_forge.core.errors import ForgeError
from golem_forge.core.lazy_dataclass import dataclass, field, replace
from golem_forge.core.text import columns, display_path, escape_control_chars
from golem_forge.events.index import find_session
from golem_forge.mcp.client.manifest import ManifestCache
from golem_forge.mcp.client.trust_store import ServerTrustStore
from golem_forge.policy.base import (
    DEFAULT_ASK,
    ApprovalBlocks,
    configured_base,
    constant_base,
    decides_for_itself,
)
from golem_forge.policy.evaluate import Judge
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.zones import AccessMode, Zone
from golem_forge.storage.home import forge_home
from golem_forge.tools.tool import SourceKind, Tool
from golem_forge.toolsets.exec import exec_settings

_TRUST: Final = {None: "no program: nothing to trust", True: "trusted", False: "not trusted"}


def print_dry_run(asked: RunArgs) -> int:
    facts = preview(asked)
    if asked.json:
        print_json(facts)
    else:
        print("\n".join(_lines(facts)))
    return 0


def _lines(facts: Mapping[str, Any]) -> Iterator[str]:
    yield "dry run: no model is asked, nothing is started"
    yield columns(_head(facts))
    yield "\nzones" if facts["zones"] else "\nzones: none, so no file can be reached"
    yield from _table(_zone_row(zone) for zone in facts["zones"])
    yield "\ntools (the arguments of a call may change the verdict)"
    yield from _table([("NAME", "TOOLSET", "VERDICT", "SO A CALL", "WHY"), *map(_tool_row, facts["tools"])])
    if facts["workers"]:
        yield "\nworkers it may hand work to"
        yield from _table([("NAME", "VERDICT", "SO A CALL", "MODEL", "ZONES", ""), *map(_worker_row, facts["workers"])])
    if facts["rules"]:
        yield f"\n{facts['rules']} rules may change single verdicts; `forge rules explain` judges one call with them"
    for notice in facts["notices"]:
        yield f"\nnote: {escape_control_chars(notice)}"


def _head(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    worker, program, model = facts["worker"], facts["program"], facts["model"]
    yield "worker", f"{worker['name']} ({worker['file'] or 'built in'}), {worker['mode']}"
    yield "program", f"{program['directory']}, {_TRUST[program['trusted']]}"
    if program["start"]:
        yield "", program["start"]
    if model["name"]:
        key = f", key in {model['key']}" if model["key"] else ""
        yield "model", f"{model['name']} (from {model['from']}{key})"
    if model["problem"]:
        yield "" if model["name"] else "model", model["problem"]
    yield "approval", f"{facts['approval']['mode']} (from {facts['approval']['from']})"
    for whose, limits in facts["budget"].items():
        if limits:
            yield f"budget of the {whose}", ", ".join(f"{name} {value:g}" for name, value in limits.items())


def _zone_row(zone: Mapping[str, Any]) -> tuple[str, ...]:
    consent = f"write {zone['write']}, delete {zone['delete']}" if "write" in zone else "read only"
    default = "; relative paths begin here" if zone["default"] else ""
    return f"/{zone['name']}", zone["mode"], consent, f"{zone['directory']}{default}"


def _tool_row(tool: Mapping[str, Any]) -> tuple[str, ...]:
    return tool["name"], ", ".join(tool["toolsets"]), tool["verdict"], tool["then"] or "depends", tool["why"]


def _worker_row(worker: Mapping[str, Any]) -> tuple[str, ...]:
    zones = ", ".join(f"/{name}" for name in worker["zones"]) or "none"
    then = "refused" if worker["refused"] else worker["then"]
    return worker["name"], worker["verdict"], then, worker["model"] or "none", zones, worker["refused"]


def _table(rows: Any) -> Iterator[str]:
    rows = list(rows)
    if rows:
        yield columns(rows, indent="  ")


_MAKERS: Final = ("create_custom_tool", "run_custom_tool")


def check_start(asked: RunArgs) -> bool:
    """Whether somebody named a model. Raises what a start would refuse for what is written in files and on the command
    line (ConfigError, ModelError, the errors of resuming)."""
    home = forge_home()
    if asked.resume:
        find_session(home.path, asked.resume, root=program_root(asked.directory))
        return True
    program = read_program(asked.directory, home, trust_store(home), asked.overrides)
    roster = load_roster(program, asked.worker)
    check_preflight(program, roster, home)
    model = chosen_model(asked, program, roster.root)
    if model["problem"] and asked.input is not None:
        raise ModelError(model["problem"])
    return bool(model["name"])


def preview(asked: RunArgs) -> dict[str, Any]:
    wanted = SessionRequest(
        home=forge_home(),
        approval=asked.approval,
        answers=not asked.headless,
        overrides=asked.overrides,
        remembers=not asked.headless,
    )
    plan = plan_session(asked.directory, wanted, asked.worker)
    assert plan.roster is not None
    check_preflight(plan.program, plan.roster, plan.home)
    model = chosen_model(asked, plan.program, plan.worker)
    dry = open_dry_evaluator(plan)
    try:
        return _facts(asked, plan, plan.roster, model, dry)
    finally:
        dry.sources.close()


def _facts(
    asked: RunArgs, plan: SessionPlan, roster: Roster, model: dict[str, Any], dry: DryEvaluator
) -> dict[str, Any]:
    program, root = plan.program, plan.worker
    sandbox = dry.orchestrator.sandbox
    assert sandbox is not None
    dry.sources.list_user_tools()
    notices = [
        *(each for each in dry.notices if each != CODE_NOT_STARTED),
        *_servers_not_known(plan),
        *_project_files(plan),
    ]
    tools = _ToolPreview(plan=plan, roster=roster, dry=dry, sandbox=sandbox)
    tools.set_module_blocks()
    mode = "single" if asked.headless else root.mode or ("chat" if asked.input is None else "single")
    return {
        "worker": {"name": root.name, "file": root.shown_path, "mode": mode},
        "program": _program(asked, program, roster),
        "model": model,
        "approval": {"mode": plan.mode.value.value, "from": plan.mode.origin},
        "budget": {"session": _limits(program.run.budget), "worker": _limits(root.budget)},
        "zones": [_zone(zone, sandbox) for zone in sandbox.zones.values()],
        "tools": [*tools.known_tools(notices), *tools.module_tools()],
        "workers": list(tools.workers(model["name"])),
        "rules": len(rules.current().rules) if (rules := dry.orchestrator.judge.rules) is not None else 0,
        "notices": notices,
    }


def _project_files(plan: SessionPlan) -> Iterator[str]:
    """Yields the project's instruction files and skills that the model would get."""
    read = plan.program.instructions.project_files
    if read and (files := read_instruction_files(plan.program.root)):
        yield describe_files(files)
    if summary := find_skills(plan.home, plan.program.root, project_files=read).summary:
        yield f"skills: {summary}"


def _servers_not_known(plan: SessionPlan) -> Iterator[str]:
    """A notice for each server of the worker whose tools nobody has listed yet."""
    block = plan.root.blocks.mcp
    if block is None or not plan.program.mcp.servers:
        return
    inventory = ServerInventory(
        home=plan.home, program=plan.program, book=ServerTrustStore(plan.home), cache=ManifestCache(plan.home)
    )
    for known in inventory.all():
        name, state = known.spec.name, known.state.value
        if block.sees(name) and known.spec.enabled and known.listing is None:
            yield f"the tools of the MCP server '{name}' are not known here: {state}; {known.error}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _ToolPreview:
    plan: SessionPlan
    roster: Roster
    dry: DryEvaluator
    sandbox: Sandbox

    @property
    def _judge(self) -> Judge:
        return self.dry.orchestrator.judge

    def set_module_blocks(self) -> None:
        """Adds what the worker file says about tools of modules, which are known by name only."""
        said, _ = approval_now(
            self.plan.worker, {block.key: block.tools for block in self.plan.root.blocks.code if block.tools}
        )
        blocks = self._judge.blocks
        self._judge.set_blocks(ApprovalBlocks(program=blocks.program, blocks={**said, **blocks.blocks}))

    def known_tools(self, notices: list[str]) -> Iterator[dict[str, Any]]:
        tools = {tool.name: tool for tool in self.dry.catalog}
        unknown: list[str] = []
        approval_blocks(self.plan.program, tools, unknown)
        notices += unknown if not self.plan.root.blocks.code else ()  # it may be a tool of a module
        origins: dict[str, list[str]] = {}
        for key, names in native_names(self.plan.root.blocks).items():
            for name in names:
                origins.setdefault(name, []).append(key)
        workers = {each.name for each in self.roster.delegates(self.roster.root)}
        for name, tool in tools.items():
            if name not in workers:
                yield _tool_facts(name, _toolsets_of(tool, origins), self._forecast(tool))

    def module_tools(self) -> Iterator[dict[str, Any]]:
        for block in self.plan.root.blocks.code:
            offers = isinstance(block, CustomBlock) and (block.prompts or block.resources)
            for name in block.tools or (() if offers else ("*",)):  # a package not asked for names gives all it has
                yield _tool_facts(name, [block.key], forecast_unloaded(self._judge, name))

    def workers(self, model: str) -> Iterator[dict[str, Any]]:
        """Yields the workers that the root worker may call; one that would reach further comes with the refusal."""
        for each in self.roster.delegates(self.roster.root):
            tool = self.dry.catalog.get(each.name)
            assert tool is not None
            zones = [zone.name for zone in each.sandbox.zones] if each.sandbox else []
            own = {"file": each.shown_path, "model": each.model or model, "zones": zones}
            facts = _tool_facts(each.name, ["workers"], self._forecast(tool))
            yield {**facts, **own, "refused": self._refusal(each)}

    def _forecast(self, tool: Tool) -> ToolForecast:
        return forecast(self._judge, tool, self.roster.root.name, self.sandbox)

    def _refusal(self, worker: Worker) -> str:
        plan = plan_worker(self.plan.program, self.plan.home, worker)
        try:
            plan.open_zones([], self.sandbox, self.roster.root.name).close()
        except ForgeError as error:
            return error.message
        return ""


def _toolsets_of(tool: Tool, origins: Mapping[str, list[str]]) -> list[str]:
    """Returns the blocks that bring the tool."""
    if tool.source is SourceKind.MCP:
        return ["mcp"]
    own = tool.source is SourceKind.CUSTOM or tool.name in _MAKERS
    return ["user_tools"] if own else origins.get(tool.name, ["always there"])


def _tool_facts(name: str, toolsets: list[str], foreseen: ToolForecast) -> dict[str, Any]:
    return {
        "name": name,
        "toolsets": toolsets,
        "verdict": foreseen.verdict,
        "then": foreseen.then,
        "why": foreseen.why,
        "zones": {zone: verdict.value for zone, verdict in foreseen.zones.items()},
    }


def chosen_model(asked: RunArgs, program: Program, worker: Worker) -> dict[str, Any]:
    settings, stored = program.run, ModelKeys(forge_home())
    chosen = choose_root_model(program, worker, stored, asked.model or "")
    if not chosen.model:
        return {"name": "", "from": "", "key": "", "problem": no_model_message(settings.models, os.environ, stored)}
    check_compatible(worker, chosen.model)
    for name in split_models(chosen.model):
        find = partial(price_of, name, settings.models, settings.pricing)
        check_priced(settings.budget, name, find, where=settings.origins.get("budget", ""))
        check_priced(worker.budget, name, find, where=worker.at("budget"))
    origin = settings.origins.get("model", "forge.yaml")
    return {
        "name": chosen.model,
        "from": origin if chosen.said_by == "forge.yaml" and not origin.startswith("forge.yaml") else chosen.said_by,
        "key": key_variable(split_model(split_models(chosen.model)[0])[0], settings.models),
        "problem": missing_key(chosen.model, settings.models, os.environ, stored),
    }


def _program(asked: RunArgs, program: Program, roster: Roster) -> dict[str, Any]:
    bare = program.file is None and roster.root.path is None
    start = ""
    if roster.needs_code and not roster.trusted:
        headless = "a headless run would end with exit 3 until `forge trust`"
        start = f"it brings its own code: {headless if asked.headless else 'the start would ask you to trust it'}"
    return {
        "directory": display_path(program.root),
        "file": None if program.file is None else program.file.name,
        "trusted": None if bare else roster.trusted,
        "start": start,
    }


def _limits(budget: BudgetLimits) -> Mapping[str, Any]:
    return {name: value for name, value in asdict(budget).items() if value is not None}


def _zone(zone: Zone, sandbox: Sandbox) -> dict[str, Any]:
    """Returns a zone's facts; a read-only zone has no verdicts on writing."""
    consent = {"write": zone.write.value, "delete": zone.delete.value} if zone.mode is AccessMode.RW else {}
    facts = {"name": zone.name, "mode": zone.mode.value, "directory": display_path(zone.host)}
    return {**facts, **consent, "default": zone.name == sandbox.default_zone}


BY_TARGET: Final = "by target"
NOT_LOADED: Final = "not loaded in a dry run"
_DEPENDS_ON: Final = {
    "shell": "by command: as the toolset's rules say",
    "run_custom_tool": "by the tool that it calls; a tool that is not trusted asks",
    "write_stdin": "by input: reading and signals run; a typed line is judged like a command",
    **dict.fromkeys(
        ("list_mcp_resources", "list_mcp_resource_templates", "read_mcp_resource"),
        "by server: reading from a trusted server runs, from any other it asks",
    ),
}
_WHATEVER_ITS_ARGUMENTS: Final = {
    "webfetch": (Verdict.ASK, "unless a rule allows the host"),
    "get_memory": (Verdict.PRE_APPROVED, "it only reads memories"),
    "save_memory": (Verdict.ASK, "unless a rule allows the memory"),
    "create_custom_tool": (Verdict.ASK, "it shows every file, then asks"),
}
_STRICT: Final = "strict mode asks before every effect"
_READS: Final = "its server is trusted and says that it only reads"
_BY_PATH: Final = "by path: reads inside the zones run, secrets ask, anything else is refused"
_THEN: Final = {
    Verdict.PRE_APPROVED: dict.fromkeys(ApprovalMode, "runs"),
    Verdict.BLOCKED: dict.fromkeys(ApprovalMode, "refused"),
    Verdict.ASK: {
        ApprovalMode.INTERACTIVE: "asks",
        ApprovalMode.STRICT: "asks",
        ApprovalMode.CONTAINED: "asks",
        ApprovalMode.PLAN: "refused",
        ApprovalMode.APPROVE_ALL: "runs",
        ApprovalMode.AUTO_DENY: "denied",
    },
}


_IF_CONTAINED: Final = "runs if undoable"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolForecast:
    verdict: str
    """A Verdict, `by target`, or `not loaded in a dry run`."""
    why: str
    zones: Mapping[str, Verdict] = field(default_factory=dict)
    """Zone → verdict, where it differs between them."""
    then: str = ""
    """What the approval mode makes of it: runs, asks, denied, refused; empty if that depends on the call. In the mode
    `contained`, a change that only the zone's default asks for: runs if undoable.
    """


def forecast(judge: Judge, tool: Tool, worker: str, sandbox: Sandbox) -> ToolForecast:
    try:
        judge.redirect_sources(worker, tool, {})
    except ForgeError as error:
        return _forecast_verdict(judge, Verdict.BLOCKED, error.message)
    own = tool.needs_approval
    if judge.mode is ApprovalMode.PLAN and not _may_read(tool):
        return _forecast_verdict(judge, Verdict.BLOCKED, "plan mode changes nothing")
    if decides_for_itself(tool):  # what files say by name can still make it ask
        for source in judge.blocks.named(tool.name):
            if source.verdict is Verdict.ASK:
                return _forecast_verdict(judge, source.verdict, source.describe())
    else:
        judged = judge.evaluate_by_name(tool, worker)
        by_rule = judged.outcome.verdict if judged.outcome is not None else None
        decision, by = judged.decision, judged.decision.decided_by
        # What a server says of its tool may make a call ask that a rule allows.
        if by is not None and by_rule is not None and (tool.remote is None or by_rule is not Verdict.PRE_APPROVED):
            return _forecast_verdict(judge, decision.verdict, by.describe())
    if callable(own):
        return ToolForecast(verdict=BY_TARGET, why="the tool decides for each call")
    if tool.remote is not None:
        return _forecast_server_tool(judge, tool)
    if own is not None:
        base = constant_base(tool)
        return _forecast_verdict(judge, base.verdict, base.reason)
    if tool.source is not SourceKind.NATIVE:
        said = _forecast_configured(judge, tool.name)
        defaults = bool(tool.made_from) and configured_base(tool.name, judge.blocks) is DEFAULT_ASK
        return replace(said, then=_IF_CONTAINED) if defaults and _may_be_contained(judge, said) else said
    if tool.effects == () and tool.name not in (*_DEPENDS_ON, "exec_command"):
        return _forecast_verdict(judge, Verdict.PRE_APPROVED, "it touches nothing")
    if judge.mode is ApprovalMode.STRICT:
        return _forecast_verdict(judge, Verdict.ASK, _STRICT)
    if tool.name in _WHATEVER_ITS_ARGUMENTS:
        return _forecast_verdict(judge, *_WHATEVER_ITS_ARGUMENTS[tool.name])
    if tool.name == "exec_command":
        return ToolForecast(verdict=BY_TARGET, why=_by_command(judge, tool))
    if tool.always is None:
        return ToolForecast(verdict=BY_TARGET, why=_DEPENDS_ON.get(tool.name, _BY_PATH))
    return _forecast_by_zones(judge, tool, sandbox)


def _may_read(tool: Tool) -> bool:
    """Whether some of its calls only read; the others are refused in plan mode."""
    if tool.effects == () or tool.remote is not None:
        return tool.remote is None or tool.needs_approval is False
    writes = _WHATEVER_ITS_ARGUMENTS.keys() - {"webfetch", "get_memory"}
    return tool.source is SourceKind.NATIVE and tool.always is None and tool.name not in writes


def _by_command(judge: Judge, tool: Tool) -> str:
    settings = exec_settings(tool)
    if judge.mode is ApprovalMode.PLAN:
        return "by command: proven read-only ones run, others are refused"
    if judge.mode is ApprovalMode.CONTAINED and not settings.asks:
        return "by command: what stays inside the walls and can be undone runs, others ask"
    if settings.walled is Verdict.PRE_APPROVED:
        return "by command: in full walls those without a host or a danger run, others ask"
    return "by command: proven read-only ones run, others ask"


def forecast_unloaded(judge: Judge, name: str) -> ToolForecast:
    """A tool of a module: nobody has read what it says of itself, only what the files say about it."""
    said = configured_base(name, judge.blocks)
    why = f"{said.verdict.value} unless the tool decides for itself ({said.describe()})"
    return ToolForecast(verdict=NOT_LOADED, why=why, then="refused" if said.verdict is Verdict.BLOCKED else "")


def _forecast_configured(judge: Judge, name: str) -> ToolForecast:
    said = configured_base(name, judge.blocks)
    if said.verdict is Verdict.PRE_APPROVED and judge.mode is ApprovalMode.STRICT:
        return _forecast_verdict(judge, Verdict.ASK, _STRICT)
    return _forecast_verdict(judge, said.verdict, said.describe() if said.file else said.reason)


def _forecast_server_tool(judge: Judge, tool: Tool) -> ToolForecast:
    """Forecasts a server's tool; some ask whatever the config says."""
    reads = tool.needs_approval is False
    if reads and judge.mode is ApprovalMode.STRICT:
        return _forecast_verdict(judge, Verdict.ASK, _STRICT)
    said = _forecast_verdict(judge, Verdict.PRE_APPROVED, _READS) if reads else _forecast_configured(judge, tool.name)
    if said.verdict != Verdict.PRE_APPROVED.value:
        return said
    if tool.annotations.get("destructiveHint"):
        return _forecast_verdict(judge, Verdict.ASK, "its server says that it destroys or overwrites")
    if not tool.definition_approved:
        return _forecast_verdict(judge, Verdict.ASK, "it is new on its server: the first call asks")
    return said


def _forecast_by_zones(judge: Judge, tool: Tool, sandbox: Sandbox) -> ToolForecast:
    verb = tool.always
    assert verb is not None
    if not sandbox.zones:
        return _forecast_verdict(judge, Verdict.BLOCKED, "the worker has no zone")

    def says(zone: Zone) -> Verdict:
        return Verdict.BLOCKED if zone.mode is AccessMode.RO else zone.verdict(verb)

    zones = {zone.name: says(zone) for zone in sandbox.zones.values()}
    spelled = ", ".join(f"/{name} {verdict.value}" for name, verdict in zones.items())
    if len(set(zones.values())) == 1:
        said = _forecast_verdict(judge, strictest(zones.values()), f"{verb.value} in {spelled}")
        defaults = not any(verb in zone.written for zone in sandbox.zones.values())
        return replace(said, then=_IF_CONTAINED) if _may_be_contained(judge, said) and defaults else said
    return ToolForecast(verdict=BY_TARGET, why=f"{verb.value} in {spelled}", zones=zones)


def _may_be_contained(judge: Judge, said: ToolForecast) -> bool:
    return judge.mode is ApprovalMode.CONTAINED and said.verdict == Verdict.ASK.value


def _forecast_verdict(judge: Judge, verdict: Verdict, why: str) -> ToolForecast:
    return ToolForecast(verdict=verdict.value, why=why, then=_THEN[verdict][judge.mode])
