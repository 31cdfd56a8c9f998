"""Together: the UIs of one session. The first leads: it says when the person leaves; the others may join later."""

from __future__ import annotations

import asyncio
from typing import Any

from golem_forge.ui.session_ui import SessionUI
from golem_forge.workers.run_result import RunResult


class Together:
    def __init__(self, leading: SessionUI, *others: SessionUI) -> None:
        self._leading = leading
        self._all = [leading, *others]

    @property
    def bus(self) -> Any:
        """Of the first: all of them were made for the same one."""
        return getattr(self._leading, "bus", None)

    async def initialize(self) -> None:
        for adapter in self._all:
            await adapter.initialize()

    async def join(self, adapter: SessionUI) -> None:
        """One more, in the middle of the session."""
        await adapter.initialize()
        self._all.append(adapter)

    async def shutdown(self) -> None:
        """In the reverse order, each whatever the others do."""
        failed: list[Exception] = []
        for adapter in reversed(self._all):
            try:
                await adapter.shutdown()
            except Exception as error:
                failed.append(error)
        if failed:
            raise failed[0]

    def finished(self, result: RunResult) -> None:
        for adapter in self._all:
            adapter.finished(result)

    async def stay(self, result: RunResult) -> None:
        await self._leading.stay(result)

    @property
    def exit_requested(self) -> asyncio.Event:
        return self._leading.exit_requested

    @property
    def exit_code(self) -> int:
        return self._leading.exit_code

    def request_exit(self, code: int = 0) -> None:
        self._leading.request_exit(code)
