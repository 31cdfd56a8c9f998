"""Looks for a test's `stdout_matches` in what its tool printed, within a fixed time.

Threat: Python's `re` backtracks, so a short pattern can run for years and, holding the interpreter, would freeze the
whole runtime. Both pattern and text come from the tool. So the search is a process of its own, which sees nothing but
the two, has little memory, and is killed when the time is up or the tests are cancelled.
"""

from __future__ import annotations

import json
from enum import Enum, auto
from typing import Final

from golem_forge.sandbox.host import isolated

SECONDS: Final = 3
_MEMORY: Final = 512 << 20
_FOUND: Final = b"found"
_PROGRAM: Final = f"""
import json, re, resource, sys
resource.setrlimit(resource.RLIMIT_CPU, ({SECONDS} + 1, {SECONDS} + 1))
resource.setrlimit(resource.RLIMIT_AS, ({_MEMORY}, {_MEMORY}))
pattern, text = json.load(sys.stdin)
sys.stdout.write("{_FOUND.decode()}" if re.search(pattern, text) else "not")
"""


class Search(Enum):
    FOUND = auto()
    NOT_FOUND = auto()
    GIVEN_UP = auto()


async def search(pattern: str, text: str) -> Search:
    """As `re.search` has it: `$` is also found before the last line end."""
    import asyncio

    child = await asyncio.create_subprocess_exec(
        *isolated("-c", _PROGRAM),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={},
        cwd="/",
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(SECONDS):
            answer, _ = await child.communicate(json.dumps([pattern, text]).encode())
    except TimeoutError:
        return Search.GIVEN_UP
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if child.returncode != 0:
        return Search.GIVEN_UP
    return Search.FOUND if answer == _FOUND else Search.NOT_FOUND
