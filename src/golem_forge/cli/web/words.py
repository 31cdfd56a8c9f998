"""Where a page is served, from the words of the command line and the configuration. Refuses before anything listens."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from golem_forge.core.errors import ForgeError

if TYPE_CHECKING:
    from argparse import ArgumentParser
    from collections.abc import Sequence

    from golem_forge.config.ui_block import UiSettings
    from golem_forge.ui.web.door.listening import Reach

_HIGHEST_PORT: Final = 65535


def add_reach(reader: ArgumentParser) -> None:
    reader.add_argument("--host")
    reader.add_argument("--allow-host", action="append", default=[])


def read_reach(asked: Any, port: int) -> Reach:
    """Raises ForgeError for an address that others could reach without a name for it, and where parts are missing."""
    from golem_forge.ui.web.door.listening import Reach, check_reach
    from golem_forge.ui.web.missing import need_web

    need_web()
    if not 0 <= port <= _HIGHEST_PORT:
        raise ForgeError(f"--port takes 0 to {_HIGHEST_PORT}, not {port}")
    reach = Reach(host=asked.host or "127.0.0.1", port=port, allow_hosts=tuple(asked.allow_host))
    check_reach(reach)
    return reach


def web_settings(directory: Path, overrides: Sequence[str] = ()) -> UiSettings:
    """Of the program around a directory. Raises ConfigError."""
    from golem_forge.config.home import forge_home
    from golem_forge.workers.tree import read_program
    from golem_forge.workers.trust_cover import trust_store

    home = forge_home()
    return read_program(directory, home, trust_store(home), overrides).ui
