"""WebAdapter: one session on a page, served from the session's own process. The terminal's counterpart.

`initialize` attaches to the bus and listens; from then on the session counts as answerable, with or without an open
page. `shutdown` says goodbye to every page. Alone, it ends when the person ends the session on the page or the process
is told to, and shows the answer of a worker that has ended until then; beside a terminal, the terminal decides.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from golem_forge.core.visible import visible
from golem_forge.ui.web.house import House
from golem_forge.workers.run_result import RunResult, RunStatus

if TYPE_CHECKING:
    from golem_forge.ui.web.door.listening import Reach
    from golem_forge.ui.web.serving import WebServer
    from golem_forge.workers.runtime import WorkerRuntime

ShowLink = Callable[[str], None]
"""Shows the person a link that lets whoever has it in, once."""
_NEVER_RAN: Final = frozenset({RunStatus.INVALID_CONFIG, RunStatus.MODEL_UNAVAILABLE})
"""What ends a start before anything ran, found out by the first turn."""


class WebAdapter:
    def __init__(
        self,
        runtime: WorkerRuntime,
        reach: Reach,
        *,
        directory: Path,
        show_link: ShowLink,
        forget_links: Callable[[], None] = lambda: None,
        notify: bool = False,
    ) -> None:
        """`forget_links` is called when no link is of use any more."""
        self.exit_requested = asyncio.Event()
        self.exit_code = 0
        self._runtime = runtime
        self._reach = reach
        self._show_link = show_link
        self._forget_links = forget_links
        self._house = House(runtime.home, directory, notify=notify)
        self._server: WebServer | None = None

    async def initialize(self) -> None:
        """Raises ForgeError where the address cannot be had."""
        from golem_forge.ui.web.door.login import Login
        from golem_forge.ui.web.serving import WebServer
        from golem_forge.ui.web.watching.live import LiveSession

        server = WebServer(self._house, self._reach, Login())
        await server.start()
        self._server = server
        session = LiveSession(self._runtime, self._runtime.bus, self._runtime.home.path, self._house.directory)
        await session.open()
        await self._house.admit(session)
        self.show_link()

    def show_link(self) -> None:
        """Another one: each opens the page once."""
        if self._server is not None:
            self._show_link(self._server.url)

    @property
    def address(self) -> str:
        return self._server.address if self._server is not None else ""

    async def shutdown(self) -> None:
        """Safe to call twice. Open questions are denied if no other UI can answer."""
        server, self._server = self._server, None
        if server is not None:
            self._forget_links()
            await self._house.close()
            await server.stop()

    def finished(self, result: RunResult) -> None:
        """The events of the run have said it all."""

    async def stay(self, result: RunResult) -> None:
        """A page that went with the answer would show it to nobody; where nothing ran there is nothing to show."""
        if result.status in _NEVER_RAN:
            print(f"forge: {visible(result.error)}", file=sys.stderr)
            return
        print("The worker has ended; the page stays until Ctrl-C.", file=sys.stderr)
        await self.exit_requested.wait()

    def request_exit(self, code: int = 0) -> None:
        if not self.exit_requested.is_set():
            self.exit_code = code
            self.exit_requested.set()
