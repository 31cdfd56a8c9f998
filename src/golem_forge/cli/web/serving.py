"""The life of `forge web`: listens, shows the link, and ends every session of its own when it is told to end."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from golem_forge.cli.web.link import Link
from golem_forge.config.home import forge_home
from golem_forge.ui.web.login import Login
from golem_forge.ui.web.serving import WebServer
from golem_forge.ui.web.starting import OwnSessions

if TYPE_CHECKING:
    from golem_forge.ui.web.listening import Reach


async def serve(directory: Path, reach: Reach, *, notify: bool, open_browser: bool) -> int:
    home = forge_home()
    own = OwnSessions(home, directory, notify=notify)
    server = WebServer(own.house, reach, Login())
    await server.start()
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    link = Link(home, open_browser=open_browser)
    try:
        link.show(server.url)
        await ended.wait()
    finally:
        link.forget()
        await own.close()
        await server.stop()
    return 0
