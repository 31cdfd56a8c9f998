"""Wire: the SDK's JSON-RPC dispatcher, watched. A session drives it as it drives the SDK's own.

It notes the end of the connection, hands notifications on in the order they came without a task for each, and bounds
what a server may ask at once. Threat: a server that floods us with notifications or requests must cost time at most,
never memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from golem_forge.mcp import sdk

MOST_ASKED_AT_ONCE: Final = 32
Noticed = Callable[[str, Mapping[str, Any]], None]
"""(method, params) of a notification. Must not raise and must not wait."""


class Wire:
    def __init__(self, inner: sdk.JSONRPCDispatcher[Any], noticed: Noticed) -> None:
        self._inner = inner
        self._noticed = noticed
        self._asked = 0
        self.over = asyncio.Event()
        """Nothing more comes from the server."""

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: sdk.CallOptions | None = None
    ) -> dict[str, Any]:
        return await self._inner.send_raw_request(method, params, opts)

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: sdk.CallOptions | None = None) -> None:
        await self._inner.notify(method, params, opts)

    async def run(
        self,
        on_request: sdk.OnRequest,
        on_notify: sdk.OnNotify,
        on_notify_intercept: sdk.OnNotifyIntercept | None = None,
        *,
        task_status: Any = None,
    ) -> None:
        """Till the connection ends. The session's own listeners see a notification first."""

        def intercept(method: str, params: Mapping[str, Any] | None) -> bool:
            if on_notify_intercept is None or not on_notify_intercept(method, params):
                self._noticed(method, params or {})
            return True  # nobody else waits for any

        async def answer(context: Any, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
            if self._asked >= MOST_ASKED_AT_ONCE:
                from golem_forge.mcp import sdk

                raise sdk.MCPError(sdk.INTERNAL_ERROR, "too many requests at once")
            self._asked += 1
            try:
                return await on_request(context, method, params)
            finally:
                self._asked -= 1

        try:
            await self._inner.run(answer, on_notify, intercept, task_status=task_status)
        finally:
            self.over.set()
