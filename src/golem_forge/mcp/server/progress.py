"""Progress of a served call on its way to the client: the latest first-hand report, never more than it can read.

Only to a client that sent a token, and never after the response. A report that was not sent yet gives way to the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

from golem_forge.mcp.server.served_call import ServedCall

if TYPE_CHECKING:
    from golem_forge.mcp.server.sdk import Context

_LONGEST: Final = 2000
_LAST_WORD_SECONDS: Final = 0.2


@asynccontextmanager
async def progress_sent(ctx: Context, call: ServedCall) -> AsyncIterator[None]:
    from golem_forge.mcp.server.sdk import progress_token

    if progress_token(ctx) is None:
        yield
        return
    sender = asyncio.get_running_loop().create_task(_send_all(ctx, call))
    try:
        yield
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORD_SECONDS):
                await call.progress.join()
    finally:
        sender.cancel()


async def _send_all(ctx: Context, call: ServedCall) -> None:
    while True:
        done, total, message = await call.progress.get()
        await ctx.session.report_progress(done, total, message[:_LONGEST] or None)
        call.progress.task_done()
