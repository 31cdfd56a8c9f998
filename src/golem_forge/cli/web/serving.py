"""The life of `forge web`: listens, shows the link, and ends every session of its own when it is told to end."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from golem_forge.cli.plain import complain
from golem_forge.cli.web.another_link import on_enter
from golem_forge.cli.web.link import Link, in_system_journal
from golem_forge.config.home import forge_home
from golem_forge.core.ending_signals import until_signalled
from golem_forge.ui.web.door.login import Login
from golem_forge.ui.web.serving import WebServer
from golem_forge.ui.web.starting import OwnSessions

if TYPE_CHECKING:
    from golem_forge.ui.web.door.listening import Reach


async def serve(directory: Path, reach: Reach, *, notify: bool, open_browser: bool) -> int:
    home = forge_home()
    own = OwnSessions(home, directory, notify=notify)
    server = WebServer(own.house, reach, Login())
    await server.start()
    ended = asyncio.Event()
    link = Link(home, open_browser=open_browser)
    with until_signalled(ended.set):
        try:
            if server.link_problem:
                complain("web", f"`forge web link` cannot reach this server: {server.link_problem}.")
            if not server.link_problem and in_system_journal():
                print(f"Forge in your browser: {server.address} (`forge web link` prints a link)", flush=True)
            else:
                link.show(server.url)
            if on_enter(lambda: link.show(server.url)):
                print("Enter prints another link; Ctrl-C ends it, and every session it runs.", file=sys.stderr)
            await ended.wait()
        finally:
            link.forget()
            await own.close()
            await server.stop()
    return 0
