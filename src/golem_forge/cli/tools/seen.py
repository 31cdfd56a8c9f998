"""What a person can call here: the native tools, their own, those of MCP servers as far as they are known, and what a
program brings for its worker. The same plan that `forge call` opens, opened for a look.

`look_around` gives the whole inventory; nothing is run, built, connected to or asked. `find_here` gives one tool as the
session of `forge call` has it: a server that a person agreed to, or code of a trusted program, is started where nothing
else has the name. Where no file could name a worker or a server, nothing of theirs is loaded, and where the person has
no tool folders, nothing of `custom/` that costs time is loaded and nothing is written.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from golem_forge.config.home import ForgeHome, forge_home
from golem_forge.config.program import PROGRAM_FILE, program_root
from golem_forge.config.run_settings import MAIN_WORKER
from golem_forge.tools.catalog import Catalog
from golem_forge.workers import catalog as catalogs

if TYPE_CHECKING:
    from golem_forge.custom.diagnostic import Diagnostic
    from golem_forge.custom.workshop import Workshop
    from golem_forge.policy.base import ApprovalBlock
    from golem_forge.tools.tool import Tool
    from golem_forge.workers.explaining.evaluator import DryEvaluator
    from golem_forge.workers.session_plan import SessionPlan


class OfProgram(NamedTuple):
    """A tool that the program's worker has from the program: a worker it hands work to, or code that is not loaded."""

    name: str
    toolset: str
    """The block that brings it: `custom`, `external`, `workers`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    catalog: Catalog
    shop: Workshop | None = None
    """None: there are no tool folders."""
    approval: Mapping[str, ApprovalBlock] = field(default_factory=dict)
    """What blocks and the configs of MCP servers say about tools, by name."""
    unread: tuple[str, ...] = ()
    """Why the program could not be looked at: problems of its files."""
    has_entry: bool = False
    """`forge call` here is the worker's of this program: it has some of these tools, and perhaps its own."""
    of_program: tuple[OfProgram, ...] = ()
    directory: Path | str = "."

    @property
    def skipped(self) -> tuple[Diagnostic, ...]:
        """Why folders are not offered, by name."""
        if self.shop is None:
            return ()
        from golem_forge.custom.trust.standing import skipped

        return skipped(self.shop)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundHere:
    """One tool as the session of `forge call` has it; or why it has none."""

    seen: Seen
    tool: Tool | None
    why_not: str = ""


def look_around(directory: Path | str = ".") -> Seen:
    home = forge_home()
    if not _may_say_more(home, directory):
        catalog = catalogs.build_catalog()
        return Seen(catalog=catalog, shop=_add_own_tools(catalog, home), directory=directory)
    from golem_forge.core.errors import ConfigError
    from golem_forge.workers.explaining.evaluator import look_at
    from golem_forge.workers.session_plan import Wanted, has_entry, plan_embedded

    try:
        plan = plan_embedded(directory, Wanted(home=home, answers=True))
        entry = has_entry(plan.program)
        of_program = tuple(_of_program(directory, home)) if entry else ()
        dry = look_at(plan)
    except ConfigError as error:
        catalog = catalogs.build_catalog()
        shop = _add_own_tools(catalog, home)
        return Seen(catalog=catalog, shop=shop, unread=error.problems, directory=directory)
    try:
        dry.sources.show_own_tools()
        return _as_seen(dry, plan, has_entry=entry, of_program=of_program)
    finally:
        dry.sources.close()


async def find_here(name: str, directory: Path | str = ".") -> FoundHere | None:
    """None: there is no program here that would say more than `look_around`. Raises ConfigError for a configuration,
    or code, that no session starts with."""
    home = forge_home()
    if not _may_say_more(home, directory):
        return None
    from golem_forge.workers.explaining.evaluator import CODE_NOT_STARTED, open_evaluator, plan_for_a_look

    plan = plan_for_a_look(home, directory)
    async with open_evaluator(plan) as dry:
        dry.sources.show_own_tools()
        tool = await dry.find(name)
        why_not = dry.catalog.why_missing(name) or (CODE_NOT_STARTED if plan.waits_for_trust else "")
        seen = _as_seen(dry, plan, has_entry=plan.roster is not None)
        return FoundHere(seen=seen, tool=tool, why_not="" if tool is not None else why_not)


def _as_seen(dry: DryEvaluator, plan: SessionPlan, *, has_entry: bool, of_program: tuple[OfProgram, ...] = ()) -> Seen:
    users = dry.sources.users
    return Seen(
        catalog=dry.catalog,
        shop=users.shop if users is not None else None,
        approval=dry.path.judge.blocks.blocks,
        has_entry=has_entry,
        of_program=of_program,
        directory=plan.program.root,
    )


def _of_program(directory: Path | str, home: ForgeHome) -> Iterator[OfProgram]:
    """Raises ConfigError."""
    from golem_forge.workers.explaining.evaluator import plan_for_a_look

    plan = plan_for_a_look(home, directory)
    assert plan.roster is not None
    for block in plan.root.blocks.code:
        yield from (OfProgram(name, block.key) for name in block.tools or ("*",))
    yield from (OfProgram(each.name, "workers") for each in plan.roster.delegates(plan.worker))


def _add_own_tools(catalog: Catalog, home: ForgeHome) -> Workshop | None:
    """As the built-in worker sees them. None: there are no tool folders."""
    from golem_forge.workers.own_shop import has_tool_folders

    if not has_tool_folders(home):
        from golem_forge.custom.making.create_tool import shown_create_custom_tool
        from golem_forge.custom.run_alias import create_run_custom_tool

        catalog.add(shown_create_custom_tool())
        catalog.add(create_run_custom_tool(lambda name, seconds: None, tuple))
        return None
    from golem_forge.custom.offering import Offer, UserTools
    from golem_forge.workers.own_shop import shop_to_look_at

    shop = shop_to_look_at(home)
    UserTools(shop, Offer(create=True), catalog).refresh()
    return shop


def _may_say_more(home: ForgeHome, directory: Path | str) -> bool:
    """Whether any of the files is there that name a worker or a server; reading them costs more than all the rest."""
    root = program_root(Path(directory).absolute())
    files = (root / PROGRAM_FILE, root / MAIN_WORKER, root / ".mcp.json", home.config)
    return any(os.path.lexists(file) for file in files)
