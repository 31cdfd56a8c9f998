"""What a session would have to work with, as plain data: read, checked and judged, but nothing opened or run.

`look` takes the words of the command line and reads the program and its workers as a session would. Code of modules is
not imported: their tools are known by name. Refuses (ConfigError) whatever a session would refuse to start with.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final

from golem_forge.cli.plain import homely
from golem_forge.cli.run.foresight import Foreseen, foresee, foresee_unloaded
from golem_forge.cli.run.words import Asked
from golem_forge.cli.tools.seen import add_own_tools
from golem_forge.config.home import ForgeHome, forge_home
from golem_forge.config.modes import ApprovalMode
from golem_forge.config.program import Program, program_root
from golem_forge.config.run_settings import BudgetLimits
from golem_forge.core.errors import ForgeError
from golem_forge.events.finding import find_session
from golem_forge.policy.base import ApprovalBlock, ApprovalBlocks
from golem_forge.policy.judge import Judge
from golem_forge.policy.rules import RuleBook
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.zones import Mode, Zone
from golem_forge.tools.catalog import Catalog
from golem_forge.tools.tool import SourceKind, Tool
from golem_forge.workers.blocks import EVERY_SERVER, WorkerBlocks
from golem_forge.workers.budget import check_priced
from golem_forge.workers.catalog import build_catalog
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
from golem_forge.workers.surroundings import approval_blocks, with_tools_zone
from golem_forge.workers.toolset_blocks import approval_of, native_names, worker_blocks
from golem_forge.workers.tree import TreeOptions, approval_mode, read_program
from golem_forge.workers.trust_cover import trust_store
from golem_forge.workers.worker import Worker
from golem_forge.workers.worker_zones import sandbox_for

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
    home = forge_home()
    trust = trust_store(home)
    program = read_program(asked.directory, home, trust, asked.overrides)
    roster = load_roster(program, asked.worker, trusted_with=trust.trusted_with)
    check_before_trust(program, roster, home)
    root = roster.root
    untrusted = program.notice_with(roster.unused)
    notices = [*([untrusted] if untrusted else []), *roster.warnings]
    model = _model(asked, program, root)
    mode = approval_mode(program, TreeOptions(approval=asked.approval, asks_uis=not asked.headless))
    rules = RuleBook(home, project_root=program.root, project_trusted=partial(trust.trusted, program.root))
    sandbox, blocks = sandbox_for(program, root, home, notices), worker_blocks(root)
    if blocks.user_tools is not None and blocks.user_tools.create:
        sandbox = with_tools_zone(sandbox, home)
    try:
        ground = _Ground(program=program, home=home, roster=roster, blocks=blocks, sandbox=sandbox)
        catalog = ground.catalog()
        judge = ground.judge(rules, mode, catalog, ground.put_servers_tools(catalog, notices))
        return {
            "worker": {"name": root.name, "file": root.shown_path, "mode": _mode_of(asked, root)},
            "program": _program(asked, program, roster),
            "model": model,
            "approval": _approval(asked, program, mode),
            "budget": {"session": _limits(program.run.budget), "worker": _limits(root.budget)},
            "zones": [_zone(zone, sandbox) for zone in sandbox.zones.values()],
            "tools": [*ground.known_tools(catalog, judge, notices), *ground.module_tools(judge)],
            "workers": list(ground.workers(judge, model["name"])),
            "rules": len(rules.current().rules),
            "notices": notices,
        }
    finally:
        sandbox.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ground:
    program: Program
    home: ForgeHome
    roster: Roster
    blocks: WorkerBlocks
    """The root worker's."""
    sandbox: Sandbox

    def catalog(self) -> Catalog:
        """Native tools, and the person's own if its block shows them."""
        catalog, own = build_catalog(toolsets=self.blocks.native), self.blocks.user_tools
        if own is not None:
            add_own_tools(catalog, self.home, own.tools, create=own.create)
        return catalog

    def put_servers_tools(self, catalog: Catalog, notices: list[str]) -> dict[str, ApprovalBlock]:
        """As far as they are known. Gives what the servers' configs say about them, by name."""
        block = self.blocks.mcp
        if block is None or (EVERY_SERVER in block.servers and not self.program.mcp.servers):
            return {}
        from golem_forge.cli.run.servers import put_tools_of_servers

        return put_tools_of_servers(block, self.program, self.home, catalog, notices)

    def judge(self, rules: RuleBook, mode: ApprovalMode, catalog: Catalog, servers: dict[str, ApprovalBlock]) -> Judge:
        """`servers`: what the configs of MCP servers say of their tools."""
        said = self.program.approval
        exposed = native_names(self.blocks)
        exposed |= {block.key: list(block.tools) for block in self._code() if block.tools}
        if self.blocks.workers:
            exposed["workers"] = [each.name for each in self.roster.delegates(self.roster.root)]
        whole = ApprovalBlock(default=said.default, tools=said.tools)
        blocks = approval_of(self.roster.root, exposed)
        if self.blocks.user_tools is not None:  # it may name tools that are not there yet
            own = [tool.name for tool in catalog if tool.source is SourceKind.CUSTOM]
            blocks |= dict.fromkeys(own, self.blocks.user_tools.approval)
        return Judge(ApprovalBlocks(program=whole, blocks=blocks | servers), rules, mode, str(self.program.root))

    def known_tools(self, catalog: Catalog, judge: Judge, notices: list[str]) -> Iterator[dict[str, Any]]:
        tools = {tool.name: tool for tool in catalog}
        unknown: list[str] = []
        approval_blocks(self.program, tools, unknown)
        notices += unknown if not self._code() else ()  # it may be a tool of a module
        origins: dict[str, list[str]] = {}
        for key, names in native_names(self.blocks).items():
            for name in names:
                origins.setdefault(name, []).append(key)
        for name, tool in tools.items():
            yield _said(name, _come_from(tool, origins), foresee(judge, tool, self.roster.root.name, self.sandbox))

    def module_tools(self, judge: Judge) -> Iterator[dict[str, Any]]:
        for block in self._code():
            for name in block.tools or ("*",):  # a package that is not asked for names gives all it has
                yield _said(name, [block.key], foresee_unloaded(judge, name))

    def workers(self, judge: Judge, model: str) -> Iterator[dict[str, Any]]:
        """Those the root worker may hand work to; one that would reach further than it comes with the refusal."""
        root = self.roster.root
        for each in self.roster.delegates(root):
            foreseen = foresee(judge, Tool(each.name, "", input_schema={}, execute=_never), root.name, self.sandbox)
            zones = [zone.name for zone in each.sandbox.zones] if each.sandbox else []
            own = {"file": each.shown_path, "model": each.model or model, "zones": zones}
            yield {**_said(each.name, ["workers"], foreseen), **own, "refused": self._refusal(each)}

    def _code(self) -> tuple[Any, ...]:
        return (*self.blocks.custom, *self.blocks.external)

    def _refusal(self, worker: Worker) -> str:
        above = self.roster.root.name
        try:
            sandbox_for(self.program, worker, self.home, [], parent=self.sandbox, parent_name=above).close()
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


def _approval(asked: Asked, program: Program, mode: ApprovalMode) -> dict[str, Any]:
    configured = program.mode(ApprovalMode(asked.approval) if asked.approval else None)
    origin = configured.origin if configured.value is mode else f"{configured.value}, but nobody can be asked"
    return {"mode": mode.value, "from": origin}


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


def _never(args: dict[str, Any]) -> None:
    raise RuntimeError("a tool of a dry run never runs")
