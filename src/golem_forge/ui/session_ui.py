"""SessionUI: what shows a session from its start to its end, as `forge run` drives it. Terminal, page, both or nobody.

    initialize        before the runtime's: from now on it shows what happens, and may be asked
    finished(result)  the worker has answered; the session is still open
    stay(result)      returns once the session may be closed: at once, or when the person has seen the answer
    shutdown          after the runtime's end

`exit_requested` is set when the person leaves, or when `request_exit` says that they have to.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from golem_forge.workers.run_result import RunResult


class SessionUI(Protocol):
    @property
    def exit_requested(self) -> asyncio.Event: ...

    @property
    def exit_code(self) -> int:
        """How the person left; 0 until they do."""

    async def initialize(self) -> None: ...

    def finished(self, result: RunResult) -> None: ...

    async def stay(self, result: RunResult) -> None: ...

    def request_exit(self, code: int = 0) -> None: ...

    async def shutdown(self) -> None: ...
