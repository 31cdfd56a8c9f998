"""What a person can call here, whole: the native tools and their own, as a session of the built-in worker sees them.

Nothing is run, built or asked. Where the person has no tool folders, nothing of `custom/` that costs time is loaded and
nothing is written.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from golem_forge.config.home import ForgeHome, forge_home
from golem_forge.tools.catalog import Catalog
from golem_forge.workers import catalog as catalogs

if TYPE_CHECKING:
    from golem_forge.custom.diagnostic import Diagnostic
    from golem_forge.custom.workshop import Workshop


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    catalog: Catalog
    shop: Workshop | None = None
    """None: there are no tool folders."""

    @property
    def skipped(self) -> tuple[Diagnostic, ...]:
        """Why folders are not offered, by name."""
        if self.shop is None:
            return ()
        from golem_forge.cli.tools.shop import skipped

        return skipped(self.shop)


def look_around() -> Seen:
    catalog = catalogs.build_catalog()
    return Seen(catalog=catalog, shop=add_own_tools(catalog, forge_home(), ("*",), create=True))


def add_own_tools(catalog: Catalog, home: ForgeHome, globs: tuple[str, ...], *, create: bool) -> Workshop | None:
    """Puts into a catalog what a block `user_tools: {tools: globs, create}` would. None: there are no tool folders."""
    if not _has_folders(home):
        from golem_forge.custom.making.create_tool import shown_create_custom_tool
        from golem_forge.custom.run_alias import create_run_custom_tool

        if create:
            catalog.add(shown_create_custom_tool())
        catalog.add(create_run_custom_tool(lambda name, seconds: None, tuple))
        return None
    from golem_forge.cli.tools.shop import shop_to_look_at
    from golem_forge.custom.offering import Offer, UserTools

    shop = shop_to_look_at(home)
    UserTools(shop, Offer(tools=globs, create=create), catalog).refresh()
    return shop


def _has_folders(home: ForgeHome) -> bool:
    try:
        with os.scandir(home.path / "tools") as found:
            return any(not each.name.startswith(".") for each in found)
    except FileNotFoundError:
        return False
    except OSError:  # it cannot be read, which is diagnosed
        return True
