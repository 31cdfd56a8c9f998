"""Card: the question whether a server may be started. One at a time for a server; a yes is kept in the book."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from golem_forge.config.mcp.spec import ServerSpec
from golem_forge.core.errors import ForgeError
from golem_forge.mcp.client.hooks import Hooks

if TYPE_CHECKING:
    from golem_forge.mcp.client.trust.trust_book import TrustBook

_log = logging.getLogger(__name__)


class Card:
    def __init__(
        self, hooks: Hooks, book: TrustBook, *, agreed: Callable[[], None], not_kept: Callable[[ForgeError], None]
    ) -> None:
        """`agreed`: a person said yes, and the book knows it; `not_kept`: it could not be written there."""
        self._hooks = hooks
        self._book = book
        self._agreed = agreed
        self._not_kept = not_kept
        self._task: asyncio.Task[None] | None = None

    def show(self, spec: ServerSpec) -> None:
        """If anybody is there to answer and it is not shown already."""
        if self._task is None and self._hooks.can_ask():
            self._task = asyncio.get_running_loop().create_task(self._ask(spec))
            self._task.add_done_callback(self._gone)

    async def answered(self, within: float | None = None) -> None:
        """Waits for a person who is being asked; returns at once if nobody is."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=within)

    def withdraw(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _ask(self, spec: ServerSpec) -> None:
        from golem_forge.mcp.client.trust.trust_book import server_card, server_diff

        before = self._book.approved_before(spec)
        diff = server_diff(before, spec) if before is not None else ""
        if await self._hooks.approve_server(spec, server_card(spec), diff):
            try:
                self._book.approve_server(spec, "person")
            except ForgeError as error:
                self._not_kept(error)
            else:
                self._agreed()

    def _gone(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.warning("a card could not be shown: %s", type(error).__name__)
