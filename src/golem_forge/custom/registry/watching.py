"""Watching: what changes below FORGE_HOME/tools, as it changes, for whoever edits a tool and wants to see its faults.

Gives the first state at once (as added and diagnosed), then every change, until the reader stops. A look without
changes is a row of stats and opens no file, so it is simply repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from golem_forge.config.home import ForgeHome
from golem_forge.custom.registry import Changes, Registry


async def changes(home: ForgeHome, *, poll_s: float = 0.5) -> AsyncIterator[Changes]:
    async for found in changes_of(Registry(home), poll_s=poll_s):
        yield found


async def changes_of(registry: Registry, *, poll_s: float = 0.5) -> AsyncIterator[Changes]:
    """Of a registry that the reader has too, to show what is there now."""
    while True:
        # Reading a large folder anew takes a moment, in which the terminal still answers.
        found = await asyncio.to_thread(registry.refresh)
        if found is not None:
            yield found
        await asyncio.sleep(poll_s)
