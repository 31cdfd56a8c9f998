"""WebServer: the page, listening in this process's own loop. Signals, logs and the terminal stay the session's own.

Raises ForgeError for an address that cannot or may not be had. `stop` says goodbye to every page and is over within a
second, whatever the pages do; nothing of it is left in the loop then. While it runs, `forge web link` and `forge web
status` reach it (door/control.py); where they cannot, `link_problem` says why.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from golem_forge.core.errors import ForgeError
from golem_forge.core.listening import bound
from golem_forge.ui.web.app import make_app
from golem_forge.ui.web.door.control import LINK, STATUS, ControlSocket
from golem_forge.ui.web.door.listening import Reach, check_reach
from golem_forge.ui.web.door.login import Login
from golem_forge.ui.web.missing import need_web

if TYPE_CHECKING:
    import socket

    from golem_forge.ui.web.door.door import Door
    from golem_forge.ui.web.door.running import QuietServer
    from golem_forge.ui.web.house import House

_BYE_SECONDS: Final = 0.3
_STOPPING: Final = "The session that serves this page ended."


class WebServer:
    def __init__(self, house: House, reach: Reach, login: Login) -> None:
        self._house = house
        self._reach = reach
        self._login = login
        self._holding = contextlib.ExitStack()
        self._door: Door | None = None
        self._server: QuietServer | None = None
        self._serving: asyncio.Task[None] | None = None
        self._port = 0
        self._control: ControlSocket | None = None
        self._since = ""
        self.link_problem = ""

    @property
    def address(self) -> str:
        return self._reach.address(self._port)

    @property
    def url(self) -> str:
        """Lets whoever opens it in, once. In the fragment, which browsers keep to themselves."""
        return f"{self.address}#code={self._login.new_code()}"

    async def start(self) -> None:
        """Listening when it returns."""
        need_web()
        check_reach(self._reach)
        try:
            listener = self._holding.enter_context(bound(self._reach.host, self._reach.port))
        except ForgeError as error:
            raise ForgeError(
                f"{error.message}; `ui.web.port` or `forge web --port` names another port, without it any is taken",
                code=error.code,
            ) from None
        try:
            await self._serve(listener)
        except BaseException:
            self._holding.close()
            raise
        await self._open_control()

    async def _open_control(self) -> None:
        """Without it the page is served all the same: the home may be on a disk that nobody can write to."""
        self._since = datetime.now(UTC).isoformat(timespec="seconds")
        control = ControlSocket(self._house.home, self._port, {LINK: lambda: {"link": self.url}, STATUS: self._status})
        try:
            await control.open()
        except OSError as error:
            self.link_problem = error.strerror or str(error)
        else:
            self._control = control

    def _status(self) -> dict[str, Any]:
        return {
            "address": self.address,
            "port": self._port,
            "pid": os.getpid(),
            "since": self._since,
            "starts_sessions": self._house.may_start,
            "sessions": [session.id for session in self._house.live_sessions()],
        }

    async def _serve(self, listener: socket.socket) -> None:
        from golem_forge.ui.web.door.running import QuietServer, quiet_config

        self._port = listener.getsockname()[1]
        self._door = make_app(self._house, login=self._login, hosts=self._reach.hosts(self._port))
        self._server = QuietServer(quiet_config(self._door))
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        self._serving = asyncio.get_running_loop().create_task(self._server.serve(sockets=[listener]))
        await self._server.listening.wait()

    async def stop(self) -> None:
        """Safe to call twice."""
        server, self._server = self._server, None
        if server is None or self._door is None or self._serving is None:
            return
        if self._control is not None:
            await self._control.close()
        await self._door.sockets.end_all(_STOPPING, _BYE_SECONDS)
        server.stop()
        await asyncio.wait({self._serving})  # both of its waits have a limit
        self._holding.close()
