"""A lock between tasks and between processes alike: one file, waited for without stopping the event loop.

It is released when its holder is done, was cancelled, or is gone.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

_LOOK_AGAIN_S: Final = 0.02


@contextlib.asynccontextmanager
async def held(file: Path) -> AsyncIterator[None]:
    import asyncio
    import fcntl

    # A handle of its own each time: that is what makes two tasks of one process exclude each other, too.
    handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(_LOOK_AGAIN_S)
        yield
    finally:
        os.close(handle)
