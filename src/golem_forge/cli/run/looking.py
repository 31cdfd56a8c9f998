"""What a session would have to work with, as plain data: the SessionPlan that a run would open, opened for a look.

`look` takes the words of the command line. Code of modules is not imported: their tools are known by name. Servers are
not connected to: their tools are those of cached lists. Refuses (ConfigError) whatever a session would refuse to start
with.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from golem_forge.cli.plain import homely
from golem_forge.cli.run.foresight import Foreseen, foresee, foresee_unloaded
from golem_forge.cli.run.words import Asked
from golem_forge.config.home import forge_home
from golem_forge.config.modes import ApprovalMode, Setting
from golem_forge.config.program import Program, program_root
from golem_forge.config.run_settings import BudgetLimits
from golem_forge.core.errors import ForgeError
from golem_forge.events.finding import find_session
from golem_forge.policy.base import ApprovalBlocks
from golem_forge.policy.judge import Judge
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.zones import Mode, Zone
from golem_forge.tools.tool import SourceKind, Tool
from golem_forge.workers.budget import check_priced
from golem_forge.workers.explaining.evaluator import CODE_NOT_STARTED, DryEvaluator, look_at
from golem_forge.workers.foreknown import check_before_trust
from golem_forge.workers.models.layer import ModelError
from golem_forge.workers.models.names import (
    check_compatible,
    choose_model,
    key_variable,
    missing_key,
    no_model,
    split_model,
)
from golem_forge.workers.roster import Roster, load_roster
from golem_forge.workers.session_plan import SessionPlan, Wanted, plan_session, plan_worker, read_program
from golem_forge.workers.surroundings import approval_blocks
from golem_forge.workers.toolset_blocks import approval_now, native_names
from golem_forge.workers.trust_cover import trust_store
from golem_forge.workers.worker import Worker

_ALWAYS: Final = "always there"
"""Where a tool comes from that every worker has."""
_OWN: Final = "user_tools"
_MCP: Final = "mcp"
_MAKERS: Final = ("create_custom_tool", "run_custom_tool")


def check_start(asked: Asked) -> None:
    """Raises what a start would refuse for what is written in files and on the command line (ConfigError, ModelError,
    the errors of resuming)."""
    home = forge_home()
    if asked.resume:
        find_session(home.path, asked.resume, root=program_root(asked.directory))
        return
    program = read_program(asked.directory, home, trust_store(home), asked.overrides)
    roster = load_roster(program, asked.worker)
    check_before_trust(program, roster, home)
    problem = _model(asked, program, roster.root)["problem"]
    if problem and asked.input is not None:
        raise ModelError(problem)


def look(asked: Asked) -> dict[str, Any]:
    wanted = Wanted(home=forge_home(), approval=asked.approval, answers=not asked.headless, overrides=asked.overrides)
    plan = plan_session(asked.directory, wanted, asked.worker)
    assert plan.roster is not None
    check_before_trust(plan.program, plan.roster, plan.home)
    model = _model(asked, plan.program, plan.worker)
    dry = look_at(plan)
    try:
        return _facts(asked, plan, plan.roster, model, dry)
    finally:
        dry.sources.close()


def _facts(asked: Asked, plan: SessionPlan, roster: Roster, model: dict[str, Any], dry: DryEvaluator) -> dict[str, Any]:
    program, root = plan.program, plan.worker
    sandbox = dry.path.sandbox
    assert sandbox is not None
    dry.sources.show_own_tools()
    notices = [*(each for each in dry.notices if each != CODE_NOT_STARTED), *_servers_not_known(plan)]
    seen = _Seen(plan=plan, roster=roster, dry=dry, sandbox=sandbox)
    seen.speak_of_modules()
    return {
        "worker": {"name": root.name, "file": root.shown_path, "mode": _mode_of(asked, root)},
        "program": _program(asked, program, roster),
        "model": model,
        "approval": _approval(plan.mode),
        "budget": {"session": _limits(program.run.budget), "worker": _limits(root.budget)},
        "zones": [_zone(zone, sandbox) for zone in sandbox.zones.values()],
        "tools": [*seen.known_tools(notices), *seen.module_tools()],
        "workers": list(seen.workers(model["name"])),
        "rules": len(rules.current().rules) if (rules := dry.path.judge.rules) is not None else 0,
        "notices": notices,
    }


def _servers_not_known(plan: SessionPlan) -> Iterator[str]:
    """A notice for each server of the worker whose tools nobody has listed yet."""
    block = plan.root.blocks.mcp
    if block is None or not plan.program.mcp.servers:
        return
    from golem_forge.mcp.client.definitions.manifest_cache import ManifestCache
    from golem_forge.mcp.client.trust.trust_book import TrustBook
    from golem_forge.workers.mcp.known import Place

    place = Place(home=plan.home, program=plan.program, book=TrustBook(plan.home), cache=ManifestCache(plan.home))
    for known in place.all():
        name, state = known.spec.name, known.state.value
        if block.sees(name) and known.spec.enabled and known.listing is None:
            yield f"the tools of the MCP server '{name}' are not known here: {state}; {known.error}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    plan: SessionPlan
    roster: Roster
    dry: DryEvaluator
    sandbox: Sandbox

    @property
    def _judge(self) -> Judge:
        return self.dry.path.judge

    def speak_of_modules(self) -> None:
        """What the file says about tools that are known by name only."""
        said, _ = approval_now(
            self.plan.worker, {block.key: block.tools for block in self.plan.root.blocks.code if block.tools}
        )
        blocks = self._judge.blocks
        self._judge.speak(ApprovalBlocks(program=blocks.program, blocks={**said, **blocks.blocks}))

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
                yield _said(name, _come_from(tool, origins), self._foreseen(tool))

    def module_tools(self) -> Iterator[dict[str, Any]]:
        for block in self.plan.root.blocks.code:
            for name in block.tools or ("*",):  # a package that is not asked for names gives all it has
                yield _said(name, [block.key], foresee_unloaded(self._judge, name))

    def workers(self, model: str) -> Iterator[dict[str, Any]]:
        """Those the root worker may hand work to; one that would reach further than it comes with the refusal."""
        for each in self.roster.delegates(self.roster.root):
            tool = self.dry.catalog.get(each.name)
            assert tool is not None
            foreseen = self._foreseen(tool)
            zones = [zone.name for zone in each.sandbox.zones] if each.sandbox else []
            own = {"file": each.shown_path, "model": each.model or model, "zones": zones}
            yield {**_said(each.name, ["workers"], foreseen), **own, "refused": self._refusal(each)}

    def _foreseen(self, tool: Tool) -> Foreseen:
        return foresee(self._judge, tool, self.roster.root.name, self.sandbox)

    def _refusal(self, worker: Worker) -> str:
        place = plan_worker(self.plan.program, self.plan.home, worker)
        try:
            place.open_zones([], self.sandbox, self.roster.root.name).close()
        except ForgeError as error:
            return error.message
        return ""


def _come_from(tool: Tool, origins: Mapping[str, list[str]]) -> list[str]:
    """The blocks that bring it."""
    if tool.source is SourceKind.MCP:
        return [_MCP]
    own = tool.source is SourceKind.CUSTOM or tool.name in _MAKERS
    return [_OWN] if own else origins.get(tool.name, [_ALWAYS])


def _said(name: str, toolsets: list[str], foreseen: Foreseen) -> dict[str, Any]:
    return {
        "name": name,
        "toolsets": toolsets,
        "verdict": foreseen.says,
        "then": foreseen.then,
        "why": foreseen.why,
        "zones": {zone: verdict.value for zone, verdict in foreseen.zones.items()},
    }


def _model(asked: Asked, program: Program, worker: Worker) -> dict[str, Any]:
    settings = program.run
    chosen = choose_model(
        flag=asked.model or "",
        environ=os.environ,
        worker=worker,
        program_model=settings.model,
        builtin=worker.path is None,
        settings=settings.models,
    )
    if not chosen.model:
        return {"name": "", "from": "", "key": "", "problem": no_model(settings.models, os.environ)}
    check_compatible(worker, chosen.model)
    check_priced(settings.budget, chosen.model, settings.pricing, where=settings.origins.get("budget", ""))
    check_priced(worker.budget, chosen.model, settings.pricing, where=worker.at("budget"))
    return {
        "name": chosen.model,
        "from": chosen.said_by,
        "key": key_variable(split_model(chosen.model)[0], settings.models),
        "problem": missing_key(chosen.model, settings.models, os.environ),
    }


def _approval(mode: Setting[ApprovalMode]) -> dict[str, Any]:
    return {"mode": mode.value.value, "from": mode.origin}


def _program(asked: Asked, program: Program, roster: Roster) -> dict[str, Any]:
    bare = program.file is None and roster.root.path is None
    return {
        "directory": homely(program.root),
        "file": None if program.file is None else program.file.name,
        "trusted": None if bare else roster.trusted,
        "start": _start(asked, roster),
    }


def _start(asked: Asked, roster: Roster) -> str:
    """What stands between this program and its start; empty: nothing."""
    if roster.trusted or not roster.needs_code:
        return ""
    if asked.headless:
        return "it brings its own code: a headless run would end with exit 3 until `forge trust`"
    return "it brings its own code: the start would ask you to trust it"


def _mode_of(asked: Asked, worker: Worker) -> str:
    if asked.headless:
        return "single"
    return worker.mode or ("chat" if asked.input is None else "single")


def _limits(budget: BudgetLimits) -> Mapping[str, Any]:
    return {name: value for name, value in asdict(budget).items() if value is not None}


def _zone(zone: Zone, sandbox: Sandbox) -> dict[str, Any]:
    """What may be done in it; of a read-only one there is nothing to say about writing."""
    consent = {"write": zone.write.value, "delete": zone.delete.value} if zone.mode is Mode.RW else {}
    facts = {"name": zone.name, "mode": zone.mode.value, "directory": homely(zone.host)}
    return {**facts, **consent, "default": zone.name == sandbox.default_zone}
