"""What a person can call here, whole: the native tools, their own, and those of MCP servers as far as they are known,
as a session of the built-in worker sees them.

Nothing is run, built, connected to or asked. Where the person has no tool folders, nothing of `custom/` that costs time
is loaded and nothing is written; where no file could name a server, nothing of `mcp/` is loaded.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from golem_forge.config.home import ForgeHome, forge_home
from golem_forge.config.program import PROGRAM_FILE, program_root
from golem_forge.config.run_settings import MAIN_WORKER
from golem_forge.tools.catalog import Catalog
from golem_forge.workers import catalog as catalogs

if TYPE_CHECKING:
    from golem_forge.custom.diagnostic import Diagnostic
    from golem_forge.custom.workshop import Workshop
    from golem_forge.policy.base import ApprovalBlock


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    catalog: Catalog
    shop: Workshop | None = None
    """None: there are no tool folders."""
    approval: Mapping[str, ApprovalBlock] = field(default_factory=dict)
    """What the configs of MCP servers say about their tools, by name."""
    unread: tuple[str, ...] = ()
    """Why MCP servers could not be looked at: problems of the files that would name them."""
    has_entry: bool = False
    """`forge call` here is the worker's of this program: it has some of these tools, and perhaps its own."""

    @property
    def skipped(self) -> tuple[Diagnostic, ...]:
        """Why folders are not offered, by name."""
        if self.shop is None:
            return ()
        from golem_forge.custom.trust.standing import skipped

        return skipped(self.shop)


def look_around() -> Seen:
    catalog, home = catalogs.build_catalog(), forge_home()
    shop = add_own_tools(catalog, home, ("*",), create=True)
    if not _may_name_servers(home):
        return Seen(catalog=catalog, shop=shop, has_entry=os.path.lexists(program_root(Path.cwd()) / MAIN_WORKER))
    from golem_forge.cli.mcp.shelf import put_known_tools
    from golem_forge.core.errors import ConfigError
    from golem_forge.workers.entry_session import has_entry
    from golem_forge.workers.mcp.known import look

    try:
        place = look(home=home)
    except ConfigError as error:
        return Seen(catalog=catalog, shop=shop, unread=error.problems)
    said = put_known_tools(place, catalog) if place.program.mcp.servers else {}
    return Seen(catalog=catalog, shop=shop, approval=said, has_entry=has_entry(place.program))


def add_own_tools(catalog: Catalog, home: ForgeHome, globs: tuple[str, ...], *, create: bool) -> Workshop | None:
    """Puts into a catalog what a block `user_tools: {tools: globs, create}` would. None: there are no tool folders."""
    if not _has_folders(home):
        from golem_forge.custom.making.create_tool import shown_create_custom_tool
        from golem_forge.custom.run_alias import create_run_custom_tool

        if create:
            catalog.add(shown_create_custom_tool())
        catalog.add(create_run_custom_tool(lambda name, seconds: None, tuple))
        return None
    from golem_forge.custom.offering import Offer, UserTools
    from golem_forge.workers.own_shop import shop_to_look_at

    shop = shop_to_look_at(home)
    UserTools(shop, Offer(tools=globs, create=create), catalog).refresh()
    return shop


def _may_name_servers(home: ForgeHome) -> bool:
    """Whether any of the files is there that can; reading them costs more than all the rest."""
    root = program_root(Path.cwd())
    return any(os.path.lexists(file) for file in (root / PROGRAM_FILE, root / ".mcp.json", home.config))


def _has_folders(home: ForgeHome) -> bool:
    try:
        with os.scandir(home.path / "tools") as found:
            return any(not each.name.startswith(".") for each in found)
    except FileNotFoundError:
        return False
    except OSError:  # it cannot be read, which is diagnosed
        return True
