"""The person's own tools without a session: one Workshop to look at them, and one that may build, test and trust.

Nobody is asked through it: whoever acts for a person shows the trust card, then says what they agreed to.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from golem_forge.sandbox.host import person_environ

if TYPE_CHECKING:
    from golem_forge.config.home import ForgeHome
    from golem_forge.custom.workshop import Workshop


def open_shop(home: ForgeHome, directory: Path | str) -> Workshop:
    """Walls as the program around this directory (or the person's config) sets them. Raises ConfigError."""
    from golem_forge.custom.workshop import open_workshop
    from golem_forge.policy.ruled_reach import hosts_in
    from golem_forge.policy.rules import RuleBook
    from golem_forge.workers.surroundings import DEFAULT_WORKER
    from golem_forge.workers.tree import known_secrets, read_program
    from golem_forge.workers.trust_cover import trust_store

    trust = trust_store(home)
    program = read_program(directory, home, trust)
    rules = RuleBook(home, project_root=program.root, project_trusted=lambda: trust.trusted(program.root))
    shop = open_workshop(
        home,
        native=_native(),
        redactor=known_secrets(home),
        environ=person_environ(),
        settings=program.walls,
        zones=[os.path.realpath(path) for path in (program.root, *(zone.path for zone in program.zones))],
        host_rule=hosts_in(rules, str(program.root), DEFAULT_WORKER),
    )
    shop.registry.refresh()
    return shop


def shop_to_look_at(home: ForgeHome) -> Workshop:
    """For what starts nothing: what the program around here says does not matter to it."""
    from golem_forge.custom.workshop import open_workshop

    return open_workshop(home, native=_native(), environ=person_environ())


def _native() -> Mapping[str, str]:
    from golem_forge.workers.native_toolsets import TOOL_LIST

    return {tool.name: tool.description.partition("\n")[0] for tool in TOOL_LIST}


def has_tool_folder(home: ForgeHome, name: str) -> bool:
    from golem_forge.custom.names import name_problem

    return not name_problem(name) and (home.path / "tools" / name).is_dir()


def has_tool_folders(home: ForgeHome) -> bool:
    try:
        with os.scandir(home.path / "tools") as found:
            return any(not each.name.startswith(".") for each in found)
    except FileNotFoundError:
        return False
    except OSError:  # it cannot be read, which is diagnosed
        return True
