"""`forge tools list` and `forge tools search`, and the inventory behind them: every tool a person can call here.

Native tools, the person's own, those of MCP servers as far as known, and what a program brings for its worker: the plan
that `forge call` opens, opened for a look. `take_inventory` runs, builds and connects nothing. `find_in_session` finds
one tool as the session of `forge call` has it; an approved server or a trusted program's code is started where nothing
else has the name. Without a file that names a worker or a server nothing of theirs is loaded; without tool folders
nothing costly of `usertools` is loaded and nothing is written.
"""

from __future__ import annotations

import contextlib
import os
import sys
from argparse import ArgumentTypeError
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from golem_forge.agent import tool_inventory
from golem_forge.agent.tool_inventory import has_tool_folders, open_listing_workshop
from golem_forge.cli.command import declare, first_line, parser, print_error, print_json, read_args
from golem_forge.config.program import PROGRAM_FILE, PROJECT_RULES, program_root
from golem_forge.config.run_block import MAIN_WORKER
from golem_forge.core.errors import ConfigError
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.core.text import columns, shorten_prose
from golem_forge.storage.home import ForgeHome, forge_home
from golem_forge.tools.catalog import Catalog, Quarantined
from golem_forge.tools.tool import Tool
from golem_forge.usertools.native_tools import create_run_custom_tool, listed_create_custom_tool

if TYPE_CHECKING:
    from golem_forge.agent.explain import DryEvaluator
    from golem_forge.agent.session_plan import SessionPlan
    from golem_forge.policy.base import ApprovalBlock
    from golem_forge.usertools.diagnostics import Diagnostic
    from golem_forge.usertools.workshop import Workshop

LIST_HELP: Final = """usage: forge tools list [--source native|custom|mcp] [--mode llm|manual|both] [--json]

Lists name, source, mode (who may call it) and first line of every tool, then the folders of user tools that Forge
skips, each with the reason. For an MCP server it lists the tools that the server offered when Forge last asked. For
module tools it lists the names in the worker file.

  --json    for programs

Nothing is run and no session is opened.
Exit: 0 done, 2 usage or configuration, 4 no such tool."""
SEARCH_HELP: Final = """usage: forge tools search QUERY… [--limit N] [--json]

The tools that fit the words best, best first.

  --json    for programs

Nothing is run and no session is opened.
Exit: 0 done, 2 usage or configuration, 4 no such tool."""

OF_THE_WORKER: Final = "the worker of this program may have other tools: `forge run --dry-run` shows them."
_DESCRIPTION_WIDTH: Final = 100
_REASON_WIDTH: Final = 300


def run_list(words: list[str]) -> int:
    asked = read_args("tools list", LIST_HELP, words, "--json", "--source native|custom|mcp", "--mode llm|manual|both")

    seen = take_inventory()
    print_unread(seen)
    tools = seen.catalog.list(source=asked.source, mode=asked.mode)
    skipped = seen.skipped if asked.source in (None, "custom") else ()
    quarantined = [each for each in not_offered(seen) if asked.source in (None, str(each.source))]
    if asked.json:
        print_json(
            {
                "tools": [tool_facts(seen.catalog, tool) for tool in tools],
                "skipped": [each.to_json() for each in skipped],
                "quarantined": [
                    {"name": each.name, "source": str(each.source), "reason": each.reason} for each in quarantined
                ],
                "program": [each._asdict() for each in seen.program_tools],
            }
        )
        return 0
    if tools:
        print(_tool_table(tools))
    elif not skipped and not quarantined:
        print_error("tools", "no tool fits. `forge tools list` without options lists all of them.")
    if seen.program_tools and asked.source in (None, "custom"):
        print("\nof this program's worker (`forge tools show NAME` says more):")
        print(columns(seen.program_tools, indent="  "))
    if quarantined:
        of_server = any(each.source == "mcp" for each in quarantined)
        print("\nnot offered:" if of_server else "\nnot offered until repaired:")
        print(columns(((each.name, str(each.source), each.reason) for each in quarantined), indent="  "))
    if skipped:
        print("\nskipped:" if tools or quarantined else "skipped:")
        rows = (
            (each.tool or "-", each.code.value, shorten_prose(first_line(each.message), _REASON_WIDTH))
            for each in skipped
        )
        print(columns(rows, indent="  "))
    if seen.has_entry:
        print(f"note: {OF_THE_WORKER}", file=sys.stderr)
    return 0


def run_search(words: list[str]) -> int:
    reader = declare(parser("tools search", SEARCH_HELP), "--json", "QUERY+")
    reader.add_argument("--limit", type=_positive, default=10)
    asked = reader.parse_args(words)

    seen = take_inventory()
    print_unread(seen)
    catalog = seen.catalog
    found = catalog.find(" ".join(asked.query), limit=asked.limit)
    if asked.json:
        print_json({"tools": [tool_facts(catalog, tool) for tool in found.tools], "total": found.total})
    elif found.tools:
        print(_tool_table(found.tools))
        if found.total > len(found.tools):
            print(f"… and {found.total - len(found.tools)} more; --limit shows them")
    else:
        print_error("tools", "nothing fits. Try fewer or other words, or `forge tools list`.")
    return 0


def tool_facts(catalog: Catalog, tool: Tool) -> dict[str, Any]:
    return {
        "name": tool.name,
        "source": tool.source.value,
        "mode": tool.mode.value,
        "label": tool.label,
        "category": tool.category,
        "description": tool.description,
        "aliases": [alias for alias, name in catalog.aliases().items() if name == tool.name],
    }


def print_unread(seen: ToolInventory) -> None:
    """Prints why the list is not complete."""
    for problem in seen.unread:
        print_error("tools", f"this list has no MCP tools: {problem}")


def not_offered(seen: ToolInventory) -> list[Quarantined]:
    """Tools whose definition is unusable; folders that are skipped say so with their own code."""
    folders = {each.tool for each in seen.skipped}
    return [each for each in seen.catalog.quarantined() if each.name not in folders]


def _positive(text: str) -> int:
    with contextlib.suppress(ValueError):
        if (number := int(text)) > 0:
            return number
    raise ArgumentTypeError(f"invalid _positive value: {text!r}")


def _tool_table(tools: Iterable[Tool]) -> str:
    head = ("NAME", "SOURCE", "MODE", "DESCRIPTION")
    described = ((tool, shorten_prose(first_line(tool.description), _DESCRIPTION_WIDTH)) for tool in tools)
    return columns([head, *((tool.name, tool.source.value, tool.mode.value, text) for tool, text in described)])


class ProgramTool(NamedTuple):
    """A tool that the program's worker has from the program: a worker it hands work to, or code that is not loaded."""

    name: str
    toolset: str
    """The block that brings it: `custom`, `external`, `workers`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolInventory:
    catalog: Catalog
    workshop: Workshop | None = None
    """None if there are no tool folders."""
    approval: Mapping[str, ApprovalBlock] = field(default_factory=dict)
    """Approval settings of blocks and MCP servers, by tool name."""
    unread: tuple[str, ...] = ()
    """Why the program could not be looked at: problems of its files."""
    has_entry: bool = False
    """`forge call` here is the worker's of this program: it has some of these tools, and perhaps its own."""
    program_tools: tuple[ProgramTool, ...] = ()
    directory: Path | str = "."

    @property
    def skipped(self) -> tuple[Diagnostic, ...]:
        """Returns why folders are not offered, by name."""
        if self.workshop is None:
            return ()
        from golem_forge.usertools.trust import inactive_tools

        return inactive_tools(self.workshop)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTool:
    """One tool as the session of `forge call` has it; or why it has none."""

    seen: ToolInventory
    tool: Tool | None
    why_not: str = ""
    approval: str = ""
    """What decides about its calls there: blocks, rules and mode."""


def take_inventory(directory: Path | str = ".") -> ToolInventory:
    home = forge_home()
    if not _has_config_files(home, directory):
        catalog = tool_inventory.build_catalog()
        return ToolInventory(catalog=catalog, workshop=_add_own_tools(catalog, home), directory=directory)
    from golem_forge.agent.explain import open_dry_evaluator
    from golem_forge.agent.session_plan import SessionRequest, has_entry, plan_embedded

    try:
        plan = plan_embedded(directory, SessionRequest(home=home, answers=True))
        entry = has_entry(plan.program)
        of_program = tuple(_program_tools(directory, home)) if entry else ()
        dry = open_dry_evaluator(plan)
    except ConfigError as error:
        catalog = tool_inventory.build_catalog()
        workshop = _add_own_tools(catalog, home)
        return ToolInventory(catalog=catalog, workshop=workshop, unread=error.problems, directory=directory)
    try:
        dry.sources.list_user_tools()
        return _inventory_of(dry, plan, has_entry=entry, of_program=of_program)
    finally:
        dry.sources.close()


async def find_in_session(name: str, directory: Path | str = ".") -> FoundTool | None:
    """Finds a tool as a session would; None if there is no program here that would say more than `take_inventory`.
    Raises ConfigError for a configuration, or code, that no session starts with.
    """
    home = forge_home()
    if not _has_config_files(home, directory) and not _has_rules_files(home, directory):
        return None
    from golem_forge.agent.explain import CODE_NOT_STARTED, open_evaluator, plan_for_explain

    plan = plan_for_explain(home, directory)
    async with open_evaluator(plan) as dry:
        dry.sources.list_user_tools()
        tool = await dry.find(name)
        why_not = dry.catalog.why_missing(name) or (CODE_NOT_STARTED if plan.waits_for_trust else "")
        seen = _inventory_of(dry, plan, has_entry=plan.roster is not None)
        if tool is None:
            return FoundTool(seen=seen, tool=None, why_not=why_not)
        return FoundTool(seen=seen, tool=tool, approval=await dry.who_decides(tool))


def _inventory_of(
    dry: DryEvaluator, plan: SessionPlan, *, has_entry: bool, of_program: tuple[ProgramTool, ...] = ()
) -> ToolInventory:
    users = dry.sources.user_tools
    return ToolInventory(
        catalog=dry.catalog,
        workshop=users.workshop if users is not None else None,
        approval=dry.orchestrator.judge.blocks.blocks,
        has_entry=has_entry,
        program_tools=of_program,
        directory=plan.program.root,
    )


def _program_tools(directory: Path | str, home: ForgeHome) -> Iterator[ProgramTool]:
    """Yields the program's tools. Raises ConfigError."""
    from golem_forge.agent.explain import plan_for_explain

    plan = plan_for_explain(home, directory)
    assert plan.roster is not None
    for block in plan.root.blocks.code:
        yield from (ProgramTool(name, block.key) for name in block.tools or ("*",))
    yield from (ProgramTool(each.name, "workers") for each in plan.roster.delegates(plan.worker))


def _add_own_tools(catalog: Catalog, home: ForgeHome) -> Workshop | None:
    """Adds user tools as the built-in worker sees them; None if there are no tool folders."""
    if not has_tool_folders(home):
        catalog.add(listed_create_custom_tool())
        catalog.add(create_run_custom_tool(lambda name, seconds: None, tuple))
        return None
    from golem_forge.usertools.catalog_sync import ToolSelection, UserTools

    workshop = open_listing_workshop(home)
    UserTools(workshop, ToolSelection(create=True), catalog).refresh()
    return workshop


def _has_config_files(home: ForgeHome, directory: Path | str) -> bool:
    """Whether any of the files is there that name a worker or a server; reading them costs more than all the rest."""
    root = program_root(Path(directory).absolute())
    files = (root / PROGRAM_FILE, root / MAIN_WORKER, root / ".mcp.json", home.config)
    return any(os.path.lexists(file) for file in files)


def _has_rules_files(home: ForgeHome, directory: Path | str) -> bool:
    files = (home.rules, home.remembered, program_root(Path(directory).absolute()) / PROJECT_RULES)
    return any(os.path.lexists(file) for file in files)
