"""subscribe: hears of changes in the new era, where a server tells them in a stream that we keep open.

There is no replay: whenever the stream was lost or closed it is opened again, after a wait that grows, and everything
counts as changed. A server that does not offer it is left alone. Runs till it is cancelled.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Final

from golem_forge.mcp.client.connecting.backoff import ceiling
from golem_forge.mcp.client.connecting.link import Link

_LASTED: Final = 30.0
"""A stream that was open for so long was no failure."""
_log = logging.getLogger(__name__)


async def subscribe(link: Link, changed: Callable[[], None], draw: Callable[[], float] = random.random) -> None:
    from golem_forge.mcp import sdk

    tools, prompts = link.announces("tools"), link.announces("prompts")
    if not tools and not prompts:
        return
    loop = asyncio.get_running_loop()
    failures = 0
    while link.is_alive:
        opened = loop.time()
        try:
            stream = sdk.listen(link.session, tools_list_changed=tools, prompts_list_changed=prompts)
            async with stream as events:
                if failures:
                    changed()  # whatever happened while nobody listened
                async for _ in events:
                    changed()
        except sdk.MCPError as error:
            if error.code in (sdk.METHOD_NOT_FOUND, sdk.INVALID_PARAMS):
                _log.debug("%s tells of no changes: %s", link.server, error.code)
                return
        except sdk.SubscriptionLost:
            pass
        failures = 1 if loop.time() - opened > _LASTED else failures + 1
        # a floor: with full jitter alone a server that closes at once could be asked again at once
        await asyncio.sleep(max(0.1, draw() * ceiling(failures)))
